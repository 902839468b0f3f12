//! What operators mean to the host: types, shapes and small integer values of outputs, and the
//! standard body of composite ones. One [`OpDef`] row per operator, in one file per family.
//!
//! Rules are written for the **newest** version of an operator only, with defaults filled in and
//! counts, attribute kinds and type lists checked against the schema before they run. How
//! operators are computed is not known here.

pub mod body;
mod infer;
mod known;
#[cfg(test)]
pub(crate) mod testing;

mod arith;
mod attention;
mod cast;
mod compare;
mod contrib;
mod control;
mod conv;
mod index;
mod join;
mod layout;
mod matmul;
mod ml;
mod norm;
mod pad;
mod pool;
mod quant;
mod random;
mod reduce;
mod resize;
mod rnn;
mod sequence;
mod signal;
mod softmax;
mod text;
mod training;
mod unary;
mod vision;
mod window;

use std::sync::LazyLock;

use hashbrown::HashMap;

pub use body::{BodyCx, BodyFn};
pub use infer::InferCx;
pub(crate) use infer::run as infer_node;

use crate::error::Result;

/// Every family. Sorted by name.
pub static FAMILIES: &[(&str, &[OpDef])] = &[
    ("arith", arith::OPS),
    ("attention", attention::OPS),
    ("cast", cast::OPS),
    ("compare", compare::OPS),
    ("contrib", contrib::OPS),
    ("control", control::OPS),
    ("conv", conv::OPS),
    ("index", index::OPS),
    ("join", join::OPS),
    ("layout", layout::OPS),
    ("matmul", matmul::OPS),
    ("ml", ml::OPS),
    ("norm", norm::OPS),
    ("pad", pad::OPS),
    ("pool", pool::OPS),
    ("quant", quant::OPS),
    ("random", random::OPS),
    ("reduce", reduce::OPS),
    ("resize", resize::OPS),
    ("rnn", rnn::OPS),
    ("sequence", sequence::OPS),
    ("signal", signal::OPS),
    ("softmax", softmax::OPS),
    ("text", text::OPS),
    ("training", training::OPS),
    ("unary", unary::OPS),
    ("vision", vision::OPS),
];

/// The host's rules for one operator in its newest version.
#[derive(Debug)]
pub struct OpDef {
    /// Domain; `""` is the standard one.
    pub domain: &'static str,
    /// ONNX's name.
    pub name: &'static str,
    /// Sets the type of every output, and its elements where small integers can be followed.
    pub infer: InferFn,
    /// What folding may do with it.
    pub fold: Fold,
    /// When its first output is its first input.
    pub same: Same,
    /// How its bodies relate to its inputs and outputs, for operators that have some.
    pub control: Option<Control>,
    /// Its standard definition by other operators, for composite ones.
    pub body: Option<BodyFn>,
}

/// Operator whose attribute holds the value of its output; loading makes it a constant.
pub const CONSTANT: &str = "Constant";
/// Operator that gives its input on.
pub const IDENTITY: &str = "Identity";

/// Operators with bodies. Their types follow from those of the bodies, so inference treats them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Input 0 decides which of `then_branch` and `else_branch` makes the outputs.
    If,
    /// Inputs: trip count, condition, carried values. Body: iteration, condition, carried values to condition,
    /// carried values, rows of scan outputs.
    Loop,
    /// Inputs: states, then `num_scan_inputs` tensors that the body reads row by row. Body: states, rows to states, rows.
    Scan,
    /// The body maps items of the sequences (and whole tensors) to items of the output sequences.
    SequenceMap,
}

/// A type and shape rule.
///
/// It may trust that the node keeps to the newest schema; it must not trust sizes. An output that
/// it says nothing of has an unknown type. Contradictions are errors that name both sides
/// ([`InferCx::fail`]); the caller adds the node.
pub type InferFn = fn(&mut InferCx<'_>) -> Result<()>;

/// What constant folding may do with an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Computed in the host's fold program when inputs are constant and results are small.
    Small,
    /// Never folded at any size, though it depends on nothing but its inputs.
    Never,
    /// Differs from run to run: not folded, and what it feeds is not a constant expression.
    Random,
}

/// When an operator gives its first input on as its first output, element by element in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Same {
    /// No rule says so.
    Never,
    /// In every case.
    Always,
    /// When both have the same element type.
    Type,
    /// When both have the same dims.
    Shape,
    /// When there is no other input.
    Alone,
}

impl OpDef {
    /// A standard operator that folds.
    pub const fn new(name: &'static str, infer: InferFn) -> OpDef {
        OpDef { domain: "", name, infer, fold: Fold::Small, same: Same::Never, control: None, body: None }
    }

    /// The same in another domain.
    pub const fn domain(self, domain: &'static str) -> OpDef {
        OpDef { domain, ..self }
    }

    /// An operator with bodies.
    pub const fn control(name: &'static str, control: Control) -> OpDef {
        OpDef { control: Some(control), ..OpDef::new(name, |_| Ok(())).fold(Fold::Never) }
    }

    /// The same with a standard body.
    pub const fn body(self, body: BodyFn) -> OpDef {
        OpDef { body: Some(body), ..self }
    }

    /// The same, giving its first input on under a condition.
    pub const fn same(self, same: Same) -> OpDef {
        OpDef { same, ..self }
    }

    /// The same with another folding rule.
    pub const fn fold(self, fold: Fold) -> OpDef {
        OpDef { fold, ..self }
    }
}

/// The rules of an operator; `None` for one that this build has none for.
pub fn find(domain: &str, name: &str) -> Option<&'static OpDef> {
    static INDEX: LazyLock<HashMap<(&str, &str), &OpDef>> =
        LazyLock::new(|| all().map(|def| ((def.domain, def.name), def)).collect());
    INDEX.get(&(domain, name)).copied()
}

/// Every row.
pub fn all() -> impl Iterator<Item = &'static OpDef> {
    FAMILIES.iter().flat_map(|(_, ops)| ops.iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_unique_and_families_sorted() {
        assert_eq!(all().count(), all().map(|d| (d.domain, d.name)).collect::<std::collections::BTreeSet<_>>().len());
        assert!(FAMILIES.windows(2).all(|w| w[0].0 < w[1].0));
    }
}
