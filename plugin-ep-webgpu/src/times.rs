//! When each dispatch of a profiled run began and ended, by the device's own clock.
//!
//! Only profiled runs pay: every dispatch is a pass of its own then, and the run waits for the device, since a device's
//! times exist when it has finished. It knows nothing of what a dispatch computes.

use crate::gpu::Gpu;
use crate::shader::Elem;
use ortolan_ep_abi::call::Result;

/// Queries that a set may hold in WebGPU.
const MOST: usize = 4096;
/// Bytes of a time.
const BYTES: u64 = 8;

/// Places for the times of so many dispatches.
#[derive(Debug)]
pub struct Times {
    sets: Vec<wgpu::QuerySet>,
    resolved: wgpu::Buffer,
    staging: wgpu::Buffer,
    dispatches: usize,
}

impl Times {
    /// `None` if the device has no clock, or nothing is to be timed.
    pub fn new(gpu: &Gpu, dispatches: usize) -> Result<Option<Times>> {
        if gpu.ns_per_tick.is_none() || dispatches == 0 {
            return Ok(None);
        }
        let queries = 2 * dispatches;
        let bytes = queries as u64 * BYTES;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let desc = wgpu::BufferDescriptor { label: Some("times"), size: bytes, usage, mapped_at_creation: false };
        let set = |first: usize| {
            let count = (queries - first).min(MOST) as u32;
            let desc = wgpu::QuerySetDescriptor { label: Some("times"), ty: wgpu::QueryType::Timestamp, count };
            gpu.device.create_query_set(&desc)
        };
        let (sets, resolved) =
            gpu.guarded("times", || ((0..queries).step_by(MOST).map(set).collect(), gpu.device.create_buffer(&desc)))?;
        Ok(Some(Times { sets, resolved, staging: gpu.staging(bytes)?, dispatches }))
    }

    /// Where a dispatch leaves its times.
    pub fn writes(&self, dispatch: usize) -> wgpu::ComputePassTimestampWrites<'_> {
        let at = 2 * dispatch;
        wgpu::ComputePassTimestampWrites {
            query_set: &self.sets[at / MOST],
            beginning_of_pass_write_index: Some((at % MOST) as u32),
            end_of_pass_write_index: Some((at % MOST) as u32 + 1),
        }
    }

    /// Brings all times to where the host can read them; to be encoded behind the dispatches.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let queries = 2 * self.dispatches;
        for (k, set) in self.sets.iter().enumerate() {
            let first = k * MOST;
            let count = (queries - first).min(MOST) as u32;
            encoder.resolve_query_set(set, 0..count, &self.resolved, first as u64 * BYTES);
        }
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, queries as u64 * BYTES);
    }

    /// Waits, then gives start and duration of each dispatch in ns. The last ends `now`, which the host's clock tells, but
    /// none begins before `submitted`: the clocks have no common zero.
    pub fn read(
        &self,
        gpu: &Gpu,
        submitted: u64,
        now: &dyn Fn() -> u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<Vec<(u64, u64)>> {
        let mut bytes = vec![0; 2 * self.dispatches * BYTES as usize];
        gpu.read(&self.staging, &mut [(Elem::U32, 0, &mut bytes)], stop)?;
        let ticks: Vec<u64> =
            bytes.chunks_exact(8).map(|b| b.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))).collect();
        Ok(on_the_hosts_clock(&ticks, gpu.ns_per_tick.unwrap_or(1.0), submitted, now()))
    }
}

/// Pairs of begin and end in ticks as start and duration in ns.
fn on_the_hosts_clock(ticks: &[u64], ns_per_tick: f64, submitted: u64, ended: u64) -> Vec<(u64, u64)> {
    let first = ticks.iter().copied().min().unwrap_or(0);
    let ns = |tick: u64| ((tick - first) as f64 * ns_per_tick) as u64;
    let whole = ticks.iter().map(|&t| ns(t)).max().unwrap_or(0);
    let start = ended.saturating_sub(whole).max(submitted);
    ticks.chunks_exact(2).map(|pair| (start + ns(pair[0]), ns(pair[1]).saturating_sub(ns(pair[0])))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_end_when_the_host_saw_the_end() {
        let ticks = [100, 104, 106, 116];
        assert_eq!(on_the_hosts_clock(&ticks, 10.0, 1000, 5000), [(4840, 40), (4900, 100)]);
        assert_eq!(on_the_hosts_clock(&ticks, 10.0, 4950, 5000), [(4950, 40), (5010, 100)]);
        assert_eq!(on_the_hosts_clock(&[7, 3], 1.0, 0, 10), [(10, 0)]);
        assert_eq!(on_the_hosts_clock(&[], 1.0, 0, 10), []);
    }
}
