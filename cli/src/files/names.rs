//! Names of the files that outputs are written to.

/// Longest part of an output's name that goes into a file's name.
const LIMIT: usize = 120;

/// One file stem for each name, unlike each other: every character but ASCII letters, digits, dot, dash and underscore
/// becomes `_`, 120 are kept, and later ones that would be equal get `_2`, `_3`, …
pub fn stems<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in names {
        let stem = safe(name);
        let numbered = (2..).map(|k| format!("{stem}_{k}"));
        let free = std::iter::once(stem.clone()).chain(numbered).find(|s| !out.contains(s));
        out.extend(free);
    }
    out
}

fn safe(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let stem: String = name.chars().take(LIMIT).map(|c| if plain(c) { c } else { '_' }).collect();
    if stem.is_empty() { "_".to_owned() } else { stem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_safe_and_unlike() {
        let long = "x".repeat(200);
        let cases: &[(&[&str], &[&str])] = &[
            (&["a", "b"], &["a", "b"]),
            (&["a/b", "a:b", "a b"], &["a_b", "a_b_2", "a_b_3"]),
            (&["a", "a_2", "a"], &["a", "a_2", "a_3"]),
            (&["é", ""], &["_", "__2"]),
            (&["../x.y-z"], &[".._x.y-z"]),
            (&[&long, &long], &[&long[..120], &format!("{}_2", &long[..120])]),
        ];
        for (names, want) in cases {
            assert_eq!(stems(names.iter().copied()), *want);
        }
    }
}
