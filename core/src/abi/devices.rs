//! What a factory says of its devices.

use ortolan_ep_abi::codes::NoDeviceCode;
use ortolan_ep_abi::raw;

use super::{Refusal, sentence};

/// A device of a factory.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DeviceInfo {
    /// Name that a person knows it by.
    pub name: String,
    /// Maker.
    pub vendor: String,
    /// `DEVICE_*` of the ABI.
    pub kind: u32,
    /// Number by which it is asked for.
    pub ordinal: u32,
    /// Its memory; 0 is unknown.
    pub memory_bytes: u64,
    /// More about it.
    pub info: Vec<(String, String)>,
    /// Wants every symbol bound when it compiles.
    pub static_shapes: bool,
    /// A transfer between its memory and the host's, to begin with, in ns.
    pub transfer_ns: u64,
    /// And bytes per second of a large one; `u64::MAX`: it works in host memory. Both 0: not stated.
    pub transfer_bytes_per_s: u64,
}

impl DeviceInfo {
    /// Whether it is the host's processor, be it in the place of another device.
    pub fn is_cpu(&self) -> bool {
        self.kind == raw::DEVICE_CPU
    }
}

/// Why there is no device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoDevice {
    /// Its number in the ABI.
    pub code: u32,
    /// The code, if it is a known one.
    pub known: Option<NoDeviceCode>,
    /// In the EP's words.
    pub sentence: String,
}

/// Everything that a `devices` call answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceList {
    /// What there is.
    pub devices: Vec<DeviceInfo>,
    /// Why there is not (more).
    pub reasons: Vec<NoDevice>,
}

/// Beyond these a plugin is counting wrongly.
const LIMIT: usize = 4096;

impl DeviceList {
    /// # Safety
    /// Everything behind the device's pointers is live.
    pub(super) unsafe fn add(&mut self, device: &raw::Device) -> Result<(), Refusal> {
        if self.devices.len() >= LIMIT || device.info_count as usize > LIMIT {
            return Err(Refusal::fault("device: too many devices or details of one"));
        }
        // SAFETY: the caller's promise.
        let info = unsafe { raw::slice(device.info, device.info_count as usize) };
        self.devices.push(DeviceInfo {
            name: sentence(device.name),
            vendor: sentence(device.vendor),
            kind: device.kind,
            ordinal: device.ordinal,
            memory_bytes: device.memory_bytes,
            info: info.iter().map(|kv| (sentence(kv.key), sentence(kv.value))).collect(),
            static_shapes: device.flags & raw::DEVICE_STATIC_SHAPES != 0,
            transfer_ns: device.transfer_ns,
            transfer_bytes_per_s: device.transfer_bytes_per_s,
        });
        Ok(())
    }

    pub(super) fn add_reason(&mut self, code: u32, text: raw::Str) {
        if self.reasons.len() < LIMIT {
            let known = NoDeviceCode::from_u32(code);
            self.reasons.push(NoDevice { code, known, sentence: sentence(text) });
        }
    }
}
