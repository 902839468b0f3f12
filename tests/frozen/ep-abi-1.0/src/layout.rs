//! How a struct that crosses the ABI is declared, so that its layout can be proven.
//!
//! Every such struct is declared once, through `c_struct!` or `callback!`: the declaration yields the Rust type,
//! the abi_stable layout, and a [`StructLayout`] from which the fingerprint, the lock text and the C header are made.
//! Nothing here knows what the tables are for.

/// One field of a struct that crosses the ABI.
#[derive(Debug, Clone, Copy)]
pub struct FieldLayout {
    /// Field name.
    pub name: &'static str,
    /// The Rust type as written; a function pointer's signature is part of it.
    pub ty: &'static str,
    /// Byte offset on this target.
    pub offset: usize,
    /// Size in bytes on this target.
    pub size: usize,
    /// Documentation lines, as in the source.
    pub doc: &'static [&'static str],
}

/// The layout of a struct that crosses the ABI.
#[derive(Debug, Clone, Copy)]
pub struct StructLayout {
    /// Rust name; the C name is `OrtolanEp` + this.
    pub name: &'static str,
    /// Size in bytes on this target.
    pub size: usize,
    /// Alignment in bytes on this target.
    pub align: usize,
    /// Fields in order. A transparent callback wrapper has the one field `f`.
    pub fields: &'static [FieldLayout],
    /// Documentation lines, as in the source.
    pub doc: &'static [&'static str],
}

/// FNV-1a 64, offset basis: the start of every hash in the ABI.
pub const FNV: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a 64 over `bytes`, continued from `hash`.
pub const fn fnv(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x100_0000_01b3);
        i += 1;
    }
    hash
}

const fn fnv_number(hash: u64, number: usize) -> u64 {
    fnv(hash, &(number as u64).to_le_bytes())
}

/// Hashes a type as written, without white space, whose placement by `stringify!` is not promised.
const fn fnv_type(mut hash: u64, ty: &str) -> u64 {
    let bytes = ty.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        if !bytes[i].is_ascii_whitespace() {
            hash = fnv(hash, &[bytes[i]]);
        }
        i += 1;
    }
    hash
}

/// The fingerprint of a list of structs: names, sizes, alignments, and each field's name, type (signatures included),
/// offset and size.
pub const fn fingerprint(all: &[StructLayout]) -> u64 {
    let (mut hash, mut i) = (FNV, 0);
    while i < all.len() {
        let s = &all[i];
        hash = fnv(hash, s.name.as_bytes());
        hash = fnv_number(hash, s.size);
        hash = fnv_number(hash, s.align);
        let mut k = 0;
        while k < s.fields.len() {
            let f = &s.fields[k];
            hash = fnv(hash, f.name.as_bytes());
            hash = fnv_type(hash, f.ty);
            hash = fnv_number(hash, f.offset);
            hash = fnv_number(hash, f.size);
            k += 1;
        }
        i += 1;
    }
    hash
}

/// The lock text: one line a struct and field. It is committed, so that a layout change shows in review.
pub fn lock_text(all: &[StructLayout]) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    for s in all {
        let _ = writeln!(text, "struct {} size {} align {}", s.name, s.size, s.align);
        for f in s.fields {
            let ty = f.ty.split_whitespace().collect::<Vec<_>>().join(" ");
            let _ = writeln!(text, "  {:>4} {:>3} {}: {ty}", f.offset, f.size, f.name);
        }
    }
    let _ = writeln!(text, "fingerprint {:#018x}", fingerprint(all));
    text
}

/// Declares a struct that crosses the ABI and records its layout.
macro_rules! c_struct {
    ($(#[doc = $sd:literal])* pub struct $n:ident { $($(#[doc = $d:literal])* $f:ident : $t:ty),* $(,)? }) => {
        $(#[doc = $sd])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        #[cfg_attr(feature = "sabi", derive(abi_stable::StableAbi))]
        pub struct $n { $($(#[doc = $d])* pub $f: $t),* }
        impl $n {
            /// What the fingerprint, the lock text and the C header are made from.
            pub const LAYOUT: $crate::layout::StructLayout = $crate::layout::StructLayout {
                name: stringify!($n),
                size: size_of::<$n>(),
                align: align_of::<$n>(),
                fields: &[$($crate::layout::FieldLayout {
                    name: stringify!($f),
                    ty: stringify!($t),
                    offset: core::mem::offset_of!($n, $f),
                    size: size_of::<$t>(),
                    doc: &[$($d),*],
                }),*],
                doc: &[$($sd),*],
            };
        }
    };
}

/// Declares a function pointer that is a parameter of another one: a transparent wrapper, because the abi_stable
/// derive refuses nested function pointers.
macro_rules! callback {
    ($(#[doc = $sd:literal])* pub struct $n:ident($t:ty)) => {
        $(#[doc = $sd])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy)]
        #[cfg_attr(feature = "sabi", derive(abi_stable::StableAbi))]
        pub struct $n {
            /// The function.
            pub f: $t,
        }
        impl $n {
            /// What the fingerprint, the lock text and the C header are made from.
            pub const LAYOUT: $crate::layout::StructLayout = $crate::layout::StructLayout {
                name: stringify!($n),
                size: size_of::<$n>(),
                align: align_of::<$n>(),
                fields: &[$crate::layout::FieldLayout {
                    name: "f", ty: stringify!($t), offset: 0, size: size_of::<$t>(), doc: &[],
                }],
                doc: &[$($sd),*],
            };
        }
    };
}

/// Declares handles that only one side looks into.
macro_rules! opaque {
    ($($(#[doc = $d:literal])* $n:ident;)*) => { $(
        $(#[doc = $d])*
        #[repr(C)]
        #[derive(Debug)]
        #[cfg_attr(feature = "sabi", derive(abi_stable::StableAbi))]
        pub struct $n {
            _private: [u8; 0],
            _not_send: core::marker::PhantomData<*mut u8>,
        }
    )* };
}
