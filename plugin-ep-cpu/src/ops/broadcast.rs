//! Walks an output whose operands repeat along some axes, as NumPy broadcasts.

use ortolan_ep_kit::parallel::{Parallel, Stopped};
use ortolan_ep_kit::{Fault, Shapes, count, size, split};
use smallvec::SmallVec;

/// How N operands lie under an output: few axes, as neighbours that behave alike are merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broadcast<const N: usize> {
    /// Axes in front of the innermost one, outermost first. Seldom more than one; small, as a lane keeps many of these.
    pub outer: SmallVec<[Axis<N>; 1]>,
    /// The innermost axis; steps are 0 or 1.
    pub inner: Axis<N>,
    /// Elements of the output.
    pub total: usize,
}

/// An axis of the output, and how far each operand moves along it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Axis<const N: usize> {
    pub len: usize,
    pub step: [usize; N],
}

impl<const N: usize> Default for Broadcast<N> {
    fn default() -> Self {
        Broadcast { outer: SmallVec::new(), inner: Axis { len: 1, step: [0; N] }, total: 1 }
    }
}

impl<const N: usize> Broadcast<N> {
    /// Follows new shapes of a node whose inputs are the operands.
    pub fn follow(&mut self, shapes: &Shapes<'_>) -> Result<(), Fault> {
        if shapes.alike(N) {
            // The usual case, kept short: new shapes bind every node again.
            self.all_alike(shapes.output_len(0));
            return Ok(());
        }
        self.bind(shapes.output(0), core::array::from_fn(|k| shapes.input(k)))
    }

    fn all_alike(&mut self, total: usize) {
        self.total = total;
        self.outer.clear();
        self.inner = Axis { len: total, step: [1; N] };
    }

    /// Follows new shapes.
    pub fn bind(&mut self, output: &[i64], operands: [&[i64]; N]) -> Result<(), Fault> {
        self.all_alike(count(output));
        if operands.iter().all(|dims| *dims == output) {
            return Ok(());
        }
        let mut axes: SmallVec<[Axis<N>; 8]> = SmallVec::new(); // innermost first
        let mut reach = [1usize; N];
        for k in 0..output.len() {
            let len = size(output[output.len() - 1 - k]);
            let mut step = [0; N];
            for (i, dims) in operands.iter().enumerate() {
                let dim = if k < dims.len() { size(dims[dims.len() - 1 - k]) } else { 1 };
                if dim != 1 {
                    step[i] = reach[i];
                    reach[i] *= dim;
                }
                if (dim != 1 && dim != len) || dims.len() > output.len() {
                    return Err(Fault::data(format!("dimensions {dims:?} do not broadcast to {output:?}")));
                }
            }
            match axes.last_mut() {
                _ if len == 1 => {}
                Some(last) if (0..N).all(|i| step[i] == last.step[i] * last.len) => last.len *= len,
                _ => axes.push(Axis { len, step }),
            }
        }
        // Only the innermost axis that is longer than 1 has been reached by nothing: its steps are 0 or 1.
        self.inner = axes.first().copied().unwrap_or(Axis { len: 1, step: [0; N] });
        self.outer.extend(axes.iter().skip(1).rev().copied());
        Ok(())
    }

    /// Calls `body(offsets, piece)` until every element of `output` was in one piece. Operand i of the piece's k-th
    /// element is its element `offsets[i] + k * inner.step[i]`.
    pub fn walk<T: Send>(
        &self,
        par: &dyn Parallel,
        output: &mut [T],
        grain: usize,
        body: impl Fn([usize; N], &mut [T]) + Sync,
    ) -> Result<(), Stopped> {
        if self.outer.is_empty() {
            return split::rows(par, output, 1, grain, |_, first, piece| {
                let mut at = self.inner.step;
                at.iter_mut().for_each(|step| *step *= first);
                body(at, piece);
            });
        }
        let row = self.inner.len;
        split::rows(par, output, row, grain.div_ceil(row.max(1)), |_, first, piece| {
            let mut at = Counter::new(&self.outer, first);
            for line in piece.chunks_exact_mut(row) {
                body(at.offsets, line);
                at.next(&self.outer);
            }
        })
    }
}

/// Position among the outer axes.
struct Counter<const N: usize> {
    index: SmallVec<[usize; 6]>,
    offsets: [usize; N],
}

impl<const N: usize> Counter<N> {
    fn new(axes: &[Axis<N>], mut at: usize) -> Self {
        let mut counter = Counter { index: SmallVec::from_elem(0, axes.len()), offsets: [0; N] };
        for (k, axis) in axes.iter().enumerate().rev() {
            counter.index[k] = at % axis.len;
            at /= axis.len;
            for i in 0..N {
                counter.offsets[i] += counter.index[k] * axis.step[i];
            }
        }
        counter
    }

    fn next(&mut self, axes: &[Axis<N>]) {
        for (k, axis) in axes.iter().enumerate().rev() {
            self.index[k] += 1;
            if self.index[k] < axis.len {
                (0..N).for_each(|i| self.offsets[i] += axis.step[i]);
                return;
            }
            self.index[k] = 0;
            (0..N).for_each(|i| self.offsets[i] -= axis.step[i] * (axis.len - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::offset;
    use ortolan_ep_kit::parallel::Serial;

    #[test]
    fn every_element_meets_its_operands() {
        let cases: &[(&[i64], &[i64], &[i64])] = &[
            (&[], &[], &[]),
            (&[5], &[5], &[]),
            (&[2, 3, 4], &[2, 3, 4], &[2, 3, 4]),
            (&[2, 3, 4], &[4], &[3, 1]),
            (&[2, 3, 4], &[2, 1, 4], &[1, 3, 1]),
            (&[2, 3, 4], &[2, 3, 1], &[1]),
            (&[1, 7, 1, 5], &[7, 1, 5], &[1, 7, 1, 1]),
            (&[0, 3], &[3], &[0, 1]),
            (&[4, 1], &[4, 1], &[1, 1]),
        ];
        for &(output, a, b) in cases {
            let mut walk = Broadcast::<2>::default();
            walk.bind(output, [a, b]).unwrap();
            let mut got = vec![(usize::MAX, 0); walk.total];
            walk.walk(&Serial, &mut got, 2, |[a, b], piece| {
                for (k, at) in piece.iter_mut().enumerate() {
                    *at = (a + k * walk.inner.step[0], b + k * walk.inner.step[1]);
                }
            })
            .unwrap();
            let want: Vec<_> = (0..walk.total).map(|k| (offset(output, a, k), offset(output, b, k))).collect();
            assert_eq!(got, want, "{output:?} {a:?} {b:?}");
        }
    }

    #[test]
    fn alike_axes_are_one() {
        let mut walk = Broadcast::<2>::default();
        walk.bind(&[2, 3, 4, 5], [&[2, 3, 4, 5], &[4, 5]]).unwrap();
        assert_eq!((walk.outer.len(), walk.inner.len), (1, 20));
        walk.bind(&[2, 3, 4, 5], [&[2, 3, 4, 5], &[3, 1, 1]]).unwrap();
        assert_eq!((walk.outer.len(), walk.inner), (2, Axis { len: 20, step: [1, 0] }));
    }

    #[test]
    fn what_does_not_broadcast_is_a_fault() {
        for (output, a) in [(&[2i64, 3][..], &[2i64][..]), (&[3], &[3, 3]), (&[1], &[2])] {
            assert!(Broadcast::<1>::default().bind(output, [a]).is_err(), "{output:?} {a:?}");
        }
    }
}
