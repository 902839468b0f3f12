//! Hardware-neutral changes to a graph before it is split, in this order; each is verified in debug builds.
//!
//! A pass knows operators by their definitions and no EP. It keeps every value's meaning.

mod dead_code;
mod identity;

use ortolan_graph::Graph;

use crate::error::Result;

/// A pass: its name in logs, and what it does. It says whether it changed something.
type Pass = (&'static str, fn(&mut Graph) -> Result<bool>);

/// All passes. Order means something: what comes later meets the graph without what earlier ones removed.
const PASSES: &[Pass] = &[("dead code", dead_code::run), ("identity", identity::run)];

/// Runs all passes.
pub(crate) fn run(mut graph: Graph) -> Result<Graph> {
    for (name, pass) in PASSES {
        let changed = pass(&mut graph)?;
        tracing::debug!(changed, "pass {name}");
        if cfg!(debug_assertions) && changed {
            ortolan_graph::verify::verify(&graph)?;
        }
    }
    Ok(graph)
}
