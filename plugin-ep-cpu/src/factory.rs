//! The factory of this plugin: its one device, its options, and the kit over its tables.

use crate::ops::{Cpu, FAMILIES};
use crate::simd::{self, Isa, IsaError};
use ortolan_ep_abi::author::{Factory, Options};
use ortolan_ep_abi::call::{Call, Device, DevicesCall, Error, Result};
use ortolan_ep_abi::raw;
use ortolan_ep_kit::Kit;

/// Makes EPs for the CPU.
#[derive(Debug)]
pub struct CpuFactory;

/// An option of a session.
struct Setting {
    key: &'static str,
    /// Type, default and meaning in a sentence.
    text: &'static str,
    set: fn(&mut Cpu, &str) -> core::result::Result<(), String>,
}

/// Sorted by key.
const SETTINGS: &[Setting] = &[Setting {
    key: "isa",
    text: "text, by default the most able one of this machine: the instruction set that kernels use (scalar, neon, avx2, \
           avx512)",
    set: |cpu, value| {
        cpu.isa = Isa::from_name(value).map_err(|error| match error {
            IsaError::Unknown { .. } => "it is not an instruction set; use scalar, neon, avx2 or avx512".to_owned(),
            IsaError::Missing { have, .. } => format!("this machine has only {have}"),
        })?;
        Ok(())
    },
}];

impl Factory for CpuFactory {
    type Ep = Kit;

    fn new(_: &Call<'_>) -> Result<Self> {
        Ok(CpuFactory)
    }

    fn devices(&self, call: &DevicesCall<'_>) -> Result<()> {
        let cpu = read("/proc/cpuinfo");
        let field = |names: &[&str]| names.iter().find_map(|name| field(&cpu, name));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).to_string();
        let mut info = vec![("isa", Isa::best().name()), ("threads", &*threads)];
        let keys: Vec<String> = SETTINGS.iter().map(|s| format!("option.{}", s.key)).collect();
        info.extend(keys.iter().zip(SETTINGS).map(|(key, setting)| (&**key, setting.text)));
        call.device(&Device {
            name: field(&["model name", "Model"]).unwrap_or(std::env::consts::ARCH),
            vendor: field(&["vendor_id", "CPU implementer"]).unwrap_or_default(),
            kind: raw::DEVICE_CPU,
            ordinal: 0,
            memory_bytes: memory_bytes(&read("/proc/meminfo")),
            info: &info,
            ..Device::default()
        });
        Ok(())
    }

    fn create(&self, _: &Call<'_>, device: u32, options: Options<'_>) -> Result<Kit> {
        if device != 0 {
            return Err(Error::new(format!("there is no CPU device {device}, only 0")));
        }
        let mut cpu = Cpu { isa: simd::isa().map_err(|e| Error::new(e.to_string()))? };
        for (key, value) in options.iter() {
            set(&mut cpu, key, value)?;
        }
        Ok(Kit::new(FAMILIES, cpu.isa.name(), cpu))
    }
}

fn set(cpu: &mut Cpu, key: &str, value: &str) -> Result<()> {
    let Some(setting) = SETTINGS.iter().find(|s| s.key == key) else {
        let known: Vec<String> = SETTINGS.iter().map(|s| format!("{}: {}", s.key, s.text)).collect();
        return Err(Error::new(format!("cpu has no option {key}; it has {}", known.join("; "))));
    };
    (setting.set)(cpu, value).map_err(|why| Error::new(format!("option {key} = {value}: {why}")))
}

/// A file of the system; empty where there is none.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The first `name : value` of a file under /proc.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// All memory of the machine, 0 if it is not told.
fn memory_bytes(meminfo: &str) -> u64 {
    let kilobytes = field(meminfo, "MemTotal").and_then(|v| v.strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.map_or(0, |kb| kb.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_followed_or_explained() {
        let mut cpu = Cpu { isa: Isa::best() };
        assert_eq!(set(&mut cpu, "isa", "scalar"), Ok(()));
        assert_eq!(cpu.isa, Isa::scalar());
        let cases = [
            ("speed", "11", "cpu has no option speed; it has isa: text, by default"),
            ("isa", "sse9", "option isa = sse9: it is not an instruction set"),
            ("isa", if cfg!(target_arch = "aarch64") { "avx2" } else { "neon" }, "this machine has only scalar"),
        ];
        for (key, value, part) in cases {
            let error = set(&mut cpu, key, value).unwrap_err();
            assert!(error.message.contains(part), "{}", error.message);
        }
        assert!(SETTINGS.is_sorted_by_key(|s| s.key));
    }

    #[test]
    fn the_system_tells_name_and_memory() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: A Model 7\nmodel name\t: B\n";
        assert_eq!(field(text, "model name"), Some("A Model 7"));
        assert_eq!(field(text, "cores"), None);
        assert_eq!(memory_bytes("MemFree: 1 kB\nMemTotal:       16 kB\n"), 16384);
        assert_eq!(memory_bytes("MemTotal: lots"), 0);
    }
}
