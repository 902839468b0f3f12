//! A slot of a lane: a value and the struct by which it crosses the ABI.
//!
//! Tensors lie flat in the slot and are filled in place, because a part's outputs are made here in every run.

use std::sync::Arc;

use ortolan_ep_abi::call::EMPTY;
use ortolan_ep_abi::raw;
use ortolan_graph::ir::DType;

use super::memory::Memory;
use crate::abi::raw_tensor;
use crate::program::number;
use crate::value::{Buffer, Shape, Tensor, TensorView, Value};

/// Filled and emptied in place; `raw` points into it, so a filled slot must not move.
pub(crate) struct SlotState {
    pub raw: raw::Value,
    kind: Kind,
    dtype: DType,
    /// Sizes of a tensor; those of more than [`FEW`] dims lie in `many`.
    few: [i64; FEW],
    many: Vec<i64>,
    buffer: Option<Arc<Buffer>>,
    at: usize,
    other: Option<Box<Other>>,
    /// What runs that have not finished do with it.
    pub late: Late,
}

/// What runs that have not finished do with a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Late {
    No,
    /// They read it: others may, too, but nobody may write.
    Read,
    /// One makes it: nobody may touch it.
    Made,
}

/// Dims that lie in the slot itself.
const FEW: usize = 6;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Empty,
    /// Memory of the caller for the time of the run.
    Lent,
    Tensor,
    /// A sequence, optional or map.
    Other,
}

struct Other {
    value: Value,
    /// Arrays of its items.
    items: Vec<Box<[raw::Value]>>,
}

/// What was in a slot.
pub(crate) enum Held {
    Empty,
    /// Memory of the caller for the time of the run.
    Lent,
    Value(Value),
}

