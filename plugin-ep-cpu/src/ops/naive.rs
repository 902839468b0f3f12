//! Tests' own way from places of an output to places of an input, index by index.

use ortolan_ep_kit::DType;
use ortolan_ep_kit::testing::Tensor;

/// Dimensions, axes, or other short lists of a case.
pub(crate) type Dims = &'static [i64];

/// A tensor of any type whose elements differ.
pub(crate) fn ramp(dtype: DType, dims: &[i64], seed: usize) -> Tensor {
    let bytes = dtype.bytes(count(dims)).unwrap();
    Tensor { dtype, dims: dims.to_vec(), bytes: (0..bytes).map(|k| (k * 7 + k / 256 * 13 + seed) as u8).collect() }
}

/// Number of elements.
pub(crate) fn count(dims: &[i64]) -> usize {
    dims.iter().product::<i64>() as usize
}

/// Index of element `k` along each axis.
pub(crate) fn index(dims: &[i64], mut k: usize) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (i, &dim) in index.iter_mut().zip(dims).rev() {
        *i = k % dim as usize;
        k /= dim as usize;
    }
    index
}

/// Position of an element.
pub(crate) fn position(dims: &[i64], index: &[usize]) -> usize {
    assert!(index.iter().zip(dims).all(|(&i, &d)| i < d as usize), "{index:?} in {dims:?}");
    index.iter().zip(dims).fold(0, |at, (&i, &d)| at * d as usize + i)
}

/// Bytes of element `at`.
pub(crate) fn element(x: &Tensor, at: usize) -> &[u8] {
    let size = x.dtype.bits() / 8;
    &x.bytes[at * size..(at + 1) * size]
}

/// The tensor whose element at an index is the input's at `from(index)`.
pub(crate) fn pick(x: &Tensor, dims: &[i64], from: impl Fn(&[usize]) -> Vec<usize>) -> Tensor {
    let places = (0..count(dims)).map(|k| position(&x.dims, &from(&index(dims, k))));
    let bytes = places.flat_map(|at| element(x, at)).copied().collect();
    Tensor { dtype: x.dtype, dims: dims.to_vec(), bytes }
}
