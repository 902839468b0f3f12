//! The plans of a session, and those that come after them when a device is lost.
//!
//! A run takes the newest. It costs one relaxed load to see that they are still good; everything else here is rare.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use ortolan_graph::Graph;

use super::maker::{Means, Ready};
use super::options::Model;
use super::plans::Plans;
use super::{Session, has_devices};
use crate::error::{Error, Result, codes};
use crate::exec::Unbound;
use crate::partition::Report;
use crate::program::Shared;
use crate::value::Input;

/// Plans over the EPs that had a device when they were made.
pub(super) struct Generation {
    pub plans: Plans,
    relaxed: OnceLock<Result<Box<Plans>>>,
    report: Report,
    /// The report of the first plan that was made, where branches had to wait for one.
    made: OnceLock<Report>,
    /// How many EPs had lost their device.
    lost: usize,
    /// More have since.
    is_outdated: AtomicBool,
    next: OnceLock<Result<Box<Generation>>>,
}

impl Generation {
    pub fn new(graph: Graph, means: &Arc<Means>) -> Result<Generation> {
        let (plans, report) = Plans::new(graph, means)?;
        Ok(Generation {
            plans,
            relaxed: OnceLock::new(),
            report,
            made: OnceLock::new(),
            lost: means.lost(),
            is_outdated: AtomicBool::new(false),
            next: OnceLock::new(),
        })
    }

    /// The last one that was made.
    pub fn newest(&self) -> &Generation {
        let mut newest = self;
        while let Some(Ok(next)) = newest.next.get() {
            newest = next;
        }
        newest
    }

    pub fn report(&self) -> &Report {
        self.made.get().unwrap_or(&self.report)
    }

    /// Lets lanes give up memory, here and in all that came after.
    pub fn trim(&self) {
        let relaxed = self.relaxed.get().and_then(|p| p.as_ref().ok()).map(|p| &**p);
        for plans in std::iter::once(&self.plans).chain(relaxed) {
            plans.each(&mut |ready| ready.lanes.trim());
        }
        if let Some(Ok(next)) = self.next.get() {
            next.trim();
        }
    }

    /// The same error. If it says that a device is gone, the next run plans again.
    #[cold]
    pub fn learn(&self, means: &Means, error: Error) -> Error {
        if error.is(codes::DEVICE_LOST) && means.lost() > self.lost {
            self.is_outdated.store(true, Relaxed);
        }
        error
    }

    /// The plan for these inputs.
    pub fn ready(&self, plans: &Plans, inputs: &[(usize, Input<'_>)]) -> Result<Arc<Ready>, Unbound> {
        let ready = plans.of(inputs)?;
        if matches!(plans, Plans::Branched(_)) {
            self.made.get_or_init(|| ready.report.clone());
        }
        Ok(ready)
    }

    /// Plans that do not believe dim names, made when a run needs them.
    #[cold]
    pub fn relaxed(&self, session: &Session, why: Error) -> Result<&Plans> {
        if session.source.as_ref().is_none_or(|s| matches!(s.model, Model::Graph(_))) {
            return Err(why);
        }
        let plans = self.relaxed.get_or_init(|| {
            tracing::warn!("{}: making a plan that does not believe dim names", why.message());
            let (graph, means) = session.reload(false).unwrap_or(Err(why))?;
            Plans::new(graph, &means).map(|(plans, _)| Box::new(plans))
        });
        plans.as_ref().map(|p| &**p).map_err(Clone::clone)
    }
}

impl Session {
    /// The plans for a run.
    #[inline]
    pub(super) fn current(&self) -> Result<&Generation> {
        let first = &self.first;
        if first.is_outdated.load(Relaxed) { self.newer(first) } else { Ok(first) }
    }

    #[cold]
    fn newer<'s>(&'s self, mut generation: &'s Generation) -> Result<&'s Generation> {
        while generation.is_outdated.load(Relaxed) {
            let next = generation.next.get_or_init(|| {
                generation.trim();
                self.without_lost().map(Box::new)
            });
            generation = next.as_ref().map_err(Clone::clone)?;
        }
        Ok(generation)
    }

    /// Plans over the EPs that still have a device.
    fn without_lost(&self) -> Result<Generation> {
        let Some(lost) = self.means.eps.iter().rev().find_map(|ep| ep.handle.alive().err()) else {
            return Err(Error::new(codes::INTERNAL, "plans are made again although no device is lost"));
        };
        tracing::warn!("{lost}: planning again without it");
        let nobody = |why: &str| {
            let text =
                format!("{}; and no other execution provider of the session runs the model{why}", lost.message());
            lost.clone().reworded(text)
        };
        let (graph, means) = self.reload(true).unwrap_or_else(|| Err(nobody("")))?;
        let others = means.eps.iter().any(|ep| ep.handle.lost().is_none());
        Generation::new(graph, &means).map_err(|e| match e.is(codes::UNPLACED) {
            true if others => nobody(&format!(": {e}")),
            true => nobody(""),
            false => e,
        })
    }

    /// The model, loaded once more, with the EPs that there are. The file may be another by now, so its constants are only
    /// the same if they compare so.
    fn reload(&self, believe_dim_names: bool) -> Option<Result<(Graph, Arc<Means>)>> {
        let graph = self.source.as_ref()?.load(believe_dim_names);
        let with = |graph: Graph| {
            let shared = Shared::of(&graph, has_devices(&self.means.eps));
            let means = Means { shared, ..Means::clone(&self.means) };
            (graph, Arc::new(means))
        };
        Some(graph.map(with))
    }
}
