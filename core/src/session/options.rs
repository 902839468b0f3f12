//! Options of a session and of a run.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use ortolan_graph::Graph;

use crate::error::{Error, Result, codes};
use crate::exec::CancelToken;

/// Where a model comes from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Model {
    /// A file; external data lies beside it.
    Path(PathBuf),
    /// Bytes, and the folder of its external data.
    Bytes(Bytes, Option<PathBuf>),
    /// A graph that was loaded already. Runs whose inputs contradict its dim names are refused.
    Graph(Box<Graph>),
}

impl From<PathBuf> for Model {
    fn from(path: PathBuf) -> Model {
        Model::Path(path)
    }
}

impl From<&std::path::Path> for Model {
    fn from(path: &std::path::Path) -> Model {
        Model::Path(path.to_owned())
    }
}

impl From<&str> for Model {
    fn from(path: &str) -> Model {
        Model::Path(path.into())
    }
}

impl From<Vec<u8>> for Model {
    fn from(bytes: Vec<u8>) -> Model {
        Model::Bytes(bytes.into(), None)
    }
}

impl From<Graph> for Model {
    fn from(graph: Graph) -> Model {
        Model::Graph(Box::new(graph))
    }
}

/// Options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Threads that a run uses, the caller's own included; all that the machine allows if not set.
    pub threads: Option<u32>,
    /// Host memory that all runs at once may hold, in bytes, weights not counted.
    pub memory_limit: Option<u64>,
    /// What a part must gain over the next EP, by the EPs' estimates, to run on a preferred one, in ns.
    pub min_gain_ns: f64,
    /// Sizes of all input dims of a name.
    pub dims: Vec<(String, i64)>,
    /// Maps model files instead of reading them.
    pub mmap: bool,
    /// Plans that are kept for EPs that want fixed shapes; the least recently used goes.
    pub max_plans: usize,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            threads: None,
            memory_limit: None,
            min_gain_ns: 0.0,
            dims: Vec::new(),
            mmap: true,
            max_plans: 16,
        }
    }
}

impl SessionOptions {
    pub(super) fn check(&self) -> Result<()> {
        let bad = |text: &str| Err(Error::new(codes::BAD_OPTION, text));
        match self {
            _ if self.threads.is_some_and(|t| t == 0 || t > 4096) => bad("threads must be 1 to 4096"),
            _ if self.max_plans == 0 => bad("max_plans must be at least 1"),
            _ if !self.min_gain_ns.is_finite() => bad("min_gain_ns must be a number"),
            _ if self.dims.iter().any(|d| d.1 < 0) => bad("sizes of dims must not be negative"),
            _ => Ok(()),
        }
    }
}

/// Options of one run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Stops the run from another thread.
    pub cancel: Option<CancelToken>,
    /// Stops the run when it takes longer.
    pub timeout: Option<Duration>,
    /// Host memory that this run may hold, in bytes, weights not counted.
    pub memory_limit: Option<u64>,
    /// Records what took how long.
    pub profile: bool,
}
