//! Who depends on whom, and who knows whose name: ARCHITECTURE.md, section 1.

use crate::{File, files, has_word, none};
use std::collections::BTreeMap;
use toml::Table;

/// Package and which of ours it may depend on. A `*` stands for any name.
const MAY_USE: &[(&str, &[&str])] = &[
    ("ortolan-ep-abi", &[]),
    ("ortolan-graph", &[]),
    ("ortolan-graph-fuzz", &["ortolan-graph"]),
    ("ortolan-core", &["ortolan-ep-abi", "ortolan-graph"]),
    ("ortolan-ep-kit", &["ortolan-ep-abi"]),
    ("ortolan-cli", &["ortolan-core", "ortolan-graph"]),
    ("ortolan-core-alone", &["ortolan-core"]),
    ("ortolan-tests", &["*"]),
    // Plugins. Those under tests/fixtures are plugins of other people: the ABI is all that they know.
    ("ortolan-ep-*", &["ortolan-ep-abi", "ortolan-ep-kit"]),
];

/// Words that name an EP, a vendor or a vendor's library. The core knows none of them.
const NAMES: &[&str] = &[
    "amd", "apple", "coreml", "cublas", "cublaslt", "cuda", "cudart", "cudnn", "directml", "hexagon", "intel", "metal",
    "mkl", "nvidia", "onednn", "openvino", "qnn", "qualcomm", "rocm", "tensorrt", "vulkan", "webgpu", "wgpu",
    "xnnpack",
];

fn manifests() -> Vec<(File, Table)> {
    let all = files().into_iter().filter(|f| f.path.ends_with("Cargo.toml"));
    all.map(|f| {
        let table = f.text.parse::<Table>().unwrap_or_else(|e| panic!("{}: {e}", f.path));
        (f, table)
    })
    .collect()
}

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

/// Packages of this repository that a manifest's section of dependencies names.
fn ours(table: &Table, section: &str, packages: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    let targets = table.get("target").and_then(|t| t.as_table()).into_iter().flat_map(|t| t.values());
    let tables = std::iter::once(table).chain(targets.filter_map(|t| t.as_table()));
    for (name, what) in tables.filter_map(|t| t.get(section)?.as_table()).flatten() {
        let package = what.get("package").and_then(|p| p.as_str()).unwrap_or(name);
        // `ortolan` is how the workspace calls the core.
        let package = if package == "ortolan" { "ortolan-core" } else { package };
        if packages.contains_key(package) {
            found.push(package.to_owned());
        }
    }
    found
}

#[test]
fn dependencies_go_in_the_directions_of_the_plan() {
    let manifests = manifests();
    let name = |table: &Table| table.get("package")?.get("name")?.as_str().map(str::to_owned);
    let packages: BTreeMap<String, String> =
        manifests.iter().filter_map(|(file, table)| Some((name(table)?, file.path.clone()))).collect();
    assert!(packages.len() > 8, "the repository's packages were not found: {packages:?}");
    let mut broken = Vec::new();
    for (file, table) in &manifests {
        let Some(package) = name(table) else { continue };
        let Some((_, allowed)) = MAY_USE.iter().find(|(pattern, _)| matches(pattern, &package)) else {
            broken.push(format!("{}: {package} has no row in MAY_USE", file.path));
            continue;
        };
        let fixture = file.path.starts_with("tests/fixtures/");
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            for used in ours(table, section, &packages) {
                // A crate may switch on its own features for its tests.
                let itself = section == "dev-dependencies" && used == package;
                let fits = itself || allowed.iter().any(|pattern| matches(pattern, &used));
                if !fits || (fixture && used != "ortolan-ep-abi") {
                    broken.push(format!("{}: {package} may not use {used} ({section})", file.path));
                }
            }
        }
    }
    none(broken, "a dependency in a direction that ARCHITECTURE.md section 1 does not have");
}

#[test]
fn fixtures_depend_on_the_abi_alone() {
    let manifests = manifests();
    let fixtures: Vec<_> = manifests.iter().filter(|(f, _)| f.path.starts_with("tests/fixtures/")).collect();
    assert!(fixtures.len() >= 3, "the fixtures were not found");
    for (file, table) in fixtures {
        let names: Vec<&String> = table["dependencies"].as_table().expect("a table").keys().collect();
        assert_eq!(names, ["ortolan-ep-abi"], "{}", file.path);
    }
}

#[test]
fn core_names_no_ep_and_no_vendor() {
    let plugins: Vec<String> = manifests()
        .iter()
        .filter_map(|(file, _)| Some(file.path.split('/').next()?.strip_prefix("plugin-")?.to_owned()))
        .flat_map(|name| [name.replace('-', "_"), name])
        .collect();
    assert!(plugins.iter().any(|name| name == "ep-cpu"), "the plugins were not found: {plugins:?}");
    let mut broken = Vec::new();
    for file in files().iter().filter(|f| f.path.starts_with("core/")) {
        for (at, line) in file.text.lines().enumerate() {
            let lower = line.to_lowercase();
            let named = NAMES.iter().copied().find(|word| has_word(&lower, word) && !is_platform(&lower, word));
            let plugin = plugins.iter().map(String::as_str).find(|name| lower.contains(name));
            if let Some(word) = named.or(plugin) {
                broken.push(format!("{}:{}: {word}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    none(broken, "the core names an EP or a vendor");
}

/// A vendor that is also part of a target's name, as in `target_vendor = "apple"` and `x86_64-apple-darwin`.
fn is_platform(line: &str, word: &str) -> bool {
    word == "apple" && (line.contains("target_vendor") || line.contains("-apple-"))
}
