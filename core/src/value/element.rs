//! Rust types that are elements of tensors.

use ortolan_graph::ir::DType;

/// A type that tensors can be read as and made from.
///
/// # Safety
/// Its size is that of `DTYPE`, it has no padding, and every bit pattern that [`valid`](Self::valid) accepts is one of it.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// ONNX's type.
    const DTYPE: DType;

    /// Whether the bytes are elements; only `bool` has bytes that are none.
    fn valid(_bytes: &[u8]) -> bool {
        true
    }
}

macro_rules! elements {
    ($($t:ty = $d:ident),* $(,)?) => { $(
        // SAFETY: a plain number of the type's size.
        unsafe impl Element for $t { const DTYPE: DType = DType::$d; }
    )* };
}

elements! {
    f32 = F32, f64 = F64, half::f16 = F16, half::bf16 = Bf16,
    i8 = I8, i16 = I16, i32 = I32, i64 = I64, u8 = U8, u16 = U16, u32 = U32, u64 = U64,
}

// SAFETY: one byte; only 0 and 1 pass.
unsafe impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn valid(bytes: &[u8]) -> bool {
        bytes.iter().all(|&b| b <= 1)
    }
}

/// Alignment of an element in memory.
pub(crate) fn align_of_dtype(dtype: DType) -> usize {
    match dtype {
        DType::String | DType::C128 => 8,
        DType::C64 => 4,
        other => (other.bits() as usize).div_ceil(8).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_agree() {
        fn check<T: Element>() {
            assert_eq!(size_of::<T>() * 8, T::DTYPE.bits() as usize, "{}", T::DTYPE);
            assert_eq!(align_of::<T>(), align_of_dtype(T::DTYPE), "{}", T::DTYPE);
        }
        check::<f32>();
        check::<f64>();
        check::<half::f16>();
        check::<half::bf16>();
        check::<i8>();
        check::<i16>();
        check::<i32>();
        check::<i64>();
        check::<u8>();
        check::<u16>();
        check::<u32>();
        check::<u64>();
        check::<bool>();
    }
}
