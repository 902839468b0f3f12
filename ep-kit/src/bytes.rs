//! Plain bytes as elements: the casts that the rest of the kit needs, in one file with `unsafe`.

use crate::element::Element;
use ortolan_ep_abi::codes::DType;
use std::borrow::Cow;

/// Bytes as elements, copied if they are not aligned. A tail that is no whole element is left out.
pub(crate) fn elements<T: Element>(bytes: &[u8]) -> Cow<'_, [T]> {
    let whole = &bytes[..bytes.len() / size_of::<T>() * size_of::<T>()];
    // SAFETY: every bit pattern is a T; only an aligned middle that is everything is used.
    let (head, middle, _) = unsafe { whole.align_to::<T>() };
    if head.is_empty() && size_of_val(middle) == whole.len() {
        return Cow::Borrowed(middle);
    }
    let read = |chunk: &[u8]| {
        // SAFETY: the chunk has the size of T, every bit pattern is a T, and the read asks for no alignment.
        unsafe { chunk.as_ptr().cast::<T>().read_unaligned() }
    };
    Cow::Owned(whole.chunks_exact(size_of::<T>()).map(read).collect())
}

/// Elements as bytes.
pub fn of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: elements are plain numbers without padding.
    unsafe { core::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The same to be written.
pub fn of_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    let len = size_of_val(elements);
    // SAFETY: elements are plain numbers without padding, and every bit pattern is one.
    unsafe { core::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), len) }
}

/// Bytes that a kernel packs into, as elements.
///
/// # Panics
/// When they are not aligned for T or hold no whole number of them.
pub fn elements_mut<T: Element>(bytes: &mut [u8]) -> &mut [T] {
    // SAFETY: every bit pattern is a T, and elements are plain numbers without padding.
    let (head, middle, tail) = unsafe { bytes.align_to_mut::<T>() };
    assert!(head.is_empty() && tail.is_empty(), "the bytes are no whole, aligned elements");
    middle
}

/// Writes integers as elements of a type. The answer is whether the type can hold such numbers.
pub(crate) fn write_numbers(dtype: DType, numbers: &[i64], to: &mut [u8]) -> bool {
    macro_rules! write {
        ($($d:ident: $t:ty),*) => {
            match dtype {
                $(DType::$d => {
                    for (chunk, &n) in to.chunks_exact_mut(size_of::<$t>()).zip(numbers) {
                        chunk.copy_from_slice(&(n as $t).to_le_bytes()); // wraps as ONNX casts do
                    }
                    true
                })*
                DType::Bool => {
                    to.iter_mut().zip(numbers).for_each(|(b, &n)| *b = u8::from(n != 0));
                    true
                }
                _ => false,
            }
        };
    }
    write!(I64: i64, I32: i32, I16: i16, I8: i8, U64: u64, U32: u32, U16: u16, U8: u8, F32: f32, F64: f64)
}

/// Whether [`write_numbers`] can write the type.
pub(crate) fn holds_numbers(dtype: DType) -> bool {
    write_numbers(dtype, &[], &mut [])
}

/// Reads element `at` of an integer tensor.
pub(crate) fn read_number(dtype: DType, bytes: &[u8], at: usize) -> Option<i64> {
    macro_rules! read {
        ($($d:ident: $t:ty),*) => {
            match dtype {
                $(DType::$d => {
                    let size = size_of::<$t>();
                    let chunk = bytes.get(at.checked_mul(size)?..)?.first_chunk()?;
                    i64::try_from(<$t>::from_le_bytes(*chunk)).ok()
                })*
                _ => None,
            }
        };
    }
    if dtype as u32 == DType::Bool as u32 {
        return bytes.get(at).map(|&b| i64::from(b != 0));
    }
    read!(I64: i64, I32: i32, I16: i16, I8: i8, U64: u64, U32: u32, U16: u16, U8: u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_back_and_forth() {
        for dtype in [DType::I64, DType::I32, DType::I16, DType::I8, DType::U8, DType::U64, DType::Bool] {
            let mut bytes = vec![0; dtype.bytes(3).unwrap()];
            assert!(write_numbers(dtype, &[1, 0, 1], &mut bytes));
            let read: Vec<_> = (0..4).map(|k| read_number(dtype, &bytes, k)).collect();
            assert_eq!(read, [Some(1), Some(0), Some(1), None], "{dtype}");
        }
        assert!(!holds_numbers(DType::Str) && holds_numbers(DType::F32));
    }

    #[test]
    fn unaligned_bytes_are_copied() {
        let words = [0u32, 0x0403_0201, 0x0807_0605];
        let bytes = of(&words);
        assert!(matches!(elements::<u32>(bytes), Cow::Borrowed(x) if x == words));
        assert_eq!(elements::<u32>(&bytes[1..11]).as_ref(), [0x0100_0000, 0x0504_0302]);
    }
}
