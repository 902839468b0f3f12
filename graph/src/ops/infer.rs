//! [`InferCx`]: all that a type and shape rule sees of its node, and where it puts its answer.

use std::fmt::Display;

use smallvec::SmallVec;

use crate::error::{Code, Error, Result};
use crate::ir::{
    Assumption, AttrValue, Constant, DType, Dims, ExprId, ExprTable, Graph, KNOWN_LIMIT, Known, Node, NodeId,
    SymbolKind, TensorType, Type, Value, ValueId,
};

/// One node under inference.
///
/// Inputs and outputs are numbered as in the operator's schema. Every getter answers `None` for an
/// input that is left out, and for one that nothing is known of; a rule that needs more than it
/// finds leaves the output less known, it does not fail.
pub struct InferCx<'a> {
    /// Dims and integers are built here.
    pub exprs: &'a mut ExprTable,
    node: &'a Node,
    id: NodeId,
    nodes: &'a [Node],
    values: &'a mut Vec<Value>,
    constants: &'a [Constant],
    assumptions: &'a mut Vec<Assumption>,
    out: SmallVec<[Inferred; 2]>,
}

/// What a rule said of one output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inferred {
    pub(crate) ty: Option<Type>,
    pub(crate) known: Known,
}

/// Runs the rule of a node, if it has one.
pub(crate) fn run(graph: &mut Graph, id: NodeId) -> Result<SmallVec<[Inferred; 2]>> {
    let node = &graph.nodes[id.index()];
    let mut cx = InferCx {
        exprs: &mut graph.exprs,
        node,
        id,
        nodes: &graph.nodes,
        values: &mut graph.values,
        constants: &graph.constants,
        assumptions: &mut graph.assumptions,
        out: node.outputs.iter().map(|_| Inferred::default()).collect(),
    };
    if let Some(def) = node.def {
        (def.infer)(&mut cx)?;
    }
    Ok(cx.out)
}

