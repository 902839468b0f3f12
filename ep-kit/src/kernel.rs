//! The kernel table: one row per operator (or per version of it), and the trait that says how a family of operators
//! reads its attributes, follows shapes and packs weights.
//!
//! Nothing here runs a graph; rows are plain consts, so that the catalogue can be made from them without running code.

use crate::args::Args;
use crate::error::{Fault, Reject};
use crate::node::NodeView;
use crate::parallel::Parallel;
use crate::shapes::Shapes;
use crate::weight::{Link, Pack, Weight, WeightSource};
use ortolan_ep_abi::codes::DType;
use smallvec::SmallVec;
use std::any::Any;

/// A row: what an EP runs, for which versions and types, by which kernel.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Operator, as ONNX spells it.
    pub op: &'static str,
    /// Domain; the standard one is empty.
    pub domain: &'static str,
    /// First and last since-version of the operator's forms that this row runs.
    pub since: (u16, u16),
    /// Types per type variable of the schema.
    pub types: &'static [(&'static str, u64)],
    /// Where each type variable is seen; when shorter than `types`, variable k is the type of input k.
    pub at: &'static [Slot],
    /// First part of the kernel's name, `<op>` of `<op>_<dtype>_<isa>`.
    pub name: &'static str,
    /// (input, output) pairs of equal shape and element size where the output may be written over the input.
    pub in_place: &'static [(u8, u8)],
    /// Inputs (bit i) whose elements are never read in `run`: their shape, or [`Shapes::elements`], is enough.
    pub unread: u32,
    /// Output 0 is input 0's bytes under another shape: nothing runs.
    pub view: bool,
    /// `run` decides the dimensions of outputs and asks for their memory with [`Args::emit`].
    pub late: bool,
    /// Inputs and outputs that are no tensors, or tensors of texts, are seen whole with [`Args::item`] and made with
    /// [`Args::give`]. Such rows are late, too.
    pub items: bool,
    /// A plain loop that is right and slow; shown in coverage pages.
    pub fallback: bool,
    /// Limits on ranks and attributes, for the catalogue.
    pub limits: &'static [(&'static str, &'static str)],
    make: &'static dyn Make,
}

/// An input or output of a node, by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// Input.
    In(u8),
    /// Output.
    Out(u8),
}

/// What a node costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Nanoseconds on one thread; NaN when a size is unknown.
    pub ns: f64,
}

impl Cost {
    /// Sizes are unknown.
    pub const UNKNOWN: Cost = Cost { ns: f64::NAN };

    /// So many nanoseconds.
    pub const fn ns(ns: f64) -> Cost {
        Cost { ns }
    }
}

/// How a family of operators is read, bound and packed. One type per family; `run` comes from the row, so that Relu and
/// Sigmoid share everything but their loop.
///
/// The life of a node: [`parse`](Op::parse) in claim (the result is dropped) and again in compile,
/// [`read_through`](Op::read_through), [`fuse`](Op::fuse) and [`pack`](Op::pack) in compile, [`bind`](Op::bind) whenever shapes change, `run` for each run.
pub trait Op: Sized + Send + Sync + 'static {
    /// What depends on shapes: strides, counts, a choice of algorithm. Kept and filled in again, so a `Vec` in it is
    /// allocated only when it grows.
    type Bound: Default + Send + 'static;

    /// Reads attributes and static facts once. Everything that can be refused is refused here.
    fn parse(node: &NodeView<'_>) -> Result<Self, Reject>;

    /// Estimated time for the hinted shapes.
    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let _ = node;
        Cost::UNKNOWN
    }

    /// Follows new shapes. What the data can get wrong (a size that does not divide, a reshape that does not fit) is
    /// said here, before memory is touched.
    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Self::Bound) -> Result<(), Fault> {
        let _ = (shapes, bound);
        Ok(())
    }

    /// Bytes of scratch memory that `run` wants for `width` workers. It gets them 64-aligned and with stale content.
    fn scratch(&self, bound: &Self::Bound, width: usize) -> usize {
        let _ = (bound, width);
        0
    }

    /// Floating-point operations of a run, for profiles; 0 if nobody counts.
    fn flops(&self, bound: &Self::Bound) -> u64 {
        let _ = bound;
        0
    }

    /// How a constant input is to be packed; `None` leaves it as it is (then `run` sees it as an ordinary input). Not
    /// asked for parts that run once. When it answers with a plan, `run` reads the packed bytes as that input.
    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        let _ = (input, source);
        None
    }

    /// Packs: `to` has the plan's bytes, zeroed.
    fn fill(&self, input: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        let _ = (weight, to, par);
        Err(Fault::data(format!("input {input} has a packing plan and nothing that packs it")))
    }

    /// Takes over nodes that make its inputs, whoever else reads them. Bit i of the answer: input i is what the node that
    /// makes it reads first, in the same shape; the other inputs of that node, absent ones included, are appended to this
    /// node's, those of input 0 first. `run` then has to do what these nodes did.
    fn read_through(&mut self, node: &NodeView<'_>, around: &Around<'_>) -> u32 {
        let _ = (node, around);
        0
    }

    /// Takes over the node that alone reads output 0 and gives it back in the same shape, though its type may be
    /// another. If the answer is true, the other inputs of `next` are appended to this node's in order, the first of
    /// them at `seam.extra`, and output 0 is `next`'s.
    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        let _ = (next, seam);
        false
    }

    /// What this node does to a weight, for packers that can read through it.
    fn link(&self) -> Link {
        Link::Other
    }
}

