//! Names of memory spaces, interned for the life of the process.

use std::sync::{Mutex, PoisonError};

use crate::value::SpaceId;

/// More names than any set of devices has; beyond it a plugin is making them up.
const LIMIT: usize = 1 << 16;

static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The number of a space; the same name is the same memory for every EP. `host` and the empty name are host memory.
/// `None` when there are absurdly many names.
pub fn space(name: &str) -> Option<SpaceId> {
    if name.is_empty() || name == "host" {
        return Some(SpaceId::HOST);
    }
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let at = match names.iter().position(|n| n == name) {
        Some(at) => at,
        None if names.len() < LIMIT => {
            names.push(name.to_owned());
            names.len() - 1
        }
        None => return None,
    };
    u32::try_from(at + 1).ok().map(SpaceId)
}

/// The name of a space.
pub fn space_name(id: SpaceId) -> String {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match (id.0 as usize).checked_sub(1) {
        None => "host".to_owned(),
        Some(at) => names.get(at).cloned().unwrap_or_else(|| format!("unknown space {}", id.0)),
    }
}

/// Whether a plugin may use this number.
pub(crate) fn known(id: u32) -> bool {
    id as usize <= NAMES.lock().unwrap_or_else(PoisonError::into_inner).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_one_number() {
        let a = space("test.a").unwrap();
        assert_ne!(a, SpaceId::HOST);
        assert_eq!((space("test.a"), space_name(a)), (Some(a), "test.a".to_owned()));
        assert_ne!(space("test.b"), Some(a));
        assert_eq!((space("host"), space("")), (Some(SpaceId::HOST), Some(SpaceId::HOST)));
        assert!(known(0) && known(a.0) && !known(u32::MAX));
    }
}
