//! What a plugin library sets up for itself: its panic hook and its `tracing` dispatcher both lead to the host's log.
//!
//! A cdylib has copies of its own of the standard library and of `tracing`; their hooks are unset, or print past the
//! host. A statically linked EP shares the host's and must leave them alone.

use crate::raw::{HostV1, Str};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::any::Any;
use std::cell::RefCell;
use std::sync::Once;

static HOST: AtomicPtr<HostV1> = AtomicPtr::new(core::ptr::null_mut());
static ONCE: Once = Once::new();

thread_local! {
    /// Place of the last panic on this thread; the payload does not carry it.
    static PLACE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Installs both, once. `host` lives as long as the process.
pub(crate) fn install(host: *const HostV1) {
    HOST.store(host.cast_mut(), Ordering::Release);
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let text = payload_text(info.payload());
            // A thread that is going away has no place to keep it; the log line below has it all the same.
            let _ = PLACE.try_with(|p| p.replace(place.clone()));
            log(1, &format!("panic at {place}: {text}"));
        }));
        #[cfg(feature = "tracing")]
        forward::install();
    });
}

fn host() -> Option<&'static HostV1> {
    // SAFETY: null, or the host's table, which lives as long as the process.
    unsafe { HOST.load(Ordering::Acquire).as_ref() }
}

/// Logs outside of any call.
pub(crate) fn log(level: u32, message: &str) {
    if let Some(host) = host() {
        // SAFETY: texts live over the call.
        unsafe { (host.log)(level, Str::new("ortolan_ep"), Str::new(message)) }
    }
}

/// Text of a caught panic, with its place if the hook saw it on this thread.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload_text(payload);
    match PLACE.try_with(|p| p.take()) {
        Ok(place) if !place.is_empty() => format!("{text} at {place}"),
        _ => text,
    }
}

fn payload_text(payload: &dyn Any) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        return (*text).to_owned();
    }
    payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "(no text)".to_owned())
}

#[cfg(feature = "tracing")]
mod forward {
    //! A subscriber that hands events to the host's log. Spans are not forwarded: they need a table of their own.

    use super::host;
    use crate::raw::Str;
    use std::fmt::Write;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    pub(super) fn install() {
        // Somebody else's dispatcher in this library is left in place.
        let _ = tracing::subscriber::set_global_default(Forwarder);
    }

    struct Forwarder;

    fn level(level: &Level) -> u32 {
        match *level {
            Level::ERROR => 1,
            Level::WARN => 2,
            Level::INFO => 3,
            Level::DEBUG => 4,
            Level::TRACE => 5,
        }
    }

    #[derive(Default)]
    struct Line {
        message: String,
        fields: String,
    }

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            let done = if field.name() == "message" {
                write!(self.message, "{value:?}")
            } else {
                write!(self.fields, " {}={value:?}", field.name())
            };
            debug_assert!(done.is_ok(), "writing to a String does not fail");
        }
    }

    impl Subscriber for Forwarder {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            // SAFETY: the text lives over the call.
            host()
                .is_some_and(|h| unsafe { (h.log_enabled)(level(metadata.level()), Str::new(metadata.target())) != 0 })
        }

        fn register_callsite(&self, _: &'static Metadata<'static>) -> tracing::subscriber::Interest {
            // The host's levels may change, so each event asks.
            tracing::subscriber::Interest::sometimes()
        }

        fn event(&self, event: &Event<'_>) {
            let Some(host) = host() else { return };
            let mut line = Line::default();
            event.record(&mut line);
            let text = line.message + &line.fields;
            let metadata = event.metadata();
            // SAFETY: texts live over the call.
            unsafe { (host.log)(level(metadata.level()), Str::new(metadata.target()), Str::new(&text)) }
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }
}
