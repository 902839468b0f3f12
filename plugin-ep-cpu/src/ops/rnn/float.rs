//! Products with float weights, packed for `gemm`.

use super::walk::{Part, Source, Target, Weights};
use super::{Cell, Network, Recurrent, Sizes};
use crate::gemm::{Add, Bias, Epilogue, Gemm, Lhs, Mat, MatMut, PackedB, Rhs};
use crate::simd::Isa;
use ortolan_ep_abi::layout::{FNV, fnv};
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Fault, Pack, Weight, WeightSource, bytes, size};

/// How the weights of one direction lie: one matrix, or two behind each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub first: PackedB,
    pub second: Option<PackedB>,
}

impl Layout {
    /// W, whose products are always those of all gates.
    fn input(isa: Isa, input: usize, gates: usize) -> Layout {
        Layout { first: PackedB::new(isa, input, gates), second: None }
    }

    /// R, cut before its last gate if that one sees another state.
    fn state(network: &Network, hidden: usize) -> Layout {
        let (isa, gates) = (network.isa, network.cell.gates());
        match network.cell {
            Cell::Gru { after: false, .. } => Layout {
                first: PackedB::new(isa, hidden, (gates - 1).saturating_mul(hidden)),
                second: Some(PackedB::new(isa, hidden, hidden)),
            },
            _ => Layout { first: PackedB::new(isa, hidden, gates.saturating_mul(hidden)), second: None },
        }
    }

    fn size(&self) -> usize {
        self.first.size().saturating_add(self.second.map_or(0, |second| second.size()))
    }

    /// Packs a direction's matrix: rows are gates, `columns` long.
    fn pack(&self, weights: &[f32], columns: usize, to: &mut [f32]) -> Result<(), Fault> {
        let rows = weights.len() / columns.max(1);
        let front = rows - self.second.map_or(0, |_| columns.min(rows));
        let (first, second) = weights.split_at(front * columns);
        let (to_first, to_second) = to.split_at_mut(self.first.size());
        self.first.pack(Mat::new(first, front, columns)?.transposed(), 0..self.first.pieces(), to_first)?;
        if let Some(layout) = self.second {
            let mat = Mat::new(second, rows - front, columns)?.transposed();
            layout.pack(mat, 0..layout.pieces(), to_second)?;
        }
        Ok(())
    }
}

impl Recurrent {
    /// Layouts of W and R for these sizes.
    fn layouts(&self, input: usize, hidden: usize) -> [Layout; 2] {
        let gates = self.network.cell.gates().saturating_mul(hidden);
        [Layout::input(self.network.isa, input, gates), Layout::state(&self.network, hidden)]
    }

    /// A plan for W (input 1) or R (input 2).
    pub(super) fn plan(&self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        let &[directions, rows, columns] = source.dims else { return None };
        let gates = self.network.cell.gates();
        let (rows, columns) = (size(rows), size(columns));
        let fits = rows.is_multiple_of(gates) && (input == 1 || rows / gates == columns);
        if size(directions) != self.network.directions() || !fits {
            return None; // the run says what is wrong
        }
        let layout = self.layouts(columns, rows / gates)[input - 1];
        let format = fnv(fnv(FNV, b"rnn"), self.network.isa.name().as_bytes());
        let format = fnv(format, &[u8::from(layout.second.is_some())]);
        let bytes = layout.size().checked_mul(size_of::<f32>())?.checked_mul(size(directions))?;
        Some(Pack { format, bytes, from_base: false })
    }

    /// Packs what [`plan`](Self::plan) planned.
    pub(super) fn fill_packed(&self, input: usize, weight: &Weight<'_>, to: &mut [u8]) -> Result<(), Fault> {
        let &[_, rows, columns] = weight.dims else { return Err(Fault::data("weights have three dimensions")) };
        let (rows, columns) = (size(rows), size(columns));
        let layout = self.layouts(columns, rows / self.network.cell.gates())[input - 1];
        let (elements, to) = (weight.elements::<f32>(), bytes::elements_mut::<f32>(to));
        let parts = elements.chunks_exact((rows * columns).max(1)).zip(to.chunks_exact_mut(layout.size().max(1)));
        parts.into_iter().try_for_each(|(from, to)| layout.pack(from, columns, to))
    }
}

/// Float weights of all directions: W and R, packed ahead or as they are.
pub(super) struct FloatSource<'a> {
    pub op: &'a Recurrent,
    pub sizes: &'a Sizes,
    pub w: &'a [f32],
    pub r: &'a [f32],
}

