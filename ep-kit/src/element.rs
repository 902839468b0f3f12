//! Rust types of tensor elements, and sets of ONNX types for kernel rows.

pub use ortolan_ep_abi::view::Element;

use ortolan_ep_abi::codes::DType;

/// An ONNX bool: one byte, 0 is false and anything else true.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub struct Bool(pub u8);

// SAFETY: a transparent byte; every bit pattern is valid.
unsafe impl Element for Bool {
    const DTYPE: DType = DType::Bool;
}

impl Bool {
    /// As a Rust bool.
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Bool(u8::from(value))
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool {}

/// The union of some types, for the `types` of a kernel row.
pub const fn set(types: &[DType]) -> u64 {
    let (mut mask, mut i) = (0, 0);
    while i < types.len() {
        mask |= types[i].mask();
        i += 1;
    }
    mask
}

/// Every type whose elements are whole bytes in host memory and no strings: what a kernel that only moves elements takes.
pub const BYTES: u64 = {
    let (mut mask, mut i) = (0, 0);
    while i < DType::ALL.len() {
        let d = DType::ALL[i];
        if d.bits() >= 8 && d as u32 != DType::Str as u32 {
            mask |= d.mask();
        }
        i += 1;
    }
    mask
};

/// Every type but strings: what a kernel takes that does not look at elements.
pub const PLAIN: u64 = {
    let (mut mask, mut i) = (0, 0);
    while i < DType::ALL.len() {
        let d = DType::ALL[i];
        if d as u32 != DType::Str as u32 {
            mask |= d.mask();
        }
        i += 1;
    }
    mask
};

/// f32, f64 and all integers of 8 bits and more.
pub const NUMBERS: u64 = set(&[
    DType::F32,
    DType::F64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
]);

/// The names of a set, for messages.
pub(crate) fn names(set: u64) -> String {
    let names: Vec<_> = DType::ALL.iter().filter(|d| set & d.mask() != 0).map(|d| d.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        assert_eq!(names(set(&[DType::I64, DType::F32])), "f32, i64");
        assert_eq!(BYTES & DType::U4.mask(), 0);
        assert_ne!(PLAIN & DType::U4.mask(), 0);
        assert_eq!(PLAIN & DType::Str.mask(), 0);
        assert_eq!(NUMBERS & DType::Bool.mask(), 0);
    }
}
