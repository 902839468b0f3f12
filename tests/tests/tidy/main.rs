//! Rules of the repository that no compiler checks: who may know whom, how long a file may be, where `unsafe` may stand.
//!
//! Each test reads the files as text and names every place that breaks its rule. The lists of exceptions stand beside the
//! rules, each with its reason.

mod codes;
mod crates;
mod files;
mod operators;
mod rules;

use ortolan_tests::place::root;
use std::path::{Path, PathBuf};

/// A text file of the repository.
struct File {
    /// Path from the root, with `/`.
    path: String,
    text: String,
}

/// All text files of the repository, sorted, without what is built or downloaded.
fn files() -> Vec<File> {
    let mut found = Vec::new();
    collect(root(), &mut found);
    found.sort();
    let name =
        |path: &Path| path.strip_prefix(root()).expect("found below the root").to_string_lossy().replace('\\', "/");
    found.iter().filter_map(|path| Some(File { path: name(path), text: std::fs::read_to_string(path).ok()? })).collect()
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["target", ".git", "__pycache__", "node_modules"].contains(&name.as_str()) {
            collect(&path, found);
        } else if path.is_file() && name != ".git" {
            found.push(path);
        }
    }
}

fn sources() -> Vec<File> {
    files().into_iter().filter(|f| f.path.ends_with(".rs")).collect()
}

/// Fails with all places at once.
fn none(places: Vec<String>, rule: &str) {
    assert!(places.is_empty(), "{rule}:\n  {}", places.join("\n  "));
}

/// `path:line: text` of the lines that `broken` is true for.
fn lines<'a>(file: &'a File, broken: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = String> + 'a {
    file.text
        .lines()
        .enumerate()
        .filter(move |(_, line)| broken(line))
        .map(|(at, line)| format!("{}:{}: {}", file.path, at + 1, line.trim()))
}

/// Whether `word` stands in `text` with no letter, digit or underscore beside it; both in lower case.
fn has_word(text: &str, word: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

#[test]
fn words_end_at_letters() {
    assert!(has_word("the cuda driver", "cuda") && has_word("cuda", "cuda") && has_word("\"qnn\"", "qnn"));
    assert!(!has_word("barracuda", "cuda") && !has_word("cuda_x", "cuda"));
}
