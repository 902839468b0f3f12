//! Sizes of sliding windows, shared by convolution and pooling.

use super::InferCx;
use crate::error::Result;
use crate::ir::{Dims, ExprId};

/// Windows over the spatial axes, from a node's attributes.
pub(super) struct Windows {
    kernel: Dims,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// Begins, then ends.
    pads: Vec<i64>,
    auto: Auto,
    ceil: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Auto {
    Explicit,
    Same,
    Valid,
}

impl Windows {
    /// Reads `strides`, `dilations`, `pads`, `auto_pad` and `ceil_mode`; `kernel` has the window's dims.
    pub(super) fn read(cx: &InferCx<'_>, kernel: Dims) -> Result<Windows> {
        let n = kernel.len();
        let list = |name: &str, len: usize, least: i64, default: i64| {
            let Some(found) = cx.attr_ints(name).filter(|l| !l.is_empty()) else { return Ok(vec![default; len]) };
            if found.len() != len {
                return Err(cx.fail(format!("{name} has {} entries, {len} are needed", found.len())));
            }
            match found.iter().find(|&&v| v < least) {
                Some(v) => Err(cx.fail(format!("{name} holds {v}, the least is {least}"))),
                None => Ok(found.to_vec()),
            }
        };
        let auto = match cx.attr_str("auto_pad").unwrap_or("NOTSET") {
            "NOTSET" | "" => Auto::Explicit,
            "SAME_UPPER" | "SAME_LOWER" => Auto::Same,
            "VALID" => Auto::Valid,
            other => return Err(cx.fail(format!("auto_pad is '{other}'"))),
        };
        Ok(Windows {
            strides: list("strides", n, 1, 1)?,
            dilations: list("dilations", n, 1, 1)?,
            pads: list("pads", 2 * n, 0, 0)?,
            ceil: cx.attr_int("ceil_mode").unwrap_or(0) != 0,
            kernel,
            auto,
        })
    }

    /// How many windows fit along spatial axis `i` of size `input`.
    pub(super) fn count(&self, cx: &mut InferCx<'_>, i: usize, input: ExprId) -> Result<ExprId> {
        let stride = cx.int(self.strides[i]);
        if self.auto == Auto::Same {
            return Ok(cx.exprs.ceil_div(input, stride));
        }
        let one = cx.int(1);
        let dilation = cx.int(self.dilations[i]);
        let reach = cx.exprs.sub(self.kernel[i], one);
        let reach = cx.exprs.mul(reach, dilation);
        let pads = if self.auto == Auto::Explicit { (self.pads[i], self.pads[i + self.kernel.len()]) } else { (0, 0) };
        let (begin, both) = (cx.int(pads.0), cx.int(pads.0.saturating_add(pads.1)));
        let padded = cx.exprs.add(input, both);
        let room = cx.exprs.sub(padded, reach);
        let room = cx.exprs.sub(room, one);
        if cx.exprs.bounds(room).1 < 0 {
            let (size, needed) = (cx.show(padded), cx.show(reach));
            return Err(cx.fail(format!(
                "spatial axis {i}: a window reaching {needed} does not fit into {size} padded elements"
            )));
        }
        if !self.ceil {
            let q = cx.exprs.div(room, stride);
            return Ok(cx.exprs.add(q, one));
        }
        // A last window that would start in the padding at the end does not count.
        let last = cx.exprs.ceil_div(room, stride);
        let start = cx.exprs.mul(last, stride);
        let own = cx.exprs.add(input, begin);
        let inside = cx.exprs.lt(start, own);
        let more = cx.exprs.add(last, one);
        Ok(cx.exprs.select(inside, more, last))
    }

    /// How far `input` elements spread along spatial axis `i` in a transposed convolution.
    pub(super) fn spread(&self, cx: &mut InferCx<'_>, i: usize, input: ExprId, more: i64) -> ExprId {
        let stride = cx.int(self.strides[i]);
        if self.auto == Auto::Same {
            return cx.exprs.mul(input, stride);
        }
        let one = cx.int(1);
        let dilation = cx.int(self.dilations[i]);
        let steps = cx.exprs.sub(input, one);
        let steps = cx.exprs.mul(steps, stride);
        let reach = cx.exprs.sub(self.kernel[i], one);
        let reach = cx.exprs.mul(reach, dilation);
        let more = cx.int(more.saturating_add(1));
        let reach = cx.exprs.add(reach, more);
        let whole = cx.exprs.add(steps, reach);
        let pads =
            if self.auto == Auto::Explicit { self.pads[i].saturating_add(self.pads[i + self.kernel.len()]) } else { 0 };
        let pads = cx.int(pads);
        cx.exprs.sub(whole, pads)
    }
}
