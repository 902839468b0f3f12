//! Why a node is not taken, and why a run failed.

use crate::parallel::Stopped;
use ortolan_ep_abi::call::Error;
use ortolan_ep_abi::codes::RejectCode;
use ortolan_ep_abi::raw;

/// Why a kernel does not take a node: a code of the closed list, and a sentence that names the attribute, type or
/// dimension. The kit puts the operator in front of the sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {text}")]
pub struct Reject {
    /// The code.
    pub code: RejectCode,
    /// The sentence.
    pub text: String,
}

macro_rules! constructors {
    ($($n:ident = $c:ident),*) => { $(
        #[doc = concat!("A rejection with the code `", stringify!($n), "`.")]
        pub fn $n(text: impl Into<String>) -> Self {
            Reject { code: RejectCode::$c, text: text.into() }
        }
    )* };
}

impl Reject {
    constructors!(
        operator = Operator,
        version = Version,
        dtype = Dtype,
        rank = Rank,
        shape = Shape,
        attribute = Attribute,
        layout = Layout,
        memory = Memory,
        policy = Policy
    );
}

/// Why binding, packing or running failed. The kit adds the node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The call was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
    /// Memory that the data asks for is not to be had.
    #[error("{0}")]
    Memory(String),
    /// Something inside the tensors, or their sizes, is not what the operator allows.
    #[error("{0}")]
    Data(String),
    /// The host refused and has said why.
    #[error("the host refused with code {0}")]
    Host(i32),
}

impl Fault {
    /// What the data does wrong.
    pub fn data(text: impl Into<String>) -> Self {
        Fault::Data(text.into())
    }

    /// As the host wants it, at a node that a person can find.
    pub(crate) fn at(self, node: u32, what: &str) -> Error {
        match self {
            Fault::Cancelled => Error::cancelled(),
            Fault::Host(code) => Error::reported(code),
            Fault::Memory(text) => Error { code: raw::MEMORY, node, message: format!("{what}: {text}") },
            Fault::Data(text) => Error::new(format!("{what}: {text}")).at(node),
        }
    }
}

impl From<Stopped> for Fault {
    fn from(_: Stopped) -> Self {
        Fault::Cancelled
    }
}
