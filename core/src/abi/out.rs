//! The place into which a plugin writes the handle that it made, between two patterns that it must not touch.
//!
//! A plugin built from other declarations, which takes the place for a larger struct, is seen. One that jumps over the
//! patterns is not.

use std::cell::UnsafeCell;

use super::Refusal;

const PATTERN: [usize; 8] = [0x0ddb_a115; 8];

#[repr(C)]
struct Fenced<T> {
    before: [usize; 8],
    made: *mut T,
    after: [usize; 8],
}

/// Receives one handle.
pub(super) struct Out<T>(UnsafeCell<Fenced<T>>);

impl<T> Out<T> {
    pub fn new() -> Self {
        Out(UnsafeCell::new(Fenced { before: PATTERN, made: std::ptr::null_mut(), after: PATTERN }))
    }

    /// What the plugin gets.
    pub fn ptr(&self) -> *mut *mut T {
        // SAFETY: a place inside the cell; no reference is made.
        unsafe { &raw mut (*self.0.get()).made }
    }

    /// The handle after a call that succeeded; `what` names it.
    pub fn take(self, what: &str) -> Result<*mut T, Refusal> {
        let (made, intact) = self.look(what);
        intact?;
        if made.is_null() {
            return Err(Refusal::fault(format!("the call succeeded but made no {what}")));
        }
        Ok(made)
    }

    /// What was written, and whether nothing beside it was. The call has returned.
    pub fn look(&self, what: &str) -> (*mut T, Result<(), Refusal>) {
        // SAFETY: the call has returned; nobody else has the cell.
        let Fenced { before, made, after } = unsafe { self.0.get().read_volatile() };
        let intact = before == PATTERN && after == PATTERN;
        let fault = || Refusal::fault(format!("the EP wrote beside the place for the {what} that the host gave it"));
        (made, if intact { Ok(()) } else { Err(fault()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_place_itself_may_be_written() {
        for (offset, word) in [(0isize, ""), (1, "beside"), (8, "beside"), (-1, "beside")] {
            let out = Out::<u8>::new();
            // SAFETY: all offsets lie inside the struct.
            unsafe { out.ptr().cast::<usize>().offset(offset).write(8) };
            match out.take("part") {
                Ok(made) => assert!(word.is_empty() && made.addr() == 8),
                Err(refusal) => assert!(!word.is_empty() && refusal.text.contains(word), "{}", refusal.text),
            }
        }
        assert!(Out::<u8>::new().take("part").is_err_and(|r| r.text.contains("made no part")));
    }
}
