//! Where plugins are found, which one a request means, and what is reported about the others.

use std::path::{Path, PathBuf};

use ortolan::host::{PlaceKind, Report, codes};

use super::{SOURCE, compile, folder, host};

fn put(folder: &Path, file: &str, name: &str, version: &str) -> PathBuf {
    std::fs::create_dir_all(folder).expect("the target folder can be written");
    let definitions = [&*format!("NAME=\"{name}\""), &*format!("VERSION=\"{version}\"")];
    compile(Path::new(SOURCE), &folder.join(format!("libortolan_ep_{file}.so")), &definitions, &[])
}

fn chosen(report: &Report, request: &str) -> Result<String, String> {
    let request = request.parse().map_err(|e| format!("{e}"))?;
    report.select(&request).map(|c| c.manifest.id()).map_err(|e| e.code.to_string())
}

#[test]
fn first_folder_wins_and_in_it_the_highest_fitting_version() {
    let (one, two) = (folder("places-one"), folder("places-two"));
    put(&one, "old", "alpha", "1.0.0");
    put(&one, "new", "alpha", "1.9.0");
    put(&one, "pre", "alpha", "2.0.0-rc.1");
    put(&two, "newest", "alpha", "3.0.0");
    put(&two, "beta", "beta", "0.1.0");
    std::fs::write(two.join("libortolan_ep_text.so"), "text").expect("the target folder can be written");
    std::fs::write(two.join("readme.txt"), "text").expect("the target folder can be written");
    let report = host().folder("/unused").path(&one).path(&two).build().discover();
    let cases = [
        ("alpha", Ok("alpha@2.0.0-rc.1")),
        ("alpha@1", Ok("alpha@1.9.0")),
        ("alpha@<1.5", Ok("alpha@1.0.0")),
        ("alpha@3", Ok("alpha@3.0.0")),
        ("alpha@4", Err("no-matching-version")),
        ("beta", Ok("beta@0.1.0")),
        ("text", Err("not-a-library")),
        ("gamma", Err("ep-not-found")),
    ];
    for (request, expected) in cases {
        assert_eq!(chosen(&report, request), expected.map(str::to_owned).map_err(str::to_owned), "{request}");
    }
    assert_eq!(report.names(), ["alpha", "beta"]);
    let shadowed: Vec<&str> = report.shadowed.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(shadowed, ["alpha@1.9.0", "alpha@1.0.0", "alpha@3.0.0"]);
    assert!(report.shadowed.iter().all(|s| s.by_id == "alpha@2.0.0-rc.1"));
    assert_eq!(report.refused.iter().map(|r| r.error.code).collect::<Vec<_>>(), [codes::NOT_A_LIBRARY]);
    let json = serde_json::to_value(&*report).expect("a report is data");
    assert_eq!(json["refused"][0]["code"], "not-a-library");
    assert_eq!(json["found"][0]["manifest"]["name"], "alpha");
}

#[test]
fn a_named_file_is_not_replaced_by_another_one() {
    let (named, elsewhere) = (folder("places-named"), folder("places-elsewhere"));
    let path = put(&named, "x", "named", "1.0.0");
    put(&elsewhere, "x", "named", "2.0.0");
    let report = host().path(&path).path(&elsewhere).build().discover();
    assert_eq!(chosen(&report, "named"), Ok("named@1.0.0".to_owned()));
    compile(Path::new(SOURCE), &path, &["NAME=\"named\"", "CORE=\">=99\""], &[]);
    let report = host().path(&path).path(&elsewhere).build().discover();
    assert_eq!(chosen(&report, "named"), Err("core-version".to_owned()));
    let report = host().path(&named).path(&elsewhere).build().discover();
    assert_eq!(chosen(&report, "named"), Ok("named@2.0.0".to_owned()), "a folder was named, not the file");
    let report = host().path("/no/such/place").build().discover();
    assert_eq!(report.refused[0].error.code, codes::FILE_NOT_FOUND);
}

#[test]
fn one_file_under_two_names_is_one_library() {
    let linked = folder("places-linked");
    let path = put(&linked, "x", "linked", "1.0.0");
    let _ = std::fs::remove_file(linked.join("libortolan_ep_y.so"));
    std::fs::hard_link(&path, linked.join("libortolan_ep_y.so")).expect("the target folder can be written");
    let report = host().path(&linked).build().discover();
    assert_eq!((report.found.len(), report.refused.len(), report.shadowed.len()), (1, 0, 0));
}

#[test]
fn equal_versions_are_a_fault_in_one_place_and_shadowed_in_two() {
    let twins = folder("places-twins");
    put(&twins, "a", "twins", "1.0.0");
    put(&twins, "b", "twins", "1.0.0");
    put(&twins, "c", "twins", "0.9.0");
    let report = host().path(&twins).build().discover();
    assert_eq!(chosen(&report, "twins"), Err("duplicate-version".to_owned()));
    assert_eq!(chosen(&report, "twins@<1"), Ok("twins@0.9.0".to_owned()));
    let (one, two) = (folder("places-twin-one"), folder("places-twin-two"));
    put(&one, "a", "twin", "1.0.0");
    put(&two, "a", "twin", "1.0.0");
    let report = ortolan::host::PluginHost::builder().folder(&one).folder(&two).build().discover();
    let found = report.found.iter().find(|c| c.manifest.name == "twin").expect("found");
    assert_eq!((found.place, found.path.parent()), (PlaceKind::Embedder, Some(&*one.canonicalize().expect("there"))));
    assert_eq!(report.shadowed.iter().filter(|s| s.id == "twin@1.0.0").count(), 1);
}
