//! `If`, `Loop` and `Scan`: bodies that the executor walks on the lane of the run.

use std::sync::Arc;

use ortolan_ep_abi::raw;
use ortolan_graph::ir::DType;

use super::cancel::stopped;
use super::run::{Run, buffer_of};
use super::slot::{Held, Late};
use crate::error::{Error, Result, codes};
use crate::plan::{Body, Carried, LoopStep, Rows, ScanStep, Slot, Stack};
use crate::value::{Buffer, Shape, Tensor, Value, byte_len};

impl<'r> Run<'r> {
    pub fn conditional(&mut self, cond: Slot, then: &'r Body, els: &'r Body) -> Result<()> {
        let body = if self.truth(cond)? { then } else { els };
        self.steps(&body.steps)?;
        for &(from, to) in &body.results {
            self.share(from, to)?;
        }
        self.clear(&body.locals)
    }

    fn clear(&mut self, slots: &[Slot]) -> Result<()> {
        if slots.iter().any(|&s| self.lane.state.slots[s as usize].late != Late::No) {
            self.settle()?;
        }
        let state = &mut self.lane.state;
        for &slot in slots {
            state.slots[slot as usize].clear(&mut state.memory);
        }
        Ok(())
    }

    /// A single element in host memory.
    fn scalar<const N: usize>(&mut self, slot: Slot, dtype: DType) -> Result<[u8; N]> {
        self.settle()?;
        let value = &self.lane.state.slots[slot as usize].raw;
        let fits = value.kind == raw::VALUE_TENSOR
            && value.space == 0
            && value.dtype == crate::program::number(dtype)
            && value.bytes == N as u64;
        if !fits {
            let text = format!("'{}' is not a single {dtype}", self.plan.slots[slot as usize].name);
            return Err(Error::new(codes::DATA, text));
        }
        // SAFETY: host memory of N bytes, as just checked.
        let bytes = unsafe { raw::slice(value.data.cast_const(), N) };
        bytes.try_into().map_err(|_| self.missing(slot))
    }

    fn truth(&mut self, slot: Slot) -> Result<bool> {
        self.scalar::<1>(slot, DType::Bool).map(|b| b[0] != 0)
    }

    fn set_scalar(&mut self, slot: Slot, dtype: DType, bytes: &[u8], like: &[i64]) -> Result<()> {
        let state = &mut self.lane.state;
        let buffer = buffer_of(&mut state.memory, bytes)?;
        let tensor = Tensor { dtype, shape: Shape::from_slice(like), buffer, at: 0, bytes: bytes.len() };
        state.slots[slot as usize].set_tensor(tensor);
        Ok(())
    }

