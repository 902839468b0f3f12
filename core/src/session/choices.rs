//! Conditions that a run's inputs decide: before it begins, so that only what it takes is planned.

use std::collections::HashMap;

use ortolan_graph::Graph;
use ortolan_graph::ir::{ExprId, ExprOp, ExprTable, NodeId, UNDEFINED, ValueId};

use crate::passes::decide;

/// The conditions of a graph's outermost Ifs, as far as sizes of inputs and elements of small ones decide them.
pub(super) struct Choices {
    ifs: Vec<(NodeId, ExprId)>,
    /// Only what the conditions need.
    exprs: ExprTable,
}

/// The number of a condition that these inputs leave open.
const OPEN: i64 = -1;

impl Choices {
    /// All but those of the Ifs in `left`.
    pub fn of(graph: &Graph, left: &[NodeId]) -> Choices {
        let known = |cond: ValueId| {
            let cond = *graph.value(cond).known.as_ref()?.first()?;
            from_inputs(graph, cond).then_some(cond)
        };
        let mut ifs = decide::outermost(graph, known);
        ifs.retain(|(node, _)| !left.contains(node));
        let mut exprs = ExprTable::new();
        if !ifs.is_empty() {
            // Symbols keep their numbers.
            graph.exprs().symbols().iter().for_each(|s| _ = exprs.symbol(s.clone()));
        }
        let mut copied = HashMap::new();
        ifs.iter_mut().for_each(|(_, cond)| *cond = copy(graph.exprs(), *cond, &mut exprs, &mut copied));
        Choices { ifs, exprs }
    }

    pub fn is_empty(&self) -> bool {
        self.ifs.is_empty()
    }

    pub fn len(&self) -> usize {
        self.ifs.len()
    }

    /// The Ifs.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.ifs.iter().map(|(n, _)| *n)
    }

    /// What the conditions are for these numbers of symbols: 0, 1 or [`OPEN`].
    pub fn outcome(&self, symbols: &[i64]) -> Vec<i64> {
        let symbols: Vec<i64> = self.exprs.symbols().iter().enumerate().map(|(at, _)| bound(symbols, at)).collect();
        let mut numbers = Vec::new();
        self.exprs.eval(&symbols, &mut numbers);
        let number = |cond: &ExprId| match numbers[cond.index()] {
            UNDEFINED => OPEN,
            n => i64::from(n != 0),
        };
        self.ifs.iter().map(|(_, cond)| number(cond)).collect()
    }

    /// Ifs that an outcome decides, and those that it does not.
    pub fn split(&self, outcome: &[i64]) -> (Vec<(NodeId, bool)>, Vec<NodeId>) {
        let pairs = || self.nodes().zip(outcome.iter().copied());
        let taken = pairs().filter(|(_, o)| *o != OPEN).map(|(n, o)| (n, o != 0)).collect();
        (taken, pairs().filter(|(_, o)| *o == OPEN).map(|(n, _)| n).collect())
    }
}

fn bound(symbols: &[i64], at: usize) -> i64 {
    symbols.get(at).copied().unwrap_or(UNDEFINED)
}

/// Whether an expression depends on nothing but inputs of the model.
fn from_inputs(graph: &Graph, expr: ExprId) -> bool {
    let (mut todo, mut seen) = (vec![expr], std::collections::HashSet::new());
    while let Some(expr) = todo.pop() {
        if !seen.insert(expr) {
            continue;
        }
        let e = graph.exprs().get(expr);
        match e.op {
            ExprOp::Symbol => {
                let symbol = graph.exprs().as_symbol(expr).map(|s| &graph.exprs().symbols()[s.index()]);
                if symbol.is_none_or(|s| !graph.main().inputs.contains(&s.value)) {
                    return false;
                }
            }
            ExprOp::Select => todo.extend(third(e.v)),
            _ => {}
        }
        todo.extend(e.a.iter().chain(&e.b));
    }
    true
}

fn third(v: i64) -> Option<ExprId> {
    u32::try_from(v).ok().and_then(ExprId::from_index)
}

/// The same expression in another table that has the same symbols.
fn copy(from: &ExprTable, expr: ExprId, to: &mut ExprTable, done: &mut HashMap<ExprId, ExprId>) -> ExprId {
    // Children come before parents, so needed entries in rising order are copied in one go.
    let (mut todo, mut needed) = (vec![expr], std::collections::BTreeSet::new());
    while let Some(id) = todo.pop() {
        if !done.contains_key(&id) && needed.insert(id) {
            let e = from.get(id);
            todo.extend(e.a.iter().chain(&e.b));
            todo.extend(Some(e.v).filter(|_| e.op == ExprOp::Select).and_then(third));
        }
    }
    for id in needed {
        let e = from.get(id);
        let child = |id: Option<ExprId>| id.and_then(|id| done.get(&id).copied());
        let new = match (e.op, child(e.a), child(e.b)) {
            (ExprOp::Symbol, ..) => from.as_symbol(id).map(|s| {
                let s = &from.symbols()[s.index()];
                to.symbol_of(s.value, s.at, s.kind)
            }),
            (ExprOp::Not, Some(a), _) => Some(to.not(a)),
            (ExprOp::Select, Some(a), Some(b)) => child(third(e.v)).map(|c| to.select(a, b, c)),
            (op, Some(a), Some(b)) => binary(to, op, a, b),
            _ => None,
        };
        let new = new.unwrap_or_else(|| to.constant(if e.op == ExprOp::Const { e.v } else { UNDEFINED }));
        done.insert(id, new);
    }
    done[&expr]
}

fn binary(to: &mut ExprTable, op: ExprOp, a: ExprId, b: ExprId) -> Option<ExprId> {
    Some(match op {
        ExprOp::Add => to.add(a, b),
        ExprOp::Sub => to.sub(a, b),
        ExprOp::Mul => to.mul(a, b),
        ExprOp::Div => to.div(a, b),
        ExprOp::CeilDiv => to.ceil_div(a, b),
        ExprOp::Mod => to.modulo(a, b),
        ExprOp::Min => to.min(a, b),
        ExprOp::Max => to.max(a, b),
        ExprOp::Bcast => return to.bcast(a, b),
        ExprOp::Eq => to.eq(a, b),
        ExprOp::Lt => to.lt(a, b),
        ExprOp::And => to.and(a, b),
        ExprOp::Or => to.or(a, b),
        _ => return None,
    })
}
