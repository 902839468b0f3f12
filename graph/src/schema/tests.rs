//! Tests of the schema table: counts, hand-checked look-ups, digests, the text form.

use super::*;

fn types(text: &str) -> TypeSet {
    TypeSet::parse(text).unwrap()
}

#[test]
fn counts_per_domain() {
    let count = |domain: &str| {
        let schemas: Vec<_> = all().filter(|s| s.domain() == domain).collect();
        let mut names: Vec<_> = schemas.iter().map(|s| s.name()).collect();
        names.dedup();
        (names.len(), schemas.len(), newest(domain))
    };
    assert_eq!(count(""), (203, 629, Some(28)));
    assert_eq!(count("ai.onnx.ml"), (19, 25, Some(5)));
    assert_eq!(count("ai.onnx.preview"), (1, 1, Some(1)));
    assert_eq!(count("ai.onnx.preview.training"), (4, 4, Some(1)));
    assert_eq!(newest("ai.onnx"), Some(28));
    assert_eq!(newest("com.example"), None);
    assert_eq!(package_version(), "1.23.2");
}

#[test]
fn every_schema_reads_back_from_its_text() {
    for schema in all() {
        let line = text::line(schema);
        let table = text::read(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let read: Vec<_> = table.all().collect();
        assert_eq!(read.len(), 1);
        assert_eq!(text::line(read[0]), line);
        assert_eq!(text::digest(read[0]), text::digest(schema));
    }
}

#[test]
fn every_schema_is_found_by_its_versions() {
    for schema in all() {
        let (domain, op) = (schema.domain(), schema.name());
        let found = versions(domain, op);
        assert!(found.is_sorted_by(|a, b| a < b) && found.iter().any(|v| u32::from(*v) == schema.since()));
        assert_eq!(text::line(exact(domain, op, schema.since()).unwrap()), text::line(schema));
        assert!(lookup(domain, op, u32::from(found[0]) - 1).is_none());
        assert_eq!(lookup(domain, op, u32::MAX).map(|s| s.since()), found.last().map(|v| u32::from(*v)));
    }
}

#[test]
fn names_need_no_escape_and_lists_are_sorted() {
    let plain = |t: &str| !t.contains([' ', ';', ':', '=', '(', ')', '!', '?', '*', '+', '~']);
    for schema in all() {
        assert!(plain(schema.domain()) && plain(schema.name()));
        assert!(schema.inputs().chain(schema.outputs()).all(|p| plain(p.name)));
        assert!(schema.attributes().map(|a| a.name).is_sorted_by(|a, b| a < b));
        assert!(schema.attributes().all(|a| plain(a.name)));
        assert!(schema.constraints().map(|c| c.0).is_sorted_by(|a, b| a < b));
        for (variable, _) in schema.constraints() {
            assert!(plain(variable) && TypeSet::parse(variable).is_none(), "{schema:?}");
        }
    }
}

#[test]
fn relu_14_is_what_the_page_says() {
    let relu = lookup("ai.onnx", "Relu", 17).unwrap();
    assert_eq!((relu.domain(), relu.name(), relu.since()), ("", "Relu", 14));
    let x = relu.inputs().next().unwrap();
    let all = types("f32,i8,i16,i32,i64,f16,f64,bf16");
    let single = Param { name: "X", variable: Some("T"), types: all, arity: Arity::Single };
    assert_eq!(x, single);
}
