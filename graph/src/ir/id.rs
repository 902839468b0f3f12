//! Ids: one `u32` newtype per table of a [`Graph`](super::Graph).
//!
//! An id is given once and never reused, so it stays good while passes edit the graph.
//! `Option<Id>` is four bytes: index `u32::MAX` is never given and is the niche.

use std::fmt;
use std::num::NonZeroU32;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $letter:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The id with this index; `None` for `u32::MAX`, which stands for "no id".
            pub const fn from_index(index: u32) -> Option<Self> {
                match NonZeroU32::new(index.wrapping_add(1)) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }

            /// The next id of a table that has `len` entries; `None` when the table is full.
            #[allow(dead_code, reason = "symbols are never made one by one")]
            pub(crate) fn next(len: usize) -> Option<Self> {
                u32::try_from(len).ok().and_then(Self::from_index)
            }

            /// Position in its table.
            pub const fn index(self) -> usize {
                (self.0.get() - 1) as usize
            }

            /// Position in its table, as it crosses the plugin ABI.
            pub const fn raw(self) -> u32 {
                self.0.get() - 1
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.raw())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    )*};
}

ids! {
    /// A node, numbered over the whole model with its bodies.
    NodeId "n";
    /// A value: graph input, initializer or node output, numbered over the whole model.
    ValueId "v";
    /// A graph: 0 is the model's, the others are bodies of control-flow nodes.
    GraphId "g";
    /// A constant. Equal ids mean equal bytes, for the whole session.
    ConstId "c";
    /// An expression over symbols in the [`ExprTable`](super::ExprTable). Equal ids mean equal numbers.
    ExprId "e";
    /// A free number in the [`ExprTable`](super::ExprTable).
    SymbolId "s";
    /// The form in which a node stood in the file.
    OriginId "o";
}

impl GraphId {
    /// The model's own graph.
    pub const MAIN: GraphId = match GraphId::from_index(0) {
        Some(id) => id,
        None => unreachable!(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_index_means_no_id() {
        assert_eq!(NodeId::from_index(u32::MAX), None);
        assert_eq!(NodeId::from_index(7).map(NodeId::raw), Some(7));
        assert_eq!(size_of::<Option<ValueId>>(), 4);
        assert_eq!(GraphId::MAIN.index(), 0);
    }
}
