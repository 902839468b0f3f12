//! Rows of numbers as the classical models read them.

use crate::simd::{self, Isa};
use ortolan_ep_kit::{Element, Fault, size};

/// An element of an input.
pub(super) trait Input: Element + Send + Sync + PartialEq {
    /// As f64: integers round to the nearest.
    fn wide(self) -> f64;

    /// Sum of the products with weights; the shorter of both ends it.
    fn dot(isa: Isa, x: &[Self], weights: &[f32]) -> f64 {
        let _ = isa;
        x.iter().zip(weights).map(|(&x, &w)| x.wide() * f64::from(w)).sum()
    }
}

macro_rules! inputs {
    ($($t:ty)*) => { $(
        impl Input for $t {
            #[inline(always)]
            fn wide(self) -> f64 { self as f64 }
        }
    )* };
}
inputs!(f64 i64 i32);

impl Input for f32 {
    #[inline(always)]
    fn wide(self) -> f64 {
        self.into()
    }

    fn dot(isa: Isa, x: &[f32], weights: &[f32]) -> f64 {
        simd::dot(isa, x, weights).into()
    }
}

/// Rows and columns of X; a vector is one row.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Matrix {
    pub rows: usize,
    pub columns: usize,
}

impl Matrix {
    pub fn of(dims: &[i64]) -> Result<Matrix, Fault> {
        match *dims {
            [columns] => Ok(Matrix { rows: 1, columns: size(columns) }),
            [rows, columns] => Ok(Matrix { rows: size(rows), columns: size(columns) }),
            ref other => Err(Fault::data(format!("X has dimensions {other:?}, rows and columns are needed"))),
        }
    }
}
