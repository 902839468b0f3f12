//! Recurrent networks: LSTM, GRU and RNN over f32, and their plain twin for other floats.
//!
//! The products of the input run as one for many steps; those of the state run step by step, on weights that are packed
//! ahead. `walk` goes over directions and steps and knows no weights, `float` has the products, `cells` what follows them.

mod activation;
mod cells;
mod dynamic;
mod float;
mod plain;
mod walk;

use super::float::{F32, FLOATS, Float, agree};
use super::{Cpu, cost};
use crate::simd::Isa;
use activation::{Activation, activations};
use dynamic::dynamic;
use float::{FloatSource, weights_len};
use ortolan_ep_kit::{
    Args, Cost, DType, Fault, Kernel, NodeView, Op, Pack, Parallel, Reject, Shapes, Weight, WeightSource, any, size,
};
use plain::plain;
use walk::{Ends, walk};

/// Sorted by operator; of two rows for one operator the first that fits runs.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("DynamicQuantizeLSTM", (1, 1), "dynamicquantizelstm", any!(dynamic))
        .domain("com.microsoft")
        .types(&[("T", F32), ("T2", DType::U8.mask() | DType::I8.mask())]),
    Kernel::new("GRU", (14, 22), "gru", any!(recurrent: f32)),
    Kernel::new("GRU", (14, 22), "gru", any!(plain)).types(&[("T", FLOATS)]).fallback(),
    Kernel::new("LSTM", (14, 22), "lstm", any!(recurrent: f32)),
    Kernel::new("LSTM", (14, 22), "lstm", any!(plain)).types(&[("T", FLOATS)]).fallback(),
    Kernel::new("RNN", (14, 22), "rnn", any!(recurrent: f32)),
    Kernel::new("RNN", (14, 22), "rnn", any!(plain)).types(&[("T", FLOATS)]).fallback(),
];

/// A kind of cell, with its functions for both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cell {
    Lstm {
        acts: [[Activation; 3]; 2],
        coupled: bool,
    },
    /// `after`: the reset gate works on the product of the state.
    Gru {
        acts: [[Activation; 2]; 2],
        after: bool,
    },
    Rnn {
        acts: [[Activation; 1]; 2],
    },
}

impl Cell {
    fn gates(&self) -> usize {
        match self {
            Cell::Lstm { .. } => 4,
            Cell::Gru { .. } => 3,
            Cell::Rnn { .. } => 1,
        }
    }
}

/// In which order a direction sees the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Forward,
    Reverse,
    Both,
}

/// A recurrent network: what its attributes say.
#[derive(Debug, Clone, Copy)]
struct Network {
    isa: Isa,
    cell: Cell,
    order: Order,
    clip: Option<f32>,
    batch_first: bool,
}

impl Network {
    fn parse(node: &NodeView<'_>) -> Result<Network, Reject> {
        let order = match node.text("direction").unwrap_or("forward") {
            "forward" => Order::Forward,
            "reverse" => Order::Reverse,
            "bidirectional" => Order::Both,
            other => return Err(Reject::attribute(format!("attribute direction = '{other}' is not known"))),
        };
        let directions = if order == Order::Both { 2 } else { 1 };
        let flag = |name| node.int_if(name).unwrap_or(0) != 0; // operators without the attribute have no such choice
        let (sigmoid, tanh) = (Activation::Sigmoid, Activation::Tanh);
        let cell = match node.op() {
            "GRU" => {
                let acts = activations(node, directions, [sigmoid, tanh])?;
                Cell::Gru { acts, after: flag("linear_before_reset") }
            }
            "RNN" => Cell::Rnn { acts: activations(node, directions, [tanh])? },
            _ => {
                let acts = activations(node, directions, [sigmoid, tanh, tanh])?;
                Cell::Lstm { acts, coupled: flag("input_forget") }
            }
        };
        let clip = node.float_if("clip");
        if let Some(most) = clip.filter(|&most| most.is_nan() || most < 0.0) {
            return Err(Reject::attribute(format!("attribute clip = {most} is no bound")));
        }
        Ok(Network { isa: Cpu::of(node).isa, cell, order, clip, batch_first: flag("layout") })
    }

    fn directions(&self) -> usize {
        if self.order == Order::Both { 2 } else { 1 }
    }

