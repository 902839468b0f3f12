//! The factory of this plugin: adapters as devices, options, and an EP per session.

use crate::cache::{self, Cache};
use crate::ep::WebEp;
use crate::gpu::{Gpu, adapters};
use crate::ops::{FAMILIES, Settings};
use core::fmt::Display;
use ortolan_ep_abi::author::{Factory, Options};
use ortolan_ep_abi::call::{Call, Device, DevicesCall, Error, Result};
use ortolan_ep_abi::codes::NoDeviceCode;
use ortolan_ep_abi::raw;
use ortolan_ep_kit::outline::Rows;
use std::path::PathBuf;
use std::sync::Arc;

/// Makes EPs for the adapters that wgpu finds.
#[derive(Debug)]
pub struct WebFactory;

/// What a session asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    cache: Place,
    lose_after: Option<u64>,
    tiles: Option<bool>,
}

/// Where pipelines are kept.
#[derive(Debug, Default, PartialEq, Eq)]
enum Place {
    /// In the user's folder for caches.
    #[default]
    Usual,
    Nowhere,
    Folder(PathBuf),
}

/// An option of a session.
struct Setting {
    key: &'static str,
    /// Type, default and meaning in a sentence.
    text: &'static str,
    set: fn(&mut Wanted, &str) -> core::result::Result<(), String>,
}

/// Sorted by key.
const SETTINGS: &[Setting] = &[
    Setting {
        key: "cache",
        text: "a folder, or off; by default ortolan/webgpu in the user's folder for caches: what the driver made of shaders is kept there",
        set: |wanted, value| {
            wanted.cache = match value {
                "" => return Err("it names no folder; off keeps nothing".to_owned()),
                "off" => Place::Nowhere,
                folder => Place::Folder(folder.into()),
            };
            Ok(())
        },
    },
    Setting {
        key: "lose_after",
        text: "whole number, by default never: the device is lost after so many runs, to try what a program does then",
        set: |wanted, value| {
            wanted.lose_after = Some(value.parse().map_err(|_| "it is no whole number".to_owned())?);
            Ok(())
        },
    },
    Setting {
        key: "tiles",
        text: "0 or 1, by default 1 on all but CPU drivers: products share tiles in workgroup memory",
        set: |wanted, value| {
            wanted.tiles = Some(match value {
                "0" => false,
                "1" => true,
                _ => return Err("it is neither 0 nor 1".to_owned()),
            });
            Ok(())
        },
    },
];

impl Factory for WebFactory {
    type Ep = WebEp;

    fn new(_: &Call<'_>) -> Result<Self> {
        Ok(WebFactory)
    }

    fn devices(&self, call: &DevicesCall<'_>) -> Result<()> {
        let found = adapters();
        if found.is_empty() {
            let text = "no adapter that computes was found through Vulkan, Metal, Direct3D 12 or OpenGL ES; install a driver \
                        (on Debian without a GPU: mesa-vulkan-drivers and libvulkan1)";
            call.no_device(NoDeviceCode::NoDriver, text);
        }
        for (ordinal, adapter) in (0..).zip(found) {
            let info = facts(adapter);
            let info: Vec<(&str, &str)> = info.iter().map(|(k, v)| (*k, &**v)).collect();
            let about = adapter.get_info();
            call.device(&Device {
                name: &about.name,
                vendor: vendor(about.vendor),
                kind: match about.device_type {
                    wgpu::DeviceType::Cpu => raw::DEVICE_CPU,
                    wgpu::DeviceType::Other => raw::DEVICE_OTHER,
                    _ => raw::DEVICE_GPU,
                },
                ordinal,
                memory_bytes: 0, // WebGPU does not tell
                info: &info,
                ..Device::default()
            });
        }
        Ok(())
    }

    fn trim(&self) {
        Gpu::close_idle();
    }

    fn create(&self, call: &Call<'_>, device: u32, options: Options<'_>) -> Result<WebEp> {
        let mut wanted = Wanted::default();
        for (key, value) in options.iter() {
            set(&mut wanted, key, value)?;
        }
        let found = adapters();
        let adapter = found.get(device as usize);
        let adapter =
            adapter.ok_or_else(|| Error::new(format!("there is no adapter {device}; there are {}", found.len())))?;
        let gpu = Gpu::open(device as usize, adapter, wanted.lose_after)?;
        let has_cache = gpu.keeps_pipelines;
        let is_cpu = adapter.get_info().device_type == wgpu::DeviceType::Cpu;
        let settings =
            Settings { has_f16: gpu.has_f16, largest: gpu.memory.largest, tiles: wanted.tiles.unwrap_or(!is_cpu) };
        let space_name = format!("webgpu:{device}");
        Ok(WebEp {
            gpu,
            rows: Rows::new(FAMILIES),
            settings,
            cache: open_cache(call, &wanted.cache, has_cache),
            space: call.space(&space_name),
            space_name,
        })
    }
}

