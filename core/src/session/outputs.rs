//! What a run gives back.

use std::ops::Index;
use std::sync::Arc;

use ortolan_graph::ir::Name;
use smallvec::SmallVec;

use crate::exec::Profile;
use crate::value::Value;

/// The outputs of a run, in the model's order.
#[derive(Clone, Debug)]
pub struct Outputs {
    pub(super) names: Arc<[Name]>,
    pub(super) values: SmallVec<[Value; 2]>,
    pub(super) profile: Option<Box<Profile>>,
}

impl Outputs {
    /// An output by name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.names.iter().position(|n| &**n == name).and_then(|at| self.values.get(at))
    }

    /// Number of outputs.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.names.iter().map(|n| &**n).zip(&self.values)
    }

    /// The values, given away.
    pub fn into_values(self) -> impl ExactSizeIterator<Item = Value> {
        self.values.into_iter()
    }

    /// What took how long, if it was asked for.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_deref()
    }
}

impl Index<usize> for Outputs {
    type Output = Value;
    fn index(&self, at: usize) -> &Value {
        &self.values[at]
    }
}
