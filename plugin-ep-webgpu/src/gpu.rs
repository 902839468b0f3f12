//! One opened device with its queue: limits, errors, loss. It knows buffers and pipelines only as what is made from it.
//!
//! A process opens an adapter once; all sessions on it share the device, so that their values and pipelines do. A lost
//! device stays lost: sessions that have it get [`LOST`] from every call, the next session opens the adapter anew.

use crate::memory::{Pool, Slice};
use crate::pipeline::Pipelines;
use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use ortolan_ep_abi::call::Error;
use ortolan_ep_abi::raw;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use wgpu::{Adapter, Backends, Features, Limits};

/// The host's code: the device is gone. What it held is gone with it; other EPs are not touched.
pub const LOST: i32 = raw::LOST;
/// Code of this EP: the driver refused a command that should be valid.
pub const REFUSED: i32 = 2;

/// How long a wait may take before the device counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
pub struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    pub limits: Limits,
    /// Shaders may compute with f16.
    pub has_f16: bool,
    /// Unit of the device's clock, if it has one.
    pub ns_per_tick: Option<f64>,
    /// The driver hands out what it made of shaders.
    pub keeps_pipelines: bool,
    /// What that depends on beside the shader: adapter, driver, this library.
    pub identity: String,
    pub memory: Pool,
    pub pipelines: Pipelines,
    /// Constants in device memory, by the number that they have in this process.
    pub weights: Mutex<HashMap<u64, Weak<Slice>>>,
    lost: Arc<Mutex<Option<String>>>,
    polling: Mutex<()>,
    /// The driver works for one thread at a time.
    is_narrow: bool,
    /// Runs that are left before the test hook loses the device.
    fuse: AtomicU64,
}

impl core::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Gpu {{ {} }}", self.device.adapter_info().name)
    }
}

/// A lock that does not care whether another thread panicked with it: what it guards is whole at any time.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a future that has nothing to wait for: on the platforms served here wgpu answers at once.
fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10_000 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

/// The adapters of this machine, the best kind first and in a stable order: a person names them by number. Asked for once.
pub fn adapters() -> &'static [Adapter] {
    static FOUND: LazyLock<Vec<Adapter>> = LazyLock::new(find);
    &FOUND
}

fn find() -> Vec<Adapter> {
    let mut desc = wgpu::InstanceDescriptor::new_without_display_handle();
    desc.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(desc.with_env());
    let mut found = ready(instance.enumerate_adapters(Backends::all())).unwrap_or_default();
    found.retain(|a| a.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS));
    found.sort_by_cached_key(|adapter| {
        let info = adapter.get_info();
        let kind = match info.device_type {
            wgpu::DeviceType::DiscreteGpu => 0,
            wgpu::DeviceType::IntegratedGpu => 1,
            wgpu::DeviceType::VirtualGpu => 2,
            wgpu::DeviceType::Other => 3,
            wgpu::DeviceType::Cpu => 4,
        };
        let through = match info.backend {
            wgpu::Backend::Vulkan | wgpu::Backend::Metal | wgpu::Backend::Dx12 => 0,
            _ => 1,
        };
        (through, kind, info.name, info.vendor, info.device, info.device_pci_bus_id)
    });
    found
}

/// Opened devices, by adapter number.
static OPEN: Mutex<Vec<(usize, Arc<Gpu>)>> = Mutex::new(Vec::new());

impl Gpu {
    /// The device of an adapter, shared by all sessions of the process. With `lose_after` it is the session's own, and is
    /// lost after so many runs.
    pub fn open(ordinal: usize, adapter: &Adapter, lose_after: Option<u64>) -> Result<Arc<Gpu>, Error> {
        if lose_after.is_some() {
            return Gpu::start(adapter, lose_after).map(Arc::new);
        }
        let mut open = lock(&OPEN);
        open.retain(|(_, gpu)| gpu.loss().is_none());
        if let Some((_, gpu)) = open.iter().find(|(at, _)| *at == ordinal) {
            return Ok(gpu.clone());
        }
        let gpu = Arc::new(Gpu::start(adapter, None)?);
        open.push((ordinal, gpu.clone()));
        Ok(gpu)
    }

    /// Closes devices that no session has.
    pub fn close_idle() {
        lock(&OPEN).retain(|(_, gpu)| Arc::strong_count(gpu) > 1);
    }

    fn start(adapter: &Adapter, lose_after: Option<u64>) -> Result<Gpu, Error> {
        let limits = wanted_limits(&adapter.limits());
        let useful = Features::SHADER_F16 | Features::PIPELINE_CACHE | Features::TIMESTAMP_QUERY;
        let features = adapter.features() & useful;
        let request = adapter.request_device(&wgpu::DeviceDescriptor {
            label: Some("ortolan"),
            required_features: features,
            required_limits: limits.clone(),
            ..wgpu::DeviceDescriptor::default()
        });
        let info = adapter.get_info();
        let name = &info.name;
        let (device, queue) = ready(request)
            .ok_or_else(|| Error::new(format!("the driver of '{name}' does not answer")))?
            .map_err(|e| Error::new(format!("'{name}' cannot be opened: {e}")))?;
        let lost: Arc<Mutex<Option<String>>> = Arc::default();
        let note = lost.clone();
        device.set_device_lost_callback(move |reason, text| {
            lock(&note).get_or_insert_with(|| format!("{reason:?}: {text}"));
        });
        // Errors are read from scopes; what slips through must not end the process.
        device.on_uncaptured_error(Arc::new(|_| {}));
        Ok(Gpu {
            memory: Pool::new(&limits),
            pipelines: Pipelines::new(&device),
            weights: Mutex::default(),
            has_f16: features.contains(Features::SHADER_F16),
            ns_per_tick: features.contains(Features::TIMESTAMP_QUERY).then(|| f64::from(queue.get_timestamp_period())),
            keeps_pipelines: features.contains(Features::PIPELINE_CACHE),
            identity: identity(&info, features),
            limits,
            device,
            queue,
            lost,
            polling: Mutex::new(()),
            is_narrow: info.backend == wgpu::Backend::Gl,
            fuse: AtomicU64::new(lose_after.unwrap_or(u64::MAX)),
        })
    }

