//! Whether the grid of cases of ONNX Runtime's own operators covers all of them that have a schema.

use libtest_mimic::Failed;
use ortolan_graph::schema;
use std::collections::BTreeMap;
use std::path::Path;

/// Fewest cases of an operator.
const LEAST: usize = 6;

/// Prints how many cases each operator has; those without enough are an error.
pub fn every_operator_has_cases(folder: &Path) -> Result<(), Failed> {
    let own = schema::all().filter(|s| s.domain() == "com.microsoft").map(|s| s.name());
    // ONNX Runtime registers one of them in the standard domain.
    let all = own.chain(["SimplifiedLayerNormalization"]);
    let mut counts: BTreeMap<String, usize> = all.map(|op| (op.to_owned(), 0)).collect();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let op = name.split('_').next().unwrap_or_default().to_owned();
        *counts.entry(op).or_default() += 1;
    }
    counts.iter().for_each(|(op, count)| println!("{op}: {count} cases"));
    let few: Vec<_> = counts.iter().filter(|(_, count)| **count < LEAST).collect();
    if few.is_empty() { Ok(()) } else { Err(format!("fewer than {LEAST} cases: {few:?}").into()) }
}
