//! Attention and what stands around it: scores of queries and keys and the values weighted by them, states that take the
//! place of scores, and positions that are turned into queries and keys.
//!
//! The rows of `attention` itself are those of all-to-all attention, whose work is in `heads` and `work`.

pub(super) mod heads;
mod linear;
pub(super) mod rotary;
#[cfg(test)]
mod tests;
pub(super) mod work;

use super::float::F32;
use super::narrow::{Bf16, F16};
use super::{Cpu, cost};
use crate::simd::Isa;
use heads::Bound;
use linear::{LinearAttention, linear};
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{Cost, DType, Fault, Kernel, NodeView, Op, Reject, Shapes, Slot, any, typed, widened};
use rotary::rotary;
use work::attention;

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Attention", (25, 25), "attention", any!(attention)).types(&[("T1", F32), ("T2", F32)]).at(Q_AND_V),
    Kernel::new("Attention", (25, 25), "attention", widened!(Attention, attention => F16 Bf16))
        .types(&[("T1", HALVES), ("T2", HALVES)])
        .at(Q_AND_V)
        .fallback(),
    Kernel::new("LinearAttention", (27, 27), "linearattention", any!(linear: f32)),
    Kernel::new("LinearAttention", (27, 27), "linearattention", widened!(LinearAttention, linear => F16 Bf16))
        .fallback(),
    Kernel::new("RotaryEmbedding", (23, 23), "rotaryembedding", typed!(rotary: f32 F16 Bf16)),
];

const HALVES: u64 = set(&[DType::F16, DType::Bf16]);
const Q_AND_V: &[Slot] = &[Slot::In(0), Slot::In(2)];

/// How far scores have come; each step builds on the one before. The order is that of `qk_matmul_output_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Raw,
    Capped,
    Biased,
    Soft,
}

/// What is added to scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mask {
    None,
    /// Numbers.
    Added,
    /// Whether a key is seen.
    Seen,
}

/// `Y = softmax(cap(scale Q K^T) + mask) V`, head by head.
pub(crate) struct Attention {
    pub isa: Isa,
    /// Heads of queries, and of keys and values, where an axis of rank 3 holds them.
    pub heads: [usize; 2],
    /// 1 / sqrt(head size) if it is not stated.
    pub scale: Option<f32>,
    pub cap: f32,
    pub causal: bool,
    /// Keys before and behind its own that a query sees; all without a number.
    pub window: [Option<usize>; 2],
    pub mask: Mask,
    /// What output 3 shows.
    pub shown: Stage,
    /// Whether there are keys of earlier calls, and lengths of the sequences of keys.
    pub past: bool,
    pub lengths: bool,
}

impl Op for Attention {
    type Bound = Bound;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let rank = ranks(node)?;
        let past = node.input(4).is_some();
        if past != node.input(5).is_some() {
            return Err(Reject::shape("past_key and past_value come together, one is missing"));
        }
        let lengths = node.input(6).is_some();
        if past && lengths {
            return Err(Reject::shape("nonpad_kv_seqlen is for keys without a past, past_key is there"));
        }
        precision(node)?;
        Ok(Attention {
            isa: Cpu::of(node).isa,
            heads: if rank == 3 { [heads(node, "q_num_heads")?, heads(node, "kv_num_heads")?] } else { [0; 2] },
            scale: node.float_if("scale"),
            cap: node.float("softcap")?,
            causal: node.int("is_causal")? != 0,
            window: [window(node, "left_window_size")?, window(node, "right_window_size")?],
            mask: mask(node)?,
            shown: shown(node)?,
            past,
            lengths,
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let (Some(q), Some(k), Some(y)) = (node.input(0), node.input(1), node.output(0)) else { return Cost::UNKNOWN };
        let dim = |n: Option<i64>| n.map_or(f64::NAN, |n| n as f64);
        let before = node.input(4).map_or(0.0, |past| dim(past.dim(2)));
        let keys = before + dim(k.dim(k.rank().saturating_sub(2)));
        // Columns of Q against those of Y: as many products for scores as for values.
        cost::products(node, keys * (q.elements() + y.elements()))
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut Bound) -> Result<(), Fault> {
        bound.bind(self, shapes)
    }

    fn scratch(&self, bound: &Bound, width: usize) -> usize {
        bound.scratch(self.isa, width).saturating_mul(size_of::<f32>())
    }

    fn flops(&self, bound: &Bound) -> u64 {
        bound.flops()
    }
}

/// The rank of queries, keys and values, which is one of two.
fn ranks(node: &NodeView<'_>) -> Result<usize, Reject> {
    let (q, k, v) = (node.needs(0)?, node.needs(1)?, node.needs(2)?);
    if q.dtype() as u32 != v.dtype() as u32 {
        return Err(Reject::dtype(format!(
            "input 2 (V) is {}, input 0 (Q) {}: one type is needed",
            v.dtype(),
            q.dtype()
        )));
    }
    match [q.rank(), k.rank(), v.rank()] {
        [3, 3, 3] => Ok(3),
        [4, 4, 4] => Ok(4),
        ranks => Err(Reject::rank(format!("Q, K and V have ranks {ranks:?}: all have 3 or all have 4"))),
    }
}

/// A positive number of heads.
pub(crate) fn heads(node: &NodeView<'_>, name: &str) -> Result<usize, Reject> {
    let count = node.int(name)?;
    let heads = usize::try_from(count).ok().filter(|&n| n > 0);
    heads.ok_or_else(|| Reject::attribute(format!("attribute {name} = {count} is not positive")))
}

fn window(node: &NodeView<'_>, name: &str) -> Result<Option<usize>, Reject> {
    match node.int_if(name).unwrap_or(-1) {
        -1 => Ok(None),
        n => match usize::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(Reject::attribute(format!("attribute {name} = {n} is neither -1 nor a number of keys"))),
        },
    }
}

fn mask(node: &NodeView<'_>) -> Result<Mask, Reject> {
    let Some(mask) = node.input(3) else { return Ok(Mask::None) };
    if !(1..=4).contains(&mask.rank()) {
        return Err(Reject::rank(format!("input 3 (attn_mask) has rank {}, 1 to 4 are possible", mask.rank())));
    }
    match mask.dtype() {
        DType::Bool => Ok(Mask::Seen),
        dtype if dtype as u32 == node.needs(0)?.dtype() as u32 => Ok(Mask::Added),
        dtype => Err(Reject::dtype(format!("input 3 (attn_mask) is {dtype}, neither bool nor the type of Q"))),
    }
}

/// Scores are kept as f32, which is as precise as any type but one.
fn precision(node: &NodeView<'_>) -> Result<(), Reject> {
    let dtype = node.int_if("softmax_precision").map(|n| u32::try_from(n).ok().and_then(DType::from_u32));
    match dtype {
        None | Some(Some(DType::F32 | DType::F16 | DType::Bf16)) => Ok(()),
        Some(dtype) => {
            let name = dtype.map_or("no type", |d| d.as_str());
            Err(Reject::attribute(format!(
                "attribute softmax_precision asks for {name}, the softmax is computed in f32"
            )))
        }
    }
}

fn shown(node: &NodeView<'_>) -> Result<Stage, Reject> {
    match node.int("qk_matmul_output_mode")? {
        0 => Ok(Stage::Raw),
        1 => Ok(Stage::Capped),
        2 => Ok(Stage::Biased),
        3 => Ok(Stage::Soft),
        n => Err(Reject::attribute(format!("attribute qk_matmul_output_mode = {n} is none of 0 to 3"))),
    }
}
