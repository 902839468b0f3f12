//! [`Graph`] and its tables: nodes, values, bodies, constants.
//!
//! Reading is open to everybody; changes go through [`crate::edit`] only.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Attr, AttrValue, ConstId, Constant, ExprId, ExprTable, GraphId, Name, NodeId, OriginId, Type, ValueId};
use crate::error::Warning;
use crate::ops::OpDef;
use crate::schema::SchemaSet;

/// An operator set: a domain (`""` is the standard one) and its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Opset {
    /// Domain; `ai.onnx` is written as `""`.
    pub domain: Name,
    /// Version.
    pub version: u32,
}

/// What a model says about itself.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelInfo {
    /// IR version of the file.
    pub ir_version: i64,
    /// Tool that wrote it.
    pub producer_name: String,
    /// Version of that tool.
    pub producer_version: String,
    /// Domain of the model.
    pub domain: String,
    /// Version of the model.
    pub model_version: i64,
    /// Description.
    pub doc: String,
    /// Name of the main graph.
    pub graph_name: String,
    /// Free entries, in file order.
    pub metadata: Vec<(String, String)>,
}

/// A whole model: every table by id, graph [`GraphId::MAIN`] first.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub(crate) info: ModelInfo,
    pub(crate) opsets: Vec<Opset>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) values: Vec<Value>,
    pub(crate) bodies: Vec<Body>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) origins: Vec<Origin>,
    pub(crate) exprs: ExprTable,
    pub(crate) assumptions: Vec<Assumption>,
    pub(crate) warnings: Vec<Warning>,
    /// What the file states of outputs of the model whose shape inference does not find.
    pub(crate) stated_outputs: Vec<Option<Type>>,
    pub(crate) schemas: Option<Arc<SchemaSet>>,
}

/// A node in its newest form.
#[derive(Clone, Debug)]
pub struct Node {
    /// Operator.
    pub op: Name,
    /// Domain; `""` is the standard one.
    pub domain: Name,
    /// Name in the file; may be empty, may repeat.
    pub name: Name,
    /// Since-version of the operator form in which the node stands; 0 for operators that no schema describes.
    pub since: u32,
    /// Opset versions of its domain in which this node, as it stands, means the same.
    pub holds: Holds,
    /// The rules of its operator, where this build has some.
    pub def: Option<&'static OpDef>,
    /// The graph that it is in.
    pub graph: GraphId,
    /// Inputs in order; `None` where an optional one is left out.
    pub inputs: SmallVec<[Option<ValueId>; 4]>,
    /// Outputs in order; `None` where one is not wanted.
    pub outputs: SmallVec<[Option<ValueId>; 2]>,
    /// Attributes by name, ascending, defaults filled in.
    pub attrs: Vec<Attr>,
    /// The form in the file, when this is one of the nodes that it became.
    pub origin: Option<OriginId>,
    /// The nodes that this raised operator stands for; they stay in the table, but in no graph.
    pub stands_for: Option<Arc<[NodeId]>>,
}

/// A closed interval of opset versions of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holds {
    /// First version.
    pub from: u32,
    /// Last version; `u32::MAX` while no later one changed the meaning.
    pub to: u32,
}

impl Holds {
    /// Every version.
    pub const ALWAYS: Holds = Holds { from: 1, to: u32::MAX };

    /// Whether `version` is in it.
    pub const fn at(self, version: u32) -> bool {
        self.from <= version && version <= self.to
    }
}

/// The form in which a node stood in the file, kept when bringing it to the newest version changed it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Operator.
    pub op: Name,
    /// Domain.
    pub domain: Name,
    /// Name in the file.
    pub name: Name,
    /// Since-version of this form.
    pub since: u32,
    /// Opset versions in which this form means what the file meant.
    pub holds: Holds,
    /// The graph that it stood in.
    pub graph: GraphId,
    /// Inputs as in the file.
    pub inputs: SmallVec<[Option<ValueId>; 4]>,
    /// Outputs as in the file.
    pub outputs: SmallVec<[Option<ValueId>; 2]>,
    /// Attributes with the defaults of its version.
    pub attrs: Vec<Attr>,
    /// The nodes that it became, in order. Empty once a pass changed one of them.
    pub became: SmallVec<[NodeId; 2]>,
}

