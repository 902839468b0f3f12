//! Runs an operator that computes in f32 on tensors of narrower floats: inputs are widened into scratch memory, outputs
//! narrowed from it. Right, and slow beside a kernel of the type's own, as weights are widened in every run.

use crate::args::{ABSENT, Arg, Args, NO_ALIAS};
use crate::element::Element;
use crate::error::{Fault, Reject};
use crate::kernel::{Cost, Op, RunFn};
use crate::node::NodeView;
use crate::shapes::Shapes;
use crate::slab::aligned;
use crate::split;
use core::marker::PhantomData;
use smallvec::SmallVec;

/// A float type narrower than f32.
pub trait Narrow: Element + Send + Sync {
    /// The same value.
    fn widen(self) -> f32;
    /// The nearest value.
    fn narrow(x: f32) -> Self;
}

/// An operator that computes in f32. Made by [`widened!`](crate::widened).
pub trait Inner: 'static {
    /// How it is read and bound.
    type Op: Op;
    /// Its computation in f32.
    const RUN: RunFn<Self::Op>;
}

/// An operator behind which stands another that computes in f32.
pub struct Widened<I: Inner> {
    op: I::Op,
    /// Inputs of the narrow type, bit by bit.
    narrow_inputs: u64,
    narrow_outputs: u64,
}

/// What the inner operator keeps, and elements of all inputs, then of all outputs.
pub struct Bound<I: Inner> {
    inner: <I::Op as Op>::Bound,
    counts: SmallVec<[usize; 8]>,
}

impl<I: Inner> Default for Bound<I> {
    fn default() -> Self {
        Bound { inner: Default::default(), counts: SmallVec::new() }
    }
}

const GRAIN: usize = 1 << 14;

impl<I: Inner> Op for Widened<I> {
    type Bound = Bound<I>;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let dtype = node.needs(0)?.dtype() as u32;
        let bits = |of: &dyn Fn(usize) -> bool, count: usize| {
            (0..count.min(64)).filter(|&k| of(k)).fold(0u64, |bits, k| bits | 1 << k)
        };
        let narrow_inputs = bits(&|k| node.input(k).is_some_and(|v| v.dtype() as u32 == dtype), node.input_count());
        let narrow_outputs = bits(&|k| node.output(k).is_some_and(|v| v.dtype() as u32 == dtype), node.output_count());
        Ok(Widened { op: I::Op::parse(node)?, narrow_inputs, narrow_outputs })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(self.op.cost(node).ns * 2.0)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound<I>) -> Result<(), Fault> {
        self.op.bind(shapes, &mut bound.inner)?;
        bound.counts.clear();
        bound.counts.extend((0..shapes.inputs).map(|k| shapes.input_len(k)));
        bound.counts.extend((shapes.inputs..shapes.args.len()).map(|k| shapes.output_len(k - shapes.inputs)));
        Ok(())
    }

    fn scratch(&self, bound: &Bound<I>, width: usize) -> usize {
        let inner = aligned(self.op.scratch(&bound.inner, width)).unwrap_or(usize::MAX);
        bound.counts.iter().fold(inner, |sum, &count| sum.saturating_add(room(count)))
    }

    fn flops(&self, bound: &Bound<I>) -> u64 {
        self.op.flops(&bound.inner)
    }
}

/// Bytes of so many f32, up to the next boundary.
fn room(count: usize) -> usize {
    count.checked_mul(size_of::<f32>()).and_then(aligned).unwrap_or(usize::MAX)
}

