//! A node as schemas and version steps read it: inputs, outputs and attributes over a graph's
//! tables, whether it is a node that runs or the form in which one stood in the file.

use crate::ir::{Attr, AttrValue, DType, Dims, ExprTable, Graph, Node, Origin, Type, Value, ValueId};

macro_rules! kinds {
    ($($name:ident = $number:literal $text:literal;)*) => {
        /// What an attribute holds. The numbers are those of ONNX's `AttributeProto.AttributeType`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum AttrKind { $(#[doc = concat!("`", $text, "`")] $name = $number,)* }

        impl AttrKind {
            /// Every kind, by number.
            pub const ALL: &'static [AttrKind] = &[$(AttrKind::$name,)*];

            /// The name in schema texts, for example `floats`.
            pub const fn name(self) -> &'static str {
                match self { $(AttrKind::$name => $text,)* }
            }
        }
    };
}

kinds! {
    Float = 1 "float";
    Int = 2 "int";
    String = 3 "string";
    Tensor = 4 "tensor";
    Graph = 5 "graph";
    Floats = 6 "floats";
    Ints = 7 "ints";
    Strings = 8 "strings";
    Tensors = 9 "tensors";
    Graphs = 10 "graphs";
    SparseTensor = 11 "sparse_tensor";
    SparseTensors = 12 "sparse_tensors";
    Type = 13 "type";
    Types = 14 "types";
}

impl AttrKind {
    /// The kind with this ONNX number.
    pub fn from_number(number: u8) -> Option<AttrKind> {
        AttrKind::ALL.iter().copied().find(|kind| *kind as u8 == number)
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<AttrKind> {
        AttrKind::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// What a value holds.
    pub fn of(value: &AttrValue) -> AttrKind {
        match value {
            AttrValue::Int(_) => AttrKind::Int,
            AttrValue::Float(_) => AttrKind::Float,
            AttrValue::String(_) => AttrKind::String,
            AttrValue::Ints(_) | AttrValue::BigInts(_) => AttrKind::Ints,
            AttrValue::Floats(_) | AttrValue::BigFloats(_) => AttrKind::Floats,
            AttrValue::Strings(_) => AttrKind::Strings,
            AttrValue::Tensor(_) => AttrKind::Tensor,
            AttrValue::Tensors(_) => AttrKind::Tensors,
            AttrValue::Graph(_) => AttrKind::Graph,
            AttrValue::Graphs(_) => AttrKind::Graphs,
            AttrValue::Type(_) => AttrKind::Type,
            AttrValue::Types(_) => AttrKind::Types,
        }
    }

    /// Whether a value serves where this kind is declared: sparse tensors are made dense at load.
    pub fn takes(self, value: &AttrValue) -> bool {
        let found = AttrKind::of(value);
        let dense = match self {
            AttrKind::SparseTensor => AttrKind::Tensor,
            AttrKind::SparseTensors => AttrKind::Tensors,
            kind => kind,
        };
        found == dense
    }
}

impl std::fmt::Display for AttrKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What can be read of a node. An index beyond the end answers "absent".
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The tables.
    pub graph: &'a Graph,
    /// Inputs as listed.
    pub inputs: &'a [Option<ValueId>],
    /// Outputs as listed.
    pub outputs: &'a [Option<ValueId>],
    /// Attributes, in any order.
    pub attrs: &'a [Attr],
}

impl<'a> View<'a> {
    /// A node as it stands.
    pub fn of(graph: &'a Graph, node: &'a Node) -> View<'a> {
        View { graph, inputs: &node.inputs, outputs: &node.outputs, attrs: &node.attrs }
    }

    /// The form in which a node stood in the file.
    pub fn of_origin(graph: &'a Graph, origin: &'a Origin) -> View<'a> {
        View { graph, inputs: &origin.inputs, outputs: &origin.outputs, attrs: &origin.attrs }
    }

    /// How many inputs there are, absent ones at the end not counted.
    pub fn input_count(self) -> usize {
        self.inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1)
    }

    /// How many outputs there are, absent ones at the end not counted.
    pub fn output_count(self) -> usize {
        self.outputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1)
    }

    /// Whether an input is there.
    pub fn has_input(self, i: usize) -> bool {
        self.input(i).is_some()
    }

    /// Whether an output is wanted.
    pub fn has_output(self, o: usize) -> bool {
        self.output(o).is_some()
    }

    /// An input's value.
    pub fn input(self, i: usize) -> Option<&'a Value> {
        self.inputs.get(i).copied().flatten().map(|id| self.graph.value(id))
    }

    /// An output's value.
    pub fn output(self, o: usize) -> Option<&'a Value> {
        self.outputs.get(o).copied().flatten().map(|id| self.graph.value(id))
    }

    /// An input's type, where it is known.
    pub fn ty(self, i: usize) -> Option<&'a Type> {
        self.input(i)?.ty.as_ref()
    }

    /// An input's element type.
    pub fn dtype(self, i: usize) -> Option<DType> {
        Some(self.ty(i)?.as_tensor()?.dtype)
    }

    /// An input's dims, where the rank is known.
    pub fn dims(self, i: usize) -> Option<&'a Dims> {
        self.ty(i)?.as_tensor()?.dims.as_ref()
    }

    /// An input's rank.
    pub fn rank(self, i: usize) -> Option<usize> {
        self.dims(i).map(|d| d.len())
    }

    /// One dim of an input, where it is a number.
    pub fn dim(self, i: usize, axis: usize) -> Option<i64> {
        self.exprs().as_const(*self.dims(i)?.get(axis)?)
    }

    /// Whether two inputs certainly have one shape.
    pub fn same_dims(self, i: usize, j: usize) -> bool {
        self.dims(i).is_some_and(|d| Some(d) == self.dims(j))
    }

    /// The elements of a small integer or bool input, where all are numbers at load time.
    pub fn known(self, i: usize) -> Option<Vec<i64>> {
        let value = self.input(i)?;
        if let Some(known) = &value.known {
            return known.iter().map(|e| self.exprs().as_const(*e)).collect();
        }
        self.graph.constant(value.constant?).ints(crate::ir::KNOWN_LIMIT)
    }

    /// The elements of a small floating-point constant.
    pub fn floats(self, i: usize) -> Option<Vec<f64>> {
        self.graph.constant(self.input(i)?.constant?).floats(crate::ir::KNOWN_LIMIT)
    }

    /// An attribute.
    pub fn attr(self, name: &str) -> Option<&'a AttrValue> {
        self.attrs.iter().find(|a| &*a.name == name).map(|a| &a.value)
    }

    /// An integer attribute.
    pub fn int(self, name: &str) -> Option<i64> {
        self.attr(name)?.as_int()
    }

    /// A string attribute.
    pub fn str(self, name: &str) -> Option<&'a str> {
        self.attr(name)?.as_str()
    }

    /// A list of integers.
    pub fn ints(self, name: &str) -> Option<&'a [i64]> {
        self.attr(name)?.as_ints()
    }

    fn exprs(self) -> &'a ExprTable {
        self.graph.exprs()
    }
}