/// A graph's input, an initializer, or what a node makes.
#[derive(Clone, Debug)]
pub struct Value {
    /// Name in the file, or empty for a value that was made here. Names of inputs are what the caller knows them by;
    /// others are for messages and need not be unique, since bodies may repeat them and functions are expanded.
    pub name: Name,
    /// Its type; `None` until inferred, and for what an unknown operator makes.
    pub ty: Option<Type>,
    /// The graph that it belongs to.
    pub graph: GraphId,
    /// The node and the output of it that makes the value.
    pub producer: Option<(NodeId, u32)>,
    /// Its bytes, if it is a constant.
    pub constant: Option<ConstId>,
    /// What an input of the model's graph is when the caller gives nothing for it.
    pub default: Option<ConstId>,
    /// Its elements, if it is a small integer or bool tensor that follows from shapes and constants.
    pub known: Known,
    /// The same for a float tensor whose elements are whole numbers. Inference alone uses it, to follow shapes that a
    /// model computes with in floats; the value itself is computed by its node.
    pub(crate) whole: Known,
    /// Computed from constants only, through any number of nodes.
    pub const_expr: bool,
}

/// Elements of a small integer tensor in row-major order, each an expression.
pub type Known = Option<Arc<[ExprId]>>;

/// The model's graph or a body of a control-flow node.
#[derive(Clone, Debug, Default)]
pub struct Body {
    /// The node whose body it is; `None` for the model's graph.
    pub parent: Option<NodeId>,
    /// Name in the file.
    pub name: Name,
    /// Inputs, in order. An initializer that is also listed as input is one of them, with [`Value::default`] set, from
    /// IR version 4 on; before, files had to list every initializer and it is a plain constant here.
    pub inputs: Vec<ValueId>,
    /// Outputs, in order; a value may stand here more than once, and may belong to an outer graph.
    pub outputs: Vec<ValueId>,
    /// The names under which the file, and so the caller, knows the outputs.
    pub output_names: Vec<Name>,
    /// Nodes in topological order.
    pub nodes: Vec<NodeId>,
}

/// Something that inference took for granted because only a run can tell. The host checks it when symbols are bound;
/// of a node in a body only when that body runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// Must not be 0.
    pub holds: ExprId,
    /// The node that needs it.
    pub node: NodeId,
    /// What it says, for the error.
    pub what: String,
}

/// One reader of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Input number `.1` of a node.
    Input(NodeId, u32),
    /// Output number `.1` of a graph.
    Output(GraphId, u32),
}

/// The readers of every value, at the time when it was made.
#[derive(Clone, Debug)]
pub struct Uses {
    starts: Vec<u32>,
    uses: Vec<Use>,
}

impl Uses {
    /// Readers of a value: nodes of any graph (captures), and graph outputs.
    pub fn of(&self, value: ValueId) -> &[Use] {
        match self.starts.get(value.index()..value.index() + 2) {
            Some(&[from, to]) => &self.uses[from as usize..to as usize],
            _ => &[],
        }
    }
}

impl Value {
    /// A value that nothing is known of.
    pub(crate) fn new(graph: GraphId) -> Value {
        Value {
            name: "".into(),
            ty: None,
            graph,
            producer: None,
            constant: None,
            default: None,
            known: None,
            whole: None,
            const_expr: false,
        }
    }
}

impl Node {
    /// Value of an attribute, a default among them.
    pub fn attr(&self, name: &str) -> Option<&AttrValue> {
        self.attrs.iter().find(|a| &*a.name == name).map(|a| &a.value)
    }

    /// Whether this is the operator of `def`.
    pub fn is(&self, def: &'static OpDef) -> bool {
        self.def.is_some_and(|d| std::ptr::eq(d, def))
    }

