//! Moves tensors between an EP's memory space and the host, by the EP's `copy`.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ortolan_ep_abi::raw;

use super::accept::{Giver, Release, accept, describe};
use super::ctx::{Kind, Refusal, RunSink, Setup, call};
use super::handle::{EpHandle, raw_tensor};
use crate::error::{Error, Result, codes};
use crate::value::{Buffer, Lender, SpaceId, Tensor, Value};

/// Where host memory for results comes from.
pub(crate) type Make<'a> = &'a mut dyn FnMut(usize) -> Result<Arc<Buffer>>;

/// What a copy is made in the course of.
#[derive(Default)]
pub(crate) struct Copying<'a> {
    pub cancel: Option<&'a AtomicU32>,
    /// How errors name a node: a run that returned early may have failed since.
    pub place: Option<&'a dyn Fn(u32) -> Option<String>>,
}

/// Copies of `tensors`, which lie in one space, in the space `to`. One of the two spaces is the EP's, the other the host's
/// or the EP's too.
pub(crate) fn copy(
    ep: &Arc<EpHandle>,
    tensors: &[&Tensor],
    to: SpaceId,
    copying: &Copying<'_>,
    make: Make<'_>,
) -> Result<Vec<Tensor>> {
    let Some(f) = ep.table().copy else {
        let text = format!("it cannot copy to or from '{}'", super::space_name(to));
        return Err(Error::new(codes::NO_COPY, text).from_ep(ep.name(), None));
    };
    ep.alive()?;
    let inputs: Vec<raw::Value> = tensors.iter().map(|t| raw_tensor(t)).collect();
    let wants = vec![if to == SpaceId::HOST { raw::WANT_HOST } else { raw::WANT_ANY }; tensors.len()];
    let plain = Setup::plain(ep.name(), 1);
    let place = copying.place.unwrap_or(plain.place);
    let setup = Setup { cancel: copying.cancel, inputs: &inputs, wants: &wants, place, ..plain };
    let mut sink = Sink { ep, tensors, made: vec![None; tensors.len()], make };
    let kind = Kind::Run(UnsafeCell::new(&mut sink));
    // SAFETY: the EP is live, and so is the call while `f` runs.
    call(&setup, kind, codes::EP_FAILED, |call| unsafe { f(ep.raw(), call, to.0) }).map_err(|e| ep.noted(e))?;
    let made: Option<Vec<Tensor>> = sink.made.into_iter().map(|t| t.filter(|t| t.space() == to)).collect();
    made.ok_or_else(|| {
        let text = format!("copy left a value out, or not in '{}'", super::space_name(to));
        Error::new(codes::EP_FAULT, text).from_ep(ep.name(), None)
    })
}

struct Sink<'a> {
    ep: &'a Arc<EpHandle>,
    tensors: &'a [&'a Tensor],
    made: Vec<Option<Tensor>>,
    make: Make<'a>,
}

impl Sink<'_> {
    /// The place for an output.
    fn put(&mut self, index: u32, made: Tensor) -> Result<&Tensor, Refusal> {
        let at = index as usize;
        let Some((from, to)) = self.tensors.get(at).zip(self.made.get_mut(at)) else {
            return Err(Refusal::fault(format!("copy: there is no output {index}")));
        };
        if made.dtype != from.dtype || made.shape != from.shape {
            return Err(Refusal::fault(format!("copy: output {index} is {made:?}, and {from:?} was to be copied")));
        }
        Ok(to.insert(made))
    }
}

impl RunSink for Sink<'_> {
    fn output(&mut self, index: u32, dtype: u32, shape: &[i64], out: &mut raw::Value) -> Result<(), Refusal> {
        // SAFETY: the shape is a slice.
        let (dtype, shape, bytes) =
            unsafe { describe(dtype, u32::try_from(shape.len()).unwrap_or(u32::MAX), shape.as_ptr()) }?;
        let buffer = (self.make)(bytes).map_err(|e| Refusal::memory(codes::OUT_OF_MEMORY, e.message()))?;
        *out = raw_tensor(self.put(index, Tensor { dtype, shape, buffer, at: 0, bytes })?);
        Ok(())
    }

    fn give(&mut self, index: u32, value: &raw::Value, release: Release) -> Result<(), Refusal> {
        // SAFETY: the ABI asks that the value is live.
        match unsafe { accept(value, release, self) }? {
            Value::Tensor(made) => self.put(index, made).map(|_| ()),
            _ => Err(Refusal::fault("copy: a tensor was to be copied")),
        }
    }

    fn alloc(&mut self, _: u64) -> Result<*mut u8, Refusal> {
        Err(Refusal::fault("alloc: a copy has no scratch"))
    }

    fn profile(&mut self, _: &[raw::Event]) {}

    fn defer(&mut self) -> Result<*mut raw::Fence, Refusal> {
        Err(Refusal::fault("defer: a copy has finished when it returns"))
    }
}

impl Giver for Sink<'_> {
    fn find(&self, buffer: *mut raw::Buffer) -> Option<Arc<Buffer>> {
        let same = |t: &&&Tensor| std::ptr::addr_eq(Arc::as_ptr(&t.buffer), buffer);
        self.tensors.iter().find(same).map(|t| Arc::clone(&t.buffer))
    }

    fn is_borrowed(&self, _: *const u8) -> bool {
        false
    }

    fn lender(&self) -> Arc<dyn Lender> {
        Arc::new(Arc::clone(self.ep))
    }
}
