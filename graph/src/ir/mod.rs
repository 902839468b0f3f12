//! The typed graph: a flat, numbered form of a whole model with its bodies.
//!
//! Everything is in tables of one [`Graph`] and named by id; names are for messages and for the
//! model's own inputs and outputs. It knows nothing of files, schemas, EPs or devices.

mod attr;
mod data;
mod expr;
mod graph;
mod id;
mod simplify;
mod ty;

pub use attr::{Attr, AttrValue, BIG_LIST};
pub use data::{AlignedBuf, Constant, Data, FileId, Map, SMALL, Sizes};
pub use expr::{Expr, ExprOp, ExprTable, MAX_DIM, Shown, Symbol, SymbolKind, UNDEFINED};
pub use graph::{Assumption, Body, Graph, Holds, Known, ModelInfo, Node, Opset, Origin, Use, Uses, Value};
pub use id::{ConstId, ExprId, GraphId, NodeId, OriginId, SymbolId, ValueId};
pub use ty::{DType, Dims, TensorType, Type};

/// A name: shared text.
pub type Name = std::sync::Arc<str>;

/// Values with at most this many elements have their integers followed through the graph.
pub const KNOWN_LIMIT: usize = 64;
