//! A graph as an EP of an older (or the newest) opset reads it.
//!
//! Per node: its newest form, if that is one node and means the same at the EP's opset; else the form in which it stood in
//! the file; else its standard body at that opset; else it can't be written, and the EP is not asked about it.
//! There are no downgrade functions.

use hashbrown::{HashMap, HashSet};

use crate::build::domain_name;
use crate::error::{Code, Result};
use crate::ir::{Graph, GraphId, Node, NodeId, Opset, OriginId, ValueId};
use crate::ops::body::expand;

/// A graph in the dialect of an EP.
#[derive(Clone, Debug)]
pub struct Projection {
    /// Every node is in a form of `opsets`, but for those in `refused`. Nodes that stand as they did have
    /// their ids, and so have all values; new nodes have new ids.
    pub graph: Graph,
    /// For each new node the nodes of the source graph that it stands for; nodes of one body share theirs.
    pub sources: HashMap<NodeId, Vec<NodeId>>,
    /// Nodes that can't be written in `opsets`, each with a sentence; they stand in their newest form.
    pub refused: Vec<(NodeId, String)>,
}

/// Writes a graph in the opsets of an EP. Raised nodes in `lowered` are replaced by the nodes that they stand for.
pub fn project(graph: &Graph, opsets: &[Opset], lowered: &HashSet<NodeId>) -> Result<Projection> {
    let mut graph = graph.clone();
    if !lowered.is_empty() {
        let mut edit = graph.edit();
        for &id in lowered {
            edit.lower(id)?;
        }
        edit.finish()?;
    }
    graph.opsets = opsets.to_vec();
    let mut p = Projector { graph, opsets, sources: HashMap::new(), refused: Vec::new() };
    p.groups();
    p.nodes()?;
    p.graph.sort()?;
    Ok(Projection { graph: p.graph, sources: p.sources, refused: p.refused })
}

struct Projector<'a> {
    graph: Graph,
    opsets: &'a [Opset],
    sources: HashMap<NodeId, Vec<NodeId>>,
    refused: Vec<(NodeId, String)>,
}

