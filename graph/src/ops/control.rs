//! Operators with bodies. How their types follow from the bodies is in [`crate::walk`]: it takes walking the bodies.

use super::{Control, OpDef};

pub(super) static OPS: &[OpDef] = &[
    OpDef::control("If", Control::If),
    OpDef::control("Loop", Control::Loop),
    OpDef::control("Scan", Control::Scan),
    OpDef::control("SequenceMap", Control::SequenceMap),
];
