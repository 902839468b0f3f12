//! docs/plugins.md: rules are numbered, each names tests, and the tests are there.

use crate::none;
use ortolan_tests::place::root;

/// A rule: its mark, as in `P7`, and its text.
fn rules(page: &str) -> Vec<(String, String)> {
    let rule = |part: &str| {
        let (mark, text) = part.strip_prefix("**")?.split_once(".**")?;
        let number = mark.strip_prefix(['P', 'H'])?;
        number.parse::<u32>().is_ok().then(|| (mark.to_owned(), text.to_owned()))
    };
    page.split("\n\n").filter_map(rule).collect()
}

/// Tests that a rule names: file and function.
fn named(text: &str) -> Vec<(&str, &str)> {
    text.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs::")).collect()
}

/// Whether a file has this function as a test.
fn is_test(file: &str, name: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(root().join(format!("{file}.rs"))) else { return false };
    let Some((before, _)) = text.split_once(&format!("fn {name}(")) else { return false };
    before.trim_end().ends_with("#[test]")
}

#[test]
fn every_rule_names_tests_that_exist() {
    let page = std::fs::read_to_string(root().join("docs/plugins.md")).expect("the page for authors");
    let rules = rules(&page);
    let mut places = Vec::new();
    for side in ["P", "H"] {
        let marks: Vec<&String> = rules.iter().map(|r| &r.0).filter(|m| m.starts_with(side)).collect();
        let counted: Vec<String> = (1..=marks.len()).map(|n| format!("{side}{n}")).collect();
        assert!(marks.len() > 10 && marks.iter().zip(&counted).all(|(m, c)| *m == c), "{marks:?} are not 1, 2, 3…");
    }
    for (mark, text) in &rules {
        if named(text).is_empty() {
            places.push(format!("{mark} names no test"));
        }
        let missing = named(text).into_iter().filter(|(file, name)| !is_test(file, name));
        places.extend(missing.map(|(file, name)| format!("{mark}: {file}.rs has no test {name}")));
    }
    none(places, "a rule of docs/plugins.md without its test");
}

#[test]
fn the_rust_example_is_short() {
    let text = std::fs::read_to_string(root().join("tests/fixtures/rust-ep/src/lib.rs")).expect("the example");
    assert!(text.lines().count() < 120, "{} lines", text.lines().count());
}

#[test]
fn rules_and_tests_are_told_apart_from_prose() {
    let page = "# A\n\n**P1.** One `x` and `a/b.rs::c`\n`d.rs::e`\n\n**Bold.** no\n\n**H2.** two\n";
    let found = rules(page);
    assert_eq!(found.iter().map(|r| r.0.as_str()).collect::<Vec<_>>(), ["P1", "H2"]);
    assert_eq!(named(&found[0].1), [("a/b", "c"), ("d", "e")]);
    assert!(
        is_test("tests/tests/tidy/rules", "the_rust_example_is_short") && !is_test("tests/tests/tidy/rules", "rules")
    );
}
