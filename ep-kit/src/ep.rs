//! The EP that a plugin hands to the host: kernel tables behind the author traits.

use crate::bind::KitLane;
use crate::draft::{Drafts, Request};
use crate::expr::hints;
use crate::host::{CompilingHost, RunHost};
use crate::kernel::Kernel;
use crate::layout::lay_out;
use crate::node::Look;
use crate::number::number;
use crate::outline::Rows;
use crate::pack::PackCache;
use crate::plan::Plan;
use crate::run::run;
use crate::weights::resolve;
use ortolan_ep_abi::author::{Ep, Part};
use ortolan_ep_abi::call::{ClaimCall, CompileCall, Result, RunCall};
use ortolan_ep_abi::view::{PartDesc, Program};
use std::any::Any;

/// An EP made of kernel tables. One per session and device.
pub struct Kit {
    rows: Rows,
    isa: &'static str,
    context: Box<dyn Any + Send + Sync>,
    cache: PackCache,
}

/// A compiled part.
pub struct KitPart(Plan);

impl Kit {
    /// An EP over the tables of all families. `isa` ends the names of kernels; kernels find `context` with
    /// [`NodeView::context`](crate::NodeView::context).
    pub fn new(families: &[&'static [Kernel]], isa: &'static str, context: impl Any + Send + Sync) -> Self {
        Kit { rows: Rows::new(families), isa, context: Box::new(context), cache: PackCache::default() }
    }

    fn look<'a>(&'a self, program: Program<'a>, hints: &'a [i64]) -> Look<'a> {
        Look { program, hints, context: &*self.context }
    }
}

impl core::fmt::Debug for Kit {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Kit {{ isa: {} }}", self.isa)
    }
}

impl core::fmt::Debug for KitPart {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.0.steps.iter().map(|s| (&s.label, &s.name))).finish()
    }
}

impl Ep for Kit {
    type Part = KitPart;

    fn claim(&self, call: &ClaimCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<()> {
        self.rows.claim(call, program, part, &*self.context, false);
        Ok(())
    }

    fn compile(&self, call: &CompileCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<KitPart> {
        let numbers = hints(program.exprs(), call.symbols());
        let host = CompilingHost::new(call);
        let mut drafts = Drafts::new(Request {
            index: &self.rows.0,
            program,
            look: self.look(program, &numbers),
            nodes: part.nodes(),
            inputs: part.inputs(),
            outputs: part.outputs(),
            once: part.is_once(),
            weights: !part.is_once(),
        })?;
        let weights = resolve(&mut drafts, &self.cache, &host)?;
        let laid = lay_out(&drafts, &weights)?;
        Ok(KitPart(number(drafts, weights, self.isa, laid)))
    }
}

impl Part for KitPart {
    type Lane = KitLane;

    fn run(&self, lane: &mut KitLane, call: &RunCall<'_>) -> Result<()> {
        let host = RunHost::new(call);
        run(&self.0, lane, &host, call.raw().binding, call.symbols(), call.width())
    }
}

impl KitPart {
    /// Node ids and kernel names in the order in which they run.
    pub fn steps(&self) -> impl Iterator<Item = (u32, &str)> {
        self.0.steps.iter().map(|s| (s.node, &*s.name))
    }

    /// Bytes of packed and copied constants that it holds, those that it shares with other parts included.
    pub fn held_bytes(&self) -> usize {
        self.0.held.iter().map(|packed| packed.bytes().len()).sum()
    }
}
