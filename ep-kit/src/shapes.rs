//! Finished dimensions of one node's inputs and outputs, as its kernel sees them when shapes change.

use crate::plan::ArgPlan;
use core::ops::Range;

/// Dimensions of a node's inputs and outputs under one binding. The host inferred them; they are never negative, and
/// the number of elements of each value fits a `usize`.
#[derive(Clone, Copy)]
pub struct Shapes<'a> {
    pub(crate) args: &'a [ArgPlan],
    pub(crate) inputs: usize,
    pub(crate) table: ShapeNumbers<'a>,
}

/// Numbers of all distinct shapes of a part.
#[derive(Clone, Copy)]
pub(crate) struct ShapeNumbers<'a> {
    /// Where each shape stands in `dims`.
    pub at: &'a [Range<u32>],
    /// Dimensions of all shapes.
    pub dims: &'a [i64],
    /// Number of elements per shape.
    pub counts: &'a [usize],
    /// Elements of small integer values.
    pub elements: &'a [i64],
}

impl<'a> ShapeNumbers<'a> {
    pub fn dims(&self, shape: u32) -> &'a [i64] {
        let at = &self.at[shape as usize];
        &self.dims[at.start as usize..at.end as usize]
    }
}

impl<'a> Shapes<'a> {
    fn arg(&self, index: usize) -> Option<&'a ArgPlan> {
        self.args.get(index).filter(|a| a.is_present())
    }

    fn in_arg(&self, index: usize) -> Option<&'a ArgPlan> {
        if index < self.inputs { self.arg(index) } else { None }
    }

    /// Whether an input is there.
    pub fn has(&self, input: usize) -> bool {
        self.in_arg(input).is_some()
    }

    /// Dimensions of an input; empty when it is absent.
    pub fn input(&self, index: usize) -> &'a [i64] {
        self.in_arg(index).map_or(&[], |a| self.table.dims(a.shape))
    }

    /// Dimensions of an output; empty when it is absent, and for outputs whose dimensions `run` decides.
    pub fn output(&self, index: usize) -> &'a [i64] {
        match self.arg(self.inputs + index) {
            Some(a) if !a.is_late() => self.table.dims(a.shape),
            _ => &[],
        }
    }

    /// Number of elements of an input; 0 when it is absent.
    pub fn input_len(&self, index: usize) -> usize {
        self.in_arg(index).map_or(0, |a| self.table.counts[a.shape as usize])
    }

    /// Number of elements of an output; 0 when it is absent or late.
    pub fn output_len(&self, index: usize) -> usize {
        match self.arg(self.inputs + index) {
            Some(a) if !a.is_late() => self.table.counts[a.shape as usize],
            _ => 0,
        }
    }

    /// Whether the first `inputs` inputs surely have the dimensions of output 0; `false` says nothing. Compares numbers
    /// of shapes, not dimensions, so that binding an element-wise node costs nothing in the usual case.
    pub fn alike(&self, inputs: usize) -> bool {
        match self.arg(self.inputs) {
            Some(y) if !y.is_late() => (0..inputs).all(|k| self.in_arg(k).is_some_and(|a| a.shape == y.shape)),
            _ => false,
        }
    }

    /// Elements of an integer input that are known from shapes or constants; else `run` has to read the input.
    pub fn elements(&self, input: usize) -> Option<&'a [i64]> {
        let range = self.in_arg(input)?.elements.clone()?;
        Some(&self.table.elements[range.start as usize..range.end as usize])
    }
}

/// A dimension as a `usize`. Dimensions in [`Shapes`] are never negative.
#[inline]
pub fn size(dim: i64) -> usize {
    usize::try_from(dim).unwrap_or(0)
}

/// Product of dimensions that the kit has checked.
#[inline]
pub fn count(dims: &[i64]) -> usize {
    dims.iter().map(|&d| size(d)).product()
}
