//! Device memory: large blocks, cut into slices that are given back when nobody holds them.
//!
//! The queue works in order, so a slice may be used anew by later commands as soon as its last owner is gone, whatever
//! the device still does for it.

use crate::gpu::{Gpu, lock};
use core::ops::Range;
use ortolan_ep_abi::call::Error;
use ortolan_ep_abi::raw;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use wgpu::Limits;

/// Alignment of slices: what every adapter allows as the offset of a binding.
const ALIGN: u64 = 256;
/// Size of a block that holds several slices.
const BLOCK: u64 = 16 << 20;
/// Blocks without slices that are kept for later.
const SPARE: usize = 4;

/// Device memory of one process and device.
#[derive(Debug)]
pub struct Pool {
    blocks: Mutex<Vec<Block>>,
    /// Slices that the host knows, by the number that it got.
    known: Mutex<(u64, HashMap<u64, Arc<Slice>>)>,
    /// Largest slice that shaders can bind.
    pub largest: u64,
    buffer_limit: u64,
}

#[derive(Debug)]
struct Block {
    buffer: wgpu::Buffer,
    free: Vec<Range<u64>>,
}

/// A piece of device memory.
pub struct Slice {
    pub buffer: wgpu::Buffer,
    pub at: u64,
    pub size: u64,
    gpu: Arc<Gpu>,
}

impl core::fmt::Debug for Slice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} bytes at {}", self.size, self.at)
    }
}

impl Pool {
    pub fn new(limits: &Limits) -> Pool {
        let buffer_limit = limits.max_buffer_size / ALIGN * ALIGN;
        let binding = limits.max_storage_buffer_binding_size / ALIGN * ALIGN;
        Pool { blocks: Mutex::default(), known: Mutex::default(), largest: binding.min(buffer_limit), buffer_limit }
    }

    fn known_slice(&self, number: u64) -> Option<Arc<Slice>> {
        lock(&self.known).1.get(&number).cloned()
    }
}

impl Gpu {
    /// Memory for `bytes`, with stale content.
    pub fn allocate(self: &Arc<Self>, bytes: u64) -> Result<Arc<Slice>, Error> {
        let size = bytes.max(4).next_multiple_of(ALIGN);
        let largest = self.memory.largest;
        if size > largest {
            let text = format!("a tensor of {bytes} bytes is larger than the {largest} bytes that a shader can bind");
            return Err(Error { code: raw::MEMORY, ..Error::new(text) });
        }
        let mut blocks = lock(&self.memory.blocks);
        if let Some((buffer, at)) = blocks.iter_mut().find_map(|b| b.take(size)) {
            return Ok(Arc::new(Slice { buffer, at, size, gpu: self.clone() }));
        }
        let whole = size.max(BLOCK.min(self.memory.buffer_limit));
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let desc = wgpu::BufferDescriptor { label: Some("block"), size: whole, usage, mapped_at_creation: false };
        let buffer = self.guarded("memory", || self.device.create_buffer(&desc))?;
        let rest = size..whole;
        blocks.push(Block { buffer: buffer.clone(), free: if rest.is_empty() { Vec::new() } else { vec![rest] } });
        Ok(Arc::new(Slice { buffer, at: 0, size, gpu: self.clone() }))
    }

    /// The number under which the host keeps a slice, until it is [forgotten](Self::forget).
    pub fn publish(&self, slice: Arc<Slice>) -> u64 {
        let mut known = lock(&self.memory.known);
        known.0 += 1;
        let number = known.0;
        known.1.insert(number, slice);
        number
    }

    /// The host holds the number no more.
    pub fn forget(&self, number: u64) {
        let gone = lock(&self.memory.known).1.remove(&number);
        drop(gone); // outside of the lock
    }

    /// The slice that the host means.
    pub fn slice(&self, number: u64) -> Result<Arc<Slice>, Error> {
        self.memory.known_slice(number).ok_or_else(|| {
            Error::new(format!("value {number} is no memory of this device: it was lost, or belongs to another one"))
        })
    }

    /// Bytes in blocks, and bytes of them in use.
    pub fn memory_use(&self) -> (u64, u64) {
        let blocks = lock(&self.memory.blocks);
        let whole: u64 = blocks.iter().map(|b| b.buffer.size()).sum();
        let free: u64 = blocks.iter().flat_map(|b| &b.free).map(|r| r.end - r.start).sum();
        (whole, whole - free)
    }
}

impl Block {
    /// Cuts from the smallest hole that is large enough.
    fn take(&mut self, size: u64) -> Option<(wgpu::Buffer, u64)> {
        let fitting = (0..self.free.len()).filter(|&k| self.free[k].end - self.free[k].start >= size);
        let k = fitting.min_by_key(|&k| self.free[k].end - self.free[k].start)?;
        let at = self.free[k].start;
        self.free[k].start += size;
        if self.free[k].is_empty() {
            self.free.remove(k);
        }
        Some((self.buffer.clone(), at))
    }

    /// Joins a hole with its neighbours.
    fn give_back(&mut self, hole: Range<u64>) {
        let k = self.free.partition_point(|r| r.start < hole.start);
        self.free.insert(k, hole);
        if k + 1 < self.free.len() && self.free[k].end == self.free[k + 1].start {
            self.free[k].end = self.free.remove(k + 1).end;
        }
        if k > 0 && self.free[k - 1].end == self.free[k].start {
            self.free[k - 1].end = self.free.remove(k).end;
        }
    }

    fn is_free(&self) -> bool {
        matches!(&self.free[..], [all] if all.end - all.start == self.buffer.size())
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        let mut blocks = lock(&self.gpu.memory.blocks);
        if let Some(block) = blocks.iter_mut().find(|b| b.buffer == self.buffer) {
            block.give_back(self.at..self.at + self.size);
        }
        let mut spare = 0;
        let gone: Vec<Block> = blocks
            .extract_if(.., |b| {
                spare += usize::from(b.is_free());
                b.is_free() && (spare > SPARE || b.buffer.size() > BLOCK)
            })
            .collect();
        drop(blocks);
        if !gone.is_empty() {
            let _turn = self.gpu.turn();
            drop(gone);
        }
    }
}
