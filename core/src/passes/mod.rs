//! Hardware-neutral changes to a graph before it is split, in this order; each is verified in debug builds.
//!
//! A pass knows operators by their definitions and no EP. It keeps every value's meaning. What one pass finds may be what
//! another waits for, so all run again while branches are decided or values computed.

mod common;
mod constants;
mod dead_code;
pub(crate) mod decide;
mod fold;
mod identity;
#[cfg(test)]
mod testing;

use ortolan_graph::Graph;

use crate::error::Result;
use crate::once::Evaluator;

/// A pass. It says how many things it changed.
type PassFn = fn(&mut Graph, &mut Evaluator<'_>) -> Result<usize>;

struct Pass {
    /// In logs.
    name: &'static str,
    run: PassFn,
    /// What it finds may be what another pass waits for.
    again: bool,
}

/// All passes. Order means something: what comes later meets the graph without what earlier ones removed.
const PASSES: &[Pass] = &[
    Pass { name: "dead code", run: dead_code::run, again: false },
    Pass { name: "known branches", run: decide::run, again: true },
    Pass { name: "identities", run: identity::run, again: false },
    Pass { name: "known integers", run: constants::run, again: false },
    Pass { name: "common subexpressions", run: common::run, again: false },
    Pass { name: "folding", run: fold::run, again: true },
];

/// Computing more after so many rounds is left to the EPs.
const ROUNDS: usize = 3;

/// Runs all passes. `evaluator` computes what folds.
pub(crate) fn run(graph: &mut Graph, evaluator: &mut Evaluator<'_>) -> Result<()> {
    for round in 0..ROUNDS {
        let mut again = false;
        for pass in PASSES {
            let changed = (pass.run)(graph, evaluator)?;
            tracing::debug!(changed, round, "pass {}", pass.name);
            again |= pass.again && changed > 0;
            if cfg!(debug_assertions) && changed > 0 {
                ortolan_graph::verify::verify(graph)?;
            }
        }
        if !again {
            break;
        }
    }
    Ok(())
}
