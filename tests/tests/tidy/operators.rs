//! Operators are named where something is said of them, and nowhere else.

use crate::{File, none, sources};

/// Crates that treat operators alike, and the folders that say what each is.
const CRATES: &[&str] = &["graph/src/", "core/src/", "cli/src/"];
const TABLES: &[&str] = &["graph/src/schema/", "graph/src/versions/", "graph/src/ops/"];

/// The lines of a file above its tests; none of a file that is one.
fn code(f: &File) -> &str {
    let tests = f.path.ends_with("tests.rs") || f.path.ends_with("/testing.rs") || f.path.contains("/tests/");
    if tests { "" } else { f.text.split("#[cfg(test)]").next().unwrap_or_default() }
}

#[test]
fn operators_are_named_in_tables_only() {
    let names: std::collections::HashSet<&str> = ortolan_graph::schema::all().map(|s| s.name()).collect();
    assert!(names.len() > 200 && names.contains("MatMul"));
    let within = |f: &&File, folders: &[&str]| folders.iter().any(|folder| f.path.starts_with(folder));
    let sources = sources();
    let files: Vec<_> = sources.iter().filter(|f| within(f, CRATES) && !within(f, TABLES)).collect();
    assert!(files.len() > 100, "{} files", files.len());
    let mut places = Vec::new();
    for f in files {
        for (at, line) in code(f).lines().enumerate() {
            let quoted = line.split('"').skip(1).step_by(2);
            let named = quoted.filter(|word| names.contains(word) && word.starts_with(char::is_uppercase));
            places.extend(named.map(|word| format!("{}:{}: {word}", f.path, at + 1)));
        }
    }
    none(places, "an operator is named outside graph/src/{schema,versions,ops}");
}
