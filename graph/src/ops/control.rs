//! Operators with bodies. How their types follow from the bodies is in [`crate::walk`]: it takes walking the bodies.

use super::{BodyCx, Control, OpDef};
use crate::error::Result;
use crate::ir::{AttrValue, DType, Type};

pub(super) static OPS: &[OpDef] = &[
    OpDef::control("If", Control::If),
    OpDef::control("Loop", Control::Loop),
    OpDef::control("Scan", Control::Scan),
    OpDef::control("SequenceMap", Control::SequenceMap).body(map_body),
];

/// A loop over the items that collects what the body makes of each.
fn map_body(cx: &mut BodyCx<'_>) -> Result<()> {
    let Some(graph) = cx.view().attr("body").and_then(|a| a.graphs().first().copied()) else { return Ok(()) };
    let items: Option<Vec<DType>> = cx
        .outputs()
        .into_iter()
        .map(|v| match cx.ty(v?)? {
            Type::Sequence(item) => item.as_tensor().map(|t| t.dtype),
            _ => None,
        })
        .collect();
    let Some(items) = items else { return Ok(()) };
    cx.over_items(graph, items.len())?;
    let count = cx.emit("SequenceLength", &[cx.input(0)], &[])?;
    let mut inputs = vec![Some(count), Some(cx.constant(DType::Bool, &[], &[1])?)];
    for dtype in &items {
        inputs.push(Some(cx.emit("SequenceEmpty", &[], &[("dtype", AttrValue::Int(dtype.number().into()))])?));
    }
    let body = vec![("body".to_owned(), AttrValue::Graph(graph))];
    let made = cx.emit_node("Loop", &inputs, body, items.len())?;
    for (o, v) in made.into_iter().enumerate() {
        cx.set_output(o, v);
    }
    Ok(())
}