impl SlotState {
    pub fn new() -> SlotState {
        SlotState {
            raw: EMPTY,
            kind: Kind::Empty,
            dtype: DType::F32,
            few: [0; FEW],
            many: Vec::new(),
            buffer: None,
            at: 0,
            other: None,
            late: Late::No,
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.kind == Kind::Empty
    }

    #[inline]
    pub fn is_lent(&self) -> bool {
        self.kind == Kind::Lent
    }

    /// The value, if it has one of its own; a tensor is another handle to the same memory.
    pub fn value(&self) -> Option<Value> {
        match (self.kind, &self.other) {
            (Kind::Tensor, _) => self.tensor().map(Value::Tensor),
            (Kind::Other, Some(other)) => Some(other.value.clone()),
            _ => None,
        }
    }

    /// A sequence, optional or map.
    pub fn composite(&self) -> Option<&Value> {
        self.other.as_ref().filter(|_| self.kind == Kind::Other).map(|o| &o.value)
    }

    /// The buffer of a tensor.
    #[inline]
    pub fn buffer(&self) -> Option<&Arc<Buffer>> {
        self.buffer.as_ref().filter(|_| self.kind == Kind::Tensor)
    }

    pub fn tensor(&self) -> Option<Tensor> {
        let buffer = Arc::clone(self.buffer()?);
        let bytes = usize::try_from(self.raw.bytes).unwrap_or(0);
        Some(Tensor { dtype: self.dtype, shape: self.shape(), buffer, at: self.at, bytes })
    }

    /// Sizes of the tensor that it holds.
    fn shape(&self) -> Shape {
        let rank = self.raw.rank as usize;
        Shape::from_slice(if rank <= FEW { &self.few[..rank] } else { &self.many })
    }

    /// Whether it holds a tensor of this type and shape in host memory.
    pub fn is_like(&self, dtype: DType, shape: &[i64]) -> bool {
        self.kind == Kind::Tensor && self.dtype == dtype && self.shape()[..] == *shape && self.raw.space == 0
    }

    /// Fills it with a tensor that begins at `at` of a buffer. Returns its struct, still in registers: reading it back
    /// from the slot at once waits for the stores.
    #[inline(always)]
    pub fn fill(&mut self, dtype: DType, shape: &[i64], buffer: Arc<Buffer>, at: usize, bytes: usize) -> raw::Value {
        let sizes = match self.few.get_mut(..shape.len()) {
            Some(few) => {
                few.copy_from_slice(shape);
                few.as_ptr()
            }
            None => {
                self.many.clear();
                self.many.extend_from_slice(shape);
                self.many.as_ptr()
            }
        };
        let made = raw::Value {
            kind: raw::VALUE_TENSOR,
            dtype: number(dtype),
            rank: shape.len() as u32,
            flags: 0,
            shape: sizes,
            data: buffer.ptr().wrapping_add(at),
            bytes: bytes as u64,
            space: buffer.space().0,
            item_count: 0,
            items: std::ptr::null(),
            buffer: Arc::as_ptr(&buffer).cast_mut().cast(),
        };
        self.raw = made;
        (self.kind, self.dtype, self.at, self.buffer) = (Kind::Tensor, dtype, at, Some(buffer));
        made
    }

    pub fn set_tensor(&mut self, t: Tensor) {
        self.fill(t.dtype, &t.shape, t.buffer, t.at, t.bytes);
    }

    pub fn set(&mut self, value: Value) {
        let value = match value {
            Value::Tensor(t) => return self.set_tensor(t),
            other => other,
        };
        self.buffer = None;
        let other = self.other.insert(Box::new(Other { value, items: Vec::new() }));
        self.raw = raw_value(&other.value, &mut other.items);
        self.kind = Kind::Other;
    }

    /// Lends the caller's memory.
    ///
    /// # Safety
    /// The view stays valid until the slot is emptied.
    pub unsafe fn lend(&mut self, view: &TensorView<'_>) {
        self.buffer = None;
        self.kind = Kind::Lent;
        self.raw = raw::Value {
            kind: raw::VALUE_TENSOR,
            dtype: number(view.dtype),
            rank: u32::try_from(view.shape.len()).unwrap_or(u32::MAX),
            shape: view.shape.as_ptr(),
            data: view.data.as_ptr().cast_mut(),
            bytes: view.data.len() as u64,
            ..EMPTY
        };
    }

    /// The same as in another slot.
    pub fn share(&mut self, other: &SlotState) {
        match (other.kind, other.value()) {
            (Kind::Lent, _) => {
                self.buffer = None;
                (self.kind, self.raw) = (Kind::Lent, other.raw);
            }
            (_, Some(value)) => self.set(value),
            _ => {}
        }
    }

    /// Empties it.
    pub fn take(&mut self) -> Held {
        let bytes = usize::try_from(self.raw.bytes).unwrap_or(0);
        let held = match (self.kind, self.buffer.take(), self.other.take()) {
            (Kind::Lent, ..) => Held::Lent,
            (Kind::Tensor, Some(buffer), _) => {
                let shape = self.shape();
                Held::Value(Value::Tensor(Tensor { dtype: self.dtype, shape, buffer, at: self.at, bytes }))
            }
            (Kind::Other, _, Some(other)) => Held::Value(other.value),
            _ => Held::Empty,
        };
        self.forget();
        held
    }

    #[inline]
    fn forget(&mut self) {
        self.kind = Kind::Empty;
        (self.raw.kind, self.raw.space, self.raw.buffer) = (raw::VALUE_ABSENT, 0, std::ptr::null_mut());
        if self.other.is_some() {
            self.other = None;
        }
    }

    /// Empties it; a buffer that nobody else holds is used again.
    #[inline]
    pub fn clear(&mut self, memory: &mut Memory) {
        self.forget();
        if let Some(buffer) = self.buffer.take() {
            memory.recycle(buffer);
        }
    }

    /// Whether its memory is nobody else's and not lent, so that the last reader may have it. `backup`: one other handle
    /// is kept in case the run fails.
    #[inline]
    pub fn is_sole(&self, backup: bool) -> bool {
        let most = if backup { 2 } else { 1 };
        self.buffer().is_some_and(|b| Arc::strong_count(b) <= most && b.may_be_donated())
    }
}

pub(crate) fn recycle(value: Value, memory: &mut Memory) {
    if let Value::Tensor(t) = value {
        memory.recycle(t.buffer);
    }
}

/// The struct of a value of any kind; arrays of items go to `keep`. It points into `value`.
fn raw_value(value: &Value, keep: &mut Vec<Box<[raw::Value]>>) -> raw::Value {
    match value {
        Value::Tensor(t) => raw_tensor(t),
        Value::Sequence(s) => {
            let items = s.iter().map(|v| raw_value(v, keep)).collect();
            whole(raw::VALUE_SEQUENCE, items, keep)
        }
        Value::Optional(v) => {
            let items = v.iter().map(|v| raw_value(v, keep)).collect();
            whole(raw::VALUE_OPTIONAL, items, keep)
        }
        Value::Map(m) => {
            let items = Box::new([raw_tensor(&m.keys), raw_value(&m.values, keep)]);
            whole(raw::VALUE_MAP, items, keep)
        }
    }
}

fn whole(kind: u32, items: Box<[raw::Value]>, keep: &mut Vec<Box<[raw::Value]>>) -> raw::Value {
    let item_count = u32::try_from(items.len()).unwrap_or(u32::MAX);
    let made = raw::Value { kind, items: items.as_ptr(), item_count, ..EMPTY };
    keep.push(items);
    made
}
