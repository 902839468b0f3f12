//! The schema table is the one that the pinned package gives.

use crate::{Given, said};

pub const ALL: &[Given] = &[Given {
    name: "the_schema_table_is_what_the_package_says",
    needs: &["ORTOLAN_PYTHON"],
    run: the_schema_table_is_what_the_package_says,
}];

fn the_schema_table_is_what_the_package_says() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/schemas.py");
    let output = std::process::Command::new(said("ORTOLAN_PYTHON")).args([script, "--check"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
