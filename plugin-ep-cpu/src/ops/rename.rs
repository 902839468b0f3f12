//! Operators that usually only rename dimensions or repeat elements, where data decides the new dimensions: they find them
//! in the run, and copy.

use super::strided::Strided;
use super::value::{TENSOR, Word, by_width};
use super::{GRAIN, cost, ints, spread};
use ortolan_ep_kit::element::{PLAIN, set};
use ortolan_ep_kit::{
    Args, Cost, DType, Fault, Ints, Kernel, NodeView, Op, Reject, Shapes, any, count, resolve_axis, split,
};

/// Sorted by operator. These rows stand behind those that know dimensions before the run.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Expand", (8, 13), "expand", any!(repeat)).types(&[("T", TENSOR)]).late(),
    Kernel::new("Reshape", (5, 25), "reshape", any!(rename)).types(&[("T", PLAIN)]).late(),
    Kernel::new("Squeeze", (13, 25), "squeeze", any!(rename)).types(&[("T", PLAIN), ("axes", LIST)]).late(),
    Kernel::new("Tile", (6, 13), "tile", any!(repeat)).types(&[("T", TENSOR)]).late(),
    Kernel::new("Unsqueeze", (13, 25), "unsqueeze", any!(rename)).types(&[("T", PLAIN), ("axes", LIST)]).late(),
];

const LIST: u64 = set(&[DType::I64]);

type Run = Result<(), Fault>;

/// What is done to the dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Expand,
    /// Whether a 0 is a 0, not the input's dimension.
    Reshape {
        zero: bool,
    },
    Squeeze,
    Tile,
    Unsqueeze,
}

/// A tensor and the list that says what becomes of it.
struct Late {
    what: What,
    bits: usize,
}

impl Op for Late {
    /// Dimensions of the input.
    type Bound = Ints;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let what = match node.op() {
            "Expand" => What::Expand,
            "Reshape" => What::Reshape { zero: node.int_if("allowzero").unwrap_or(0) != 0 },
            "Squeeze" => What::Squeeze,
            "Tile" => What::Tile,
            _ => What::Unsqueeze,
        };
        Ok(Late { what, bits: node.needs(0)?.dtype().bits() })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, dims: &mut Ints) -> Run {
        *dims = Ints::from_slice(shapes.input(0));
        Ok(())
    }
}

impl Late {
    /// The output's dimensions.
    fn dims(&self, dims: &[i64], list: Option<&[i64]>) -> Result<Ints, Fault> {
        match (self.what, list) {
            (What::Reshape { zero }, Some(list)) => reshape(dims, list, zero),
            (What::Squeeze, None) => Ok(dims.iter().copied().filter(|&dim| dim != 1).collect()),
            (What::Squeeze, Some(list)) => squeeze(dims, list),
            (What::Unsqueeze, Some(list)) => unsqueeze(dims, list),
            (What::Expand, Some(list)) => expand(dims, list),
            (What::Tile, Some(list)) => tile(dims, list),
            (_, None) => Err(Fault::data("input 1 is missing")),
        }
    }
}

fn list<'a>(args: &Args<'a>) -> Option<&'a [i64]> {
    args.input_if::<i64>(1)
}

fn rename(op: &Late, dims: &Ints, args: &mut Args<'_>) -> Run {
    let out = op.dims(dims, list(args))?;
    if count(&out) != count(dims) {
        return Err(Fault::data(format!("{dims:?} cannot become {out:?}: the sizes differ")));
    }
    let (x, y) = (args.input::<u8>(0), args.emit::<u8>(0, &out)?);
    Ok(split::rows(args.par(), y, 1, GRAIN, |_, at, y| y.copy_from_slice(&x[at..at + y.len()]))?)
}

fn repeat(op: &Late, dims: &Ints, args: &mut Args<'_>) -> Run {
    let out = op.dims(dims, list(args))?;
    by_width!(op.bits, repeat_words(op, dims, &out, args))
}

fn repeat_words<T: Word>(op: &Late, dims: &[i64], out: &[i64], args: &mut Args<'_>) -> Run {
    // The host says whether there can be so many elements.
    let (x, y) = (args.input::<T>(0), args.emit::<T>(0, out)?);
    let mut walk = Strided::default();
    match op.what {
        What::Tile => spread::tiled(dims, out, &mut walk)?,
        _ => spread::expanded(dims, out, &mut walk)?,
    }
    Ok(walk.copy(args.par(), x, y)?)
}

fn reshape(dims: &[i64], list: &[i64], zero: bool) -> Result<Ints, Fault> {
    let wrong = || Fault::data(format!("{dims:?} cannot become {list:?}"));
    let mut out = Ints::new();
    for (k, &dim) in list.iter().enumerate() {
        out.push(match dim {
            0 if !zero => *dims.get(k).ok_or_else(wrong)?,
            -1.. => dim,
            _ => return Err(wrong()),
        });
    }
    if let Some(free) = out.iter().position(|&dim| dim == -1) {
        let others = out.iter().enumerate().filter(|&(k, _)| k != free);
        let others = others.map(|(_, &dim)| dim).try_fold(1i64, i64::checked_mul).filter(|&n| n > 0);
        let whole = i64::try_from(count(dims)).map_err(|_| wrong())?;
        out[free] = others.filter(|n| whole % n == 0).map(|n| whole / n).ok_or_else(wrong)?;
    }
    // A product that does not fit would pass for another one.
    let fits = out.iter().try_fold(1i64, |n, &dim| n.checked_mul(dim));
    if fits.is_some() { Ok(out) } else { Err(wrong()) }
}