impl InferCx<'_> {
    /// Number of inputs listed, left-out ones in the middle among them.
    pub fn input_count(&self) -> usize {
        self.node.inputs.len()
    }

    /// Number of outputs listed.
    pub fn output_count(&self) -> usize {
        self.node.outputs.len()
    }

    /// Whether an input is there.
    pub fn has_input(&self, i: usize) -> bool {
        self.input_value(i).is_some()
    }

    /// Whether an output is wanted.
    pub fn has_output(&self, o: usize) -> bool {
        self.node.outputs.get(o).is_some_and(Option::is_some)
    }

    fn input_value(&self, i: usize) -> Option<ValueId> {
        self.node.inputs.get(i).copied().flatten()
    }

    /// Type of an input.
    pub fn ty(&self, i: usize) -> Option<&Type> {
        self.values[self.input_value(i)?.index()].ty.as_ref()
    }

    /// Type of an input that is a tensor.
    pub fn tensor(&self, i: usize) -> Option<&TensorType> {
        self.ty(i)?.as_tensor()
    }

    /// Element type of an input tensor.
    pub fn dtype(&self, i: usize) -> Option<DType> {
        Some(self.tensor(i)?.dtype)
    }

    /// Dims of an input tensor of known rank.
    pub fn dims(&self, i: usize) -> Option<Dims> {
        self.tensor(i)?.dims.clone()
    }

    /// Rank of an input tensor.
    pub fn rank(&self, i: usize) -> Option<usize> {
        self.tensor(i)?.rank()
    }

    /// The constant that an input is.
    pub fn constant(&self, i: usize) -> Option<&Constant> {
        let id = self.values[self.input_value(i)?.index()].constant?;
        self.constants.get(id.index())
    }

    /// Elements of a small input (at most [`KNOWN_LIMIT`]) that follow from shapes and constants: integers, truths as
    /// 0 and 1, and floats that are whole numbers.
    pub fn known(&self, i: usize) -> Option<SmallVec<[ExprId; 8]>> {
        let value = &self.values[self.input_value(i)?.index()];
        let known = value.known.as_ref().or(value.whole.as_ref())?;
        Some(SmallVec::from_slice(known))
    }

    /// As [`known`](Self::known); an integer tensor of fixed small size that nothing is known of gets a symbol per element.
    ///
    /// For inputs that decide shapes (the target of a Reshape, the limit of a Range).
    pub fn known_or_symbols(&mut self, i: usize) -> Option<SmallVec<[ExprId; 8]>> {
        if let Some(known) = self.known(i) {
            return Some(known);
        }
        let value = self.input_value(i)?;
        let tensor = self.tensor(i).filter(|t| matches!(t.dtype, DType::I64 | DType::I32))?;
        let count = self.fixed_elements(tensor.dims.as_ref()?)?;
        let source = self.renamed(value);
        let made: SmallVec<[ExprId; 8]> = match &self.values[source.index()].known {
            Some(known) => SmallVec::from_slice(known),
            None => (0..count).map(|at| self.exprs.symbol_of(source, at, SymbolKind::Element)).collect(),
        };
        for v in [source, value] {
            self.values[v.index()].known = Some(made.as_slice().into());
        }
        Some(made)
    }

    /// The value that was made, of one that only has its elements under other dims: nothing runs that could tell them.
    fn renamed(&self, mut value: ValueId) -> ValueId {
        const RENAMES: &[&str] = &["Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"];
        while let Some((n, 0)) = self.values[value.index()].producer {
            let node = &self.nodes[n.index()];
            let source = node.inputs.first().copied().flatten();
            match source.filter(|_| node.domain.is_empty() && RENAMES.contains(&&*node.op)) {
                Some(source) => value = source,
                None => break,
            }
        }
        value
    }

    fn fixed_elements(&self, dims: &Dims) -> Option<u32> {
        let mut count = 1i64;
        for &d in dims {
            count = count.checked_mul(self.exprs.as_const(d)?)?;
        }
        u32::try_from(count).ok().filter(|&n| n as usize <= KNOWN_LIMIT)
    }

    /// Elements of a small integer input that are all plain numbers.
    pub fn ints(&self, i: usize) -> Option<SmallVec<[i64; 8]>> {
        self.known(i)?.into_iter().map(|e| self.exprs.as_const(e)).collect()
    }

    /// An attribute.
    pub fn attr(&self, name: &str) -> Option<&AttrValue> {
        self.node.attr(name)
    }

    /// An integer attribute.
    pub fn attr_int(&self, name: &str) -> Option<i64> {
        self.attr(name)?.as_int()
    }

    /// A float attribute.
    pub fn attr_float(&self, name: &str) -> Option<f32> {
        self.attr(name)?.as_float()
    }

    /// A text attribute.
    pub fn attr_str(&self, name: &str) -> Option<&str> {
        self.attr(name)?.as_str()
    }

    /// An attribute that is a list of integers.
    pub fn attr_ints(&self, name: &str) -> Option<SmallVec<[i64; 8]>> {
        self.attr(name)?.as_ints().map(SmallVec::from_slice)
    }

    /// The constant that a tensor attribute is.
    pub fn attr_tensor(&self, name: &str) -> Option<&Constant> {
        match self.attr(name)? {
            AttrValue::Tensor(c) => self.constants.get(c.index()),
            _ => None,
        }
    }

    /// Sets the type of an output.
    pub fn set(&mut self, o: usize, ty: Type) {
        if let Some(out) = self.out.get_mut(o) {
            out.ty = Some(ty);
        }
    }

    /// Sets an output to a tensor; `dims` is `None` when not even the rank is known.
    pub fn set_tensor(&mut self, o: usize, dtype: DType, dims: Option<Dims>) {
        self.set(o, Type::Tensor(TensorType { dtype, dims }));
    }

    /// Sets an output to the type of an input.
    pub fn set_like(&mut self, o: usize, i: usize) {
        if let Some(ty) = self.ty(i).cloned() {
            self.set(o, ty);
        }
    }

    /// Sets the elements of an integer, bool or float output, whole numbers all. More than [`KNOWN_LIMIT`] are not kept.
    pub fn set_known(&mut self, o: usize, elements: &[ExprId]) {
        if let Some(out) = self.out.get_mut(o)
            && elements.len() <= KNOWN_LIMIT
        {
            out.known = Some(elements.into());
        }
    }

    /// A dim that only a run can tell: dim `axis` of output `o`.
    pub fn fresh_dim(&mut self, o: usize, axis: usize) -> ExprId {
        let value = self.node.outputs.get(o).copied().flatten();
        match (value, u32::try_from(axis)) {
            (Some(value), Ok(at)) => self.exprs.symbol_of(value, at, SymbolKind::Dim),
            // The answer goes nowhere: the output is not wanted.
            _ => self.exprs.constant(0),
        }
    }

    /// `rank` dims that only a run can tell.
    pub fn fresh_dims(&mut self, o: usize, rank: usize) -> Dims {
        (0..rank).map(|axis| self.fresh_dim(o, axis)).collect()
    }

    /// A number as expression.
    pub fn int(&mut self, v: i64) -> ExprId {
        self.exprs.constant(v)
    }

    /// The axis that `axis` (from -rank to rank - 1) means.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize> {
        let r = i64::try_from(rank).unwrap_or(i64::MAX);
        let a = if axis < 0 { axis.saturating_add(r) } else { axis };
        match usize::try_from(a) {
            Ok(a) if a < rank => Ok(a),
            _ => Err(self.fail(format!("axis {axis} is outside a tensor of rank {rank}"))),
        }
    }

    /// States that two dims are equal and returns the one to go on with: a number if one is.
    ///
    /// Different numbers are an error. What only a run can tell becomes an assumption of the graph.
    /// `what` names both sides, as in `the inner dims of A and B`.
    pub fn same_dim(&mut self, a: ExprId, b: ExprId, what: &str) -> Result<ExprId> {
        if a == b {
            return Ok(a);
        }
        let equal = self.exprs.eq(a, b);
        if self.exprs.truth(equal) == Some(false) {
            let (a, b) = (self.show(a), self.show(b));
            return Err(self.fail(format!("{what} have to be equal, but are {a} and {b}")));
        }
        self.assume(equal, || format!("{what} have to be equal"));
        Ok(if self.exprs.as_const(b).is_some() { b } else { a })
    }

    /// The dims of several shapes broadcast against each other (NumPy's rule).
    pub fn broadcast(&mut self, shapes: &[Dims]) -> Result<Dims> {
        let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
        let one = self.exprs.constant(1);
        let mut dims: Dims = SmallVec::from_elem(one, rank);
        for shape in shapes {
            let skip = rank - shape.len();
            for (axis, &d) in shape.iter().enumerate() {
                dims[skip + axis] = self.broadcast_dim(dims[skip + axis], d, skip + axis)?;
            }
        }
        Ok(dims)
    }

    /// The dims of the first `count` inputs broadcast against each other; `None` while a rank is unknown.
    pub fn broadcast_inputs(&mut self, count: usize) -> Result<Option<Dims>> {
        match (0..count).map(|i| self.dims(i)).collect::<Option<SmallVec<[Dims; 4]>>>() {
            Some(shapes) => self.broadcast(&shapes).map(Some),
            None => Ok(None),
        }
    }

    /// States that two inputs have the same dims, if their ranks are known. `what` names both, as in `A and B`.
    pub fn same_dims(&mut self, a: usize, b: usize, what: &str) -> Result<()> {
        let (Some(a), Some(b)) = (self.dims(a), self.dims(b)) else { return Ok(()) };
        if a.len() != b.len() {
            return Err(self.fail(format!("{what} need one shape, but have ranks {} and {}", a.len(), b.len())));
        }
        for (axis, (&x, &y)) in a.iter().zip(&b).enumerate() {
            self.same_dim(x, y, &format!("dims {axis} of {what}"))?;
        }
        Ok(())
    }

    /// Fails unless an input has one of these ranks, if its rank is known.
    pub fn need_rank(&self, i: usize, name: &str, ranks: std::ops::RangeInclusive<usize>) -> Result<()> {
        let Some(rank) = self.rank(i).filter(|r| !ranks.contains(r)) else { return Ok(()) };
        let (least, most) = (ranks.start(), ranks.end());
        let need = match (least == most, *most) {
            (true, _) => format!("{least}"),
            (_, usize::MAX) => format!("at least {least}"),
            _ => format!("{least} to {most}"),
        };
        Err(self.fail(format!("{name} has rank {rank}, needed is {need}")))
    }

    /// The element type that an integer attribute names by ONNX's number.
    pub fn attr_dtype(&self, name: &str) -> Result<Option<DType>> {
        let Some(number) = self.attr_int(name) else { return Ok(None) };
        match i32::try_from(number).ok().and_then(DType::from_number) {
            Some(dtype) => Ok(Some(dtype)),
            None => Err(self.fail(format!("{name} is {number}, which is no element type"))),
        }
    }

    /// As [`attr_dtype`](Self::attr_dtype), with 0 for "not stated".
    pub fn attr_dtype_or_none(&self, name: &str) -> Result<Option<DType>> {
        if self.attr_int(name) == Some(0) { Ok(None) } else { self.attr_dtype(name) }
    }

    /// The number of elements of a vector input, if it is a plain number.
    pub fn vector_len(&self, i: usize) -> Option<usize> {
        usize::try_from(self.exprs.as_const(*self.dims(i)?.first()?)?).ok()
    }

    fn broadcast_dim(&mut self, a: ExprId, b: ExprId, axis: usize) -> Result<ExprId> {
        let Some(d) = self.exprs.bcast(a, b) else {
            let (a, b) = (self.show(a), self.show(b));
            return Err(self.fail(format!("dims {a} and {b} on axis {axis} of the result do not broadcast")));
        };
        for (fixed, free) in [(a, b), (b, a)] {
            let above_one = self.exprs.as_const(fixed).is_some_and(|c| c != 1);
            if above_one && self.exprs.as_const(free).is_none() {
                let one = self.exprs.constant(1);
                let (is_one, is_same) = (self.exprs.eq(free, one), self.exprs.eq(free, fixed));
                let holds = self.exprs.or(is_one, is_same);
                self.assume(holds, || format!("dims on axis {axis} of the result have to broadcast"));
            }
        }
        Ok(d)
    }

    /// Records what a run has to keep to; nothing if it is certain.
    pub fn assume(&mut self, holds: ExprId, what: impl FnOnce() -> String) {
        if self.exprs.truth(holds) != Some(true) {
            self.assumptions.push(Assumption { holds, node: self.id, what: what() });
        }
    }

    /// Text of an expression, for messages.
    pub fn show(&self, e: ExprId) -> String {
        self.exprs.show(e).to_string()
    }

    /// A contradiction. The sentence names what was expected and what was found; node and input names are added.
    pub fn fail(&self, message: impl Display) -> Error {
        Error::new(Code::Infer, message.to_string())
    }
}
