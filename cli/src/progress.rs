//! A progress bar for long work, on terminals only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error; nothing at all in a pipe.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar of so many steps.
    pub fn new(what: &str, steps: u64) -> Progress {
        // `stderr` draws on terminals only.
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_owned());
        Progress(bar)
    }

    /// One step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Takes the bar away.
    pub fn done(&self) {
        self.0.finish_and_clear();
    }
}
