//! The types that a schema speaks of, as bits: every tensor type of ONNX, alone, in a sequence, in
//! an optional, and the maps of `ai.onnx.ml`. It knows nothing of shapes, values or operators.

use std::fmt;

use crate::ir;

/// Short names of the element types; the index is the number of ONNX's `TensorProto.DataType`.
const ELEMENTS: [&str; 29] = [
    "undefined",
    "f32",
    "u8",
    "i8",
    "u16",
    "i16",
    "i32",
    "i64",
    "str",
    "bool",
    "f16",
    "f64",
    "u32",
    "u64",
    "c64",
    "c128",
    "bf16",
    "f8e4m3fn",
    "f8e4m3fnuz",
    "f8e5m2",
    "f8e5m2fnuz",
    "u4",
    "i4",
    "f4e2m1",
    "f8e8m0",
    "u2",
    "i2",
    "f6e2m3",
    "f6e3m2",
];

/// The types that are not made of one tensor type; the index is the bit in the last word.
/// Keys and values are element numbers; `true` is a sequence of the map.
const MAPS: [(i32, i32, bool); 8] = [
    (7, 8, false),
    (7, 1, false),
    (7, 11, false),
    (8, 7, false),
    (8, 1, false),
    (8, 11, false),
    (8, 1, true),
    (7, 1, true),
];

const WORDS: usize = 5;
const PLAIN: u8 = 0;
const SEQUENCE: u8 = 1;
const OPTIONAL: u8 = 2;
const OPTIONAL_SEQUENCE: u8 = 3;
const MAP: u8 = 4;

/// The short name of an element type, by its ONNX number.
pub fn element_name(dtype: i32) -> Option<&'static str> {
    ELEMENTS.get(usize::try_from(dtype).ok()?).copied().filter(|_| dtype != 0)
}

/// The ONNX number of an element type, by its short name.
pub fn element_number(name: &str) -> Option<i32> {
    let found = ELEMENTS.iter().skip(1).position(|n| *n == name)?;
    i32::try_from(found + 1).ok()
}

/// One type without its shape: `f32`, `seq(f32)`, `opt(f32)`, `opt(seq(f32))`, `map(i64,f32)`,
/// `seq(map(str,f32))`. Those are also its printed forms.
///
/// Only types that some ONNX schema names can be told apart; the constructors answer `None` for the
/// rest (sparse tensors, sequences of sequences), for which [`TypeId::OTHER`] stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(u8);

impl TypeId {
    /// Any type that no schema names; it is in no set.
    pub const OTHER: TypeId = TypeId::new(MAP, 31);

    const fn new(word: u8, bit: u8) -> TypeId {
        TypeId(word * 32 + bit)
    }

    const fn word(self) -> u8 {
        self.0 / 32
    }

    const fn bit(self) -> u8 {
        self.0 % 32
    }

    /// The type of a value; none when not even its element type is known.
    pub fn of(ty: &ir::Type) -> Option<TypeId> {
        let other = |found: Option<TypeId>| found.unwrap_or(TypeId::OTHER);
        Some(match ty {
            ir::Type::Tensor(t) => other(TypeId::tensor(t.dtype.number())),
            ir::Type::Sequence(item) => other(TypeId::of(item)?.sequence()),
            ir::Type::Optional(item) => other(TypeId::of(item)?.optional()),
            ir::Type::Map(key, value) => {
                let value = TypeId::of(value)?.dtype();
                other(value.and_then(|v| TypeId::map(key.number(), v)))
            }
            ir::Type::Unknown => return None,
        })
    }

    /// A tensor of the element type with this ONNX number.
    pub fn tensor(dtype: i32) -> Option<TypeId> {
        element_name(dtype)?;
        Some(TypeId::new(PLAIN, u8::try_from(dtype).ok()?))
    }

    /// A map, by the ONNX numbers of its key and value elements.
    pub fn map(key: i32, value: i32) -> Option<TypeId> {
        TypeId::map_form(key, value, false)
    }

    fn map_form(key: i32, value: i32, sequence: bool) -> Option<TypeId> {
        let found = MAPS.iter().position(|m| *m == (key, value, sequence))?;
        Some(TypeId::new(MAP, u8::try_from(found).ok()?))
    }

