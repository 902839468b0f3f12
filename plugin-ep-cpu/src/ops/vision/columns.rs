//! Patches back in their picture, added where they overlap.

use crate::ops::cost;
use crate::ops::lane::Number;
use core::ops::Range;
use ortolan_ep_kit::{Args, Cost, Fault, Ints, NodeView, Op, Reject, Shapes, size, split};

/// Lists of the attributes; empty ones stand for ones, or for no padding.
pub(super) struct Columns {
    stride: Ints,
    dilation: Ints,
    pad: Ints,
}

/// Batch, rows of patches, and patches.
#[derive(Default)]
pub(super) struct Bound([usize; 3]);

impl Op for Columns {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = node.needs(0)?.rank();
        if rank != 3 {
            return Err(Reject::rank(format!("input 0 has rank {rank}, 3 is needed")));
        }
        let list = |name: &str, least: i64| {
            let list = node.ints(name).unwrap_or(&[]);
            match list.iter().all(|&n| n >= least) {
                true => Ok(Ints::from_slice(list)),
                false => Err(Reject::attribute(format!("attribute {name} = {list:?} has numbers below {least}"))),
            }
        };
        Ok(Columns { stride: list("strides", 1)?, dilation: list("dilations", 1)?, pad: list("pads", 0)? })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        let &[batch, rows, patches] = shapes.input(0) else { return Err(Fault::data("input 0 has not rank 3")) };
        bound.0 = [batch, rows, patches].map(size);
        Ok(())
    }
}

/// One axis of the picture.
#[derive(Clone, Copy)]
struct Axis {
    len: i64,
    block: i64,
    stride: i64,
    dilation: i64,
    pad: i64,
    /// Positions of the patch.
    count: i64,
}

impl Axis {
    /// Positions at which tap `tap` of the patch is inside the picture, and where it is at position 0.
    fn inside(&self, tap: i64) -> (Range<i64>, i64) {
        let from = tap * self.dilation - self.pad;
        // The first position at or behind 0, and the first at or behind the end.
        let first = (-from).max(0).div_ceil_positive(self.stride);
        let end = (self.len - from).max(0).div_ceil_positive(self.stride).min(self.count);
        (first.min(end)..end, from)
    }
}

/// Rounding up of what is not negative.
trait Ceil {
    fn div_ceil_positive(self, by: Self) -> Self;
}

impl Ceil for i64 {
    fn div_ceil_positive(self, by: i64) -> i64 {
        self / by + i64::from(self % by != 0)
    }
}

/// Numbers beyond this are no sizes of anything.
const LARGEST: i64 = 1 << 40;

impl Columns {
    fn axes(&self, image: &[i64], block: &[i64]) -> Result<Vec<Axis>, Fault> {
        let rank = image.len();
        let lists =
            [(&self.stride, rank, "strides"), (&self.dilation, rank, "dilations"), (&self.pad, 2 * rank, "pads")];
        for (list, wanted, name) in lists {
            if !list.is_empty() && list.len() != wanted {
                return Err(Fault::data(format!("attribute {name} = {list:?} is not for a picture of {rank} axes")));
            }
        }
        if block.len() != rank || rank == 0 {
            return Err(Fault::data(format!("image_shape {image:?} and block_shape {block:?} do not fit")));
        }
        let or = |list: &Ints, k: usize, other: i64| list.get(k).copied().unwrap_or(other);
        let axis = |k: usize| {
            let (len, block) = (image[k], block[k]);
            let (stride, dilation) = (or(&self.stride, k, 1), or(&self.dilation, k, 1));
            let (pad, behind) = (or(&self.pad, k, 0), or(&self.pad, rank + k, 0));
            if [len, block].iter().any(|&n| n < 1)
                || [len, block, stride, dilation, pad, behind].iter().any(|&n| n > LARGEST)
            {
                return Err(Fault::data(format!("image_shape {image:?} or block_shape {block:?} is no size")));
            }
            let reach = dilation.checked_mul(block - 1).filter(|&reach| reach <= LARGEST);
            let room = reach.map_or(-1, |reach| len + pad + behind - reach - 1);
            let count = if room < 0 { 0 } else { room / stride + 1 };
            Ok(Axis { len, block, stride, dilation, pad, count })
        };
        (0..rank).map(axis).collect()
    }
}

pub(super) fn col2im<T: Number>(op: &Columns, bound: &Bound, args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, [batch, rows, patches]) = (args.input::<T>(0), bound.0);
    let (image, block) = (args.input::<i64>(1), args.input::<i64>(2));
    let axes = op.axes(image, block)?;
    let product = |f: &dyn Fn(&Axis) -> i64| axes.iter().try_fold(1usize, |all, axis| all.checked_mul(size(f(axis))));
    let (taps, found) = (product(&|a| a.block), product(&|a| a.count));
    let channels = taps.filter(|&taps| rows.is_multiple_of(taps)).map(|taps| rows / taps);
    let (Some(taps), Some(channels), true) = (taps, channels, found == Some(patches)) else {
        return Err(Fault::data(format!(
            "input 0 of [{batch}, {rows}, {patches}] has not {found:?} patches of {block:?} in a picture of {image:?}"
        )));
    };
    let pixels = product(&|a| a.len).ok_or_else(|| Fault::Memory(format!("a picture of {image:?} is too large")))?;
    let dims: Ints = [batch as i64, channels as i64].into_iter().chain(image.iter().copied()).collect(); // both dimensions
    let par = args.par();
    let y = args.emit::<T>(0, &dims)?;
    Ok(split::rows(par, y, pixels, 1, |_, first, planes| {
        for (k, y) in planes.chunks_exact_mut(pixels).enumerate() {
            let x = &x[(first + k) * taps * patches..][..taps * patches];
            y.fill(T::default());
            for (tap, x) in x.chunks_exact(patches.max(1)).enumerate() {
                put(&axes, tap as i64, x, y); // a dimension
            }
        }
    })?)
}

