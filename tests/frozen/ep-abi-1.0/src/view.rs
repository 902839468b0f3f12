//! Safe, borrowed views of what a plugin receives: program, part, values.
//!
//! The views trust the host: it validated the program once (ids in range, UTF-8, spans inside their arrays). An index
//! that an author makes up gives `None` or an empty list, never memory outside the arrays.

use crate::codes::DType;
use crate::raw::{self, NONE, slice};
use core::fmt;

/// The model in the EP's dialect.
#[derive(Clone, Copy)]
pub struct Program<'a>(&'a raw::Program);

/// Nodes asked about or to be compiled, with their ends.
#[derive(Clone, Copy)]
pub struct PartDesc<'a>(&'a raw::PartDesc);

/// An operator call.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    /// Its id.
    pub id: u32,
    raw: &'a raw::Node,
    program: Program<'a>,
}

/// A value of the program.
#[derive(Clone, Copy)]
pub struct ValueInfo<'a> {
    /// Its id.
    pub id: u32,
    raw: &'a raw::ValueInfo,
    program: Program<'a>,
}

/// An attribute.
#[derive(Clone, Copy)]
pub struct Attr<'a> {
    raw: &'a raw::Attr,
    program: Program<'a>,
}

/// A tensor, sequence, optional or map with its data.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Value<'a> {
    raw: raw::Value,
    _borrow: core::marker::PhantomData<&'a raw::Value>,
}

// SAFETY: the data behind a value is not changed by anybody while it is borrowed.
unsafe impl Send for Value<'_> {}
// SAFETY: as above.
unsafe impl Sync for Value<'_> {}

impl<'a> Program<'a> {
    /// # Safety
    /// `raw` is a program of the host, live for `'a`.
    pub unsafe fn new(raw: &'a raw::Program) -> Self {
        Program(raw)
    }

    /// The table behind the view.
    pub fn raw(self) -> &'a raw::Program {
        self.0
    }

    /// Equal ids are equal programs.
    pub fn id(self) -> u64 {
        self.0.id
    }

    fn nodes(self) -> &'a [raw::Node] {
        // SAFETY: pointer and count belong together.
        unsafe { slice(self.0.nodes, self.0.node_count as usize) }
    }

    fn values(self) -> &'a [raw::ValueInfo] {
        // SAFETY: pointer and count belong together.
        unsafe { slice(self.0.values, self.0.value_count as usize) }
    }

    fn types(self) -> &'a [raw::Type] {
        // SAFETY: pointer and count belong together.
        unsafe { slice(self.0.types, self.0.type_count as usize) }
    }

    fn ids(self, span: raw::Span) -> &'a [u32] {
        // SAFETY: pointer and count belong together.
        let ids = unsafe { slice(self.0.ids, self.0.id_count as usize) };
        part(ids, span.at, span.len)
    }

    /// The expression table, children before parents.
    pub fn exprs(self) -> &'a [raw::Expr] {
        // SAFETY: pointer and count belong together.
        unsafe { slice(self.0.exprs, self.0.expr_count as usize) }
    }

    /// The symbols, whose numbers a call carries.
    pub fn symbols(self) -> &'a [raw::Symbol] {
        // SAFETY: pointer and count belong together.
        unsafe { slice(self.0.symbols, self.0.symbol_count as usize) }
    }

    /// Node by id.
    pub fn node(self, id: u32) -> Option<Node<'a>> {
        Some(Node { id, raw: self.nodes().get(id as usize)?, program: self })
    }

    /// Value by id.
    pub fn value(self, id: u32) -> Option<ValueInfo<'a>> {
        Some(ValueInfo { id, raw: self.values().get(id as usize)?, program: self })
    }

    /// A constant's data and its session-wide id.
    pub fn constant(self, index: u32) -> Option<(Value<'a>, u64)> {
        // SAFETY: pointer and count belong together.
        let all = unsafe { slice(self.0.constants, self.0.constant_count as usize) };
        let constant = all.get(index as usize)?;
        Some((Value { raw: constant.value, _borrow: core::marker::PhantomData }, constant.id))
    }

    /// The number of an expression when no symbol is needed for it.
    pub fn constant_expr(self, id: u32) -> Option<i64> {
        let e = self.exprs().get(id as usize)?;
        (e.op == raw::expr::CONST).then_some(e.v)
    }

    /// The opset in which the program is written for a domain.
    pub fn opset(self, domain: &str) -> Option<u64> {
        // SAFETY: pointer and count belong together.
        let all = unsafe { slice(self.0.opsets, self.0.opset_count as usize) };
        // SAFETY: texts of the program live as long as it.
        all.iter().find(|o| unsafe { o.domain.as_str() } == domain).map(|o| o.version)
    }
}

