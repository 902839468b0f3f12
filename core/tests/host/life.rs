//! What happens to libraries that are loaded: one factory per process, leases, unregistering, static entries.

use std::sync::Arc;

use ortolan::host::{Origin, codes};
use ortolan_ep_abi::raw::{self, Entry};

use super::{build, host};

/// Counts living factories in a file, so that the library itself tells.
const COUNTED: [&str; 2] = ["NAME=\"counted\"", "FACTORY=*(long *)*out = 0; return 0;"];

#[test]
fn hosts_share_one_factory_and_unregister_waits_for_the_last_user() {
    let library = build("life", &COUNTED);
    let (one, two) = (host().build(), host().build());
    let (a, b) = (one.load_file(&library).expect("good"), two.load_file(&library).expect("good"));
    assert!(Arc::ptr_eq(a.factory(), b.factory()) && !Arc::ptr_eq(&a, &b));
    assert!(Arc::ptr_eq(&a, &one.load_file(&library).expect("the same again")));
    let devices = a.devices().expect("one");
    assert_eq!((devices.devices.len(), devices.devices[0].name.as_str()), (1, "nothing"));
    assert!(!a.is_proven() && matches!(a.origin(), Origin::File { .. }));

    let factory = Arc::clone(a.factory());
    drop(a);
    let error = one.unregister("counted").expect_err("the factory is held");
    assert!(error.code == codes::IN_USE && error.sentence.contains("1 sessions"), "{error}");
    let ep = factory.create(&devices.devices[0], &[]).expect("an EP");
    drop(factory);
    assert_eq!(one.unregister("counted").expect_err("an EP is held").code, codes::IN_USE);
    drop(ep);
    one.unregister("counted").expect("nobody of this host holds it");
    assert_eq!(one.unregister("counted").expect_err("gone").code, codes::NOT_LOADED);
    assert_eq!(b.devices().expect("the other host's still works").devices.len(), 1);
    drop(b);
    two.unregister("counted").expect("nobody holds it");
    one.load_file(&library).expect("the library stayed; its factory is made anew").devices().expect("one");
}

#[test]
fn many_threads_load_one_library_at_once() {
    let library = build("life-threads", &["NAME=\"threads\"", "FACTORY=usleep(20000); return 0;"]);
    let factories: Vec<_> = std::thread::scope(|scope| {
        let load = || {
            let ep = host().build().load_file(&library).expect("good");
            Arc::clone(ep.factory())
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    assert!(factories.iter().all(|f| Arc::ptr_eq(f, &factories[0])));
}

#[test]
fn newer_minors_with_more_tables_load() {
    let definitions = ["NAME=\"newer\"", "MINOR=7", "PROVIDES=\"\\\"ortolan.ep.v1\\\",\\\"newer.v1.1\\\"\""];
    let ep = host().build().load_file(&build("life-newer", &definitions)).expect("its newer table is not asked for");
    assert_eq!(ep.manifest().abi.minor, 7);
    assert_eq!(ep.usable_devices().expect("one").devices.len(), 1);
}

mod linked {
    //! An EP inside this program.
    use ortolan_ep_abi::{author::*, call::*, catalogue, export_ep, text::CatalogueRow, view::*};

    const CATALOGUE: &str =
        catalogue!(&[CatalogueRow { domain: "", op: "Abs", since: 13, until: 13, types: &[], digest: 0, limits: &[] }]);

    pub struct Nothing;
    impl Factory for Nothing {
        type Ep = Nothing;
        fn new(_: &Call<'_>) -> Result<Self> {
            Ok(Nothing)
        }
        fn devices(&self, call: &DevicesCall<'_>) -> Result<()> {
            call.device(&Device { name: "linked", ..Device::default() });
            Ok(())
        }
        fn create(&self, _: &Call<'_>, _: u32, _: Options<'_>) -> Result<Self> {
            Ok(Nothing)
        }
    }
    impl Ep for Nothing {
        type Part = Nothing;
        fn claim(&self, _: &ClaimCall<'_>, _: Program<'_>, _: PartDesc<'_>) -> Result<()> {
            Ok(())
        }
        fn compile(&self, _: &CompileCall<'_>, _: Program<'_>, _: PartDesc<'_>) -> Result<Self> {
            Err(Error::new("it compiles nothing"))
        }
    }
    impl Part for Nothing {
        type Lane = ();
        fn run(&self, (): &mut (), _: &RunCall<'_>) -> Result<()> {
            Ok(())
        }
    }
    export_ep! {
        factory: Nothing,
        name: "linked",
        vendor: "test",
        requires_core: ">=0.1, <2",
        opset: [("", 21)],
        device_kinds: ["cpu"],
        catalogue: CATALOGUE,
        symbol: cfg(any()),
    }
}

#[test]
fn linked_eps_go_through_the_same_checks() {
    let host = host().build();
    let ep = host.register_static(&linked::ENTRY).expect("good");
    assert_eq!((ep.name(), ep.origin(), ep.catalogue().len()), ("linked", &Origin::Static, 1));
    assert_eq!(ep.usable_devices().expect("one").devices[0].name, "linked");
    assert!(Arc::ptr_eq(&ep, &host.register_static(&linked::ENTRY).expect("the same again")));
    assert!(Arc::ptr_eq(&ep, &host.load("linked").expect("loaded already")));

    let changed = |change: fn(&mut Entry)| -> &'static Entry {
        let mut entry = linked::ENTRY;
        change(&mut entry);
        Box::leak(Box::new(entry))
    };
    unsafe extern "C" fn nothing(_: raw::Str) -> *const std::ffi::c_void {
        std::ptr::null()
    }
    type Change = fn(&mut Entry);
    let cases: [(Change, &str); 7] = [
        (|e| e.magic[0] = 0, "entry-magic"),
        (|e| e.abi_minor = 9, "manifest-differs"),
        (|e| e.struct_size = 8, "entry-size"),
        (|e| e.fingerprint = 1, "fingerprint"),
        (|e| e.query = nothing, "no-interface"),
        (|e| e.catalogue.len -= 1, "catalogue-hash"),
        (|e| e.manifest.len -= 1, "manifest-invalid"),
    ];
    for (change, code) in cases {
        let error = host.register_static(changed(change)).expect_err(code);
        assert_eq!(error.code.name(), code, "{error}");
    }
}
