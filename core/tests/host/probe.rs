//! Probing: what is remembered, what is asked again, and what the policies let through.

use std::time::{Duration, Instant};

use ortolan::host::{PluginHost, ProbePolicy, codes};

use super::{FOLDER, build, host, probing_host};

#[test]
fn good_libraries_are_probed_once() {
    let library = build("probe-once", &["NAME=\"probe-once\""]);
    let host = probing_host("once-cache").build();
    host.load_file(&library).expect("a good library");
    host.unregister("probe-once").expect("nobody holds it");
    // With a helper that cannot run, only memory can let it through.
    let forgetful = |cache: &str| probing_host(cache).probe_helper("/no/such/helper", &[]).build();
    forgetful("once-cache").load_file(&library).expect("remembered");
    let error = forgetful("other-cache").load_file(&library).expect_err("not remembered there");
    assert_eq!(error.code, codes::PROBE_UNAVAILABLE);
    // The same bytes elsewhere are known, other bytes are not.
    let copy = super::folder("probe-copy").join("libortolan_ep_copy.so");
    std::fs::copy(&library, &copy).expect("the target folder can be written");
    forgetful("once-cache").load_file(&copy).expect("the same bytes");
    let other = build("probe-other", &["NAME=\"probe-once\"", "VERSION=\"1.0.1\""]);
    assert!(forgetful("once-cache").load_file(&other).is_err_and(|e| e.code == codes::PROBE_UNAVAILABLE));
}

#[test]
fn crashes_are_remembered_and_verify_asks_again() {
    let library = build("probe-crash", &["OPEN_CRASHES"]);
    let load = |host: PluginHost| host.load_file(&library).expect_err("it crashes").code;
    assert_eq!(load(probing_host("crashes-cache").build()), codes::PROBE_CRASHED);
    assert_eq!(load(probing_host("crashes-cache").probe_helper("/no/such/helper", &[]).build()), codes::PROBE_CRASHED);
    let host = probing_host("crashes-cache").probe_helper("/no/such/helper", &[]).build();
    assert!(host.verify(&library).is_err_and(|e| e.code == codes::PROBE_UNAVAILABLE));
}

#[test]
fn rejections_are_asked_again() {
    let definition =
        "FACTORY=return getenv(\"HOME\") && access(\"driver-is-here\", F_OK) == 0 ? 0 : ORTOLAN_EP_FAILED;";
    let library = build("probe-reject", &["NAME=\"probe-reject\"", definition]);
    let host = probing_host("reject-cache").build();
    for _ in 0..2 {
        assert!(host.load_file(&library).is_err_and(|e| e.code == codes::FACTORY_FAILED));
    }
    let remembered = std::fs::read_dir(FOLDER.join("reject-cache")).expect("the cache").count();
    assert_eq!(remembered, 1, "the digest of the file and no verdict");
}

#[test]
fn more_time_is_given_when_it_is_allowed() {
    let library = build("probe-slow", &["NAME=\"probe-slow\"", "FACTORY=sleep(1); return 0;"]);
    let host = |ms| probing_host("slow-cache").probe_timeout(Duration::from_millis(ms)).build();
    let start = Instant::now();
    assert!(host(100).load_file(&library).is_err_and(|e| e.code == codes::PROBE_HUNG));
    assert!(host(100).load_file(&library).is_err_and(|e| e.code == codes::PROBE_HUNG));
    assert!(start.elapsed() < Duration::from_millis(900), "the child was waited for: {:?}", start.elapsed());
    host(20_000).load_file(&library).expect("it only takes a second");
}

#[test]
fn policies_decide_without_a_helper() {
    let library = build("probe-policy", &["NAME=\"probe-policy\""]);
    let load = |policy, strict| {
        let host = host().probe(policy).probe_helper("/no/such/helper", &[]).probe_cache(FOLDER.join("policy-cache"));
        host.strict(strict).build().load_file(&library).map(|ep| ep.warnings().len()).map_err(|e| e.code)
    };
    assert_eq!(load(ProbePolicy::Never, false), Ok(0));
    assert_eq!(load(ProbePolicy::IfAvailable, false), Ok(1));
    assert_eq!(load(ProbePolicy::IfAvailable, true), Err(codes::PROBE_UNAVAILABLE));
    assert_eq!(load(ProbePolicy::Require, false), Err(codes::PROBE_UNAVAILABLE));
}

#[test]
fn noise_on_standard_output_is_no_verdict() {
    let library = build(
        "probe-noise",
        &["NAME=\"probe-noise\"", "FACTORY=(void)!write(1, \"ortolan-probe: {}\", 17); return 0;"],
    );
    probing_host("noise-cache").build().load_file(&library).expect("a good library");
}
