//! Masks of attention: numbers that are added, and paddings in several forms, which become such numbers.

use crate::ops::GRAIN;
use crate::ops::attention::Mask;
use crate::ops::attention::heads::Bound as Inner;
use ortolan_ep_kit::parallel::Parallel;
use ortolan_ep_kit::{Args, Fault, NodeView, Reject, Shapes, size, split};

/// What a padding says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Where each sequence of keys ends, and maybe where it starts.
    Ends,
    /// Whether each key is seen.
    Keys,
    /// Whether each query sees each key.
    Queries,
}

/// Inputs of both kinds, and what is added where nothing is to be seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Masking {
    padding: Option<(usize, Form)>,
    bias: Option<usize>,
    filter: f32,
}

/// The mask of one set of shapes.
#[derive(Debug, Default)]
pub(super) struct Bound {
    /// Sizes of the mask over batches, heads and queries, and of its bias; keys.
    dims: [usize; 3],
    bias: [usize; 3],
    keys: usize,
    /// Whether ends are followed by starts.
    starts: bool,
    batch: usize,
}

/// Steps of a dense mask along axes that it does not repeat along.
fn steps(dims: [usize; 3], keys: usize) -> [usize; 3] {
    let [batch, heads, queries] = dims;
    let step = |dim: usize, step: usize| if dim == 1 { 0 } else { step };
    [step(batch, heads * queries * keys), step(heads, queries * keys), step(queries, keys)]
}

impl Masking {
    pub fn parse(node: &NodeView<'_>, padding: usize, bias: Option<usize>) -> Result<Masking, Reject> {
        let form = match node.input(padding) {
            None => None,
            Some(mask) => Some(match mask.rank() {
                1 => Form::Ends,
                2 => Form::Keys,
                3 => Form::Queries,
                rank => {
                    return Err(Reject::rank(format!("input {padding} is a mask of rank {rank}, 1 to 3 are possible")));
                }
            }),
        };
        let bias = bias.filter(|&i| node.input(i).is_some());
        if let Some(rank) = bias.and_then(|i| node.input(i)).map(|b| b.rank()).filter(|&rank| rank != 4) {
            return Err(Reject::rank(format!("attention_bias has rank {rank}, 4 is needed")));
        }
        let filter = node.float_if("mask_filter_value").unwrap_or(-10_000.0);
        Ok(Masking { padding: form.map(|form| (padding, form)), bias, filter })
    }

    pub fn kind(&self) -> Mask {
        if self.padding.is_some() || self.bias.is_some() { Mask::Added } else { Mask::None }
    }

    /// Follows shapes; `inner` has its queries and keys already.
    pub fn bind(&self, shapes: &Shapes<'_>, inner: &mut Inner, bound: &mut Bound) -> Result<(), Fault> {
        let (over, keys) = ([inner.q.batch, inner.q.heads, inner.q.len], inner.total);
        *bound = Bound { dims: [1; 3], bias: [1; 3], keys, starts: false, batch: over[0] };
        if let Some(input) = self.bias {
            let dims = shapes.input(input);
            let misfit =
                || Fault::data(format!("attention_bias of {dims:?} is not spread over {over:?} and {keys} keys"));
            let &[batch, heads, queries, last] = dims else { return Err(misfit()) };
            let have = [batch, heads, queries].map(size);
            if size(last) != keys || (0..3).any(|k| have[k] != 1 && have[k] != over[k]) {
                return Err(misfit());
            }
            (bound.bias, bound.dims) = (have, have);
        }
        if let Some((input, form)) = self.padding {
            let dims = shapes.input(input);
            let fits = match (form, dims) {
                (Form::Ends, &[n]) => {
                    // Three numbers for each and two more: ends come first, the rest is for other devices.
                    bound.starts = size(n) == 2 * over[0];
                    bound.starts || [over[0], 3 * over[0] + 2].contains(&size(n))
                }
                (Form::Keys, &[batch, n]) => [size(batch), size(n)] == [over[0], keys],
                (Form::Queries, &[batch, queries, n]) => [batch, queries, n].map(size) == [over[0], over[2], keys],
                _ => false,
            };
            if !fits {
                return Err(Fault::data(format!("a mask of {dims:?} is not one of {over:?} and {keys} keys")));
            }
            bound.dims[0] = over[0];
            if form == Form::Queries {
                bound.dims[2] = over[2];
            }
        }
        (inner.mask, inner.masked) = (steps(bound.dims, keys), keys);
        Ok(())
    }

    /// Values of scratch for a mask that has to be made.
    pub fn room(&self, bound: &Bound) -> usize {
        let made = self.padding.map_or(0, |_| bound.dims.iter().product::<usize>());
        super::even(made.saturating_mul(bound.keys))
    }

    /// What is added to scores, made in `to` if it has to be.
    pub fn fill<'a>(&self, bound: &Bound, args: &Args<'a>, to: &'a mut [f32]) -> Result<&'a [f32], Fault> {
        let bias = self.bias.map(|i| args.input::<f32>(i));
        let Some((input, form)) = self.padding else { return Ok(bias.unwrap_or(&[])) };
        let padding = Padding { bound, form, mask: args.input(input) };
        let to = &mut to[..bound.dims.iter().product::<usize>() * bound.keys];
        self.rows(&padding, bias, to, args.par())?;
        Ok(to)
    }

    fn rows(
        &self,
        padding: &Padding<'_>,
        bias: Option<&[f32]>,
        to: &mut [f32],
        par: &dyn Parallel,
    ) -> Result<(), Fault> {
        let (bound, keys) = (padding.bound, padding.bound.keys);
        let [_, heads, queries] = bound.dims;
        let bias_steps = steps(bound.bias, keys);
        Ok(split::rows(par, to, keys, GRAIN.div_ceil(keys.max(1)), |_, first, rows| {
            for (k, row) in rows.chunks_exact_mut(keys.max(1)).enumerate() {
                let at = first + k;
                let place = [at / (heads * queries), at / queries % heads, at % queries];
                match bias {
                    None => row.fill(0.0),
                    Some(bias) => {
                        let from: usize = place.iter().zip(&bias_steps).map(|(at, step)| at * step).sum();
                        row.copy_from_slice(&bias[from..from + keys]);
                    }
                }
                for (key, x) in row.iter_mut().enumerate() {
                    if !padding.sees(place[0], place[2], key) {
                        *x += self.filter;
                    }
                }
            }
        })?)
    }
}

struct Padding<'a> {
    bound: &'a Bound,
    form: Form,
    mask: &'a [i32],
}

impl Padding<'_> {
    fn sees(&self, batch: usize, query: usize, key: usize) -> bool {
        let keys = self.bound.keys;
        match self.form {
            Form::Ends => {
                let start = if self.bound.starts { self.mask[self.bound.batch + batch] } else { 0 };
                usize::try_from(self.mask[batch]).is_ok_and(|end| key < end)
                    && usize::try_from(start).map_or(true, |start| key >= start)
            }
            Form::Keys => self.mask[batch * keys + key] > 0,
            Form::Queries => self.mask[(batch * self.bound.dims[2] + query) * keys + key] > 0,
        }
    }
}