/// Adds one tap of all patches to a plane, row by row along the last axis.
fn put<T: Number>(axes: &[Axis], tap: i64, x: &[T], y: &mut [T]) {
    let Some((last, outer)) = axes.split_last() else { return };
    let (inside, from) = last.inside(tap % last.block);
    if inside.is_empty() {
        return;
    }
    let start = size(inside.start * last.stride + from);
    for (row, x) in x.chunks_exact(size(last.count).max(1)).enumerate() {
        let Some(place) = row_place(outer, tap / last.block, row as i64) else { continue }; // a dimension
        let y = &mut y[place * size(last.len) + start..];
        let x = &x[size(inside.start)..size(inside.end)];
        match last.stride {
            1 => y.iter_mut().zip(x).for_each(|(y, &x)| *y = y.plus(x)),
            n => y.iter_mut().step_by(size(n)).zip(x).for_each(|(y, &x)| *y = y.plus(x)),
        }
    }
}

/// Which row of the picture a tap of a row of patches falls on, if it is inside.
fn row_place(outer: &[Axis], mut tap: i64, mut row: i64) -> Option<usize> {
    let (mut place, mut step) = (0, 1);
    for axis in outer.iter().rev() {
        let at = row % axis.count * axis.stride + tap % axis.block * axis.dilation - axis.pad;
        if !(0..axis.len).contains(&at) {
            return None;
        }
        (place, step) = (place + at * step, step * axis.len);
        (row, tap) = (row / axis.count, tap / axis.block);
    }
    Some(size(place))
}

#[cfg(test)]
mod tests {
    use crate::ops::testing::{Case, on_all};
    use ortolan_ep_kit::DType;
    use ortolan_ep_kit::testing::Tensor;

    /// Picture, patch, strides, dilations, pads.
    const CASES: &[[&[i64]; 5]] = &[
        [&[5, 5], &[1, 5], &[1, 1], &[1, 1], &[0, 0, 0, 0]],
        [&[7], &[3], &[2], &[1], &[1, 1]],
        [&[7, 6], &[3, 2], &[2, 1], &[1, 3], &[1, 0, 2, 1]],
        [&[4, 5, 3], &[2, 3, 2], &[1, 2, 1], &[2, 1, 1], &[1, 1, 0, 0, 1, 2]],
    ];

    #[test]
    fn like_the_definition() {
        for &[image, block, strides, dilations, pads] in CASES {
            let rank = image.len();
            let counts: Vec<i64> = (0..rank)
                .map(|k| (image[k] + pads[k] + pads[rank + k] - dilations[k] * (block[k] - 1) - 1) / strides[k] + 1)
                .collect();
            let (taps, patches) = (block.iter().product::<i64>(), counts.iter().product::<i64>());
            let x = Tensor::from_fn(&[2, 3 * taps, patches], |k| (k % 101) as i32 - 50);
            let values = x.to_vec::<i32>();
            let dims: Vec<i64> = [2, 3].into_iter().chain(image.iter().copied()).collect();
            let pixels = image.iter().product::<i64>() as usize;
            let mut want = vec![0i32; 6 * pixels];
            for (at, value) in values.iter().enumerate() {
                let (mut patch, rest) = (at as i64 % patches, at as i64 / patches);
                let (mut tap, plane) = (rest % taps, rest / taps);
                let (mut place, mut step, mut inside) = (0, 1, true);
                for k in (0..rank).rev() {
                    let to = patch % counts[k] * strides[k] + tap % block[k] * dilations[k] - pads[k];
                    inside &= (0..image[k]).contains(&to);
                    (place, step) = (place + to * step, step * image[k]);
                    (patch, tap) = (patch / counts[k], tap / block[k]);
                }
                if inside {
                    want[plane as usize * pixels + place as usize] += value;
                }
            }
            on_all("Col2Im", 18, |case| {
                let case = case.ints("strides", strides).ints("dilations", dilations).ints("pads", pads).input(&x);
                let case = case.input(&Tensor::new(&[rank as i64], image)).input(&Tensor::new(&[rank as i64], block));
                assert_eq!(case.late_output(DType::I32, rank + 2).run()[0], Tensor::new(&dims, &want));
            });
        }
    }

    #[test]
    fn sizes_that_do_not_fit_are_faults() {
        let x = Tensor::random(&[1, 4, 9], 1);
        for (image, block) in [([4i64, 4], [2i64, 3]), ([5, 4], [2, 2]), ([-1, 4], [2, 2]), ([4, i64::MAX], [2, 2])] {
            let case = Case::new("Col2Im", 18).input(&x).input(&Tensor::new(&[2], &image));
            let case = case.input(&Tensor::new(&[2], &block)).late_output(DType::F32, 4);
            let error = case.try_run().unwrap_err();
            assert!(error.contains("picture of") || error.contains("is no size"), "{error}");
        }
    }
}