    /// The bodies of a control-flow node, in attribute order.
    pub fn bodies(&self) -> impl Iterator<Item = GraphId> + '_ {
        self.attrs.iter().flat_map(|a| a.value.graphs().iter().copied())
    }

    /// How errors name it: `node 'conv1' (Conv)`, or by its first output when it has no name.
    pub fn place(&self, graph: &Graph) -> String {
        let domain = if self.domain.is_empty() { String::new() } else { format!("{}::", self.domain) };
        let first = self.outputs.iter().flatten().next();
        match first {
            _ if !self.name.is_empty() => format!("node '{}' ({domain}{})", self.name, self.op),
            Some(&v) => format!("node of '{}' ({domain}{})", graph.value(v).name, self.op),
            None => format!("node without outputs ({domain}{})", self.op),
        }
    }
}

impl Graph {
    /// What the model says about itself.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// The opsets that the file imports.
    pub fn opsets(&self) -> &[Opset] {
        &self.opsets
    }

    /// The version that the file imports of a domain.
    pub fn opset(&self, domain: &str) -> Option<u32> {
        self.opsets.iter().find(|o| &*o.domain == domain).map(|o| o.version)
    }

    /// A node. Nodes that a pass removed keep their entry but are in no body.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// A graph.
    pub fn body(&self, id: GraphId) -> &Body {
        &self.bodies[id.index()]
    }

    /// The model's graph.
    pub fn main(&self) -> &Body {
        self.body(GraphId::MAIN)
    }

    /// A constant.
    pub fn constant(&self, id: ConstId) -> &Constant {
        &self.constants[id.index()]
    }

    /// The form in which a node stood in the file.
    pub fn origin(&self, id: OriginId) -> &Origin {
        &self.origins[id.index()]
    }

    /// Dims and known integers.
    pub fn exprs(&self) -> &ExprTable {
        &self.exprs
    }

    /// What must hold once symbols are bound.
    pub fn assumptions(&self) -> &[Assumption] {
        &self.assumptions
    }

    /// What the model says wrongly, with no effect on results.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Type of an output of the model as the file states it, where inference does not even find its rank. For display
    /// and for writing only: nothing relies on it.
    pub fn stated_output(&self, i: usize) -> Option<&Type> {
        self.stated_outputs.get(i)?.as_ref()
    }

    /// Number of entries in the table of nodes, removed ones included.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of values.
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// All graphs in id order: the model's first, bodies after the graphs that hold them.
    pub fn body_ids(&self) -> impl Iterator<Item = GraphId> + use<> {
        (0..self.bodies.len()).filter_map(GraphId::next)
    }

    /// All constants in id order.
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    /// Every node that runs, with those of bodies right before the node that holds them.
    pub fn live_nodes(&self) -> Vec<NodeId> {
        let mut all = Vec::with_capacity(self.nodes.len());
        self.visit(GraphId::MAIN, &mut |id| all.push(id));
        all
    }

    /// The graphs that those nodes are in: the model's, and bodies of live nodes.
    pub fn live_bodies(&self) -> Vec<GraphId> {
        let mut all = vec![GraphId::MAIN];
        self.visit(GraphId::MAIN, &mut |id| all.extend(self.node(id).bodies()));
        all.sort_unstable();
        all
    }

    // Recursion is as deep as graphs are nested, which loading limits.
    fn visit(&self, graph: GraphId, f: &mut dyn FnMut(NodeId)) {
        for &id in &self.body(graph).nodes {
            for body in self.node(id).bodies() {
                self.visit(body, f);
            }
            f(id);
        }
    }

    /// The readers of every value.
    pub fn uses(&self) -> Uses {
        let mut found: Vec<(ValueId, Use)> = Vec::new();
        for id in self.live_nodes() {
            let inputs = self.node(id).inputs.iter().zip(0u32..);
            found.extend(inputs.filter_map(|(v, at)| v.map(|v| (v, Use::Input(id, at)))));
        }
        for graph in self.live_bodies() {
            let outputs = self.body(graph).outputs.iter().zip(0u32..);
            found.extend(outputs.map(|(&v, at)| (v, Use::Output(graph, at))));
        }
        found.sort_by_key(|f| f.0);
        let mut starts = Vec::with_capacity(self.values.len() + 1);
        let mut at = 0;
        for v in 0..=self.values.len() {
            while found.get(at).is_some_and(|f| f.0.index() < v) {
                at += 1;
            }
            starts.push(u32::try_from(at).unwrap_or(u32::MAX));
        }
        Uses { starts, uses: found.into_iter().map(|f| f.1).collect() }
    }
}
