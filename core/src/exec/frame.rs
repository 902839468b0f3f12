//! Receives what a part makes during its run: the host's side of `output`, `give`, `alloc`, `defer` and `profile`.

use std::sync::Arc;

use ortolan_ep_abi::raw::{self, NONE};
use ortolan_graph::ir::DType;

use super::lane::State;
use crate::abi::{Fence, Giver, Kernel, Refusal, Release, RunSink, accept, raw_tensor};
use crate::error::codes;
use crate::plan::{Plan, RunStep, SlotInfo};
use crate::program::number;
use crate::value::{Buffer, Lender, Shape, Tensor, Value, byte_len};

/// One run of one part.
pub(crate) struct Frame<'r> {
    pub plan: &'r Plan,
    pub step: &'r RunStep,
    pub state: &'r mut State,
    /// Buffers that the user bound, by output of the model.
    pub bound: &'r [Option<Tensor>],
    pub inputs: &'r [raw::Value],
    pub fence: Option<Arc<Fence>>,
}

impl Frame<'_> {
    /// The slot of an output, and what its value must be.
    #[inline]
    fn out(&self, function: &str, index: u32) -> Result<(u32, &SlotInfo), Refusal> {
        match self.step.outs.get(index as usize) {
            Some(&slot) => Ok((slot, &self.plan.slots[slot as usize])),
            None => Err(Refusal::fault(format!("{function}: the part has no output {index}"))),
        }
    }

    /// The tensor that the user bound for a slot's value.
    #[inline]
    fn bound(&self, info: &SlotInfo) -> Option<&Tensor> {
        info.output.and_then(|k| self.bound.get(k as usize)).and_then(Option::as_ref)
    }

    /// An element of a sequence, for `give`.
    #[cold]
    fn loose(&mut self, dtype: u32, shape: &[i64], out: &mut raw::Value) -> Result<(), Refusal> {
        let dtype = known(dtype)?;
        let bytes = byte_len(dtype, shape).map_err(|e| Refusal::fault(e.message()))?;
        let buffer = self.state.memory.buffer(bytes)?;
        let tensor = Box::new(Tensor { dtype, shape: Shape::from_slice(shape), buffer, at: 0, bytes });
        *out = raw_tensor(&tensor);
        self.state.loose.push(tensor);
        Ok(())
    }

    /// A second request for an output: the same memory for the same shape.
    #[cold]
    fn again(
        &self,
        (index, slot): (u32, u32),
        dtype: DType,
        shape: &[i64],
        out: &mut raw::Value,
    ) -> Result<(), Refusal> {
        let state = &self.state.slots[slot as usize];
        if !state.is_like(dtype, shape) {
            return Err(Refusal::fault(format!("output: output {index} was made already, with another shape")));
        }
        *out = state.raw;
        Ok(())
    }
}

/// Bytes of a tensor whose elements have this many bits, a multiple of 8; `None` where that is not so easy.
#[inline]
fn whole_bytes(bits: u32, shape: &[i64]) -> Option<usize> {
    let mut bytes = (bits / 8) as usize;
    if !bits.is_multiple_of(8) || bits == 0 {
        return None;
    }
    for &d in shape {
        bytes = bytes.checked_mul(usize::try_from(d).ok()?)?;
    }
    isize::try_from(bytes).ok().map(|_| bytes)
}

fn known(dtype: u32) -> Result<DType, Refusal> {
    let found = i32::try_from(dtype).ok().and_then(DType::from_number);
    match found {
        Some(DType::String) => Err(Refusal::fault("output: strings are handed over with give")),
        Some(dtype) => Ok(dtype),
        None => Err(Refusal::fault(format!("output: {dtype} is no element type"))),
    }
}

#[cold]
fn mismatch(function: &str, info: &SlotInfo, dtype: u32, shape: &[i64]) -> Refusal {
    let made = i32::try_from(dtype).ok().and_then(DType::from_number).map_or("unknown", DType::name);
    let want = info.dtype.map_or("any type", DType::name);
    let rank = info.rank.map_or_else(|| "any rank".to_owned(), |r| format!("rank {r}"));
    Refusal::fault(format!("{function}: '{}' is {want} of {rank}, and {made} {shape:?} was made", info.name))
}

fn misfit(info: &SlotInfo, bound: &Tensor, dtype: DType, shape: &[i64], bytes: usize) -> Refusal {
    let text = format!(
        "output '{}' is {dtype} {shape:?} ({bytes} bytes), and {} with room for {} bytes is bound",
        info.name, bound.dtype, bound.bytes
    );
    Refusal::new(raw::FAILED, codes::BOUND_SHAPE, text)
}

