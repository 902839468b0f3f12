//! Matrix products.

use std::collections::BTreeMap;

use super::{InferCx, OpDef};
use crate::error::Result;
use crate::ir::{Dims, ExprId};

pub(super) static OPS: &[OpDef] =
    &[OpDef::new("Det", det), OpDef::new("Einsum", einsum), OpDef::new("Gemm", gemm), OpDef::new("MatMul", matmul)];

fn matmul(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let dims = matmul_dims(cx, 0, 1)?;
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Dims of the product of two inputs by NumPy's `matmul`: vectors gain a dim for the product and lose it again, leading
/// dims broadcast.
pub(super) fn matmul_dims(cx: &mut InferCx<'_>, a: usize, b: usize) -> Result<Option<Dims>> {
    match (cx.dims(a), cx.dims(b)) {
        (Some(a), Some(b)) => product_dims(cx, a, b).map(Some),
        _ => Ok(None),
    }
}

/// As [`matmul_dims`], of shapes.
pub(super) fn product_dims(cx: &mut InferCx<'_>, mut a: Dims, mut b: Dims) -> Result<Dims> {
    if a.is_empty() || b.is_empty() {
        return Err(cx.fail("a scalar can't be multiplied as a matrix: both inputs need at least one dim"));
    }
    let one = cx.int(1);
    let (row, column) = (a.len() == 1, b.len() == 1);
    if row {
        a.insert(0, one);
    }
    if column {
        b.push(one);
    }
    let (ar, br) = (a.len(), b.len());
    cx.same_dim(a[ar - 1], b[br - 2], "the last dim of A and the last but one of B")?;
    let mut dims = cx.broadcast(&[a[..ar - 2].into(), b[..br - 2].into()])?;
    if !row {
        dims.push(a[ar - 2]);
    }
    if !column {
        dims.push(b[br - 1]);
    }
    Ok(dims)
}

fn det(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    cx.need_rank(0, "X", 2..=usize::MAX)?;
    let dims = match cx.dims(0) {
        Some(x) => {
            cx.same_dim(x[x.len() - 2], x[x.len() - 1], "the last two dims of X")?;
            Some(x[..x.len() - 2].into())
        }
        None => None,
    };
    cx.set_tensor(0, dtype, dims);
    Ok(())
}

/// Each letter is one dim in all inputs; `...` stands for leading dims that broadcast.
fn einsum(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let equation: String = cx.attr_str("equation").unwrap_or_default().split_whitespace().collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left.to_owned(), Some(right.to_owned())),
        None => (equation, None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != cx.input_count() {
        return Err(cx.fail(format!("the equation has {} terms for {} inputs", terms.len(), cx.input_count())));
    }
    let Some(letters) = Letters::read(cx, &terms)? else {
        cx.set_tensor(0, dtype, None);
        return Ok(());
    };
    let dims = letters.output(cx, right.as_deref(), &left)?;
    cx.set_tensor(0, dtype, Some(dims));
    Ok(())
}

/// What an equation says of dims.
struct Letters {
    dims: BTreeMap<char, ExprId>,
    rest: Dims,
}

impl Letters {
    fn read(cx: &mut InferCx<'_>, terms: &[&str]) -> Result<Option<Letters>> {
        let mut dims: BTreeMap<char, ExprId> = BTreeMap::new();
        let mut rests = Vec::new();
        for (i, term) in terms.iter().enumerate() {
            let Some(x) = cx.dims(i) else { return Ok(None) };
            let (before, after) = term.split_once("...").unwrap_or((term, ""));
            let named = before.chars().count() + after.chars().count();
            if named > x.len() || (named < x.len() && !term.contains("...")) {
                return Err(cx.fail(format!("term '{term}' does not fit input {i} of rank {}", x.len())));
            }
            let (head, tail) = (before.chars().count(), x.len() - after.chars().count());
            rests.push(x[head..tail].into());
            for (letter, &dim) in before.chars().zip(&x[..head]).chain(after.chars().zip(&x[tail..])) {
                if !letter.is_ascii_alphabetic() {
                    return Err(cx.fail(format!("the equation holds '{letter}'")));
                }
                let dim = match dims.get(&letter) {
                    Some(&known) => cx.broadcast(&[[known].into_iter().collect(), [dim].into_iter().collect()])?[0],
                    None => dim,
                };
                dims.insert(letter, dim);
            }
        }
        let rest = cx.broadcast(&rests)?;
        Ok(Some(Letters { dims, rest }))
    }

    /// Without a right side: the rest, then the letters that occur once, in alphabetical order.
    fn output(&self, cx: &InferCx<'_>, right: Option<&str>, left: &str) -> Result<Dims> {
        let Some(right) = right else {
            let once = self.dims.iter().filter(|(l, _)| left.matches(**l).count() == 1).map(|(_, &d)| d);
            return Ok(self.rest.iter().copied().chain(once).collect());
        };
        let (before, after) = right.split_once("...").unwrap_or((right, ""));
        let rest: &[ExprId] = if right.contains("...") { &self.rest } else { &[] };
        let dim = |letter: char| match self.dims.get(&letter) {
            Some(&dim) => Ok(dim),
            None => Err(cx.fail(format!("'{letter}' of the result stands in no term"))),
        };
        let head = before.chars().map(dim).collect::<Result<Vec<_>>>()?;
        let tail = after.chars().map(dim).collect::<Result<Vec<_>>>()?;
        Ok(head.into_iter().chain(rest.iter().copied()).chain(tail).collect())
    }
}

pub(super) fn gemm(cx: &mut InferCx<'_>) -> Result<()> {
    let Some(dtype) = cx.dtype(0) else { return Ok(()) };
    let matrix = |cx: &InferCx<'_>, i: usize, flag: &str, name: &str| {
        let Some(mut d) = cx.dims(i) else { return Ok(None) };
        if d.len() != 2 {
            return Err(cx.fail(format!("{name} has to be a matrix, but has rank {}", d.len())));
        }
        if cx.attr_int(flag).unwrap_or(0) != 0 {
            d.swap(0, 1);
        }
        Ok(Some((d[0], d[1])))
    };
    let a = matrix(cx, 0, "transA", "A")?;
    let b = matrix(cx, 1, "transB", "B")?;
    if let (Some(a), Some(b)) = (a, b) {
        cx.same_dim(a.1, b.0, "the inner dims of A and B")?;
    }
    let m = a.map_or_else(|| cx.fresh_dim(0, 0), |a| a.0);
    let n = b.map_or_else(|| cx.fresh_dim(0, 1), |b| b.1);
    cx.set_tensor(0, dtype, Some([m, n].into_iter().collect()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::check;

    #[test]
    fn products() {
        check(&[
            ("MatMul", "float[2,3] float[3,4]", "", "float[2,4]"),
            ("MatMul", "float[3] float[3]", "", "float[]"),
            ("MatMul", "float[b,1,2,3] float[5,3,4]", "", "float[b,5,2,4]"),
            ("MatMul", "float[3] float[5,3,4]", "", "float[5,4]"),
            ("MatMul", "float[2,3] float[2,4]", "", "!last but one of B have to be equal, but are 3 and 2"),
            ("MatMul", "float[] float[2,4]", "", "!at least one dim"),
            ("MatMul", "float float[2,4]", "", "float"),
            ("Det", "float[n,3,3]", "", "float[n]"),
            ("Det", "float[2,3]", "", "!the last two dims of X"),
            ("Einsum", "float[b,i,j] float[b,j,k]", "equation='bij,bjk->bik'", "float[b,i,k]"),
            ("Einsum", "float[n,i,i]", "equation='...ii->...i'", "float[n,i]"),
            ("Einsum", "float[i,j] float[j,k]", "equation='ij,jk'", "float[i,k]"),
            ("Einsum", "float[i,j]", "equation='ij->ijk'", "!'k' of the result"),
            ("Einsum", "float[i,j]", "equation='ijk->i'", "!term 'ijk' does not fit input 0 of rank 2"),
            ("Gemm", "float[3,2] float[4,3]", "transA=1 transB=1", "float[2,4]"),
            ("Gemm", "float[n,3] float[3,4]", "", "float[n,4]"),
            ("Gemm", "float[3] float[3,4]", "", "!A has to be a matrix"),
        ]);
    }
}
