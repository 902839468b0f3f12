//! The repository's EPs for devices, on what this machine has: a GPU, or a driver that runs on the processor (on Debian:
//! `mesa-vulkan-drivers` and `libvulkan1`). Without any adapter all tests count as ignored, and say so.

mod cases;
mod limits;
mod lost;
mod mixed;
mod models;
mod pipelines;
mod twins;

use libtest_mimic::{Arguments, Failed, Trial};
use ortolan::SessionEp;
use ortolan::host::LoadedEp;
use ortolan_tests::ep::load;
use ortolan_tests::place;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// Where the conformance cases are.
const CASES: &str = "ORTOLAN_ONNX_CASES";

/// Set in a process that runs one test alone.
const ALONE: &str = "ORTOLAN_TESTS_ALONE";

/// An EP for a device, and those that work in the host's memory.
#[derive(Clone)]
struct Eps {
    device: Arc<LoadedEp>,
    /// The library's file.
    file: PathBuf,
    ordinal: u32,
    /// What the EP says of the device.
    info: Vec<(String, String)>,
    host: Vec<Arc<LoadedEp>>,
}

impl Eps {
    /// The device's EP alone. What it makes of shaders it keeps nowhere: tests leave nothing behind.
    fn device(&self) -> SessionEp {
        SessionEp::from(&*self.device).device(self.ordinal).option("cache", "off")
    }

    /// Something that the EP says of the device.
    fn info(&self, key: &str) -> Result<&str, String> {
        let found = self.info.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.as_str()).ok_or_else(|| format!("the device says nothing of {key}"))
    }

    /// The others.
    fn host(&self) -> impl Iterator<Item = SessionEp> + '_ {
        self.host.iter().map(|ep| SessionEp::from(&**ep))
    }
}

fn main() {
    if pipelines::is_second_process() {
        return;
    }
    let host: Vec<_> = place::renamed_plugins().iter().map(|path| load(path)).collect();
    let mut trials = Vec::new();
    for file in place::renamed_device_plugins() {
        let device = load(&file);
        let name = device.name();
        let found = device.usable_devices();
        let (devices, missing) = match &found {
            Ok(list) => (list.devices.iter().map(|d| (d.ordinal, d.name.clone(), d.info.clone())).collect(), None),
            Err(e) => (vec![(0, String::new(), Vec::new())], Some(e)),
        };
        if let Some(why) = missing {
            eprintln!("{name} is not tested: {why}");
        }
        let eps = |(ordinal, about, info): (u32, String, _)| {
            eprintln!("{name}:{ordinal} is {about}");
            Eps { device: device.clone(), file: file.clone(), ordinal, info, host: host.clone() }
        };
        let devices: Vec<Eps> = devices.into_iter().map(eps).collect();
        for eps in &devices {
            add(&mut trials, &format!("{name}:{}", eps.ordinal), eps, missing.is_some());
        }
        let folder = std::env::var_os(CASES).map(PathBuf::from);
        let needs = if folder.is_none() { format!("needs {CASES}") } else { String::new() };
        let ignored = missing.is_some() || folder.is_none();
        let run = move || cases::all(&devices, &folder.unwrap_or_default()).map_err(Failed::from);
        trials.push(Trial::test(format!("{name}::node_cases"), run).with_kind(needs).with_ignored_flag(ignored));
    }
    assert!(!trials.is_empty(), "cargo has built no EP for a device");
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The tests of one device.
fn add(trials: &mut Vec<Trial>, name: &str, eps: &Eps, missing: bool) {
    for (model, folder) in models::all() {
        let needs = folder.map(|variable| format!("needs {variable}")).unwrap_or_default();
        let (e, ignored) = (eps.clone(), missing || folder.is_some());
        let run = move || models::agrees(&e, model).map_err(Failed::from);
        let trial = Trial::test(format!("{name}::model {}", model.name), run);
        trials.push(trial.with_kind(needs).with_ignored_flag(ignored));
    }
    let groups = [limits::ALL, lost::ALL, mixed::ALL, pipelines::ALL, twins::ALL];
    for &(what, run) in groups.into_iter().flatten() {
        let (e, name) = (eps.clone(), format!("{name}::{what}"));
        let by_itself = name.clone();
        let trial = Trial::test(name, move || match what == mixed::MEASURES {
            true => alone(&by_itself, || run(&e)).map_err(Failed::from),
            false => run(&e).map_err(Failed::from),
        });
        trials.push(trial.with_ignored_flag(missing));
    }
}

/// Runs a test that measures the process in one of its own, where no other test disturbs it, and on that process's main
/// thread: a worker thread that has used OpenGL may still be ending when the process exits, which is suspected of a double
/// free that was seen there once.
fn alone(name: &str, run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    if std::env::var_os(ALONE).is_some() {
        return run();
    }
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let args = ["--exact", name, "--nocapture", "--test-threads=1"];
    let done = Command::new(program).args(args).env(ALONE, "1").output().map_err(|e| e.to_string())?;
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    println!("{text}");
    if done.status.success() { Ok(()) } else { Err(format!("{}\n{text}", done.status)) }
}

/// A test over the EPs.
type Run = fn(&Eps) -> Result<(), String>;
