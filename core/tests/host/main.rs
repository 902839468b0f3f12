//! The plugin host against real libraries, good and bad, that the C compiler makes here: a coded answer each.

mod codes;
mod life;
mod places;
mod probe;
mod speed;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use ortolan::host::{PluginHost, PluginHostBuilder, ProbePolicy};

/// Where this run's libraries lie; removed when they are no longer open, that is, never by this process.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host-{}", std::process::id()));
    for old in std::fs::read_dir(env!("CARGO_TARGET_TMPDIR")).into_iter().flatten().flatten() {
        let name = old.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("host-").map(|pid| Path::new("/proc").join(pid));
        if process.is_some_and(|process| !process.exists()) {
            let _ = std::fs::remove_dir_all(old.path());
        }
    }
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
});

/// A folder of its own for one case.
fn folder(name: &str) -> PathBuf {
    let folder = FOLDER.join(name);
    std::fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host/ep.c");

/// Compiles `ep.c` with these definitions into `<case>/libortolan_ep_fixture.so`.
fn build(case: &str, definitions: &[&str]) -> PathBuf {
    let file = format!("libortolan_ep_fixture{}", std::env::consts::DLL_SUFFIX);
    compile(Path::new(SOURCE), &folder(case).join(file), definitions, &[])
}

fn compile(source: &Path, library: &Path, definitions: &[&str], more: &[OsString]) -> PathBuf {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ep-abi/include");
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    let flags =
        "-std=gnu11 -O0 -Wall -Werror -Wno-unused-function -Wno-unused-variable -fPIC -shared -fvisibility=hidden -I";
    cc.args(flags.split(' ')).arg(include);
    cc.args(definitions.iter().map(|d| format!("-D{d}"))).arg("-o").arg(library).arg(source).args(more);
    let done = cc.output().expect("a C compiler named cc, or in CC");
    assert!(done.status.success(), "{cc:?}: {}", String::from_utf8_lossy(&done.stderr));
    library.to_owned()
}

/// A host that looks at nothing but what a test gives it, and does not probe.
fn host() -> PluginHostBuilder {
    PluginHost::builder().only_given_paths().probe(ProbePolicy::Never)
}

/// A host that probes by running this test program anew, see [`child`].
fn probing_host(cache: &str) -> PluginHostBuilder {
    let program = std::env::current_exe().expect("this program");
    let builder = PluginHost::builder().only_given_paths().probe(ProbePolicy::Require);
    builder.probe_helper(program, &["child", "--exact", "--nocapture"]).probe_cache(FOLDER.join(cache))
}

/// The path behind `child --exact --nocapture`, when a test started this program as a child.
fn child_argument() -> Option<OsString> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [test, exact, _, path] if test == "child" && exact == "--exact" => Some(path.clone()),
        _ => None,
    }
}

/// In a child this is the program `ortolan-probe`, or the stop watch of [`speed`]. In the parent it tests wrong arguments.
#[test]
fn child() {
    if let Some(path) = child_argument() {
        if std::env::var_os(speed::VARIABLE).is_some() {
            speed::child(Path::new(&path));
        }
        std::process::exit(ortolan::host::probe_main([path]).into());
    }
    assert_eq!(ortolan::host::probe_main([]), 2);
    assert_eq!(ortolan::host::probe_main(["a".into(), "b".into()]), 2);
}