    /// A scalar's shape as the body declares it: of rank 0, or one element of rank 1.
    fn scalar_shape(&self, slot: Slot) -> &'static [i64] {
        if self.plan.slots[slot as usize].rank == Some(1) { &[1] } else { &[] }
    }

    fn enter(&mut self, carried: &[Carried]) -> Result<()> {
        carried.iter().try_for_each(|c| self.share(c.initial, c.inside))
    }

    /// What the body made becomes what the next iteration gets; everything else of the body goes.
    fn advance(&mut self, carried: &[Carried], locals: &[Slot]) -> Result<()> {
        self.settle()?;
        let slots = &mut self.lane.state.slots;
        let next: Vec<Held> = carried.iter().map(|c| slots[c.next as usize].take()).collect();
        self.clear(locals)?;
        for (c, held) in carried.iter().zip(next) {
            match held {
                Held::Value(value) => self.lane.state.slots[c.inside as usize].set(value),
                // Lent memory of the caller that the body only passed on.
                Held::Lent | Held::Empty => return Err(self.missing(c.next)),
            }
            self.define(&[c.inside])?;
        }
        Ok(())
    }

    fn leave(&mut self, carried: &[Carried]) -> Result<()> {
        for c in carried {
            if let Some(to) = c.result {
                self.share(c.inside, to)?;
            }
        }
        Ok(())
    }

    /// Lent values cannot be handed from iteration to iteration: the loop's own are owned.
    fn own(&mut self, slots: impl Iterator<Item = Slot>) -> Result<()> {
        for slot in slots {
            let lent = self.lane.state.slots[slot as usize].is_lent();
            if lent && let Some(tensor) = self.owned(slot)? {
                self.lane.state.slots[slot as usize].set_tensor(tensor);
            }
        }
        Ok(())
    }

    pub fn repeat(&mut self, s: &'r LoopStep) -> Result<()> {
        let trips = match s.trip {
            Some(slot) => i64::from_ne_bytes(self.scalar::<8>(slot, DType::I64)?),
            None => i64::MAX,
        };
        let mut go_on = match s.cond {
            Some(slot) => self.truth(slot)?,
            None => true,
        };
        self.enter(&s.carried)?;
        self.own(s.carried.iter().map(|c| c.inside))?;
        let mut stacks: Vec<Rowset> = s.scans.iter().map(|_| Rowset::default()).collect();
        let mut trip = 0i64;
        while go_on && trip < trips {
            stopped(self.cancel)?;
            let (iter, cond) = (self.scalar_shape(s.iter_in), self.scalar_shape(s.cond_in));
            self.set_scalar(s.iter_in, DType::I64, &trip.to_ne_bytes(), iter)?;
            self.set_scalar(s.cond_in, DType::Bool, &[1], cond)?;
            self.define(&[s.iter_in, s.cond_in])?;
            self.steps(&s.body.steps)?;
            go_on = self.truth(s.cond_out)?;
            self.own(s.carried.iter().map(|c| c.next))?;
            self.gather(&s.scans, &mut stacks)?;
            self.advance(&s.carried, &s.body.locals)?;
            trip += 1;
        }
        self.leave(&s.carried)?;
        self.clear(&s.body.locals)?;
        self.stack(&s.scans, stacks)
    }

    pub fn scan(&mut self, s: &'r ScanStep) -> Result<()> {
        self.own(s.rows.iter().map(|r| r.from).collect::<Vec<_>>().into_iter())?;
        let sources = s.rows.iter().map(|r| self.source(r)).collect::<Result<Vec<_>>>()?;
        let trips = sources.first().map_or(0, |r| r.count);
        if let Some(at) = sources.iter().position(|r| r.count != trips) {
            let text = format!("scan input {at} has {} rows, and the first has {trips}", sources[at].count);
            return Err(Error::new(codes::DATA, text));
        }
        self.enter(&s.states)?;
        self.own(s.states.iter().map(|c| c.inside))?;
        let mut stacks: Vec<Rowset> = s.scans.iter().map(|_| Rowset::default()).collect();
        for trip in 0..trips {
            stopped(self.cancel)?;
            for (row, source) in s.rows.iter().zip(&sources) {
                let at = if row.reverse { trips - 1 - trip } else { trip };
                let tensor = self.row(source, at)?;
                self.lane.state.slots[row.inside as usize].set_tensor(tensor);
                self.define(&[row.inside])?;
            }
            self.steps(&s.body.steps)?;
            self.own(s.states.iter().map(|c| c.next))?;
            self.gather(&s.scans, &mut stacks)?;
            self.advance(&s.states, &s.body.locals)?;
        }
        self.leave(&s.states)?;
        self.clear(&s.body.locals)?;
        self.stack(&s.scans, stacks)
    }

    fn source(&self, rows: &Rows) -> Result<Source> {
        let name = &self.plan.slots[rows.from as usize].name;
        let wrong = |text: &str| Error::new(codes::DATA, format!("scan input '{name}' {text}"));
        let tensor = self.lane.state.slots[rows.from as usize].tensor().ok_or_else(|| wrong("is no tensor"))?;
        let axis = axis(rows.axis, tensor.shape.len()).ok_or_else(|| wrong("has no such axis"))?;
        let count = usize::try_from(tensor.shape[axis]).map_err(|_| wrong("has a negative size"))?;
        let mut shape = tensor.shape.clone();
        shape.remove(axis);
        let outer = shape[..axis].iter().map(|&d| usize::try_from(d).unwrap_or(0)).product();
        let bytes = byte_len(tensor.dtype, &shape)?;
        if bytes.checked_mul(count) != Some(tensor.bytes) {
            return Err(wrong("has rows that do not end at a byte"));
        }
        Ok(Source { tensor: tensor.clone(), shape, outer, bytes, count })
    }

    /// Row `at` of a scan input: where it lies, or gathered when the axis is not the first.
    fn row(&mut self, s: &Source, at: usize) -> Result<Tensor> {
        let (dtype, shape) = (s.tensor.dtype, s.shape.clone());
        if s.outer == 1 {
            let buffer = Arc::clone(&s.tensor.buffer);
            return Ok(Tensor { dtype, shape, buffer, at: s.tensor.at + at * s.bytes, bytes: s.bytes });
        }
        let buffer = self.lane.state.memory.buffer(s.bytes)?;
        let inner = s.bytes / s.outer.max(1);
        let from = s.tensor.buffer.ptr().wrapping_add(s.tensor.at);
        for o in 0..s.outer {
            let (from, to) = (from.wrapping_add((o * s.count + at) * inner), buffer.ptr().wrapping_add(o * inner));
            // SAFETY: the source has `outer × count × inner` bytes, the fresh buffer `outer × inner`.
            unsafe { std::ptr::copy_nonoverlapping(from, to, inner) };
        }
        Ok(Tensor { dtype, shape, buffer, at: 0, bytes: s.bytes })
    }

    /// Keeps this iteration's rows of stacked outputs.
    fn gather(&mut self, scans: &[Stack], stacks: &mut [Rowset]) -> Result<()> {
        for (scan, stack) in scans.iter().zip(stacks) {
            if scan.to.is_none() {
                continue;
            }
            self.settle_slots(&[scan.from])?;
            let Some(tensor) = self.owned(scan.from)? else { return Err(self.missing(scan.from)) };
            let same = stack.rows.first().is_none_or(|f| f.shape == tensor.shape && f.dtype == tensor.dtype);
            if !same {
                let text = format!("the rows of '{}' have different shapes", self.plan.slots[scan.from as usize].name);
                return Err(Error::new(codes::DATA, text));
            }
            stack.rows.push(tensor.to_host()?);
        }
        Ok(())
    }

    fn stack(&mut self, scans: &[Stack], stacks: Vec<Rowset>) -> Result<()> {
        for (scan, mut stack) in scans.iter().zip(stacks) {
            let Some(to) = scan.to else { continue };
            if scan.reverse {
                stack.rows.reverse();
            }
            let tensor = self.stacked(scan, to, &stack.rows)?;
            self.lane.state.slots[to as usize].set(Value::Tensor(tensor));
            self.define(&[to])?;
            for row in stack.rows {
                self.lane.state.memory.recycle(row.buffer);
            }
        }
        Ok(())
    }

    fn stacked(&mut self, scan: &Stack, to: Slot, rows: &[Tensor]) -> Result<Tensor> {
        let info = &self.plan.slots[to as usize];
        let wrong = |text: &str| Error::new(codes::DATA, format!("'{}' {text}", info.name));
        let (dtype, row_shape) = match rows.first() {
            Some(row) => (row.dtype, row.shape.clone()),
            None => {
                let dtype = info.dtype.ok_or_else(|| wrong("has no rows and no known type"))?;
                (dtype, scan.empty.iter().copied().collect())
            }
        };
        let mut shape = row_shape;
        let axis = axis(scan.axis, shape.len() + 1).ok_or_else(|| wrong("has no such axis"))?;
        let outer: usize = shape[..axis].iter().map(|&d| usize::try_from(d).unwrap_or(0)).product();
        shape.insert(axis, i64::try_from(rows.len()).unwrap_or(i64::MAX));
        if dtype == DType::String {
            return if outer == 1 { join_strings(&shape, rows) } else { Err(wrong("stacks strings on an inner axis")) };
        }
        let bytes = byte_len(dtype, &shape)?;
        let row = rows.first().map_or(0, |r| r.bytes);
        if row.checked_mul(rows.len()) != Some(bytes) {
            return Err(wrong("has rows that do not end at a byte"));
        }
        let memory = &mut self.lane.state.memory;
        let buffer: Arc<Buffer> = match info.output {
            Some(k) => memory.output(k as usize, bytes),
            None => memory.buffer(bytes),
        }?;
        let inner = row / outer.max(1);
        for (at, tensor) in rows.iter().enumerate() {
            let from = tensor.buffer.ptr().wrapping_add(tensor.at);
            for o in 0..outer {
                let to = buffer.ptr().wrapping_add((o * rows.len() + at) * inner);
                // SAFETY: the row has `outer × inner` bytes in host memory, the fresh buffer `outer × rows × inner`.
                unsafe { std::ptr::copy_nonoverlapping(from.wrapping_add(o * inner), to, inner) };
            }
        }
        Ok(Tensor { dtype, shape, buffer, at: 0, bytes })
    }
}

/// A scan input, taken apart.
struct Source {
    tensor: Tensor,
    /// Shape of a row.
    shape: Shape,
    /// Blocks of a row.
    outer: usize,
    /// Bytes of a row.
    bytes: usize,
    count: usize,
}

#[derive(Default)]
struct Rowset {
    rows: Vec<Tensor>,
}

fn axis(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis + rank } else { axis };
    usize::try_from(axis).ok().filter(|_| axis < rank)
}

fn join_strings(shape: &[i64], rows: &[Tensor]) -> Result<Tensor> {
    let mut texts: Vec<&[u8]> = Vec::new();
    for row in rows {
        texts.extend(row.texts()?.map(str::as_bytes));
    }
    Tensor::pack_strings(shape, texts.into_iter())
}
