//! `Dropout`. Outside of training it gives its input back; in training with a seed it drops what the standard's own code
//! drops.

use super::generator::{Source, Twister, WORDS};
use crate::ops::cost;
use crate::ops::float::{Float, Floats, FloatsMut, agree};
use ortolan_ep_kit::{Args, Bool, Cost, Fault, NodeView, Op, Reject, Shapes};

/// The operator.
pub(super) struct Dropout {
    /// Seed of the standard's generator.
    seed: Option<u32>,
    source: Source,
    x: Float,
    ratio: Float,
    width: usize,
}

impl Op for Dropout {
    type Bound = usize;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let x = Float::input(node, 0)?;
        let width = node.needs(0)?.dtype().bits() / 8;
        let seed = match node.int_if("seed") {
            None => None,
            Some(seed) => Some(u32::try_from(seed).map_err(|_| {
                Reject::attribute(format!("attribute seed = {seed} is not between 0 and {}", u32::MAX))
            })?),
        };
        Ok(Dropout { seed, source: Source::new(None), x, ratio: Float::input(node, 1)?, width })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        cost::moving(node)
    }

    fn bind(&self, shapes: &Shapes<'_>, bound: &mut usize) -> Result<(), Fault> {
        *bound = shapes.input_len(0);
        for j in 0..2 {
            if !shapes.output(j).is_empty() {
                agree("an output", shapes.output_len(j), *bound)?;
            }
        }
        for (i, name) in [(1, "ratio"), (2, "training_mode")] {
            if shapes.has(i) {
                agree(name, shapes.input_len(i), 1)?;
            }
        }
        Ok(())
    }

    /// The generator's state.
    fn scratch(&self, _: &usize, _: usize) -> usize {
        WORDS * size_of::<u32>()
    }
}

pub(super) fn dropout(op: &Dropout, len: &usize, args: &mut Args<'_>) -> Result<(), Fault> {
    let ratio = Floats::input_if(args, 1, op.ratio).map_or(0.5, |ratio| ratio.get(0));
    let training = args.input_if::<Bool>(2).is_some_and(|mode| mode[0].get());
    if training && !(0.0..1.0).contains(&ratio) {
        return Err(Fault::data(format!("ratio is {ratio}, needed is a number from 0 to below 1")));
    }
    let alias = args.alias(0).is_some();
    let mut mask = args.wants(1).then(|| args.output::<Bool>(1));
    if !training || ratio == 0.0 {
        if let Some(mask) = mask {
            mask.fill(true.into());
        }
        if args.wants(0) && !alias {
            debug_assert_eq!(args.input::<u8>(0).len(), len * op.width);
            let from = args.input::<u8>(0);
            args.output::<u8>(0).copy_from_slice(from);
        }
        return Ok(());
    }
    let words = args.scratch::<u32>().first_chunk_mut::<WORDS>();
    let words = words.ok_or_else(|| Fault::data("there is no memory for the generator"))?;
    let stream = op.source.stream();
    let mut twister = op.seed.map(|seed| Twister::new(seed, words));
    let x = if alias { None } else { Some(Floats::input(args, 0, op.x)) };
    let mut y = args.wants(0).then(|| FloatsMut::output(args, 0, op.x));
    let scale = 1.0 / (1.0 - ratio);
    for k in 0..*len {
        let keep = twister.as_mut().map_or_else(|| stream.uniform(k as u64), Twister::uniform) >= ratio;
        if let Some(mask) = &mut mask {
            mask[k] = keep.into();
        }
        if let Some(y) = &mut y {
            let value = x.map_or_else(|| y.get(k), |x| x.get(k));
            y.put(k, if keep { value * scale } else { 0.0 });
        }
    }
    Ok(())
}