    /// The sequence of this type.
    pub fn sequence(self) -> Option<TypeId> {
        match self.word() {
            PLAIN => Some(TypeId::new(SEQUENCE, self.bit())),
            MAP => {
                let (key, value, _) = MAPS.get(usize::from(self.bit())).copied()?;
                TypeId::map_form(key, value, true).filter(|found| *found != self)
            }
            _ => None,
        }
    }

    /// The optional of this type.
    pub fn optional(self) -> Option<TypeId> {
        match self.word() {
            PLAIN => Some(TypeId::new(OPTIONAL, self.bit())),
            SEQUENCE => Some(TypeId::new(OPTIONAL_SEQUENCE, self.bit())),
            _ => None,
        }
    }

    /// What a sequence or an optional holds.
    pub fn item(self) -> Option<TypeId> {
        match self.word() {
            SEQUENCE | OPTIONAL => Some(TypeId::new(PLAIN, self.bit())),
            OPTIONAL_SEQUENCE => Some(TypeId::new(SEQUENCE, self.bit())),
            MAP => {
                let (key, value, sequence) = MAPS.get(usize::from(self.bit())).copied()?;
                sequence.then(|| TypeId::map(key, value)).flatten()
            }
            _ => None,
        }
    }

    /// The ONNX element number of a plain tensor.
    pub fn dtype(self) -> Option<i32> {
        (self.word() == PLAIN).then(|| i32::from(self.bit()))
    }

    /// Reads the printed form.
    pub fn parse(text: &str) -> Option<TypeId> {
        let inner = |prefix: &str| text.strip_prefix(prefix)?.strip_suffix(')');
        if let Some(item) = inner("seq(") {
            return TypeId::parse(item)?.sequence();
        }
        if let Some(item) = inner("opt(") {
            return TypeId::parse(item)?.optional();
        }
        if let Some((key, value)) = inner("map(").and_then(|pair| pair.split_once(',')) {
            return TypeId::map(element_number(key)?, element_number(value)?);
        }
        TypeId::tensor(element_number(text)?)
    }
}

impl fmt::Display for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bit = usize::from(self.bit());
        let element = |n: i32| element_name(n).unwrap_or("?");
        match self.word() {
            PLAIN => f.write_str(ELEMENTS[bit]),
            SEQUENCE => write!(f, "seq({})", ELEMENTS[bit]),
            OPTIONAL => write!(f, "opt({})", ELEMENTS[bit]),
            OPTIONAL_SEQUENCE => write!(f, "opt(seq({}))", ELEMENTS[bit]),
            _ => match MAPS.get(bit) {
                Some((k, v, false)) => write!(f, "map({},{})", element(*k), element(*v)),
                Some((k, v, true)) => write!(f, "seq(map({},{}))", element(*k), element(*v)),
                None => f.write_str("other"),
            },
        }
    }
}

impl fmt::Debug for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A set of types: one bit each. Prints as a comma-separated list in the order of the bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TypeSet(pub(super) [u32; WORDS]);

impl TypeSet {
    /// No type at all.
    pub const EMPTY: TypeSet = TypeSet([0; WORDS]);

    /// The set of one type.
    pub fn of(ty: TypeId) -> TypeSet {
        let mut set = TypeSet::EMPTY;
        set.insert(ty);
        set
    }

    /// Adds a type; [`TypeId::OTHER`] is never added.
    pub fn insert(&mut self, ty: TypeId) {
        if ty != TypeId::OTHER {
            self.0[usize::from(ty.word())] |= 1 << ty.bit();
        }
    }

    /// Whether the type is in the set.
    pub fn contains(self, ty: TypeId) -> bool {
        (self.0[usize::from(ty.word())] >> ty.bit()) & 1 == 1
    }

    /// Whether every type of `other` is in this set.
    pub fn includes(self, other: TypeSet) -> bool {
        self.0.iter().zip(other.0).all(|(mine, theirs)| mine & theirs == theirs)
    }