impl RunSink for Frame<'_> {
    fn output(&mut self, index: u32, dtype: u32, shape: &[i64], out: &mut raw::Value) -> Result<(), Refusal> {
        if index == NONE {
            return self.loose(dtype, shape, out);
        }
        let (slot, info) = self.out("output", index)?;
        let expected = match info.dtype {
            Some(d) if info.number == dtype => d,
            Some(_) => return Err(mismatch("output", info, dtype, shape)),
            None => known(dtype)?,
        };
        if info.rank.is_some_and(|r| r as usize != shape.len()) {
            return Err(mismatch("output", info, dtype, shape));
        }
        let bytes = match whole_bytes(info.bits, shape) {
            Some(bytes) => bytes,
            None => byte_len(expected, shape).map_err(|e| Refusal::fault(e.message()))?,
        };
        if !self.state.slots[slot as usize].is_empty() {
            return self.again((index, slot), expected, shape, out);
        }
        let (buffer, at) = match (self.bound(info), info.output) {
            (Some(bound), _) if bound.dtype != expected || bound.bytes < bytes => {
                return Err(misfit(info, bound, expected, shape, bytes));
            }
            (Some(bound), _) => (Arc::clone(&bound.buffer), bound.at),
            (None, Some(k)) => (self.state.memory.output(k as usize, bytes)?, 0),
            (None, None) => (self.state.memory.buffer(bytes)?, 0),
        };
        *out = self.state.slots[slot as usize].fill(expected, shape, buffer, at, bytes);
        Ok(())
    }

    fn give(&mut self, index: u32, value: &raw::Value, release: Release) -> Result<(), Refusal> {
        let (slot, _) = self.out("give", index)?;
        if !self.state.slots[slot as usize].is_empty() {
            return Err(Refusal::fault(format!("give: output {index} was made already")));
        }
        // SAFETY: the ABI asks that the value and all it points to are live.
        let value = unsafe { accept(value, release, self) }?;
        let info = &self.plan.slots[slot as usize];
        let fits = match &value {
            Value::Tensor(t) => {
                info.dtype.is_none_or(|d| d == t.dtype) && info.rank.is_none_or(|r| r as usize == t.shape.len())
            }
            _ => info.dtype.is_none(),
        };
        if !fits {
            let (dtype, shape) = value.as_tensor().map_or((0, &[][..]), |t| (number(t.dtype), t.shape()));
            return Err(mismatch("give", info, dtype, shape));
        }
        let value = match (self.bound(info), value) {
            (Some(bound), Value::Tensor(t)) if t.is_host() => Value::Tensor(into_bound(info, bound, &t)?),
            (_, value) => value,
        };
        self.state.slots[slot as usize].set(value);
        Ok(())
    }

    fn alloc(&mut self, bytes: u64) -> Result<*mut u8, Refusal> {
        self.state.memory.scratch(bytes)
    }

    fn profile(&mut self, events: &[raw::Event]) {
        if let Some(recorder) = &mut self.state.recorder {
            recorder.kernels(self.step.part, events.iter().map(Kernel::of));
        }
    }

    fn defer(&mut self) -> Result<*mut raw::Fence, Refusal> {
        if self.fence.is_some() {
            return Err(Refusal::fault("defer: the run has a fence already"));
        }
        Ok(self.fence.insert(Fence::new(self.state.recorder.is_some())).as_raw())
    }
}

impl Giver for Frame<'_> {
    fn find(&self, buffer: *mut raw::Buffer) -> Option<Arc<Buffer>> {
        let same = |b: &Arc<Buffer>| std::ptr::addr_eq(Arc::as_ptr(b), buffer);
        let loose = self.state.loose.iter().map(|t| &t.buffer).find(|b| same(b));
        let within = |slot: u32| {
            let slot = &self.state.slots[slot as usize];
            let own = slot.buffer().filter(|b| same(b)).cloned();
            own.or_else(|| slot.composite().and_then(|v| search(v, &same)))
        };
        loose.cloned().or_else(|| self.step.ins.iter().find_map(|i| within(i.slot)))
    }

    fn is_borrowed(&self, data: *const u8) -> bool {
        let within = |v: &raw::Value| {
            let offset = data.addr().wrapping_sub(v.data.addr()) as u64;
            v.space == 0 && v.buffer.is_null() && offset < v.bytes.max(1)
        };
        self.inputs.iter().any(within)
    }

    fn lender(&self) -> Arc<dyn Lender> {
        Arc::clone(&self.plan.parts[self.step.part as usize]) as Arc<dyn Lender>
    }
}

fn search(value: &Value, same: &impl Fn(&Arc<Buffer>) -> bool) -> Option<Arc<Buffer>> {
    match value {
        Value::Tensor(t) => same(&t.buffer).then(|| Arc::clone(&t.buffer)),
        Value::Sequence(s) => s.iter().find_map(|v| search(v, same)),
        Value::Optional(v) => v.as_ref().and_then(|v| search(v, same)),
        Value::Map(m) => same(&m.keys.buffer).then(|| Arc::clone(&m.keys.buffer)).or_else(|| search(&m.values, same)),
    }
}

/// Copies a tensor into the buffer that the user bound, unless it lies there already.
pub(crate) fn into_bound(info: &SlotInfo, bound: &Tensor, made: &Tensor) -> Result<Tensor, Refusal> {
    let fits = bound.dtype == made.dtype && bound.bytes >= made.bytes && made.dtype != DType::String;
    if !fits {
        return Err(misfit(info, bound, made.dtype, &made.shape, made.bytes));
    }
    let to = bound.buffer.ptr().wrapping_add(bound.at);
    let from = made.buffer.ptr().wrapping_add(made.at);
    if from != to {
        tracing::debug!(output = &*info.name, "copied into the bound buffer");
        // SAFETY: both buffers have that many bytes; the bound one is writable by the contract of binding. They may
        // overlap when the user bound a part of an input.
        unsafe { std::ptr::copy(from, to, made.bytes) };
    }
    Ok(Tensor {
        dtype: made.dtype,
        shape: made.shape.clone(),
        buffer: Arc::clone(&bound.buffer),
        at: bound.at,
        bytes: made.bytes,
    })
}
