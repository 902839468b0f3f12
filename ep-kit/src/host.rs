//! The host behind a running or compiling call.
//!
//! One of the files with `unsafe`: it calls the host's table directly, because the author layer's run call keeps a list
//! of outputs, which allocates.

use crate::args::Arg;
use crate::error::Fault;
use crate::item::Item;
use crate::memory;
use crate::parallel::{Parallel, Stopped};
use crate::run::Host;
use crate::weights::CompileHost;
use core::ops::Range;
use ortolan_ep_abi::call::{Call, CompileCall, EMPTY, RunCall};
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw::{self, Event, HostV1, ReleaseFn, Str, Value};
use ortolan_ep_abi::view;

/// Threads of a call.
pub(crate) struct Threads<'a>(pub Call<'a>);

impl Parallel for Threads<'_> {
    fn width(&self) -> usize {
        self.0.width()
    }

    fn for_each(&self, n: usize, grain: usize, body: &(dyn Fn(usize, Range<usize>) + Sync)) -> Result<(), Stopped> {
        if n == 0 {
            return Ok(());
        }
        if n <= grain || self.0.width() == 1 {
            body(0, 0..n);
            return Ok(());
        }
        self.0.parallel_for(n, grain.max(1), body).map_err(|_| Stopped)
    }
}

/// A running call.
pub(crate) struct RunHost<'c> {
    call: Call<'c>,
    host: &'c HostV1,
    inputs: &'c [Value],
    threads: Threads<'c>,
    profiled: bool,
}

impl<'c> RunHost<'c> {
    pub fn new(call: &RunCall<'c>) -> Self {
        let raw = call.raw();
        RunHost {
            call: **call,
            // SAFETY: a call's host table lives as long as the process.
            host: unsafe { &*raw.host },
            // SAFETY: pointer and count belong together and live over the call.
            inputs: unsafe { raw::slice(raw.inputs, raw.input_count as usize) },
            threads: Threads(**call),
            profiled: call.is_profiled(),
        }
    }
}

fn checked(code: i32) -> Result<(), Fault> {
    match code {
        raw::OK => Ok(()),
        raw::CANCELLED => Err(Fault::Cancelled),
        code => Err(Fault::Host(code)),
    }
}

fn rank(dims: &[i64]) -> u32 {
    u32::try_from(dims.len()).unwrap_or(u32::MAX) // ranks come from the program, where they are u32
}

impl Host for RunHost<'_> {
    fn is_cancelled(&self) -> bool {
        self.call.is_cancelled()
    }

    fn par(&self) -> &dyn Parallel {
        &self.threads
    }

    #[inline]
    fn input(&self, index: u32, dtype: DType) -> Option<Arg> {
        let value = self.inputs.get(index as usize)?;
        let fits = value.kind == raw::VALUE_TENSOR && value.dtype == dtype as u32 && value.space == 0;
        fits.then_some(Arg { ptr: value.data, bytes: usize::try_from(value.bytes).ok()? })
    }

    fn alloc(&self, bytes: usize) -> Result<Arg, Fault> {
        // SAFETY: plain numbers, inside the call and on its thread.
        let ptr = unsafe { (self.host.alloc)(self.call.raw(), bytes as u64) };
        if ptr.is_null() && bytes > 0 {
            return Err(Fault::Memory(format!("the host has no {bytes} bytes left for this run")));
        }
        Ok(Arg { ptr, bytes })
    }

    fn output(&self, index: u32, dtype: DType, dims: &[i64]) -> Result<Arg, Fault> {
        let mut value = EMPTY;
        let (call, shape) = (self.call.raw(), dims.as_ptr());
        // SAFETY: all pointers live over the call; the plan asks once per index.
        checked(unsafe { (self.host.output)(call, index, dtype as u32, rank(dims), shape, &mut value) })?;
        Ok(Arg { ptr: value.data, bytes: usize::try_from(value.bytes).unwrap_or(0) })
    }

    fn give_input(&self, index: u32, input: u32, dtype: DType, dims: &[i64]) -> Result<bool, Fault> {
        let Some(value) = self.inputs.get(input as usize).filter(|v| !v.buffer.is_null()) else { return Ok(false) };
        let value = Value { dtype: dtype as u32, rank: rank(dims), shape: dims.as_ptr(), ..*value };
        self.give(index, &value)?;
        Ok(true)
    }

    fn give_held(&self, index: u32, dtype: DType, dims: &[i64], held: Arg) -> Result<bool, Fault> {
        let value = Value {
            kind: raw::VALUE_TENSOR,
            dtype: dtype as u32,
            rank: rank(dims),
            flags: raw::VALUE_CONST,
            shape: dims.as_ptr(),
            data: held.ptr,
            bytes: held.bytes as u64,
            ..EMPTY
        };
        self.give(index, &value)?;
        Ok(true)
    }

    fn item(&self, index: u32) -> Option<Item> {
        let raw = self.inputs.get(index as usize)?;
        // SAFETY: inputs and all that they point to live over the call.
        Item::of(&unsafe { view::Value::new(*raw) })
    }

    fn give_item(&self, index: u32, item: &Item) -> Result<(), Fault> {
        let mut keep = Keep::default();
        let value = self.whole(item, &mut keep)?;
        self.give(index, &value)
    }

    fn clock(&self) -> Option<u64> {
        self.profiled.then(|| self.call.now_ns())
    }

    fn profile(&self, events: &[Event]) {
        // SAFETY: pointer and count belong together.
        unsafe { (self.host.profile)(self.call.raw(), events.as_ptr(), events.len()) }
    }
}

