//! Moves a tensor between an EP's memory space and the host, by the EP's `copy`.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ortolan_ep_abi::raw;

use super::accept::{Giver, Release, accept, describe};
use super::ctx::{Kind, Refusal, RunSink, Setup, call};
use super::handle::{EpHandle, raw_tensor};
use crate::error::{Error, Result, codes};
use crate::value::{Buffer, Lender, SpaceId, Tensor, Value};

/// Where host memory for the result comes from.
pub(crate) type Make<'a> = &'a mut dyn FnMut(usize) -> Result<Arc<Buffer>>;

/// A copy of `tensor` in the space `to`. One of the two spaces is the EP's, the other the host's or the EP's too.
pub(crate) fn copy(
    ep: &Arc<EpHandle>,
    tensor: &Tensor,
    to: SpaceId,
    cancel: Option<&AtomicU32>,
    make: Make<'_>,
) -> Result<Tensor> {
    let Some(f) = ep.table().copy else {
        let text = format!("it cannot copy to or from '{}'", super::space_name(to));
        return Err(Error::new(codes::NO_COPY, text).from_ep(ep.name(), None));
    };
    let inputs = [raw_tensor(tensor)];
    let wants = [if to == SpaceId::HOST { raw::WANT_HOST } else { raw::WANT_ANY }];
    let setup = Setup { cancel, inputs: &inputs, wants: &wants, ..Setup::plain(ep.name(), 1) };
    let mut sink = Sink { ep, tensor, made: None, make };
    let kind = Kind::Run(UnsafeCell::new(&mut sink));
    // SAFETY: the EP is live, and so is the call while `f` runs.
    call(&setup, kind, codes::EP_FAILED, |call| unsafe { f(ep.raw(), call, to.0) })?;
    match sink.made {
        Some(made) if made.space() == to => Ok(made),
        _ => {
            let text = format!("copy made no value in '{}'", super::space_name(to));
            Err(Error::new(codes::EP_FAULT, text).from_ep(ep.name(), None))
        }
    }
}

struct Sink<'a> {
    ep: &'a Arc<EpHandle>,
    tensor: &'a Tensor,
    made: Option<Tensor>,
    make: Make<'a>,
}

impl Sink<'_> {
    fn check(&self, index: u32, made: &Tensor) -> Result<(), Refusal> {
        if index != 0 || made.dtype != self.tensor.dtype || made.shape != self.tensor.shape {
            let text = format!("copy: output {index} is {made:?}, and {:?} was to be copied", self.tensor);
            return Err(Refusal::fault(text));
        }
        Ok(())
    }
}

impl RunSink for Sink<'_> {
    fn output(&mut self, index: u32, dtype: u32, shape: &[i64], out: &mut raw::Value) -> Result<(), Refusal> {
        // SAFETY: the shape is a slice.
        let (dtype, shape, bytes) =
            unsafe { describe(dtype, u32::try_from(shape.len()).unwrap_or(u32::MAX), shape.as_ptr()) }?;
        let buffer = (self.make)(bytes).map_err(|e| Refusal::memory(codes::OUT_OF_MEMORY, e.message()))?;
        let made = Tensor { dtype, shape, buffer, at: 0, bytes };
        self.check(index, &made)?;
        *out = raw_tensor(self.made.insert(made));
        Ok(())
    }

    fn give(&mut self, index: u32, value: &raw::Value, release: Release) -> Result<(), Refusal> {
        // SAFETY: the ABI asks that the value is live.
        match unsafe { accept(value, release, self) }? {
            Value::Tensor(made) => {
                self.check(index, &made)?;
                self.made = Some(made);
                Ok(())
            }
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
        std::ptr::addr_eq(Arc::as_ptr(&self.tensor.buffer), buffer).then(|| Arc::clone(&self.tensor.buffer))
    }

    fn is_borrowed(&self, _: *const u8) -> bool {
        false
    }

    fn lender(&self) -> Arc<dyn Lender> {
        Arc::new(Arc::clone(self.ep))
    }
}
