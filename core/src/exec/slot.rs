//! A slot of a lane: a value and the struct by which it crosses the ABI.

use ortolan_ep_abi::call::EMPTY;
use ortolan_ep_abi::raw;

use super::memory::Memory;
use crate::abi::raw_tensor;
use crate::program::number;
use crate::value::{Tensor, TensorView, Value};

/// Filled and emptied in place; `raw` points into `held`, so a filled slot must not move.
pub(crate) struct SlotState {
    pub raw: raw::Value,
    held: Held,
    /// Arrays of items of a sequence, optional or map.
    items: Vec<Box<[raw::Value]>>,
    /// A run that has not finished reads or writes it.
    pub pending: bool,
}

pub(crate) enum Held {
    Empty,
    /// Memory of the caller for the time of the run.
    Lent,
    Value(Value),
}

impl SlotState {
    pub const fn new() -> SlotState {
        SlotState { raw: EMPTY, held: Held::Empty, items: Vec::new(), pending: false }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self.held, Held::Empty)
    }

    pub fn value(&self) -> Option<&Value> {
        match &self.held {
            Held::Value(v) => Some(v),
            _ => None,
        }
    }

    pub fn tensor(&self) -> Option<&Tensor> {
        match &self.held {
            Held::Value(Value::Tensor(t)) => Some(t),
            _ => None,
        }
    }

    /// Fills it with a tensor; returns the struct that crosses.
    pub fn set_tensor(&mut self, tensor: Tensor) -> &raw::Value {
        self.held = Held::Value(Value::Tensor(tensor));
        if let Held::Value(Value::Tensor(t)) = &self.held {
            self.raw = raw_tensor(t);
        }
        &self.raw
    }

    pub fn set(&mut self, value: Value) {
        match value {
            Value::Tensor(t) => _ = self.set_tensor(t),
            other => {
                self.held = Held::Value(other);
                if let Held::Value(v) = &self.held {
                    self.raw = raw_value(v, &mut self.items);
                }
            }
        }
    }

    /// Lends the caller's memory.
    ///
    /// # Safety
    /// The view stays valid until the slot is emptied.
    pub unsafe fn lend(&mut self, view: &TensorView<'_>) {
        self.held = Held::Lent;
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
        match &other.held {
            Held::Empty => {}
            Held::Lent => (self.held, self.raw) = (Held::Lent, other.raw),
            Held::Value(v) => self.set(v.clone()),
        }
    }

    /// Empties it.
    pub fn take(&mut self) -> Held {
        self.raw = EMPTY;
        if !self.items.is_empty() {
            self.items.clear();
        }
        std::mem::replace(&mut self.held, Held::Empty)
    }

    /// Empties it; a buffer that nobody else holds is used again.
    pub fn clear(&mut self, memory: &mut Memory) {
        if let Held::Value(value) = self.take() {
            recycle(value, memory);
        }
    }

    /// Whether its memory is nobody else's and not lent, so that the last reader may have it. `backup`: one other handle
    /// is kept in case the run fails.
    pub fn is_sole(&self, backup: bool) -> bool {
        let most = if backup { 2 } else { 1 };
        self.tensor().is_some_and(|t| std::sync::Arc::strong_count(&t.buffer) <= most)
    }
}

pub(crate) fn recycle(value: Value, memory: &mut Memory) {
    if let Value::Tensor(t) = value {
        memory.recycle(t.buffer);
    }
}

/// The struct of a value of any kind; arrays of items go to `keep`. It points into `value`.
pub(crate) fn raw_value(value: &Value, keep: &mut Vec<Box<[raw::Value]>>) -> raw::Value {
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