/// The cache on disk, if the driver and the system allow one.
fn open_cache(call: &Call<'_>, place: &Place, has_cache: bool) -> Option<Arc<Cache>> {
    let folder = match place {
        Place::Nowhere => return None,
        Place::Folder(folder) => folder.clone(),
        Place::Usual => cache::usual_folder()?,
    };
    if !has_cache {
        call.log(cache::DEBUG, cache::TARGET, "the driver hands out no pipelines: none are kept on disk");
        return None;
    }
    match Cache::open(&folder, cache::BOUND) {
        Ok(cache) => Some(Arc::new(cache)),
        Err(note) => {
            call.log(cache::WARN, cache::TARGET, &note);
            None
        }
    }
}

/// What is worth knowing of an adapter: its identity first.
fn facts(adapter: &wgpu::Adapter) -> Vec<(&'static str, String)> {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    let text = |x: &dyn Display| x.to_string();
    let kind = format!("{:?}", info.device_type);
    let id = format!("{}:{:04x}:{:04x}:{}", info.backend, info.vendor, info.device, info.device_pci_bus_id);
    let has = |feature| text(&features.contains(feature));
    let mut facts = vec![
        ("id", id),
        ("backend", text(&info.backend)),
        ("type", kind),
        ("driver", format!("{} {}", info.driver, info.driver_info).trim().to_owned()),
        ("feature.pipeline-cache", has(wgpu::Features::PIPELINE_CACHE)),
        ("feature.shader-f16", has(wgpu::Features::SHADER_F16)),
        ("feature.subgroup", has(wgpu::Features::SUBGROUP)),
        ("feature.timestamp-query", has(wgpu::Features::TIMESTAMP_QUERY)),
        ("limit.max_buffer_size", text(&limits.max_buffer_size)),
        ("limit.max_storage_buffer_binding_size", text(&limits.max_storage_buffer_binding_size)),
        ("limit.max_compute_invocations_per_workgroup", text(&limits.max_compute_invocations_per_workgroup)),
        ("limit.max_compute_workgroup_storage_size", text(&limits.max_compute_workgroup_storage_size)),
        ("limit.max_storage_buffers_per_shader_stage", text(&limits.max_storage_buffers_per_shader_stage)),
    ];
    facts.extend(SETTINGS.iter().map(|s| (option_key(s.key), s.text.to_owned())));
    facts
}

fn option_key(key: &str) -> &'static str {
    match key {
        "cache" => "option.cache",
        "lose_after" => "option.lose_after",
        _ => "option.tiles",
    }
}

/// Makers by their PCI numbers; a driver without hardware has one of its own.
fn vendor(number: u32) -> &'static str {
    match number {
        0x1002 => "AMD",
        0x10005 => "Mesa",
        0x106b => "Apple",
        0x10de => "NVIDIA",
        0x13b5 => "Arm",
        0x1414 => "Microsoft",
        0x14e4 => "Broadcom",
        0x1ae0 => "Google",
        0x5143 => "Qualcomm",
        0x8086 => "Intel",
        _ => "unknown",
    }
}

fn set(wanted: &mut Wanted, key: &str, value: &str) -> Result<()> {
    let Some(setting) = SETTINGS.iter().find(|s| s.key == key) else {
        let known: Vec<String> = SETTINGS.iter().map(|s| format!("{}: {}", s.key, s.text)).collect();
        return Err(Error::new(format!("webgpu has no option {key}; it has {}", known.join("; "))));
    };
    (setting.set)(wanted, value).map_err(|why| Error::new(format!("option {key} = {value}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_followed_or_explained() {
        let mut wanted = Wanted::default();
        assert_eq!(set(&mut wanted, "tiles", "1"), Ok(()));
        assert_eq!(set(&mut wanted, "lose_after", "3"), Ok(()));
        assert_eq!(wanted, Wanted { cache: Place::Usual, lose_after: Some(3), tiles: Some(true) });
        assert_eq!(set(&mut wanted, "cache", "a/folder"), Ok(()));
        assert_eq!(wanted.cache, Place::Folder("a/folder".into()));
        assert_eq!(set(&mut wanted, "cache", "off"), Ok(()));
        assert_eq!(wanted.cache, Place::Nowhere);
        let cases = [
            ("speed", "11", "webgpu has no option speed; it has cache: a folder"),
            ("cache", "", "option cache = : it names no folder"),
            ("tiles", "2", "option tiles = 2: it is neither 0 nor 1"),
            ("lose_after", "soon", "option lose_after = soon: it is no whole number"),
        ];
        for (key, value, part) in cases {
            let error = set(&mut wanted, key, value).unwrap_err();
            assert!(error.message.contains(part), "{}", error.message);
        }
        assert!(SETTINGS.is_sorted_by_key(|s| s.key));
    }
}