/// The nodes around one in [`Op::read_through`].
#[derive(Default)]
pub struct Around<'a> {
    /// What makes each input, if a node of the part does and only changes its elements.
    pub makers: SmallVec<[Option<NodeView<'a>>; 4]>,
    /// The only reader of output 0, which [`Op::fuse`] will be asked to take over.
    pub next: Option<NodeView<'a>>,
}

/// Where a node meets the next one in [`Op::fuse`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seam {
    /// Which input of the next node is our output.
    pub input: usize,
    /// Position that its first other input would get among ours.
    pub extra: usize,
}

/// The computation of a row for one type.
pub type RunFn<S> = for<'a, 'b> fn(&'a S, &'a <S as Op>::Bound, &mut Args<'b>) -> Result<(), Fault>;

/// The computations of a row: a function of the first type variable's type. Made by [`typed!`](crate::typed) and
/// [`any!`](crate::any).
pub struct Pick<S: Op> {
    /// The function for a type.
    pub pick: fn(DType) -> Option<RunFn<S>>,
}

/// [`Pick`] with its family forgotten, and the types it serves.
#[derive(Clone, Copy)]
pub struct Runs {
    types: &'static [(&'static str, u64)],
    make: &'static dyn Make,
}

impl Runs {
    /// For the macros.
    #[doc(hidden)]
    pub const fn new<S: Op>(types: &'static [(&'static str, u64)], pick: &'static Pick<S>) -> Runs {
        Runs { types, make: pick }
    }
}

/// Helps the macros' inference.
#[doc(hidden)]
pub const fn run_fn<S: Op>(run: RunFn<S>) -> Option<RunFn<S>> {
    Some(run)
}

/// The computations of a row, one instance of a generic function per type: `typed!(relu: f32 f64 i32)`. The row's type
/// variable is `T`, the type of input 0.
#[macro_export]
macro_rules! typed {
    ($run:ident: $($t:ident)+) => {
        const {
            $crate::Runs::new(
                const { &[("T", 0 $(| <$t as $crate::Element>::DTYPE.mask())+)] },
                &$crate::Pick {
                    pick: |dtype| {
                        $(if dtype as u32 == <$t as $crate::Element>::DTYPE as u32 {
                            return $crate::kernel::run_fn($run::<$t>);
                        })+
                        None
                    },
                },
            )
        }
    };
}

/// The computation of a row whose one function serves all types: `any!(conv: f32)`, or `any!(transpose)` with the types
/// from [`Kernel::types`].
#[macro_export]
macro_rules! any {
    ($run:ident: $($t:ident)+) => {
        const {
            $crate::Runs::new(
                const { &[("T", 0 $(| <$t as $crate::Element>::DTYPE.mask())+)] },
                &$crate::Pick { pick: |_| $crate::kernel::run_fn($run) },
            )
        }
    };
    ($run:ident) => {
        const { $crate::Runs::new(&[], &$crate::Pick { pick: |_| $crate::kernel::run_fn($run) }) }
    };
}

impl Kernel {
    /// A row of the standard domain. `name` is the first part of the kernel's name, lower case.
    pub const fn new(op: &'static str, since: (u16, u16), name: &'static str, runs: Runs) -> Kernel {
        Kernel {
            op,
            domain: "",
            since,
            types: runs.types,
            at: &[],
            name,
            in_place: &[],
            unread: 0,
            view: false,
            late: false,
            items: false,
            fallback: false,
            limits: &[],
            make: runs.make,
        }
    }

    /// Another domain.
    pub const fn domain(self, domain: &'static str) -> Kernel {
        Kernel { domain, ..self }
    }

