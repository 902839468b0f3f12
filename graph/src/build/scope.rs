//! Which value a name means at one place: the names of a graph, of the graphs around it, and no
//! further than the function that they are in.

use hashbrown::HashMap;

use crate::ir::ValueId;

/// The scopes around the place at hand, outermost first.
#[derive(Default)]
pub(crate) struct Scopes {
    open: Vec<Scope>,
}

#[derive(Default)]
struct Scope {
    names: HashMap<String, ValueId>,
    /// A function's body: names outside are not seen.
    closed: bool,
}

impl Scopes {
    /// Enters a graph.
    pub(crate) fn enter(&mut self) {
        self.open.push(Scope::default());
    }

    /// Enters a function.
    pub(crate) fn enter_function(&mut self) {
        self.open.push(Scope { closed: true, ..Scope::default() });
    }

    /// Leaves the innermost graph or function.
    pub(crate) fn leave(&mut self) {
        self.open.pop();
    }

    /// What a name means here; a graph's own names come before those around it.
    pub(crate) fn find(&self, name: &str) -> Option<ValueId> {
        for scope in self.open.iter().rev() {
            if let Some(&id) = scope.names.get(name) {
                return Some(id);
            }
            if scope.closed {
                break;
            }
        }
        None
    }

    /// What a name means in the innermost graph alone.
    pub(crate) fn own(&self, name: &str) -> Option<ValueId> {
        self.open.last()?.names.get(name).copied()
    }

    /// Adds a name to the innermost graph.
    pub(crate) fn add(&mut self, name: &str, id: ValueId) {
        if let Some(scope) = self.open.last_mut() {
            scope.names.insert(name.to_owned(), id);
        }
    }
}
