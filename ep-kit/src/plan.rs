//! A compiled part as it is run: steps over numbered shapes, places and expressions. Immutable, shared by all lanes.
//!
//! It owns copies of all that it needs of the program, which is gone by the time a part runs.

use crate::arena::Life;
use crate::item::Item;
use crate::kernel::Node;
use crate::pack::Packed;
use core::ops::Range;
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::raw::Expr;
use std::sync::Arc;

/// Where a tensor of a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// Nowhere: an optional input or output that is not there.
    Absent,
    /// Input of the part.
    Input(u32),
    /// Output of the part.
    Output(u32),
    /// Value group of the arena.
    Arena(u32),
    /// Memory that the part holds, by address.
    Held(usize),
    /// Offset in the binding's memory of known numbers.
    Known(u32),
    /// Late value by number: memory from `emit`.
    Late(u32),
    /// No plain tensor: whole, by number.
    Item(u32),
}

/// An input or output of a step.
#[derive(Debug, Clone)]
pub(crate) struct ArgPlan {
    pub from: From,
    /// Number of its shape; 0 when absent.
    pub shape: u32,
    pub dtype: DType,
    /// Bytes of an element, 0 when it is less than one.
    pub bytes_each: u32,
    /// Size that differs from what shape and type say: a packed input's.
    pub packed: Option<usize>,
    /// Its elements in the binding's list, if they are known.
    pub elements: Option<Range<u32>>,
}

impl ArgPlan {
    pub fn new(from: From, shape: u32, dtype: DType, packed: Option<usize>) -> Self {
        let bytes_each = u32::try_from(dtype.bits() / 8).unwrap_or(0);
        ArgPlan { from, shape, dtype, bytes_each, packed, elements: None }
    }

    pub fn is_present(&self) -> bool {
        self.from != From::Absent
    }

    pub fn is_late(&self) -> bool {
        matches!(self.from, From::Late(_))
    }
}

/// A node, or several fused ones.
pub(crate) struct Step {
    pub op: Box<dyn Node>,
    /// First of its source nodes.
    pub node: u32,
    /// Kernel name, with what was fused.
    pub name: Box<str>,
    /// Node as messages call it.
    pub label: Box<str>,
    /// In `Plan.args`: inputs, then outputs.
    pub args: Range<u32>,
    pub inputs: u32,
    pub alias: [u8; 2],
    /// Its row is marked late.
    pub late: bool,
}

/// Steps between two moments at which data decides sizes. Ranges are into the plan's lists.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segment {
    pub exprs: Range<u32>,
    pub shapes: Range<u32>,
    pub known: Range<u32>,
    pub views: Range<u32>,
    pub groups: Range<u32>,
    pub steps: Range<u32>,
    /// What the steps define for the segments behind.
    pub defs: Range<u32>,
    /// Arguments of the steps.
    pub args: Range<u32>,
    /// In `Plan.moving`: arguments whose memory may be elsewhere in each run.
    pub moving: Range<u32>,
    /// In `Plan.resting`: arguments in arenas, which move when an arena does.
    pub resting: Range<u32>,
    /// Outputs of the part that are asked for before the first step.
    pub outputs: Box<[u32]>,
}

/// A value that is another one's bytes: both have to be as large.
#[derive(Debug, Clone)]
pub(crate) struct Renamed {
    pub node: u32,
    pub label: Box<str>,
    /// Shape and type before and after.
    pub ends: [End; 2],
}

/// Values that share memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub life: Life,
    pub shape: u32,
    pub dtype: DType,
}

/// An integer value computed from shapes.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    /// Expression numbers of the elements, in `Plan.known_exprs`, and place in the binding's list of elements.
    pub exprs: Range<u32>,
    pub at: u32,
    /// Offset in the binding's memory and type, when a kernel or an output reads it as a tensor.
    pub memory: Option<(u32, DType)>,
}

/// A symbol that a step defines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Def {
    /// Symbol, as the part numbers them.
    pub symbol: u32,
    pub step: u32,
    pub source: DefSource,
    /// Dimension or element.
    pub at: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum DefSource {
    /// Dimension of a late value.
    Dim { late: u32 },
    /// Element of the tensor at this argument.
    Element { arg: u32 },
    /// Dimension of a tensor of texts.
    Item { item: u32 },
}

/// A value whose size its kernel decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Late {
    /// Output of the part that it is.
    pub output: Option<u32>,
    pub dtype: DType,
}

/// How an output of the part comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutPlan {
    /// Its last writer writes into the host's memory; asked for before the segment.
    Direct,
    /// Its kernel asks for the memory.
    Late,
    /// An input's bytes.
    Input(u32),
    /// Memory that the part holds.
    Held(usize),
    /// Numbers of known value `k`.
    Known(u32),
    /// Bytes that are somewhere else, too: copied at the end.
    Copy(u32),
    /// A value that is no plain tensor, by number.
    Item(u32),
}

/// An input or output of the part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub shape: u32,
    pub dtype: DType,
    /// It is no plain tensor.
    pub item: bool,
}

/// Values of a part that are no plain tensors.
#[derive(Debug, Clone, Default)]
pub(crate) struct Items {
    /// How many there are.
    pub count: u32,
    /// Inputs of the part, with the number of each.
    pub inputs: Vec<(u32, u32)>,
    /// Constants, with the number of each.
    pub constants: Vec<(u32, Arc<Item>)>,
}

/// See the module.
pub(crate) struct Plan {
    pub exprs: Box<[Expr]>,
    /// Which of the host's symbols each symbol is; NONE for those that steps define.
    pub symbols: Box<[u32]>,
    /// Number of a symbol expression's symbol is `Expr.a`, as the part numbers them.
    pub shape_at: Box<[Range<u32>]>,
    /// Expression numbers of all shapes' dimensions.
    pub shape_exprs: Box<[u32]>,
    /// A value of each shape, for messages.
    pub shape_names: Box<[Box<str>]>,
    pub known: Box<[Known]>,
    pub known_exprs: Box<[u32]>,
    /// Elements of constants, at the start of a binding's list.
    pub fixed_elements: Box<[i64]>,
    pub element_count: usize,
    pub known_bytes: usize,
    pub views: Box<[Renamed]>,
    pub groups: Box<[Group]>,
    pub defs: Box<[Def]>,
    pub late: Box<[Late]>,
    pub steps: Box<[Step]>,
    pub args: Box<[ArgPlan]>,
    pub moving: Box<[u32]>,
    pub resting: Box<[u32]>,
    pub segments: Box<[Segment]>,
    pub inputs: Box<[End]>,
    pub outputs: Box<[(End, OutPlan)]>,
    pub items: Items,
    /// Where copied outputs are read.
    pub copies: Box<[ArgPlan]>,
    /// Keeps what `From::Held` points at.
    pub held: Vec<Arc<Packed>>,
}