impl<'a> PartDesc<'a> {
    /// # Safety
    /// `raw` is a part description of the host, live for `'a`.
    pub unsafe fn new(raw: &'a raw::PartDesc) -> Self {
        PartDesc(raw)
    }

    /// The table behind the view.
    pub fn raw(self) -> &'a raw::PartDesc {
        self.0
    }

    /// Node ids in topological order.
    pub fn nodes(self) -> &'a [u32] {
        // SAFETY: pointer and count belong together.
        unsafe { slice(self.0.nodes, self.0.node_count as usize) }
    }

    /// Value ids in the order in which a run hands them in.
    pub fn inputs(self) -> &'a [u32] {
        // SAFETY: pointer and count belong together.
        unsafe { slice(self.0.inputs, self.0.input_count as usize) }
    }

    /// Value ids in the order in which a run asks for them.
    pub fn outputs(self) -> &'a [u32] {
        // SAFETY: pointer and count belong together.
        unsafe { slice(self.0.outputs, self.0.output_count as usize) }
    }

    /// Exactly this part will be compiled; else the host asks which of the nodes the EP could run.
    pub fn is_exact(self) -> bool {
        self.0.flags & raw::PART_EXACT != 0
    }

    /// The part will run once.
    pub fn is_once(self) -> bool {
        self.0.flags & raw::PART_ONCE != 0
    }
}

impl<'a> Node<'a> {
    /// Operator type.
    pub fn op(self) -> &'a str {
        // SAFETY: texts of the program live as long as it.
        unsafe { self.raw.op.as_str() }
    }

    /// Domain; the standard one is empty.
    pub fn domain(self) -> &'a str {
        // SAFETY: texts of the program live as long as it.
        unsafe { self.raw.domain.as_str() }
    }

    /// Name for messages; may be empty.
    pub fn name(self) -> &'a str {
        // SAFETY: texts of the program live as long as it.
        unsafe { self.raw.name.as_str() }
    }

    /// Since-version of the form in which it is written.
    pub fn version(self) -> u32 {
        self.raw.version
    }

    /// Value ids; NONE where absent.
    pub fn inputs(self) -> &'a [u32] {
        self.program.ids(self.raw.inputs)
    }

    /// Value ids; NONE where absent.
    pub fn outputs(self) -> &'a [u32] {
        self.program.ids(self.raw.outputs)
    }

    /// The value at an input; `None` where absent.
    pub fn input(self, index: usize) -> Option<ValueInfo<'a>> {
        let &id = self.inputs().get(index)?;
        if id == NONE { None } else { self.program.value(id) }
    }

    /// The value at an output; `None` where absent.
    pub fn output(self, index: usize) -> Option<ValueInfo<'a>> {
        let &id = self.outputs().get(index)?;
        if id == NONE { None } else { self.program.value(id) }
    }

    /// All attributes.
    pub fn attrs(self) -> impl Iterator<Item = Attr<'a>> {
        // SAFETY: pointer and count belong together.
        let all = unsafe { slice(self.program.0.attrs, self.program.0.attr_count as usize) };
        let program = self.program;
        part(all, self.raw.attrs.at, self.raw.attrs.len).iter().map(move |raw| Attr { raw, program })
    }

    /// Attribute by name.
    pub fn attr(self, name: &str) -> Option<Attr<'a>> {
        self.attrs().find(|a| a.name() == name)
    }

    /// The program it stands in.
    pub fn program(self) -> Program<'a> {
        self.program
    }
}

