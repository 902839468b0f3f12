//! How a file looks: length, first lines, leftovers, `unsafe`.

use crate::{File, files, lines, none, sources};
use ortolan_tests::place::root;

/// Most lines above the tests.
const LONGEST: usize = 700;

/// Needles are written in two parts, so that this file does not contain them.
macro_rules! word {
    ($($part:literal)*) => { concat!($($part),*) };
}

fn above_tests(file: &File) -> &str {
    file.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}

/// The first lines of generated files and pure lists say that they are exempt.
fn is_exempt(file: &File) -> bool {
    let head = file.text.lines().take(10).map(|l| l.trim_start_matches("//!").trim()).collect::<Vec<_>>();
    let head = head.join(" ").to_lowercase();
    head.contains("exempt from the length rule") || head.contains("exempt from the limit on lines")
}

#[test]
fn files_are_short_enough_to_read() {
    let long = |f: &&File| above_tests(f).lines().count() > LONGEST && !is_exempt(f);
    let places =
        sources().iter().filter(long).map(|f| format!("{}: {}", f.path, above_tests(f).lines().count())).collect();
    none(places, "more than 700 lines above the tests (generated files and pure lists say that they are exempt)");
}

#[test]
fn first_line_says_what_the_file_is() {
    let silent = |f: &&File| !f.text.starts_with("//!") && !f.text.starts_with("//");
    none(sources().iter().filter(silent).map(|f| f.path.clone()).collect(), "a file does not begin with what it is");
}

#[test]
fn nothing_unfinished_and_no_test_left_out() {
    let words = [
        word!("todo" "!"),
        word!("unimplemented" "!"),
        word!("dbg" "!"),
        word!("#[ig" "nore"),
        word!("FIX" "ME"),
        word!("XX" "X:"),
    ];
    let places =
        sources().iter().flat_map(|f| lines(f, |l| words.iter().any(|w| l.contains(w))).collect::<Vec<_>>()).collect();
    none(places, "something unfinished, or a test that is never run");
}

#[test]
fn allowances_have_a_reason() {
    let mut places = Vec::new();
    for file in sources() {
        let all: Vec<&str> = file.text.lines().collect();
        for (at, line) in all
            .iter()
            .enumerate()
            .filter(|(_, l)| l.contains(word!("#[al" "low(")) || l.contains(word!("#![al" "low(")))
        {
            let above = at.checked_sub(1).map_or("", |i| all[i]);
            if !line.contains("//")
                && !line.contains("/*")
                && !line.contains("reason")
                && !above.trim_start().starts_with("//")
            {
                places.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    none(places, "a lint is switched off without a reason beside it");
}

#[test]
fn unsafe_stands_in_listed_files_only() {
    let list = std::fs::read_to_string(root().join("tests/expectations/unsafe-files.txt")).expect("the list");
    let listed: Vec<&str> = list.lines().filter_map(|l| l.split_once(": ").map(|(path, _)| path)).collect();
    let forms = [" {", " fn", " impl", " extern", " trait", "("].map(|after| format!("unsafe{after}"));
    let code = |l: &str| !l.trim_start().starts_with("//") && forms.iter().any(|form| l.contains(form));
    let uses = |f: &File| f.text.lines().any(code);
    let with: Vec<String> = sources().iter().filter(|f| uses(f)).map(|f| f.path.clone()).collect();
    let unlisted = with.iter().filter(|p| !listed.iter().any(|l| covers(l, p))).cloned().collect();
    none(unlisted, "unsafe in a file that tests/expectations/unsafe-files.txt does not list with a reason");
    let idle = listed.iter().filter(|l| !with.iter().any(|p| covers(l, p))).map(|l| (*l).to_owned()).collect();
    none(idle, "listed in tests/expectations/unsafe-files.txt, but without unsafe");
}

/// A listed path is a file, or a folder if it ends in `/`.
fn covers(listed: &str, path: &str) -> bool {
    listed == path || (listed.ends_with('/') && path.starts_with(listed))
}

#[test]
fn kernels_have_no_thread_locals() {
    let kernels = |f: &&File| f.path.starts_with("ep-kit/") || f.path.starts_with("plugin-");
    let local = |l: &str| l.contains(word!("thread_lo" "cal")) || l.contains("ThreadLocal");
    let places = sources().iter().filter(kernels).flat_map(|f| lines(f, local).collect::<Vec<_>>()).collect();
    none(places, "scratch hangs on the lane or on the worker index, never on a thread");
}

#[test]
fn no_path_of_a_machine() {
    let folders =
        [word!("/wo" "rk/"), word!("/ro" "ot/"), word!("/ho" "me/"), word!("/Us" "ers/"), word!("C:\\Us" "ers")];
    // A folder below another one, as in `[DIR]/home/x`, is nobody's.
    let below = |before: &str| before.ends_with(|c: char| c.is_alphanumeric() || ")]}_-.".contains(c));
    let named = |l: &str| folders.iter().any(|w| l.match_indices(w).any(|(at, _)| !below(&l[..at])));
    let places = files().iter().flat_map(|f| lines(f, named).collect::<Vec<_>>()).collect();
    none(places, "a path of somebody's machine");
}

#[test]
fn no_unfilled_place() {
    let mark = word!("@" "@");
    let text = |f: &&File| f.path.ends_with(".md") || f.path.ends_with(".rs") || f.path.ends_with(".c");
    let filled = |l: &str| l.split(mark).count() > 2;
    let places = files().iter().filter(text).flat_map(|f| lines(f, filled).collect::<Vec<_>>()).collect();
    none(places, "a text was never filled in");
}