fn squeeze(dims: &[i64], list: &[i64]) -> Result<Ints, Fault> {
    let axes = list.iter().map(|&axis| ints::axis(axis, dims.len(), 1)).collect::<Result<Vec<_>, _>>()?;
    if let Some(&axis) = axes.iter().find(|&&axis| dims[axis] != 1) {
        return Err(Fault::data(format!("axis {axis} of {dims:?} has not the length 1, and cannot be left out")));
    }
    Ok(dims.iter().enumerate().filter(|(k, _)| !axes.contains(k)).map(|(_, &dim)| dim).collect())
}

fn unsqueeze(dims: &[i64], list: &[i64]) -> Result<Ints, Fault> {
    let rank = dims.len() + list.len();
    let wrong = || Fault::data(format!("axes {list:?} are no {} different axes of rank {rank}", list.len()));
    let mut new = vec![false; rank];
    for &axis in list {
        let axis = resolve_axis(axis, rank).ok_or_else(wrong)?;
        if core::mem::replace(&mut new[axis], true) {
            return Err(wrong());
        }
    }
    let mut old = dims.iter();
    Ok(new.iter().map(|&new| if new { 1 } else { old.next().copied().unwrap_or(1) }).collect())
}

fn expand(dims: &[i64], list: &[i64]) -> Result<Ints, Fault> {
    let rank = dims.len().max(list.len());
    let from_end = |of: &[i64], k: usize| (k + of.len()).checked_sub(rank).map_or(1, |at| of[at]);
    (0..rank)
        .map(|k| match (from_end(dims, k), from_end(list, k)) {
            (a, b) if a == b || b == 1 => Ok(a),
            (1, b) if b >= 0 => Ok(b),
            _ => Err(Fault::data(format!("dimensions {dims:?} cannot be expanded to {list:?}"))),
        })
        .collect()
}

fn tile(dims: &[i64], list: &[i64]) -> Result<Ints, Fault> {
    let wrong = || Fault::data(format!("dimensions {dims:?} cannot be repeated {list:?} times"));
    if dims.len() != list.len() {
        return Err(wrong());
    }
    let times = |(&dim, &n): (&i64, &i64)| dim.checked_mul(n).filter(|_| n >= 0).ok_or_else(wrong);
    dims.iter().zip(list).map(times).collect()
}

#[cfg(test)]
mod tests {
    use crate::ops::naive::Dims;
    use crate::ops::testing::{Case, on_all};
    use core::slice::from_ref;
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::Tensor;

    /// Operator, version, dimensions, list, new dimensions.
    type Row = (&'static str, u32, Dims, Dims, Dims);

    const CASES: &[Row] = &[
        ("Reshape", 25, &[2, 3, 4], &[0, -1], &[2, 12]),
        ("Reshape", 25, &[2, 3, 4], &[4, 3, 2], &[4, 3, 2]),
        ("Squeeze", 25, &[1, 3, 1], &[-1], &[1, 3]),
        ("Unsqueeze", 25, &[3, 2], &[0, -1], &[1, 3, 2, 1]),
    ];

    #[test]
    fn bytes_stay() {
        for &(op, version, dims, list, out) in CASES {
            let x = Tensor::from_fn(dims, |k| k as f32);
            let want = Tensor { dims: out.to_vec(), ..x.clone() };
            on_all(op, version, |case| {
                let case = case.input(&x).input(&Tensor::new(&[list.len() as i64], list));
                assert_eq!(case.late_output(DType::F32, out.len()).run(), from_ref(&want), "{op} {list:?}");
            });
        }
        let x = Tensor::from_fn(&[1, 3, 1], |k| k as f32);
        let y = Case::new("Squeeze", 25).input(&x).late_output(DType::F32, 1).run();
        assert_eq!(y[0].dims, [3]);
    }

    #[test]
    fn elements_repeat() {
        let x = Tensor::new(&[2, 1], &[1i16, 2]);
        let cases: [(&str, &[i64], Tensor); 2] = [
            ("Expand", &[2, 1, 3], Tensor::new(&[2, 2, 3], &[1i16, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2])),
            ("Tile", &[1, 2], Tensor::new(&[2, 2], &[1i16, 1, 2, 2])),
        ];
        for (op, list, want) in cases {
            on_all(op, 13, |case| {
                let case = case.input(&x).input(&Tensor::new(&[list.len() as i64], list));
                assert_eq!(case.late_output(DType::I16, want.dims.len()).run(), from_ref(&want), "{op}");
            });
        }
    }

    #[test]
    fn what_does_not_fit() {
        let x = Tensor::from_fn(&[2, 3], |k| k as f32);
        let cases: &[(&str, u32, &[i64], &str)] = &[
            ("Reshape", 25, &[4, -1], "[2, 3] cannot become [4, -1]"),
            ("Reshape", 25, &[-2, 3], "[2, 3] cannot become [-2, 3]"),
            ("Reshape", 25, &[7, 1], "[2, 3] cannot become [7, 1]: the sizes differ"),
            ("Reshape", 25, &[i64::MAX, i64::MAX], "cannot become"),
            ("Squeeze", 25, &[0], "axis 0 of [2, 3] has not the length 1"),
            ("Unsqueeze", 25, &[1, 1], "axes [1, 1] are no 2 different axes of rank 4"),
            ("Expand", 13, &[2, 4], "dimensions [2, 3] cannot be expanded to [2, 4]"),
            ("Tile", 13, &[2], "dimensions [2, 3] cannot be repeated [2] times"),
            ("Tile", 13, &[2, -1], "dimensions [2, 3] cannot be repeated [2, -1] times"),
        ];
        for &(op, version, list, want) in cases {
            let case = Case::new(op, version).input(&x).input(&Tensor::new(&[list.len() as i64], list));
            let error = case.late_output(DType::F32, 2).try_run().unwrap_err();
            assert!(error.contains(want), "{op} {list:?}: {error}");
        }
    }
}