    /// The types in either.
    pub fn union(self, other: TypeSet) -> TypeSet {
        TypeSet(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// The types in both.
    pub fn intersection(self, other: TypeSet) -> TypeSet {
        TypeSet(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self == TypeSet::EMPTY
    }

    /// How many types there are.
    pub fn len(self) -> usize {
        self.iter().count()
    }

    /// The plain tensor types as a mask: bit `n` is the element type with ONNX number `n`.
    pub fn tensors(self) -> u32 {
        self.0[usize::from(PLAIN)]
    }

    /// The types, in the order of the bits: tensors, sequences, optionals, maps.
    pub fn iter(self) -> impl Iterator<Item = TypeId> {
        (0..=TypeId::new(MAP, 31).0).map(TypeId).filter(move |ty| self.contains(*ty))
    }

    /// Reads the printed form. An empty text is the empty set.
    pub fn parse(text: &str) -> Option<TypeSet> {
        let mut set = TypeSet::EMPTY;
        let mut rest = text;
        if text.ends_with(',') {
            return None;
        }
        while !rest.is_empty() {
            let (item, tail) = split_item(rest);
            set.insert(TypeId::parse(item)?);
            rest = tail;
        }
        Some(set)
    }
}

/// The first item of a comma-separated list whose items may hold commas in brackets.
fn split_item(text: &str) -> (&str, &str) {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

impl fmt::Display for TypeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, ty) in self.iter().enumerate() {
            write!(f, "{}{ty}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl fmt::Debug for TypeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_forms_read_back() {
        for text in [
            "f32",
            "f6e3m2",
            "seq(str)",
            "opt(bf16)",
            "opt(seq(u2))",
            "map(i64,str)",
            "map(str,f64)",
            "seq(map(i64,f32))",
            "seq(map(str,f32))",
        ] {
            assert_eq!(TypeId::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_no_schema_names_is_refused() {
        for text in [
            "",
            "undefined",
            "f33",
            "seq(seq(f32))",
            "opt(opt(f32))",
            "opt(map(i64,f32))",
            "map(f32,f32)",
            "map(i64)",
            "seq(f32",
            "seq(map(i64,str))",
            "f32)",
            "seq(seq(map(i64,f32)))",
        ] {
            assert_eq!(TypeId::parse(text), None, "{text}");
        }
        assert_eq!(TypeId::tensor(0), None);
        assert_eq!(TypeId::tensor(29), None);
    }

    #[test]
    fn items_undo_their_containers() {
        for set in [TypeSet([u32::MAX >> 3 << 1, 0, 0, 0, 0b11_1111])] {
            for ty in set.iter() {
                for outer in [ty.sequence(), ty.optional()].into_iter().flatten() {
                    assert_eq!(outer.item(), Some(ty));
                }
                assert_eq!(ty.item(), None);
            }
        }
    }

    #[test]
    fn sets_behave_as_sets() {
        let a = TypeSet::parse("f32,f64,seq(f32),map(i64,f32)").unwrap();
        let b = TypeSet::parse("f64,seq(f32),opt(seq(i8))").unwrap();
        assert_eq!(a.to_string(), "f32,f64,seq(f32),map(i64,f32)");
        assert_eq!(a.intersection(b).to_string(), "f64,seq(f32)");
        assert_eq!(a.union(b).to_string(), "f32,f64,seq(f32),opt(seq(i8)),map(i64,f32)");
        assert_eq!((a.len(), b.len(), TypeSet::EMPTY.len()), (4, 3, 0));
        assert!(a.union(b).includes(a) && !a.includes(b) && a.includes(TypeSet::EMPTY));
        assert!(a.contains(TypeId::parse("seq(f32)").unwrap()));
        assert!(!a.contains(TypeId::parse("opt(seq(f32))").unwrap()));
        assert_eq!(a.tensors(), 1 << 1 | 1 << 11);
        assert_eq!(TypeSet::parse(""), Some(TypeSet::EMPTY));
        assert_eq!(TypeSet::parse("f32,,f64"), None);
        assert_eq!(TypeSet::parse("f32,"), None);
        assert_eq!(TypeSet::of(TypeId::OTHER), TypeSet::EMPTY);
        assert!(!a.contains(TypeId::OTHER));
        assert_eq!((TypeId::OTHER.sequence(), TypeId::OTHER.item()), (None, None));
        assert_eq!(TypeSet::of(TypeId::parse("i4").unwrap()).to_string(), "i4");
    }
}