impl<'a> ValueInfo<'a> {
    /// Name for messages; may be empty.
    pub fn name(self) -> &'a str {
        // SAFETY: texts of the program live as long as it.
        unsafe { self.raw.name.as_str() }
    }

    /// `VALUE_*`.
    pub fn kind(self) -> u32 {
        self.ty().map_or(raw::VALUE_ABSENT, |t| t.kind)
    }

    /// Element type; `None` if it is no tensor or the number is unknown.
    pub fn dtype(self) -> Option<DType> {
        self.ty().filter(|t| t.kind == raw::VALUE_TENSOR).and_then(|t| DType::from_u32(t.dtype))
    }

    /// Its type.
    pub fn ty(self) -> Option<&'a raw::Type> {
        self.program.types().get(self.raw.ty as usize)
    }

    /// Expression ids of its dimensions.
    pub fn dims(self) -> &'a [u32] {
        match self.ty() {
            Some(t) => self.program.ids(raw::Span { at: t.dims, len: t.rank }),
            None => &[],
        }
    }

    /// Number of dimensions.
    pub fn rank(self) -> usize {
        self.dims().len()
    }

    /// Dimension `axis` when it is fixed.
    pub fn fixed_dim(self, axis: usize) -> Option<i64> {
        self.program.constant_expr(*self.dims().get(axis)?)
    }

    /// Expression ids of its elements when they are small integers computed from shapes.
    pub fn known(self) -> &'a [u32] {
        self.program.ids(self.raw.known)
    }

    /// Index of its constant.
    pub fn constant_index(self) -> Option<u32> {
        (self.raw.constant != NONE).then_some(self.raw.constant)
    }

    /// Its data, if it is a constant.
    pub fn constant(self) -> Option<Value<'a>> {
        self.program.constant(self.constant_index()?).map(|(value, _)| value)
    }

    /// Depends on constants only, so it is evaluated in compile.
    pub fn is_const_expr(self) -> bool {
        self.raw.flags & raw::INFO_CONST_EXPR != 0
    }

    /// Node that makes it.
    pub fn producer(self) -> Option<u32> {
        (self.raw.producer != NONE).then_some(self.raw.producer)
    }

    /// Number of inputs that read it.
    pub fn uses(self) -> u32 {
        self.raw.uses
    }
}

impl<'a> Attr<'a> {
    /// Name.
    pub fn name(self) -> &'a str {
        // SAFETY: texts of the program live as long as it.
        unsafe { self.raw.name.as_str() }
    }

    /// ONNX AttributeType number.
    pub fn kind(self) -> u32 {
        self.raw.kind
    }

    fn list<T>(self, kinds: [u32; 2]) -> &'a [T] {
        if !kinds.contains(&self.raw.kind) {
            return &[];
        }
        // SAFETY: the kind says what lies behind `data`; pointer and count belong together.
        unsafe { slice(self.raw.data.cast(), self.raw.len as usize) }
    }

    /// FLOAT or FLOATS.
    pub fn floats(self) -> &'a [f32] {
        self.list([1, 6])
    }

    /// INT or INTS.
    pub fn ints(self) -> &'a [i64] {
        self.list([2, 7])
    }

    /// STRING or STRINGS.
    pub fn strings(self) -> impl ExactSizeIterator<Item = &'a str> {
        // SAFETY: texts of the program live as long as it.
        self.list::<raw::Str>([3, 8]).iter().map(|s| unsafe { s.as_str() })
    }

    /// TENSOR or TENSORS.
    pub fn tensors(self) -> &'a [Value<'a>] {
        self.list([4, 9])
    }

    /// GRAPH or GRAPHS, by graph id.
    pub fn graphs(self) -> &'a [u32] {
        self.list([5, 10])
    }

    /// The value of an INT.
    pub fn int(self) -> Option<i64> {
        self.ints().first().copied()
    }

    /// The value of a FLOAT.
    pub fn float(self) -> Option<f32> {
        self.floats().first().copied()
    }

    /// The constant that carries it, when it is large.
    pub fn constant(self) -> Option<Value<'a>> {
        if self.raw.constant == NONE {
            return None;
        }
        self.program.constant(self.raw.constant).map(|(value, _)| value)
    }
}

/// Element types that can be read as slices.
///
/// # Safety
/// Every bit pattern that ONNX allows for `DTYPE` is valid for the type, and sizes agree.
pub unsafe trait Element: Copy + 'static {
    /// The ONNX type.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($t:ty = $d:ident),*) => { $(
        // SAFETY: plain numbers of the same size.
        unsafe impl Element for $t { const DTYPE: DType = DType::$d; }
    )* };
}
elements!(f32 = F32, f64 = F64, i8 = I8, i16 = I16, i32 = I32, i64 = I64, u8 = U8, u16 = U16, u32 = U32, u64 = U64);

