//! The one walk over a freshly built graph, in topological order: each node is checked against the schema of its
//! version, brought to the newest version, and its outputs get types, shapes and known integers.
//!
//! Upgrading and inferring go together because old forms need the ranks and types of their inputs.

mod control;
mod declared;
mod node;
mod upgrade;
mod widen;

use hashbrown::HashMap;

use crate::build::Built;
use crate::error::{Code, Result, Warning};
use crate::ir::{DType, Data, Graph, GraphId, Sizes, ValueId};
use crate::proto::TypeProto;

/// Upgrades and infers a built graph.
pub(crate) fn walk(built: Built) -> Result<Graph> {
    let mut walk = Walk::over(built.graph);
    for (value, ty) in built.declared {
        // A graph output is declared after the value itself; the first says enough.
        walk.declared.entry(value).or_insert(ty);
    }
    walk.body(GraphId::MAIN)?;
    walk.keep_stated()?;
    walk.compare_declared();
    Ok(walk.graph)
}

/// Infers a graph again, whose nodes are in their final forms: after its inputs got sizes, a branch was decided, or
/// constants were computed. An error leaves the graph as far as it came.
pub(crate) fn again(graph: &mut Graph) -> Result<()> {
    let warnings = graph.warnings.len();
    let mut walk = Walk { upgraded: true, ..Walk::over(std::mem::take(graph)) };
    walk.graph.assumptions.clear();
    let done = walk.body(GraphId::MAIN);
    *graph = walk.graph;
    graph.warnings.truncate(warnings);
    done
}

/// A walk over a graph.
pub(crate) struct Walk {
    pub(crate) graph: Graph,
    declared: HashMap<ValueId, TypeProto>,
    /// Constants made by upgrades, so that equal ones are one value per graph.
    made: HashMap<(GraphId, DType, Sizes, Vec<u8>), ValueId>,
    /// Loops and Scans around the place at hand.
    loops: u32,
    /// Branches around the place at hand that may never be taken.
    lenient: u32,
    /// Whether nodes are in their final forms already, and only inferred.
    upgraded: bool,
}

impl Walk {
    pub(crate) fn over(graph: Graph) -> Walk {
        Walk { graph, declared: HashMap::new(), made: HashMap::new(), loops: 0, lenient: 0, upgraded: false }
    }

    /// Walks the nodes of a graph, whose inputs have their types.
    fn body(&mut self, graph: GraphId) -> Result<()> {
        let nodes = std::mem::take(&mut self.graph.bodies[graph.index()].nodes);
        let mut out = Vec::with_capacity(nodes.len());
        for id in nodes {
            let done = match self.upgraded {
                true => {
                    out.push(id);
                    self.settle_again(id)
                }
                false => self.file_node(id, &mut out),
            };
            let Err(e) = done else { continue };
            let place = self.graph.node(id).place(&self.graph);
            if self.lenient == 0 || e.code() != Code::Infer {
                self.graph.bodies[graph.index()].nodes = out;
                return Err(e.within(place));
            }
            self.warn(place, format!("can't run if its branch is taken: {}", e.message()));
        }
        self.graph.bodies[graph.index()].nodes = out;
        Ok(())
    }

    fn constant(&mut self, graph: GraphId, dtype: DType, dims: &[i64], bytes: &[u8]) -> Result<ValueId> {
        let key = (graph, dtype, Sizes::from_slice(dims), bytes.to_vec());
        if let Some(&value) = self.made.get(&key) {
            return Ok(value);
        }
        let value = self.graph.add_constant(graph, dtype, dims, Data::copied(bytes))?;
        self.made.insert(key, value);
        Ok(value)
    }

    fn warn(&mut self, place: impl Into<String>, message: impl Into<String>) {
        let warning = Warning { place: place.into(), message: message.into() };
        tracing::warn!(target: "ortolan_graph", "{warning}");
        self.graph.warnings.push(warning);
    }
}
