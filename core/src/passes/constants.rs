//! Makes constants of integers and booleans that inference already knows; no EP is needed for them.

use ortolan_graph::Graph;
use ortolan_graph::ir::{DType, Data, Type, ValueId};

use crate::error::Result;
use crate::once::Evaluator;

pub(super) fn run(graph: &mut Graph, _: &mut Evaluator<'_>) -> Result<usize> {
    let uses = graph.uses();
    let live = graph.live_nodes();
    let made = live.iter().flat_map(|&n| graph.node(n).outputs.iter().flatten().copied());
    let found: Vec<(ValueId, DType, Vec<i64>, Vec<u8>)> = made
        .filter(|&v| !uses.of(v).is_empty())
        .filter_map(|v| {
            let (dtype, dims, bytes) = known(graph, v)?;
            Some((v, dtype, dims, bytes))
        })
        .collect();
    if found.is_empty() {
        return Ok(0);
    }
    let count = found.len();
    let mut edit = graph.edit();
    for (value, dtype, dims, bytes) in found {
        let home = edit.graph().value(value).graph;
        let constant = edit.constant(home, dtype, &dims, Data::copied(&bytes))?;
        edit.replace(value, constant);
    }
    edit.finish()?;
    Ok(count)
}

/// Type, dims and elements of a value all of whose elements are numbers.
fn known(graph: &Graph, value: ValueId) -> Option<(DType, Vec<i64>, Vec<u8>)> {
    let (v, exprs) = (graph.value(value), graph.exprs());
    let Type::Tensor(ty) = v.ty.as_ref()? else { return None };
    let dims: Vec<i64> = ty.dims.as_ref()?.iter().map(|&d| exprs.as_const(d)).collect::<Option<_>>()?;
    let numbers: Vec<i64> = v.known.as_ref()?.iter().map(|&e| exprs.as_const(e)).collect::<Option<_>>()?;
    let count: i64 = dims.iter().product();
    if usize::try_from(count) != Ok(numbers.len()) {
        return None;
    }
    let bytes: Option<Vec<_>> = numbers.into_iter().map(|n| element(ty.dtype, n)).collect();
    Some((ty.dtype, dims, bytes?.concat()))
}

/// The bytes of an element; none if the type cannot hold the number.
fn element(dtype: DType, n: i64) -> Option<Vec<u8>> {
    Some(match dtype {
        DType::I64 => n.to_le_bytes().into(),
        DType::I32 => i32::try_from(n).ok()?.to_le_bytes().into(),
        DType::I16 => i16::try_from(n).ok()?.to_le_bytes().into(),
        DType::I8 => i8::try_from(n).ok()?.to_le_bytes().into(),
        DType::U64 => u64::try_from(n).ok()?.to_le_bytes().into(),
        DType::U32 => u32::try_from(n).ok()?.to_le_bytes().into(),
        DType::U16 => u16::try_from(n).ok()?.to_le_bytes().into(),
        DType::U8 => u8::try_from(n).ok()?.to_le_bytes().into(),
        DType::Bool => vec![u8::from(n != 0)],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changed, operators};

    #[test]
    fn known_integers_need_no_node() {
        let cases = [
            ("a fixed dim", "s = Shape(w)\ny = Add(s,s)", 2, ""),
            ("a dim that a run tells", "s = Shape(x)\ny = Add(s,s)", 0, "Shape Add"),
            ("a float", "y = Add(k1,k2)", 0, "Add"),
        ];
        for (name, text, want, left) in cases {
            let (graph, count) = changed(text, super::run);
            assert_eq!((count, operators(&graph).as_str()), (want, left), "{name}");
        }
    }
}
