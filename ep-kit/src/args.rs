//! What a kernel's `run` gets: its tensors as slices, threads, scratch.
//!
//! One of the files with `unsafe`: it turns the pointers that the kit patched into slices. Types are checked by size and
//! alignment only, which is enough for memory to be safe, as every bit pattern is a valid element.

use crate::element::Element;
use crate::error::Fault;
use crate::item::Item;
use crate::parallel::Parallel;
use core::marker::PhantomData;
use std::sync::Arc;

/// A tensor of a running step: present and in host memory, or absent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg {
    pub ptr: *mut u8,
    /// Bytes, or [`ABSENT`].
    pub bytes: usize,
}

/// `Arg.bytes` of an optional input or output that is not there.
pub(crate) const ABSENT: usize = usize::MAX;

// SAFETY: a plain address; whoever dereferences it has to say why it may.
unsafe impl Send for Arg {}
// SAFETY: as above.
unsafe impl Sync for Arg {}

impl Arg {
    pub const NONE: Arg = Arg { ptr: core::ptr::null_mut(), bytes: ABSENT };
}

/// Memory for outputs whose size `run` decides, and values that are no plain tensors.
pub(crate) trait Emit {
    /// Memory for output `output` of the running step.
    fn emit(&self, output: usize, dims: &[i64]) -> Result<Arg, Fault>;
    /// An input of the running step; a plain tensor is copied.
    fn item(&self, input: usize) -> Result<Arc<Item>, Fault>;
    /// Takes an output of the running step; false if it is a plain tensor, which goes to memory.
    fn give(&self, output: usize, item: Arc<Item>) -> bool;
}

/// Tensors and means of a running node.
pub struct Args<'a> {
    /// Inputs, then outputs.
    pub(crate) all: &'a [Arg],
    pub(crate) inputs: usize,
    /// Input below each output, or `NO_ALIAS`.
    pub(crate) alias: [u8; 2],
    /// Bit per output that was handed out; the last bit is the scratch.
    pub(crate) taken: u32,
    pub(crate) scratch: Arg,
    pub(crate) par: &'a dyn Parallel,
    pub(crate) late: Option<&'a dyn Emit>,
    pub(crate) _borrow: PhantomData<&'a mut [u8]>,
}

pub(crate) const NO_ALIAS: u8 = u8::MAX;
const SCRATCH: u32 = 31;

impl<'a> Args<'a> {
    /// Threads.
    pub fn par(&self) -> &'a dyn Parallel {
        self.par
    }

    /// Whether an input is there.
    pub fn has(&self, input: usize) -> bool {
        input < self.inputs && self.all[input].bytes != ABSENT
    }

    /// Whether an output is wanted.
    pub fn wants(&self, output: usize) -> bool {
        self.all.get(self.inputs + output).is_some_and(|a| a.bytes != ABSENT)
    }

    /// Elements of an input.
    ///
    /// # Panics
    /// When it is absent, is not of such elements, or lies under an output (see [`alias`](Self::alias)).
    #[inline]
    pub fn input<T: Element>(&self, index: usize) -> &'a [T] {
        assert!(index < self.inputs, "the node has no input {index}");
        assert!(
            self.alias[0] as usize != index && self.alias[1] as usize != index,
            "input {index} is being overwritten"
        );
        let arg = self.all[index];
        assert!(arg.bytes != ABSENT, "input {index} is absent");
        check::<T>(arg);
        if arg.bytes == 0 {
            return &[];
        }
        // SAFETY: the kit patched a live tensor of so many bytes that nobody writes during the step; alignment was
        // checked; every bit pattern is a T.
        unsafe { core::slice::from_raw_parts(arg.ptr.cast_const().cast(), arg.bytes / size_of::<T>()) }
    }

    /// Elements of an optional input.
    #[inline]
    pub fn input_if<T: Element>(&self, index: usize) -> Option<&'a [T]> {
        self.has(index).then(|| self.input(index))
    }

    /// Elements of an output, with stale content. Once per output.
    ///
    /// # Panics
    /// When it is absent, is not of such elements, is late (see [`emit`](Self::emit)), or is taken already.
    #[inline]
    pub fn output<T: Element>(&mut self, index: usize) -> &'a mut [T] {
        let arg = self.all[self.inputs + index];
        assert!(arg.bytes != ABSENT, "output {index} is absent or late");
        self.take(index as u32);
        elements_mut(arg)
    }

    /// The input whose memory an output overwrites. Its elements are the output's stale content.
    #[inline]
    pub fn alias(&self, output: usize) -> Option<usize> {
        match self.alias.get(output) {
            Some(&NO_ALIAS) | None => None,
            Some(&input) => Some(input as usize),
        }
    }

    /// Memory for an output whose dimensions the kernel has found; the row is marked [`late`](crate::Kernel::late). Once
    /// per output. The host may refuse the size.
    pub fn emit<T: Element>(&mut self, index: usize, dims: &[i64]) -> Result<&'a mut [T], Fault> {
        self.take(index as u32);
        let late = self.late.ok_or_else(|| Fault::data("the kernel's row is not marked as late"))?;
        let arg = late.emit(index, dims)?;
        check::<T>(arg);
        Ok(elements_mut(arg))
    }

    /// An input, whatever it is; the row is marked [`items`](crate::Kernel::items). A plain tensor is copied.
    pub fn item(&self, index: usize) -> Result<Arc<Item>, Fault> {
        if index >= self.inputs {
            return Err(Fault::data(format!("input {index} is missing")));
        }
        self.desk()?.item(index)
    }

    /// Hands an output over, whatever it is. Once per output.
    pub fn give(&mut self, index: usize, item: impl Into<Arc<Item>>) -> Result<(), Fault> {
        let item = item.into();
        if self.desk()?.give(index, item.clone()) {
            self.take(index as u32);
            return Ok(());
        }
        let tensor = item.tensor()?;
        let to = self.emit::<u8>(index, &tensor.dims)?;
        match to.len() == tensor.bytes.len() {
            true => to.copy_from_slice(&tensor.bytes),
            false => return Err(Fault::data(format!("output {index} is not of elements of {}", tensor.dtype))),
        }
        Ok(())
    }

    fn desk(&self) -> Result<&'a dyn Emit, Fault> {
        self.late.ok_or_else(|| Fault::data("the kernel's row is not marked as taking items"))
    }

    /// The scratch memory that the node asked for, with stale content. Once.
    pub fn scratch<T: Element>(&mut self) -> &'a mut [T] {
        self.take(SCRATCH);
        elements_mut(self.scratch)
    }

    #[inline]
    fn take(&mut self, bit: u32) {
        assert!(bit <= SCRATCH && self.taken & (1 << bit) == 0, "output {bit} is taken twice");
        self.taken |= 1 << bit;
    }
}

#[inline]
fn check<T>(arg: Arg) {
    assert!(
        arg.bytes.is_multiple_of(size_of::<T>()) && (arg.bytes == 0 || arg.ptr.cast::<T>().is_aligned()),
        "{} bytes at {:?} are no {}",
        arg.bytes,
        arg.ptr,
        core::any::type_name::<T>()
    );
}

#[inline]
fn elements_mut<'a, T: Element>(arg: Arg) -> &'a mut [T] {
    check::<T>(arg);
    if arg.bytes == 0 {
        return &mut [];
    }
    // SAFETY: the kit patched live memory of so many bytes for this step alone, handed out once as `take` checked;
    // alignment was checked; every bit pattern is a T.
    unsafe { core::slice::from_raw_parts_mut(arg.ptr.cast(), arg.bytes / size_of::<T>()) }
}