    fn reverses(&self, direction: usize) -> bool {
        self.order == Order::Reverse || direction == 1
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(x), Some(r)) = (node.input(0), node.input(2)) else { return Cost::UNKNOWN };
        let dim = |value: &ortolan_ep_kit::ValueView<'_>, axis| value.dim(axis).map_or(f64::NAN, |n| n as f64);
        let rows = dim(&x, 0) * dim(&x, 1);
        let weights = dim(&r, 0) * dim(&r, 1) * (dim(&x, 2) + dim(&r, 2));
        Cost::ns(cost::products(node, 2.0 * rows * weights).ns)
    }
}

/// Sizes under one binding.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    steps: usize,
    batch: usize,
    input: usize,
    hidden: usize,
    /// Gates times `hidden`.
    gates: usize,
    directions: usize,
    /// Steps whose products of the input run as one.
    chunk: usize,
}

/// Values of gates that are made at once: half of a usual second cache.
const CHUNK_VALUES: usize = 1 << 17;
/// Rows below which a product of matrices does not run at full speed.
const CHUNK_ROWS: usize = 32;

impl Sizes {
    /// Follows the shapes of X, W (both with the input last) and R, and checks all others against them.
    fn bind(&mut self, network: &Network, shapes: &Shapes<'_>, hidden: i64) -> Result<(), Fault> {
        let &[first, second, input] = shapes.input(0) else {
            return Err(Fault::data(format!("X has dimensions {:?}, three are needed", shapes.input(0))));
        };
        let (steps, batch) = if network.batch_first { (second, first) } else { (first, second) };
        let gates = network.cell.gates();
        *self = Sizes {
            steps: size(steps),
            batch: size(batch),
            input: size(input),
            hidden: size(hidden),
            gates: gates * size(hidden),
            directions: network.directions(),
            chunk: 1,
        };
        let &mut Sizes { steps, batch, input, hidden, directions, gates: wide, .. } = self;
        let state = directions * batch * hidden;
        let need = [
            (1, "W", directions * wide * input),
            (2, "R", directions * wide * hidden),
            (3, "B", directions * wide * 2),
            (4, "sequence_lens", batch),
            (5, "initial_h", state),
            (6, "initial_c", state),
            (7, "P", directions * hidden * 3),
        ];
        for (i, name, need) in need {
            if shapes.has(i) {
                agree(name, shapes.input_len(i), need)?;
            }
        }
        for (j, name, need) in [(0, "Y", steps * state), (1, "Y_h", state), (2, "Y_c", state)] {
            if !shapes.output(j).is_empty() {
                agree(name, shapes.output_len(j), need)?;
            }
        }
        let row = (batch * wide).max(1);
        self.chunk = (CHUNK_VALUES / row).max(CHUNK_ROWS.div_ceil(batch.max(1))).clamp(1, steps.max(1));
        Ok(())
    }
}

/// LSTM, GRU or RNN with float weights.
struct Recurrent {
    network: Network,
    float: Float,
    /// Whether W and R come packed.
    packed: [bool; 2],
}

impl Op for Recurrent {
    type Bound = Sizes;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for (i, name) in [(0, "X"), (1, "W"), (2, "R")] {
            let rank = node.needs(i)?.rank();
            if rank != 3 {
                return Err(Reject::rank(format!("{name} has rank {rank}, needed is 3")));
            }
        }
        Ok(Recurrent { network: Network::parse(node)?, float: Float::input(node, 0)?, packed: [false; 2] })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        self.network.cost(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Sizes) -> Result<(), Fault> {
        let hidden = shapes.input(2).last().copied().unwrap_or(0);
        bound.bind(&self.network, shapes, hidden)
    }

    fn scratch(&self, bound: &Sizes, width: usize) -> usize {
        if self.float != Float::F32 {
            return plain::scratch(bound);
        }
        walk::scratch_len(&self.network, bound, width, |threads| weights_len(self, bound, threads))
            .saturating_mul(size_of::<f32>())
    }

    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        if !(1..=2).contains(&input) || self.float != Float::F32 {
            return None;
        }
        let pack = self.plan(input, source)?;
        self.packed[input - 1] = true;
        Some(pack)
    }

    fn fill(&self, input: usize, weight: &Weight<'_>, to: &mut [u8], _: &dyn Parallel) -> Result<(), Fault> {
        self.fill_packed(input, weight, to)
    }
}

/// Where the standard's operators have their optional inputs.
const ENDS: Ends = Ends { bias: 3, lens: 4, state: 5, cell: 6, peephole: 7 };

fn recurrent(op: &Recurrent, sizes: &Sizes, args: &mut Args<'_>) -> Result<(), Fault> {
    let source = FloatSource { op, sizes, w: args.input(1), r: args.input(2) };
    walk(&op.network, sizes, ENDS, args, &source)
}

#[cfg(test)]
mod tests;
