//! The fixtures build, and what they say of themselves is in their files.

use ortolan_tests::fixtures::{self, find, read};

#[test]
fn every_fixture_builds_and_carries_its_manifest() {
    let cases = [
        (fixtures::tiny(), "\"name\":\"tiny\""),
        (fixtures::plain(), "\"name\":\"plain\""),
        (fixtures::fake(), "\"needs\":[\"ortolan.host.v1\",\"ortolan.host.fence.v1\"]"),
        (fixtures::hostile(&[&fixtures::text("VERSION", "2.5.0")]), "\"version\":\"2.5.0\""),
        (fixtures::unproven(), "\"panic\":\"unwind\""),
        (fixtures::abort(), "\"panic\":\"abort\""),
        (fixtures::newer_minor(), "\"minor\":1"),
        (fixtures::changed_layout(), "\"minor\":0"),
    ];
    for (library, words) in cases {
        assert!(find(&read(&library), words.as_bytes()).is_some(), "{} lacks {words}", library.display());
    }
    assert!(find(&fixtures::panics("compile"), b"panics-in:compile  ").is_some());
}
