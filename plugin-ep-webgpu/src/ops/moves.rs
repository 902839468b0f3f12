//! One kernel moves elements from one walk over axes to another: transposing, cutting, joining, repeating are all that.

use crate::recipe::{Buf, Build, Recipe, signed, word};
use crate::shader::Elem;
use ortolan_ep_kit::{Fault, size};

/// An axis that both sides walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    pub len: usize,
    /// Step in the input; 0 repeats.
    pub from: i64,
    /// Step in the output.
    pub to: i64,
}

/// Elements `from.1 + Σ i·from` of one buffer go to `to.1 + Σ i·to` of another.
pub fn push(recipe: &mut Recipe, elem: Elem, from: (Buf, i64), to: (Buf, i64), axes: &[Axis]) -> Result<(), Fault> {
    let axes = merged(axes);
    let count: usize = axes.iter().map(|a| a.len).product();
    let mut params = vec![word(count)?, word(axes.len())?, signed(from.1)?, signed(to.1)?];
    for axis in &axes {
        params.extend([word(axis.len)?, signed(axis.from)?, signed(axis.to)?]);
    }
    let moved = elem.moved();
    let build = Build {
        name: "move",
        template: include_str!("../shaders/move.wgsl"),
        buffers: vec![(from.0, moved), (to.0, moved)],
        places: Vec::new(),
        params,
    };
    recipe.each(build, count as u64)
}

/// Neighbours along which both sides go on as before are one.
fn merged(axes: &[Axis]) -> Vec<Axis> {
    let mut out: Vec<Axis> = Vec::new();
    for &axis in axes.iter().filter(|a| a.len != 1) {
        let len = axis.len as i64;
        match out.last_mut() {
            Some(last) if last.from == axis.from * len && last.to == axis.to * len => {
                *last = Axis { len: last.len * axis.len, ..axis };
            }
            _ => out.push(axis),
        }
    }
    out
}

/// Steps along each dimension of a dense tensor.
pub fn steps(dims: &[i64]) -> Vec<i64> {
    let mut steps = vec![1; dims.len()];
    for k in (1..dims.len()).rev() {
        steps[k - 1] = steps[k] * dims[k];
    }
    steps
}

/// Axes of a dense output, with the input's step along each.
pub fn onto(output: &[i64], from: &[i64]) -> Vec<Axis> {
    let to = steps(output);
    (0..output.len()).map(|k| Axis { len: size(output[k]), from: from[k], to: to[k] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_that_go_on_are_one() {
        let axis = |len, from, to| Axis { len, from, to };
        assert_eq!(merged(&[axis(2, 12, 12), axis(3, 4, 4), axis(1, 9, 9), axis(4, 1, 1)]), [axis(24, 1, 1)]);
        assert_eq!(merged(&[axis(3, 1, 4), axis(4, 3, 1)]), [axis(3, 1, 4), axis(4, 3, 1)]);
        assert_eq!(merged(&[axis(2, 0, 3), axis(3, 0, 1)]), [axis(6, 0, 1)]);
        assert_eq!(steps(&[2, 3, 4]), [12, 4, 1]);
    }
}
