//! The repository's EPs for devices, on what this machine has: a GPU, or a driver that runs on the processor (on Debian:
//! `mesa-vulkan-drivers` and `libvulkan1`). Without any adapter all tests count as ignored, and say so.

mod cases;
mod lost;
mod twins;

use libtest_mimic::{Arguments, Failed, Trial};
use ortolan::SessionEp;
use ortolan::host::LoadedEp;
use ortolan_tests::ep::load;
use ortolan_tests::place;
use std::path::PathBuf;
use std::sync::Arc;

/// Where the conformance cases are.
const CASES: &str = "ORTOLAN_ONNX_CASES";

/// An EP for a device, and those that work in the host's memory.
#[derive(Clone)]
struct Eps {
    device: Arc<LoadedEp>,
    ordinal: u32,
    host: Vec<Arc<LoadedEp>>,
}

impl Eps {
    /// The device's EP alone.
    fn device(&self) -> SessionEp {
        SessionEp::from(&*self.device).device(self.ordinal)
    }

    /// The others.
    fn host(&self) -> impl Iterator<Item = SessionEp> + '_ {
        self.host.iter().map(|ep| SessionEp::from(&**ep))
    }
}

fn main() {
    let host: Vec<_> = place::renamed_plugins().iter().map(|path| load(path)).collect();
    let mut trials = Vec::new();
    for device in place::renamed_device_plugins().iter().map(|path| load(path)) {
        let name = device.name();
        let found = device.usable_devices();
        let (ordinals, missing) = match &found {
            Ok(list) => (list.devices.iter().map(|d| (d.ordinal, d.name.clone())).collect(), None),
            Err(e) => (vec![(0, String::new())], Some(e)),
        };
        if let Some(why) = missing {
            eprintln!("{name} is not tested: {why}");
        }
        for (ordinal, about) in ordinals {
            eprintln!("{name}:{ordinal} is {about}");
            let eps = Eps { device: device.clone(), ordinal, host: host.clone() };
            add(&mut trials, &format!("{name}:{ordinal}"), &eps, missing.is_some());
        }
    }
    assert!(!trials.is_empty(), "cargo has built no EP for a device");
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The tests of one device.
fn add(trials: &mut Vec<Trial>, name: &str, eps: &Eps, missing: bool) {
    let folder = std::env::var_os(CASES).map(PathBuf::from);
    let needs = if folder.is_none() { format!("needs {CASES}") } else { String::new() };
    let ignored = missing || folder.is_none();
    let e = eps.clone();
    let run = move || cases::all(&e, &folder.unwrap_or_default()).map_err(Failed::from);
    trials.push(Trial::test(format!("{name}::node_cases"), run).with_kind(needs).with_ignored_flag(ignored));
    for &(what, run) in lost::ALL.iter().chain(twins::ALL) {
        let e = eps.clone();
        let trial = Trial::test(format!("{name}::{what}"), move || run(&e).map_err(Failed::from));
        trials.push(trial.with_ignored_flag(missing));
    }
}

/// A test over the EPs.
type Run = fn(&Eps) -> Result<(), String>;
