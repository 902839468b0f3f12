//! One piece of memory for all packed weights of a part: zeroed, aligned to 64, in huge pages from 4 MiB up.
//!
//! One of the files with `unsafe`: it owns the memory and hands out disjoint ranges of it.

use crate::error::Fault;
use core::ptr::NonNull;
use std::alloc::Layout;

/// Alignment of slabs and of everything that the kit lays out.
pub(crate) const ALIGN: usize = 64;
/// From here on memory is mapped, so that the kernel may use huge pages: packing into 4K pages takes twice as long.
const MAPPED_FROM: usize = 4 << 20;

/// Rounds up to the alignment; `None` on overflow.
pub(crate) fn aligned(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(ALIGN)
}

/// Owned memory.
#[derive(Debug)]
pub(crate) struct Slab {
    ptr: NonNull<u8>,
    len: usize,
    mapped: bool,
}

// SAFETY: plain memory, owned; shared references only read.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    /// Zeroed memory; an empty one owns nothing.
    pub fn new(len: usize) -> Result<Slab, Fault> {
        let dangling = NonNull::<Aligned>::dangling().cast();
        if len == 0 {
            return Ok(Slab { ptr: dangling, len, mapped: false });
        }
        let mapped = cfg!(unix) && len >= MAPPED_FROM;
        let ptr = if mapped { map(len) } else { allocate(len) };
        let ptr = ptr.ok_or_else(|| Fault::Memory(format!("there are no {len} bytes of memory")))?;
        Ok(Slab { ptr, len, mapped })
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: owned, initialised memory of that length.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: owned, initialised memory of that length, borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        #[cfg(unix)]
        if self.mapped {
            // SAFETY: mapped by `map` with this length, unmapped once.
            unsafe { libc::munmap(self.ptr.as_ptr().cast(), self.len) };
            return;
        }
        if let Ok(layout) = Layout::from_size_align(self.len, ALIGN) {
            // SAFETY: allocated by `allocate` with this layout, freed once.
            unsafe { std::alloc::dealloc(self.ptr.as_ptr(), layout) };
        }
    }
}

#[repr(align(64))]
struct Aligned;

fn allocate(len: usize) -> Option<NonNull<u8>> {
    let layout = Layout::from_size_align(len, ALIGN).ok()?;
    // SAFETY: the layout is not empty.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
}

#[cfg(unix)]
fn map(len: usize) -> Option<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh anonymous mapping, at an address of the system's choice.
    let ptr = unsafe { libc::mmap(core::ptr::null_mut(), len, protection, flags, -1, 0) };
    if ptr == libc::MAP_FAILED {
        return None;
    }
    #[cfg(target_os = "linux")]
    // SAFETY: the range was mapped above. Advice only: without huge pages it is slower, not wrong.
    unsafe {
        libc::madvise(ptr, len, libc::MADV_HUGEPAGE)
    };
    NonNull::new(ptr.cast())
}

#[cfg(not(unix))]
fn map(len: usize) -> Option<NonNull<u8>> {
    allocate(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_aligned() {
        for len in [0, 1, 64, 1000, MAPPED_FROM, MAPPED_FROM + 13] {
            let mut slab = Slab::new(len).unwrap();
            assert_eq!(slab.bytes().len(), len);
            assert!(slab.bytes().as_ptr().addr().is_multiple_of(ALIGN));
            assert!(slab.bytes().iter().all(|&b| b == 0));
            slab.bytes_mut().fill(7);
            assert!(slab.bytes().iter().all(|&b| b == 7));
        }
    }

    #[test]
    fn too_much_is_a_fault() {
        assert!(matches!(Slab::new(isize::MAX as usize - 64), Err(Fault::Memory(_))));
    }
}