    /// Types per type variable; the first one is what [`typed!`](crate::typed) picks by.
    pub const fn types(self, types: &'static [(&'static str, u64)]) -> Kernel {
        Kernel { types, ..self }
    }

    /// Where the type variables are seen, when variable k is not the type of input k.
    pub const fn at(self, at: &'static [Slot]) -> Kernel {
        Kernel { at, ..self }
    }

    /// See [`Kernel::in_place`].
    pub const fn in_place(self, in_place: &'static [(u8, u8)]) -> Kernel {
        Kernel { in_place, ..self }
    }

    /// Inputs whose elements `run` does not read.
    pub const fn unread(self, inputs: &[u8]) -> Kernel {
        let (mut unread, mut i) = (0, 0);
        while i < inputs.len() {
            unread |= 1 << inputs[i];
            i += 1;
        }
        Kernel { unread, ..self }
    }

    /// Output 0 is input 0 under another shape.
    pub const fn view(self) -> Kernel {
        Kernel { view: true, ..self }
    }

    /// `run` decides dimensions.
    pub const fn late(self) -> Kernel {
        Kernel { late: true, ..self }
    }

    /// Whole values.
    pub const fn items(self) -> Kernel {
        Kernel { items: true, late: true, ..self }
    }

    /// Right and slow.
    pub const fn fallback(self) -> Kernel {
        Kernel { fallback: true, ..self }
    }

    /// Limits, for the catalogue.
    pub const fn limits(self, limits: &'static [(&'static str, &'static str)]) -> Kernel {
        Kernel { limits, ..self }
    }

    /// Where type variable `k` is seen.
    pub(crate) fn slot(&self, k: usize) -> Slot {
        self.at.get(k).copied().unwrap_or(Slot::In(u8::try_from(k).unwrap_or(u8::MAX)))
    }

    /// Reads the node; says what it would cost.
    pub(crate) fn accept(&self, node: &NodeView<'_>) -> Result<Cost, Reject> {
        self.make.accept(node)
    }

    /// Reads the node for good.
    pub(crate) fn make(&self, node: &NodeView<'_>, dtype: DType) -> Result<Box<dyn Node>, Reject> {
        self.make.make(node, dtype)
    }
}

impl core::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}-{}..={} {}", self.op, self.since.0, self.since.1, self.name)
    }
}

/// A [`Pick`] whose family is forgotten.
trait Make: Sync {
    fn accept(&self, node: &NodeView<'_>) -> Result<Cost, Reject>;
    fn make(&self, node: &NodeView<'_>, dtype: DType) -> Result<Box<dyn Node>, Reject>;
}

impl<S: Op> Make for Pick<S> {
    fn accept(&self, node: &NodeView<'_>) -> Result<Cost, Reject> {
        Ok(S::parse(node)?.cost(node))
    }

    fn make(&self, node: &NodeView<'_>, dtype: DType) -> Result<Box<dyn Node>, Reject> {
        let run = (self.pick)(dtype).ok_or_else(|| Reject::dtype(format!("there is no kernel for {dtype}")))?;
        Ok(Box::new(Made { op: S::parse(node)?, run }))
    }
}

/// A node ready to be bound and run, its family forgotten.
pub(crate) trait Node: Send + Sync {
    fn new_bound(&self) -> Box<dyn Any + Send>;
    /// Binds; the answer is the scratch that it wants.
    fn bind(&self, shapes: &Shapes<'_>, bound: &mut (dyn Any + Send), width: usize) -> Result<usize, Fault>;
    fn run(&self, bound: &(dyn Any + Send), args: &mut Args<'_>) -> Result<(), Fault>;
    fn flops(&self, bound: &(dyn Any + Send)) -> u64;
    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack>;
    fn fill(&self, input: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault>;
    fn read_through(&mut self, node: &NodeView<'_>, around: &Around<'_>) -> u32;
    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool;
    fn link(&self) -> Link;
}

struct Made<S: Op> {
    op: S,
    run: RunFn<S>,
}

const OWN: &str = "a node only gets what its own new_bound made";

impl<S: Op> Node for Made<S> {
    fn new_bound(&self) -> Box<dyn Any + Send> {
        Box::new(S::Bound::default())
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut (dyn Any + Send), width: usize) -> Result<usize, Fault> {
        let bound = bound.downcast_mut().expect(OWN);
        self.op.bind(shapes, bound)?;
        Ok(self.op.scratch(bound, width))
    }

    fn run(&self, bound: &(dyn Any + Send), args: &mut Args<'_>) -> Result<(), Fault> {
        (self.run)(&self.op, bound.downcast_ref().expect(OWN), args)
    }

    fn flops(&self, bound: &(dyn Any + Send)) -> u64 {
        self.op.flops(bound.downcast_ref().expect(OWN))
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        self.op.pack(input, source)
    }

    fn fill(&self, input: usize, weight: &Weight<'_>, to: &mut [u8], par: &dyn Parallel) -> Result<(), Fault> {
        self.op.fill(input, weight, to, par)
    }

    fn read_through(&mut self, node: &NodeView<'_>, around: &Around<'_>) -> u32 {
        self.op.read_through(node, around)
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        self.op.fuse(next, seam)
    }

    fn link(&self) -> Link {
        self.op.link()
    }
}
