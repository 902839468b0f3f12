//! Sessions over several execution providers: whose results are right, who runs what and why, and what faulty ones cost.
//!
//! The repository's own plugin takes part under another file name, found by what its manifest says.

mod codes;
mod faults;
mod linked;
mod shared;
mod split;
mod threads;
/// The EP of `tests/fixtures/rust-ep`, linked in. Not as a dependency: cargo takes no workspace inside a member's folder.
#[path = "../../fixtures/rust-ep/src/lib.rs"]
mod tiny;
mod trace;

use ortolan::host::LoadedEp;
use ortolan::{Outputs, Session, SessionEp, TensorView};
use ortolan_tests::ep::{load, own};
use ortolan_tests::fixtures;
use ortolan_tests::model::{Model, Tensor};
use ortolan_tests::stress::right;
use std::sync::{Arc, LazyLock};

/// The EPs that take part, each loaded once.
struct Eps {
    tiny: Arc<LoadedEp>,
    plain: Arc<LoadedEp>,
    fake: Arc<LoadedEp>,
    /// The repository's own EP for processors.
    own: Arc<LoadedEp>,
}

static EPS: LazyLock<Eps> = LazyLock::new(|| Eps {
    tiny: load(&fixtures::tiny()),
    plain: load(&fixtures::plain()),
    fake: load(&fixtures::fake()),
    own: own(),
});

fn session_ep(ep: &Arc<LoadedEp>) -> SessionEp {
    SessionEp::from(&**ep)
}

/// A session over these EPs, the most preferred first.
fn session(eps: &[&Arc<LoadedEp>], model: &Model) -> ortolan::Result<Session> {
    Session::builder().eps(eps.iter().map(|ep| session_ep(ep))).threads(2).build(model.bytes())
}

/// Runs on inputs that are only lent.
fn run(session: &Session, inputs: &[(&str, Tensor)]) -> ortolan::Result<Outputs> {
    session.run(inputs.iter().map(|(name, t)| (*name, TensorView::new(&t.shape, &t.data).expect("they fit"))))
}

/// Every output is what the plain interpreter says, up to rounding.
fn assert_right(outputs: &Outputs, model: &Model, inputs: &[(&str, Tensor)], what: &str) {
    right(outputs, model, inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
}
