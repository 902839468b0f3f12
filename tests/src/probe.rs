//! The helper that probes libraries for the tests of the plugin host.

fn main() -> std::process::ExitCode {
    ortolan::host::probe_main(std::env::args_os().skip(1)).into()
}
