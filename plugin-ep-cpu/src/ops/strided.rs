//! Copies a dense output from places in an input that lie at even steps along each axis: what slicing, expanding,
//! splitting and tiling have in common. It must not know operators.

use super::GRAIN;
use super::value::Word;
use ortolan_ep_kit::parallel::{Parallel, Stopped};
use ortolan_ep_kit::{Cost, NodeView, split};
use smallvec::SmallVec;

/// Where in an input the elements of a dense output lie. Axes that stay together are one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Strided {
    /// Outermost first; none is of length 1.
    axes: SmallVec<[Axis; 6]>,
    /// Input position of the first element.
    pub start: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Axis {
    pub len: usize,
    pub step: isize,
}

/// A step between places of a tensor in memory, whose elements are counted by an `isize`.
#[inline]
pub(crate) fn step(elements: usize) -> isize {
    isize::try_from(elements).unwrap_or(0)
}

/// What a copy costs that reads as much as it writes.
pub(crate) fn cost(node: &NodeView<'_>) -> Cost {
    let bytes: f64 = (0..node.output_count()).filter_map(|k| node.output(k)).map(|y| y.bytes()).sum();
    Cost::ns(30.0 + bytes / 5.0)
}

impl Strided {
    /// The input's element `start`.
    pub fn at(start: usize) -> Self {
        Strided { axes: SmallVec::new(), start }
    }

    /// Adds an output axis inside of those that are there.
    pub fn push(&mut self, len: usize, step: isize) {
        match self.axes.last_mut() {
            _ if len == 1 => {}
            Some(last) if last.len != 0 && Some(last.step) == signed(len).checked_mul(step) => {
                *last = Axis { len: last.len * len, step };
            }
            _ => self.axes.push(Axis { len, step }),
        }
    }

    /// Fills `y`, which has as many elements as the axes say.
    ///
    /// # Panics
    /// When an axis leads out of `x`.
    pub fn copy<T: Word>(&self, par: &dyn Parallel, x: &[T], y: &mut [T]) -> Result<(), Stopped> {
        let Some((&inner, outer)) = self.axes.split_last() else {
            // One element, or none.
            y.iter_mut().for_each(|y| *y = x[self.start]);
            return Ok(());
        };
        if outer.is_empty() {
            return split::rows(par, y, 1, GRAIN, |_, first, y| {
                line(x, at(self.start, first, inner.step), inner.step, y)
            });
        }
        let (&next, front) = outer.split_last().unwrap_or((&inner, &[]));
        if next.step.unsigned_abs() == 1 && inner.len <= NARROW {
            let block = next.len * inner.len;
            return split::rows(par, y, block, GRAIN.div_ceil(block.max(1)), |_, first, y| {
                let mut walk = Walk::new(front, self.start, first);
                for block in y.chunks_exact_mut(block) {
                    turn(x, walk.at, next, inner, block);
                    walk.next(front);
                }
            });
        }
        split::rows(par, y, inner.len, GRAIN.div_ceil(inner.len.max(1)), |_, first, y| {
            let mut walk = Walk::new(outer, self.start, first);
            for row in y.chunks_exact_mut(inner.len) {
                line(x, walk.at, inner.step, row);
                walk.next(outer);
            }
        })
    }
}

/// Longest innermost axis for which the axis before it is the better loop.
const NARROW: usize = 8;

fn signed(len: usize) -> isize {
    isize::try_from(len).unwrap_or(isize::MAX)
}

#[inline(always)]
fn at(start: usize, count: usize, step: isize) -> usize {
    start.wrapping_add_signed(signed(count) * step)
}

/// One row of the output.
#[inline]
fn line<T: Word>(x: &[T], start: usize, step: isize, y: &mut [T]) {
    match step {
        1 => run(y, &x[start..start + y.len()]),
        0 => y.fill(x[start]),
        -1 => {
            let x = &x[start + 1 - y.len()..=start];
            y.iter_mut().zip(x.iter().rev()).for_each(|(y, &x)| *y = x);
        }
        _ => {
            let mut from = start;
            for y in y {
                *y = x[from];
                from = from.wrapping_add_signed(step);
            }
        }
    }
}