    /// Why the device is lost, if it is.
    pub fn loss(&self) -> Option<String> {
        lock(&self.lost).clone()
    }

    /// Fails when the device is lost.
    pub fn check(&self) -> Result<(), Error> {
        match self.loss() {
            Some(why) => Err(Error::lost(why)),
            None => Ok(()),
        }
    }

    /// Counts a run for the test hook. The answer is whether this one is to lose the device.
    pub fn burns(&self) -> bool {
        self.fuse.load(Ordering::Relaxed) != u64::MAX
            && self.fuse.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_err()
    }

    /// Loses the device, as drivers do: for the test hook.
    pub fn lose(&self) {
        self.device.destroy();
        lock(&self.lost).get_or_insert_with(|| "the option lose_after asked for it".to_owned());
    }

    /// To be held over each call of a driver that works for one thread at a time: wgpu 30 waits 6 s for its OpenGL context
    /// and panics then, and a run on a slow device takes longer.
    pub fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.is_narrow.then(|| lock(&self.polling))
    }

    /// Does what may go wrong on the device, and says what did.
    pub fn guarded<T>(&self, what: &str, work: impl FnOnce() -> T) -> Result<T, Error> {
        self.check()?;
        let turn = self.turn();
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let made = work();
        let refused = ready(validation.pop()).flatten();
        let full = ready(memory.pop()).flatten();
        drop(turn);
        self.check()?;
        if let Some(e) = full {
            return Err(Error {
                code: raw::MEMORY,
                ..Error::new(format!("{what}: the device has no memory left: {e}"))
            });
        }
        match refused {
            Some(e) => Err(Error::new(format!("{what}: the device refused: {e}")).with_code(REFUSED)),
            None => Ok(made),
        }
    }

    /// Returns with what the device tells through a callback, or when `stop` says so.
    ///
    /// Threads that wait for submissions at once disturb each other in wgpu 30 (it compares an old state of the fence with a
    /// new one of the queue, and its OpenGL context has one owner at a time): so nobody waits inside of it, and polls take turns.
    pub fn told<T>(&self, answer: &Receiver<T>, stop: &dyn Fn() -> bool) -> Result<T, Error> {
        let since = Instant::now();
        for round in 0u64.. {
            let turn = lock(&self.polling);
            let polled = self.device.poll(wgpu::PollType::Poll);
            drop(turn);
            self.check()?;
            if let Ok(answer) = answer.try_recv() {
                return Ok(answer);
            }
            if stop() {
                return Err(Error::cancelled());
            }
            if polled.is_err() || since.elapsed() > PATIENCE {
                let text = format!("the device did not finish within {PATIENCE:?} ({polled:?})");
                return Err(Error::new(text).with_code(LOST));
            }
            match round {
                0..32 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros((round * 5).min(1000))),
            }
        }
        Err(Error::new("the device did not answer").with_code(LOST))
    }
}

fn identity(info: &wgpu::AdapterInfo, features: Features) -> String {
    let (id, driver) =
        (format!("{:04x}:{:04x}", info.vendor, info.device), format!("{} {}", info.driver, info.driver_info));
    let own = env!("CARGO_PKG_VERSION");
    format!("{own}\n{}\n{id}\n{}\n{driver}\n{features:?}\n", info.backend, info.name)
}

/// The standard's default limits, but for sizes of memory: kernels written for these run on every adapter.
fn wanted_limits(have: &Limits) -> Limits {
    let standard = Limits::default();
    Limits {
        max_storage_buffer_binding_size: have.max_storage_buffer_binding_size,
        max_buffer_size: have.max_buffer_size,
        ..standard.or_worse_values_from(have)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_opened_within_the_standard_limits() {
        let standard = Limits::default();
        let large = Limits {
            max_compute_invocations_per_workgroup: 1024,
            max_compute_workgroup_size_x: 1024,
            max_compute_workgroup_storage_size: 65536,
            max_storage_buffers_per_shader_stage: 64,
            max_storage_buffer_binding_size: 1 << 31,
            max_buffer_size: 1 << 36,
            ..standard.clone()
        };
        let expected =
            Limits { max_storage_buffer_binding_size: 1 << 31, max_buffer_size: 1 << 36, ..standard.clone() };
        assert_eq!(wanted_limits(&large), expected);
        let small = Limits { max_compute_workgroups_per_dimension: 1000, ..standard };
        assert_eq!(wanted_limits(&small), small);
    }
}