/// The computation of a row made by [`widened!`](crate::widened).
pub fn run<I: Inner, N: Narrow>(op: &Widened<I>, bound: &Bound<I>, args: &mut Args<'_>) -> Result<(), Fault> {
    let par = args.par();
    let mut rest = args.scratch::<u8>();
    let mut take = |bytes: usize| {
        let (piece, more) = core::mem::take(&mut rest).split_at_mut(bytes);
        rest = more;
        piece
    };
    let mut all: SmallVec<[Arg; 8]> = SmallVec::from_slice(args.all);
    for k in 0..args.inputs {
        if op.narrow_inputs >> k & 1 == 0 || all[k].bytes == ABSENT {
            continue;
        }
        let (x, wide) = (args.input::<N>(k), take(room(bound.counts[k])));
        let wide = &mut crate::bytes::elements_mut::<f32>(wide)[..x.len()];
        split::rows(par, wide, 1, GRAIN, |_, at, y| y.iter_mut().zip(&x[at..]).for_each(|(y, x)| *y = x.widen()))?;
        all[k] = Arg { ptr: wide.as_mut_ptr().cast(), bytes: size_of_val(wide) };
    }
    let mut outs: SmallVec<[(usize, Arg); 2]> = SmallVec::new();
    for k in args.inputs..all.len() {
        if op.narrow_outputs >> (k - args.inputs) & 1 == 0 || all[k].bytes == ABSENT {
            continue;
        }
        let wide = take(room(bound.counts[k]));
        all[k] = Arg { ptr: wide.as_mut_ptr(), bytes: bound.counts[k] * size_of::<f32>() };
        outs.push((k, all[k]));
    }
    let scratch = Arg { ptr: rest.as_mut_ptr(), bytes: rest.len() };
    let mut inner = Args {
        all: &all,
        inputs: args.inputs,
        alias: [NO_ALIAS; 2],
        taken: 0,
        scratch,
        par,
        late: None,
        _borrow: PhantomData,
    };
    (I::RUN)(&op.op, &bound.inner, &mut inner)?;
    for (k, wide) in outs {
        let y = args.output::<N>(k - args.inputs);
        let wide = crate::memory::bytes(wide);
        let wide = crate::bytes::elements::<f32>(wide);
        split::rows(par, y, 1, GRAIN, |_, at, y| y.iter_mut().zip(&wide[at..]).for_each(|(y, &x)| *y = N::narrow(x)))?;
    }
    Ok(())
}

/// A row's computations for narrower floats, by way of f32: `widened!(Conv, conv => F16 Bf16)`, where `conv` is the
/// computation of the operator `Conv` in f32. Rows of it say [`fallback`](crate::Kernel::fallback). They find their
/// outputs' sizes before they run, and pack nothing.
#[macro_export]
macro_rules! widened {
    ($op:ty, $run:expr => $($t:ident)+) => {
        const {
            struct Row;
            impl $crate::widen::Inner for Row {
                type Op = $op;
                const RUN: $crate::RunFn<$op> = $run;
            }
            $crate::Runs::new(
                const { &[("T", 0 $(| <$t as $crate::Element>::DTYPE.mask())+)] },
                &$crate::Pick {
                    pick: |dtype| {
                        $(if dtype as u32 == <$t as $crate::Element>::DTYPE as u32 {
                            return $crate::kernel::run_fn($crate::widen::run::<Row, $t>);
                        })+
                        None
                    },
                },
            )
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{OpTest, Tensor};
    use crate::{DType, Kernel};

    /// The upper half of an f32, in an integer that stands for a type of its own.
    impl Narrow for u16 {
        fn widen(self) -> f32 {
            f32::from_bits(u32::from(self) << 16)
        }
        fn narrow(x: f32) -> u16 {
            (x.to_bits() >> 16) as u16
        }
    }

    /// Sums weighted by integers; scratch memory holds the products.
    struct Dot;

    impl Op for Dot {
        type Bound = usize;

        fn parse(_: &NodeView<'_>) -> Result<Self, Reject> {
            Ok(Dot)
        }

        fn bind(&self, shapes: &Shapes<'_>, count: &mut usize) -> Result<(), Fault> {
            *count = shapes.input_len(0);
            Ok(())
        }

        fn scratch(&self, count: &usize, _: usize) -> usize {
            count * size_of::<f32>()
        }
    }

    fn dot(_: &Dot, count: &usize, args: &mut Args<'_>) -> Result<(), Fault> {
        let (x, w) = (args.input::<f32>(0), args.input::<i64>(1));
        let products = &mut args.scratch::<f32>()[..*count];
        products.iter_mut().zip(x.iter().zip(w)).for_each(|(p, (x, &w))| *p = x * w as f32);
        args.output::<f32>(0)[0] = products.iter().sum();
        args.output::<i64>(1)[0] = *count as i64;
        Ok(())
    }

    const KERNELS: &[Kernel] = &[Kernel::new("Dot", (1, 1), "dot", widened!(Dot, dot => u16)).fallback()];

    #[test]
    fn narrow_ends_are_widened_and_others_stay() {
        let x = Tensor::new(&[3], &[1.5f32, -2.0, 0.25].map(u16::narrow));
        let w = Tensor::new(&[3], &[2i64, 1, 4]);
        let case = OpTest::new(&[KERNELS], "Dot", 1).input(&x).input(&w);
        let y = case.output(DType::U16, &[1]).output(DType::I64, &[1]).run();
        assert_eq!(y, [Tensor::new(&[1], &[u16::narrow(2.0)]), Tensor::new(&[1], &[3i64])]);
    }
}