/// Copies a run; short ones without the call that long ones are worth.
#[inline(always)]
pub(crate) fn run<T: Copy>(y: &mut [T], x: &[T]) {
    match (y, x) {
        ([y], [x]) => *y = *x,
        ([y0, y1], [x0, x1]) => (*y0, *y1) = (*x0, *x1),
        (y, x) => y.copy_from_slice(x),
    }
}

/// Two axes, of which the outer one has neighbours in the input.
fn turn<T: Word>(x: &[T], start: usize, outer: Axis, inner: Axis, y: &mut [T]) {
    for j in 0..inner.len {
        let from = at(start, j, inner.step);
        let column = y.iter_mut().skip(j).step_by(inner.len);
        if outer.step == 1 {
            column.zip(&x[from..from + outer.len]).for_each(|(y, &x)| *y = x);
        } else {
            column.zip(x[from + 1 - outer.len..=from].iter().rev()).for_each(|(y, &x)| *y = x);
        }
    }
}

/// Position in an input while rows of an output are walked.
pub(crate) struct Walk {
    index: SmallVec<[usize; 6]>,
    pub at: usize,
}

impl Walk {
    /// At row `number` of those that the axes count.
    pub fn new(axes: &[Axis], start: usize, mut number: usize) -> Self {
        let mut walk = Walk { index: SmallVec::from_elem(0, axes.len()), at: start };
        for (index, axis) in walk.index.iter_mut().zip(axes).rev() {
            *index = number % axis.len;
            number /= axis.len;
            walk.at = at(walk.at, *index, axis.step);
        }
        walk
    }

    /// Goes to the next row; behind the last one comes the first.
    #[inline]
    pub fn next(&mut self, axes: &[Axis]) {
        for (index, axis) in self.index.iter_mut().zip(axes).rev() {
            *index += 1;
            self.at = self.at.wrapping_add_signed(axis.step);
            if *index < axis.len {
                return;
            }
            *index = 0;
            self.at = self.at.wrapping_add_signed(-signed(axis.len) * axis.step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ortolan_ep_kit::parallel::Serial;

    #[test]
    fn copies_by_steps() {
        // Start, axes of length and step.
        let cases: &[(usize, &[(usize, isize)])] = &[
            (3, &[]),
            (0, &[(7, 1)]),
            (9, &[(10, -1)]),
            (4, &[(5, 0)]),
            (0, &[(6, 3)]),
            (2, &[(3, 20), (4, 5), (5, 1)]),
            (0, &[(3, 20), (4, 5), (2, 1)]),
            (99, &[(3, -20), (4, -5), (5, -1)]),
            (1, &[(2, 0), (3, 4), (3, 0)]),
            (0, &[(3, 10), (9, 1), (2, 40)]),
            (50, &[(3, 10), (9, -1), (2, 20)]),
            (0, &[(2, 1), (3, 2), (30, 3)]),
            (0, &[(4, 0), (0, 1)]),
            (0, &[(0, 4), (3, 1)]),
        ];
        let x: Vec<u32> = (0..200).collect();
        for &(start, axes) in cases {
            let mut strided = Strided::at(start);
            axes.iter().for_each(|&(len, step)| strided.push(len, step));
            let mut want = vec![start as isize];
            for &(len, step) in axes {
                want = want.iter().flat_map(|at| (0..len as isize).map(move |k| at + k * step)).collect();
            }
            let mut got = vec![0; want.len()];
            strided.copy(&Serial, &x, &mut got).unwrap();
            assert_eq!(got, want.iter().map(|&at| at as u32).collect::<Vec<_>>(), "{start} {axes:?}");
        }
    }

    #[test]
    fn axes_that_stay_together_are_one() {
        let mut strided = Strided::default();
        [(2, 60), (3, 20), (4, 5), (5, 1)].iter().for_each(|&(len, step)| strided.push(len, step));
        assert_eq!(strided.axes.as_slice(), [Axis { len: 120, step: 1 }]);
    }
}
