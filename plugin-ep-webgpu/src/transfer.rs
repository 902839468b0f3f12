//! Bytes on their way between host and device: bools become words, everything else stays as it is.

use crate::gpu::{Gpu, lock};
use crate::memory::Slice;
use crate::shader::Elem;
use ortolan_ep_abi::call::{Error, Result};
use std::borrow::Cow;
use std::sync::mpsc::channel;
use std::sync::{Arc, Weak};

/// Bytes of a tensor in device memory, rounded up to whole words.
pub fn device_bytes(elem: Elem, count: usize) -> u64 {
    (count as u64).saturating_mul(elem.bytes()).next_multiple_of(4)
}

/// A tensor's bytes as the device has them.
fn for_device(elem: Elem, bytes: &[u8]) -> Cow<'_, [u8]> {
    if elem == Elem::Bool {
        return bytes.iter().flat_map(|&b| [u8::from(b != 0), 0, 0, 0]).collect();
    }
    match bytes.len() % 4 {
        0 => Cow::Borrowed(bytes),
        _ => {
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(4), 0);
            Cow::Owned(padded)
        }
    }
}

/// A tensor's bytes as the host has them.
fn for_host(elem: Elem, from: &[u8], to: &mut [u8]) {
    match elem {
        Elem::Bool => to.iter_mut().zip(from.chunks_exact(4)).for_each(|(to, word)| *to = word[0]),
        _ => {
            let len = to.len().min(from.len());
            to[..len].copy_from_slice(&from[..len]);
        }
    }
}

impl Gpu {
    /// A tensor in device memory.
    pub fn upload(self: &Arc<Self>, elem: Elem, bytes: &[u8]) -> Result<Arc<Slice>> {
        let data = for_device(elem, bytes);
        let slice = self.allocate(data.len() as u64)?;
        self.write(&slice, &data)?;
        Ok(slice)
    }

    /// Whole words into a slice, before all that is submitted later.
    pub fn write(&self, slice: &Slice, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.guarded("upload", || self.queue.write_buffer(&slice.buffer, slice.at, data))
    }

    /// A buffer that the host can read.
    pub fn staging(&self, bytes: u64) -> Result<wgpu::Buffer> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let size = bytes.max(4).next_multiple_of(8);
        let desc = wgpu::BufferDescriptor { label: Some("readback"), size, usage, mapped_at_creation: false };
        self.guarded("readback", || self.device.create_buffer(&desc))
    }

    /// Waits until what was submitted so far is there, then reads tensors out of a staging buffer: element, offset, where to.
    pub fn read(
        &self,
        staging: &wgpu::Buffer,
        parts: &mut [(Elem, u64, &mut [u8])],
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        let (done, answer) = channel();
        let turn = self.turn();
        staging.map_async(wgpu::MapMode::Read, .., move |result| {
            // Nobody listens any more when the run was stopped.
            let _ = done.send(result);
        });
        drop(turn);
        let told = self.told(&answer, stop);
        let _turn = self.turn();
        match told {
            Ok(mapped) => mapped.map_err(|e| Error::new(format!("results cannot be read: {e}")))?,
            Err(e) => {
                staging.unmap();
                return Err(e);
            }
        }
        let view = staging.get_mapped_range(..).map_err(|e| Error::new(format!("results cannot be read: {e}")))?;
        for (elem, at, to) in parts {
            let from = view.get(*at as usize..).unwrap_or_default();
            for_host(*elem, from, to);
        }
        drop(view);
        staging.unmap();
        Ok(())
    }

    /// A constant in device memory: everybody who holds one of this number shares it.
    pub fn weight(self: &Arc<Self>, id: u64, elem: Elem, bytes: &[u8]) -> Result<Arc<Slice>> {
        if let Some(slice) = lock(&self.weights).get(&id).and_then(Weak::upgrade) {
            return Ok(slice);
        }
        let slice = self.upload(elem, bytes)?;
        let mut weights = lock(&self.weights);
        if weights.len() == weights.capacity() {
            weights.retain(|_, slice| slice.strong_count() > 0);
        }
        weights.insert(id, Arc::downgrade(&slice));
        Ok(slice)
    }

    /// Tensors to the host: all with one submission and one wait.
    pub fn download(&self, mut tensors: Vec<Tensor<'_>>, stop: &dyn Fn() -> bool) -> Result<()> {
        tensors.retain(|(.., to)| !to.is_empty());
        let bytes = |(_, elem, to): &Tensor<'_>| {
            let count = if *elem == Elem::Bool { to.len() } else { to.len() / elem.bytes() as usize };
            device_bytes(*elem, count)
        };
        let places: Vec<u64> = tensors
            .iter()
            .scan(0, |end, tensor| {
                let at = *end;
                *end += bytes(tensor).next_multiple_of(8);
                Some(at)
            })
            .collect();
        let (Some(at), Some(tensor)) = (places.last(), tensors.last()) else { return Ok(()) };
        let staging = self.staging(at + bytes(tensor))?;
        self.guarded("readback", || {
            let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            for (tensor, &at) in tensors.iter().zip(&places) {
                encoder.copy_buffer_to_buffer(&tensor.0.buffer, tensor.0.at, &staging, at, bytes(tensor));
            }
            self.queue.submit([encoder.finish()]);
        })?;
        let mut parts: Vec<_> = tensors.into_iter().zip(places).map(|((_, elem, to), at)| (elem, at, to)).collect();
        self.read(&staging, &mut parts, stop)
    }
}

/// A slice with how it lies there, and the host's memory for it.
type Tensor<'a> = (Arc<Slice>, Elem, &'a mut [u8]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bools_are_words_and_halves_are_padded() {
        assert_eq!(*for_device(Elem::Bool, &[0, 1, 7]), [0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(*for_device(Elem::F16, &[1, 2]), [1, 2, 0, 0]);
        let mut to = [9; 2];
        for_host(Elem::Bool, &[1, 0, 0, 0, 0, 0, 0, 0], &mut to);
        assert_eq!(to, [1, 0]);
        for_host(Elem::F16, &[3, 4, 0, 0], &mut to);
        assert_eq!(to, [3, 4]);
        assert_eq!([device_bytes(Elem::F16, 3), device_bytes(Elem::Bool, 3), device_bytes(Elem::F32, 0)], [8, 12, 0]);
    }
}