impl<'a> Value<'a> {
    /// # Safety
    /// `raw` and all it points to are live and unchanged for `'a`.
    pub unsafe fn new(raw: raw::Value) -> Self {
        Value { raw, _borrow: core::marker::PhantomData }
    }

    /// The struct behind the view.
    pub fn raw(&self) -> &raw::Value {
        &self.raw
    }

    /// `VALUE_*`.
    pub fn kind(&self) -> u32 {
        self.raw.kind
    }

    /// Element type of a tensor.
    pub fn dtype(&self) -> Option<DType> {
        DType::from_u32(self.raw.dtype)
    }

    /// Sizes of its dimensions.
    pub fn shape(&self) -> &'a [i64] {
        // SAFETY: pointer and count belong together.
        unsafe { slice(self.raw.shape, self.raw.rank as usize) }
    }

    /// Bytes of a tensor in host memory; `None` on a device, for strings and for other kinds.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        if self.raw.kind != raw::VALUE_TENSOR || self.raw.space != 0 || self.raw.dtype == DType::Str as u32 {
            return None;
        }
        // SAFETY: host memory of that many bytes.
        Some(unsafe { slice(self.raw.data, usize::try_from(self.raw.bytes).ok()?) })
    }

    /// Elements of a tensor of this type; `None` if the type differs, on a device, or when a constant is not aligned.
    pub fn as_slice<T: Element>(&self) -> Option<&'a [T]> {
        let bytes = self.bytes()?;
        if self.raw.dtype != T::DTYPE as u32 {
            return None;
        }
        // SAFETY: any bits are a valid T; only the aligned middle is taken, and only if it is everything.
        let (head, middle, tail) = unsafe { bytes.align_to::<T>() };
        (head.is_empty() && tail.is_empty()).then_some(middle)
    }

    /// Elements of a tensor of this type, whatever the alignment.
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        let bytes = self.bytes()?;
        if self.raw.dtype != T::DTYPE as u32 {
            return None;
        }
        let read = |chunk: &[u8]| {
            // SAFETY: the chunk has the size of T, any bits are valid, and the read asks for no alignment.
            unsafe { chunk.as_ptr().cast::<T>().read_unaligned() }
        };
        Some(bytes.chunks_exact(size_of::<T>()).map(read).collect())
    }

    /// Elements of a string tensor.
    pub fn strings(&self) -> Option<impl ExactSizeIterator<Item = &'a str>> {
        if self.raw.kind != raw::VALUE_TENSOR || self.raw.space != 0 || self.raw.dtype != DType::Str as u32 {
            return None;
        }
        let count = usize::try_from(self.raw.bytes).ok()? / size_of::<raw::Str>();
        // SAFETY: a string tensor in host memory is an array of Str.
        let all = unsafe { slice(self.raw.data.cast::<raw::Str>(), count) };
        // SAFETY: the texts live as long as the tensor.
        Some(all.iter().map(|s| unsafe { s.as_str() }))
    }

    /// Items of a sequence, optional or map.
    pub fn items(&self) -> &'a [Value<'a>] {
        // SAFETY: pointer and count belong together; the view is a transparent wrapper.
        unsafe { slice(self.raw.items.cast(), self.raw.item_count as usize) }
    }

    /// The last reader may overwrite it or give it back.
    pub fn is_donated(&self) -> bool {
        self.raw.flags & raw::VALUE_DONATED != 0
    }
}

impl fmt::Debug for Program<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program {{ id: {}, nodes: {} }}", self.0.id, self.0.node_count)
    }
}

impl fmt::Debug for PartDesc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartDesc {{ nodes: {:?}, flags: {} }}", self.nodes(), self.0.flags)
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}-{} \"{}\"", self.id, self.op(), self.version(), self.name())
    }
}

impl fmt::Debug for ValueInfo<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.id, self.name())
    }
}

impl fmt::Debug for Attr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kind {} len {}", self.name(), self.raw.kind, self.raw.len)
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Value {{ kind: {}, dtype: {}, shape: {:?}, space: {} }}",
            self.raw.kind,
            self.raw.dtype,
            self.shape(),
            self.raw.space
        )
    }
}

fn part<T>(all: &[T], at: u32, len: u32) -> &[T] {
    let at = at as usize;
    at.checked_add(len as usize).and_then(|end| all.get(at..end)).unwrap_or(&[])
}
