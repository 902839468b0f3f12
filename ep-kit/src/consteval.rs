//! Computes constant expressions in compile: the nodes become a small part of their own that runs once, on heap memory.

use crate::args::Arg;
use crate::bind::KitLane;
use crate::draft::{Drafts, Request};
use crate::error::Fault;
use crate::item::Item;
use crate::layout::lay_out;
use crate::memory;
use crate::node::Ints;
use crate::number::number;
use crate::pack::PackCache;
use crate::parallel::Parallel;
use crate::run::{Host, run};
use crate::slab::Slab;
use crate::weights::{CompileHost, resolve};
use core::cell::RefCell;
use ortolan_ep_abi::call::Error;
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw::Event;

/// Dimensions and bytes of a value that `nodes` compute from constants.
pub(crate) fn evaluate(
    request: &Request<'_>,
    nodes: &[u32],
    value: u32,
    host: &dyn CompileHost,
) -> Result<(Ints, Slab), Error> {
    let outputs = [value];
    let request = Request { nodes, inputs: &[], outputs: &outputs, once: true, weights: false, ..*request };
    let mut drafts = Drafts::new(request)?;
    let weights = resolve(&mut drafts, &PackCache::default(), host)?;
    let laid = lay_out(&drafts, &weights)?;
    let plan = number(drafts, weights, "", laid);
    let heap = Heap { host, result: RefCell::new(None), scratch: RefCell::default() };
    run(&plan, &mut KitLane::default(), &heap, 0, &[], host.par().width())?;
    heap.result.into_inner().ok_or_else(|| Error::new("a constant expression has no result"))
}

/// Memory of the heap in the place of a running call.
struct Heap<'h> {
    host: &'h dyn CompileHost,
    result: RefCell<Option<(Ints, Slab)>>,
    scratch: RefCell<Vec<Slab>>,
}

fn slab(bytes: usize) -> Result<(Slab, Arg), Fault> {
    let mut slab = Slab::new(bytes)?;
    let arg = Arg { ptr: slab.bytes_mut().as_mut_ptr(), bytes };
    Ok((slab, arg))
}

impl Host for Heap<'_> {
    fn is_cancelled(&self) -> bool {
        self.host.is_cancelled()
    }

    fn par(&self) -> &dyn Parallel {
        self.host.par()
    }

    fn input(&self, _: u32, _: DType) -> Option<Arg> {
        None
    }

    fn alloc(&self, bytes: usize) -> Result<Arg, Fault> {
        let (slab, arg) = slab(bytes)?;
        self.scratch.borrow_mut().push(slab);
        Ok(arg)
    }

    fn output(&self, _: u32, dtype: DType, dims: &[i64]) -> Result<Arg, Fault> {
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
        let bytes = count.and_then(|n| dtype.bytes(n));
        let bytes = bytes.ok_or_else(|| Fault::Memory(format!("{dims:?} are too many elements")))?;
        let (slab, arg) = slab(bytes)?;
        *self.result.borrow_mut() = Some((Ints::from_slice(dims), slab));
        Ok(arg)
    }

    fn give_input(&self, _: u32, _: u32, _: DType, _: &[i64]) -> Result<bool, Fault> {
        Ok(false)
    }

    fn give_held(&self, _: u32, _: DType, dims: &[i64], held: Arg) -> Result<bool, Fault> {
        let (slab, arg) = slab(held.bytes)?;
        memory::copy(held, arg)?;
        *self.result.borrow_mut() = Some((Ints::from_slice(dims), slab));
        Ok(true)
    }

    fn item(&self, _: u32) -> Option<Item> {
        None
    }

    fn give_item(&self, _: u32, item: &Item) -> Result<(), Fault> {
        Err(Fault::data(format!("{} is no weight", item.kind())))
    }

    fn clock(&self) -> Option<u64> {
        None
    }

    fn profile(&self, _: &[Event]) {}
}
