//! `QLinearConcat`: codes of many scales behind each other, in the scale of the result.

use super::element::Table;
use crate::ops::cost;
use crate::ops::float::agree;
use crate::ops::quant::Code;
use ortolan_ep_kit::{Args, Cost, DType, Fault, NodeView, Op, Reject, Shapes, count};

/// The result's scale and zero point come first, then a tensor, its scale and its zero point for each part.
pub(in crate::ops::contrib) struct Join {
    axis: usize,
    parts: usize,
}

/// Elements of each part in a row of the result.
#[derive(Debug, Default)]
pub(in crate::ops::contrib) struct Rows {
    widths: Vec<usize>,
    count: usize,
}

const FIRST: usize = 2;

impl Op for Join {
    type Bound = Rows;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let inputs = node.input_count();
        if inputs < FIRST + 3 || !(inputs - FIRST).is_multiple_of(3) {
            return Err(Reject::shape(format!(
                "{inputs} inputs are not a scale, a zero point, and three for each part"
            )));
        }
        let code = node.needs(1)?.dtype() as u32;
        for at in FIRST..inputs {
            let have = node.needs(at)?.dtype();
            let wanted = if (at - FIRST) % 3 == 1 { DType::F32 as u32 } else { code };
            if have as u32 != wanted {
                return Err(Reject::dtype(format!("input {at} is {have}, which its place does not have")));
            }
        }
        Ok(Join { axis: node.axis("axis", node.needs(FIRST)?.rank())?, parts: (inputs - FIRST) / 3 })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Rows) -> Result<(), Fault> {
        let y = shapes.output(0);
        bound.count = count(&y[..self.axis.min(y.len())]);
        bound.widths.clear();
        for part in 0..self.parts {
            let at = FIRST + 3 * part;
            let dims = shapes.input(at);
            if dims.len() != y.len() {
                return Err(Fault::data(format!("part {part} has dimensions {dims:?}, the result {y:?}")));
            }
            agree("a scale", shapes.input_len(at + 1), 1)?;
            agree("a zero point", shapes.input_len(at + 2), 1)?;
            let width = count(&dims[self.axis..]);
            agree("a part", shapes.input_len(at), width * bound.count)?;
            bound.widths.push(width);
        }
        agree("the result's scale", shapes.input_len(0), 1)?;
        agree("the result's zero point", shapes.input_len(1), 1)?;
        agree("output 0", shapes.output_len(0), bound.widths.iter().sum::<usize>() * bound.count)
    }
}

pub(in crate::ops::contrib) fn join<T: Code>(op: &Join, rows: &Rows, args: &mut Args<'_>) -> Result<(), Fault> {
    let to = (args.input::<f32>(0)[0], args.input::<T>(1)[0].wide());
    let y = args.output::<u8>(0);
    let row: usize = rows.widths.iter().sum();
    let mut start = 0;
    for (part, &width) in rows.widths.iter().enumerate().take(op.parts) {
        let at = FIRST + 3 * part;
        let from = (args.input::<f32>(at + 1)[0], args.input::<T>(at + 2)[0].wide());
        let x = args.input::<u8>(at);
        let table = if from == to { None } else { Some(Table::new::<T>(from, to, |x| x)) };
        for (x, y) in x.chunks_exact(width.max(1)).zip(y.chunks_exact_mut(row.max(1))) {
            let y = &mut y[start..start + width];
            match &table {
                Some(table) => table.map(x, y),
                None => y.copy_from_slice(x),
            }
        }
        start += width;
    }
    Ok(())
}