impl Projector<'_> {
    fn opset(&self, domain: &str) -> Option<u32> {
        self.opsets.iter().find(|o| &*o.domain == domain).map(|o| o.version)
    }

    fn fits(&self, node: &Node) -> bool {
        self.opset(&node.domain).is_some_and(|e| node.holds.at(e))
    }

    /// Puts the file's form in the place of the nodes that it became, where it fits, and one of them does not or
    /// they are several.
    fn groups(&mut self) {
        let live: HashSet<NodeId> = self.graph.live_nodes().into_iter().collect();
        let groups: HashSet<OriginId> = live.iter().filter_map(|n| self.graph.node(*n).origin).collect();
        if groups.is_empty() {
            return;
        }
        let readers = self.graph.uses();
        let mut groups: Vec<OriginId> = groups.into_iter().collect();
        groups.sort_unstable();
        for id in groups {
            let origin = self.graph.origin(id);
            let held = self.opset(&origin.domain).is_some_and(|e| origin.holds.at(e));
            let nodes: Vec<NodeId> = origin.became.iter().copied().filter(|n| live.contains(n)).collect();
            let split = nodes.len() > 1 || nodes.iter().any(|n| !self.fits(self.graph.node(*n)));
            if held && split && self.stands_for(id, &nodes, &readers) {
                let _ = self.restore(id, nodes);
            }
        }
    }

    /// Whether the file's form makes all that is read of the nodes that it became. Passes may have taken some of them.
    fn stands_for(&self, id: OriginId, nodes: &[NodeId], readers: &crate::ir::Uses) -> bool {
        let origin = self.graph.origin(id);
        let outputs: HashSet<ValueId> = origin.outputs.iter().flatten().copied().collect();
        let made: HashSet<ValueId> =
            nodes.iter().flat_map(|n| self.graph.node(*n).outputs.iter().flatten().copied()).collect();
        let inside = |u: &crate::ir::Use| matches!(u, crate::ir::Use::Input(n, _) if nodes.contains(n));
        let read_outside = |v: &ValueId| readers.of(*v).iter().any(|u| !inside(u));
        let one_graph = nodes.iter().all(|n| self.graph.node(*n).graph == origin.graph);
        let available = origin.inputs.iter().flatten().all(|v| self.available(*v));
        one_graph
            && available
            && made.iter().all(|v| outputs.contains(v) || !read_outside(v))
            && outputs.iter().all(|v| made.contains(v) || readers.of(*v).is_empty())
    }

    /// Whether a value is still made by something. What the passes removed is not.
    fn available(&self, v: ValueId) -> bool {
        let value = self.graph.value(v);
        match value.producer {
            Some((n, _)) => self.graph.body(self.graph.node(n).graph).nodes.contains(&n),
            None => true,
        }
    }

    fn restore(&mut self, id: OriginId, nodes: Vec<NodeId>) -> NodeId {
        let origin = self.graph.origin(id).clone();
        let new = NodeId::next(self.graph.nodes.len()).expect("a graph that was loaded leaves room for nodes");
        self.graph.nodes.push(Node {
            op: origin.op,
            domain: origin.domain,
            name: origin.name,
            since: origin.since,
            holds: origin.holds,
            def: None,
            graph: origin.graph,
            inputs: origin.inputs,
            outputs: origin.outputs,
            attrs: origin.attrs,
            origin: None,
            stands_for: None,
        });
        for (v, at) in self.graph.node(new).outputs.clone().into_iter().zip(0u32..) {
            self.graph.set_producer(v, new, at);
        }
        for body in self.graph.node(new).bodies().collect::<Vec<_>>() {
            self.graph.bodies[body.index()].parent = Some(new);
        }
        let body = &mut self.graph.bodies[origin.graph.index()].nodes;
        if let Some(last) = body.iter().rposition(|n| nodes.contains(n)) {
            body[last] = new;
            body.retain(|n| !nodes.contains(n));
        }
        self.sources.insert(new, nodes);
        new
    }

    /// What still does not fit: standard bodies, or a refusal.
    fn nodes(&mut self) -> Result<()> {
        for graph in self.graph.live_bodies() {
            let misfits: Vec<NodeId> = self.graph.body(graph).nodes.clone();
            for id in misfits {
                if !self.fits(self.graph.node(id)) {
                    self.misfit(graph, id)?;
                }
            }
        }
        Ok(())
    }

    fn misfit(&mut self, graph: GraphId, id: NodeId) -> Result<()> {
        let domain = self.graph.node(id).domain.clone();
        let Some(opset) = self.opset(&domain) else {
            self.refused.push((id, format!("the EP states no opset of {}", domain_name(&domain))));
            return Ok(());
        };
        if let Some(nodes) = self.body(graph, id, opset)? {
            let source = self.sources.remove(&id).unwrap_or_else(|| vec![id]);
            for n in nodes {
                self.sources.insert(n, source.clone());
            }
            return Ok(());
        }
        let node = self.graph.node(id);
        let mut what = format!(
            "{}-{} means this from version {} of {} on",
            node.op,
            node.since,
            node.holds.from,
            domain_name(&domain)
        );
        if node.holds.to != u32::MAX {
            what = format!(
                "{}-{} means this in versions {} to {} of {}",
                node.op,
                node.since,
                node.holds.from,
                node.holds.to,
                domain_name(&domain)
            );
        }
        self.refused.push((id, format!("{what}, the EP reads {opset}")));
        Ok(())
    }

    /// Expands the standard body of a node, if it has one that can be written in `opset`.
    fn body(&mut self, graph: GraphId, id: NodeId, opset: u32) -> Result<Option<Vec<NodeId>>> {
        let before = self.graph.body(graph).nodes.clone();
        let bodies = self.graph.bodies.len();
        // Graphs that the node holds become part of its body.
        let saved = self.graph.node(id).bodies().next().is_some().then(|| self.graph.clone());
        let made = match expand(&mut self.graph, id, opset) {
            Ok(Some(nodes)) => self.written(nodes),
            Ok(None) => return Ok(None),
            Err(e) if e.code() == Code::Limit => return Err(e),
            // An operator or form that the opset does not have yet.
            Err(_) => None,
        };
        match (&made, saved) {
            (Some(_), _) => {}
            (None, Some(saved)) => {
                self.graph = saved;
                self.sources.retain(|n, _| n.index() < self.graph.nodes.len());
            }
            (None, None) => {
                self.graph.bodies[graph.index()].nodes = before;
                self.graph.take_back(id, bodies);
            }
        }
        Ok(made)
    }

    /// The nodes of a body, with those of graphs in it, in forms that fit; its own nodes may have changed since that opset, too.
    fn written(&mut self, nodes: Vec<NodeId>) -> Option<Vec<NodeId>> {
        let mut groups: Vec<OriginId> = nodes
            .iter()
            .filter(|n| !self.fits(self.graph.node(**n)))
            .map(|n| self.graph.node(*n).origin)
            .collect::<Option<_>>()?;
        groups.dedup();
        let mut nodes = nodes;
        for id in groups {
            let became: Vec<NodeId> = self.graph.origin(id).became.to_vec();
            let new = self.restore(id, became.clone());
            nodes.retain(|n| !became.contains(n));
            nodes.push(new);
        }
        if !nodes.iter().all(|n| self.fits(self.graph.node(*n))) {
            return None;
        }
        let inner: Vec<GraphId> = nodes.iter().flat_map(|n| self.graph.node(*n).bodies()).collect();
        for body in inner {
            nodes.extend(self.written(self.graph.body(body).nodes.clone())?);
        }
        Some(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{good, graph, load, shown};

    fn at(graph: &Graph, version: u32) -> Projection {
        project(graph, &[Opset { domain: "".into(), version }], &HashSet::new()).unwrap()
    }

    #[test]
    fn the_models_own_opset_gives_the_file_back() {
        let text = "m = ReduceMean(x) axes=[1]\ns = Softmax(m) axis=1\nz = Squeeze(s) axes=[0]";
        let g = good(11, graph("x float[1,3,4]", text, "z"));
        let p = at(&g, 11);
        assert!(p.refused.is_empty(), "{:?}", p.refused);
        assert_eq!(shown(&p.graph), ["ReduceMean-11(x) > m", "Softmax-11(m) > s", "Squeeze-11(s) > z"]);
        crate::verify::verify(&p.graph).unwrap();
        for (new, old) in &p.sources {
            assert!(new.index() >= g.node_count() && old.iter().all(|n| n.index() < g.node_count()));
        }
        // An EP of a newer opset gets the newest forms.
        let p = at(&g, 21);
        assert!(p.refused.is_empty() && p.sources.is_empty());
        assert_eq!(shown(&p.graph), shown(&g));
    }

    #[test]
    fn projections_can_be_written_and_read() {
        let text = "m = ReduceMean(x) axes=[1]\ns = Softmax(m) axis=1\nz = Squeeze(s) axes=[0]";
        let g = good(11, graph("x float[1,3,4]", text, "z"));
        let m = crate::write::to_model(&at(&g, 11).graph).unwrap();
        assert_eq!(m.opset_import[0].version, 11);
        let again = load(&m).unwrap();
        assert_eq!(shown(&again), shown(&g));
        assert_eq!(shown(&at(&again, 11).graph), shown(&at(&g, 11).graph));
    }

    #[test]
    fn what_cannot_be_written_is_refused_with_both_versions() {
        let g = good(21, graph("x float[2]", "a = Relu(x)\ny = Gelu(a)", "y"));
        let p = at(&g, 8);
        assert_eq!(p.refused.len(), 1);
        let (id, why) = &p.refused[0];
        assert_eq!(&*p.graph.node(*id).op, "Gelu");
        assert!(why.contains("20") && why.contains("reads 8"), "{why}");
        let p = project(&g, &[], &HashSet::new()).unwrap();
        assert_eq!(p.refused.len(), 2);
    }

    #[test]
    fn what_maps_items_keeps_its_graph_when_it_cannot_be_written() {
        use crate::proto::{AttributeProto, attribute_type};
        for (op, refused) in [("Gelu", true), ("Relu", false)] {
            let mut g = graph("x float[2]", "s = SequenceConstruct(x)\nt = SequenceMap(s)", "t");
            g.node[1].attribute.push(AttributeProto {
                name: "body".into(),
                r#type: attribute_type::GRAPH,
                g: Some(graph("i float", &format!("o = {op}(i)"), "o")),
                ..AttributeProto::default()
            });
            let g = good(21, g);
            let p = at(&g, 16);
            crate::verify::verify(&p.graph).unwrap();
            let all = shown(&p.graph).join(" ");
            assert_eq!(all.contains("SequenceMap"), refused, "{all}");
            assert_eq!(all.contains("Loop") && all.contains("SequenceInsert"), !refused, "{all}");
            assert_eq!(p.refused.iter().any(|(n, _)| &*p.graph.node(*n).op == "SequenceMap"), refused);
        }
    }
}