/// Values of scratch memory that the weights of a direction take.
pub(super) fn weights_len(op: &Recurrent, sizes: &Sizes, threads: usize) -> usize {
    let &Sizes { batch, input, hidden, gates, chunk, steps, .. } = sizes;
    let layouts = op.layouts(input, hidden);
    let unpacked = layouts.iter().zip(op.packed).filter(|(_, packed)| !packed);
    let packing = unpacked.fold(0usize, |sum, (layout, _)| sum.saturating_add(layout.size()));
    let need = |rows, n, k| Gemm::new(op.network.isa, rows, n, k).scratch_len(false, true, threads);
    let items = if op.network.batch_first { 1 } else { batch };
    let chunks = [chunk, steps % chunk.max(1)].map(|steps| need(steps.saturating_mul(items), gates, input));
    let states = [gates, gates - hidden, hidden].map(|n| need(batch, n, hidden));
    packing.saturating_add(chunks.into_iter().chain(states).max().unwrap_or(0))
}

impl Source for FloatSource<'_> {
    type Weights<'s>
        = FloatWeights<'s>
    where
        Self: 's;

    fn scratch_len(&self, threads: usize) -> usize {
        weights_len(self.op, self.sizes, threads)
    }

    fn weights<'s>(
        &'s self,
        direction: usize,
        scratch: &'s mut [f32],
        par: &'s dyn Parallel,
    ) -> Result<FloatWeights<'s>, Fault> {
        let &Sizes { input, hidden, gates, .. } = self.sizes;
        let [w_layout, r_layout] = self.op.layouts(input, hidden);
        let (w, scratch) = self.one(0, direction, (self.w, gates * input, input), w_layout, scratch)?;
        let (r, scratch) = self.one(1, direction, (self.r, gates * hidden, hidden), r_layout, scratch)?;
        Ok(FloatWeights { isa: self.op.network.isa, layouts: [w_layout, r_layout], w, r, scratch, par })
    }
}

impl FloatSource<'_> {
    /// A direction's W (0) or R (1), packed, and the scratch memory that is left.
    fn one<'s>(
        &'s self,
        which: usize,
        direction: usize,
        (all, len, columns): (&'s [f32], usize, usize),
        layout: Layout,
        scratch: &'s mut [f32],
    ) -> Result<(&'s [f32], &'s mut [f32]), Fault> {
        if self.op.packed[which] {
            return Ok((&all[direction * layout.size()..][..layout.size()], scratch));
        }
        let (to, scratch) = scratch.split_at_mut(layout.size());
        layout.pack(&all[direction * len..][..len], columns, to)?;
        Ok((to, scratch))
    }
}

/// Float weights of a direction.
pub(super) struct FloatWeights<'s> {
    isa: Isa,
    layouts: [Layout; 2],
    w: &'s [f32],
    r: &'s [f32],
    scratch: &'s mut [f32],
    par: &'s dyn Parallel,
}

impl FloatWeights<'_> {
    fn product(
        &mut self,
        a: &[f32],
        (layout, b): (PackedB, &[f32]),
        epilogue: &Epilogue<'_>,
        to: Target<'_>,
    ) -> Result<(), Fault> {
        let gemm = Gemm::new(self.isa, to.rows, layout.n, layout.k);
        let a = Lhs::Plain(Mat::new(a, to.rows, layout.k)?);
        let c = MatMut::strided(to.data, to.rows, layout.n, to.step)?;
        Ok(gemm.run(a, Rhs::Packed(layout, b), epilogue, c, self.scratch, self.par)?)
    }
}

impl Weights for FloatWeights<'_> {
    fn input(&mut self, x: &[f32], bias: &[f32], to: Target<'_>) -> Result<(), Fault> {
        let epilogue = Epilogue { bias: Bias::PerColumn(bias), ..Epilogue::default() };
        self.product(x, (self.layouts[0].first, self.w), &epilogue, to)
    }

    fn state(&mut self, part: Part, state: &[f32], bias: Option<&[f32]>, to: Target<'_>) -> Result<(), Fault> {
        let Layout { first, second } = self.layouts[1];
        let (front, last) = self.r.split_at(first.size());
        let right = match (part, second) {
            (Part::Last, Some(second)) => (second, last),
            _ => (first, front),
        };
        let epilogue = match bias {
            Some(bias) => Epilogue { bias: Bias::PerColumn(bias), ..Epilogue::default() },
            None => Epilogue { add: Add::Output(1.0), ..Epilogue::default() },
        };
        self.product(state, right, &epilogue, to)
    }
}