/// Lists that structs of values point into.
#[derive(Default)]
struct Keep {
    items: Vec<Box<[Value]>>,
    texts: Vec<Box<[Str]>>,
}

impl RunHost<'_> {
    /// The struct of a value; its tensors are written to memory of the host.
    fn whole(&self, item: &Item, keep: &mut Keep) -> Result<Value, Fault> {
        let (kind, items) = match item {
            Item::Tensor(tensor) => {
                let to = self.loose(tensor.dtype, &tensor.dims)?;
                let held = Arg { ptr: tensor.bytes.as_ptr().cast_mut(), bytes: tensor.bytes.len() };
                memory::copy(held, Arg { ptr: to.data, bytes: usize::try_from(to.bytes).unwrap_or(0) })?;
                return Ok(Value { rank: rank(&tensor.dims), shape: tensor.dims.as_ptr(), ..to });
            }
            Item::Texts(texts) => {
                let list: Box<[Str]> = texts.texts.iter().map(|text| Str::new(text)).collect();
                let value = Value {
                    kind: raw::VALUE_TENSOR,
                    dtype: DType::Str as u32,
                    rank: rank(&texts.dims),
                    shape: texts.dims.as_ptr(),
                    data: list.as_ptr().cast_mut().cast(),
                    bytes: size_of_val(&*list) as u64,
                    ..EMPTY
                };
                keep.texts.push(list);
                return Ok(value);
            }
            Item::Sequence(all) => (raw::VALUE_SEQUENCE, all.iter().collect::<Vec<_>>()),
            Item::Optional(one) => (raw::VALUE_OPTIONAL, one.iter().collect()),
            Item::Map { keys, values } => (raw::VALUE_MAP, vec![keys, values]),
        };
        let items = items.into_iter().map(|item| self.whole(item, keep)).collect::<Result<Box<[Value]>, Fault>>()?;
        let item_count = u32::try_from(items.len()).map_err(|_| Fault::data("there are too many items"))?;
        let value = Value { kind, items: items.as_ptr(), item_count, ..EMPTY };
        keep.items.push(items);
        Ok(value)
    }

    /// Memory for a tensor that will be inside another value.
    fn loose(&self, dtype: DType, dims: &[i64]) -> Result<Value, Fault> {
        let mut value = EMPTY;
        let (call, shape) = (self.call.raw(), dims.as_ptr());
        // SAFETY: all pointers live over the call.
        checked(unsafe { (self.host.output)(call, raw::NONE, dtype as u32, rank(dims), shape, &mut value) })?;
        Ok(value)
    }

    fn give(&self, index: u32, value: &Value) -> Result<(), Fault> {
        let nothing = ReleaseFn { f: None };
        // SAFETY: the value lives over the call; its memory is an input's buffer or the part's.
        checked(unsafe { (self.host.give)(self.call.raw(), index, value, nothing, core::ptr::null_mut()) })
    }
}

/// A compiling call.
pub(crate) struct CompilingHost<'c> {
    call: CompileCall<'c>,
    threads: Threads<'c>,
}

impl<'c> CompilingHost<'c> {
    pub fn new(call: &CompileCall<'c>) -> Self {
        CompilingHost { call: *call, threads: Threads(**call) }
    }
}

impl CompileHost for CompilingHost<'_> {
    fn par(&self) -> &dyn Parallel {
        &self.threads
    }

    fn done_with(&self, constant: u32) {
        self.call.done_with(constant);
    }

    fn is_cancelled(&self) -> bool {
        self.call.is_cancelled()
    }
}
