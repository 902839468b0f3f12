//! Memory that values lie in: who owns it and how it is given back.
//!
//! A buffer is counted (`Arc<Buffer>`) and never moves. It knows no element types and no shapes.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use ortolan_ep_abi::raw::ReleaseFn;

use super::Tensor;
use crate::error::Result;

/// Alignment of every buffer that the host makes.
pub const ALIGN: usize = 64;
/// From this size on, buffers are aligned to huge pages, which the system is asked for.
const HUGE: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// A memory space by its number; 0 is host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SpaceId(pub(crate) u32);

impl SpaceId {
    /// Host memory.
    pub const HOST: SpaceId = SpaceId(0);
    /// Of a part's input: wherever it lies, because only its shape is read.
    pub(crate) const ANYWHERE: SpaceId = SpaceId(ortolan_ep_abi::raw::PORT_SHAPE);
}

/// Memory of a value. In any other space than the host's, `ptr` is a handle that only the space's owner reads.
pub struct Buffer {
    ptr: *mut u8,
    cap: usize,
    space: SpaceId,
    owner: Owner,
}

/// Who frees it.
enum Owner {
    Host(Layout),
    User {
        writable: bool,
        #[expect(dead_code, reason = "kept for its drop")]
        owner: Box<dyn Any + Send + Sync>,
    },
    Ep {
        release: ReleaseFn,
        ctx: *mut c_void,
        lender: Arc<dyn Lender>,
    },
}

/// What a buffer of an EP keeps alive, and how its contents are reached.
pub(crate) trait Lender: Send + Sync {
    /// A copy in host memory.
    fn to_host(&self, tensor: &Tensor) -> Result<Tensor>;
}

// SAFETY: a buffer is memory without ties to a thread; the ABI asks of EPs that release may be called on any thread, and
// owners are `Send + Sync`. Writing needs exclusive ownership, which the holders of the count see to.
unsafe impl Send for Buffer {}
// SAFETY: as above; through a shared buffer memory is only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Zeroed host memory, aligned to [`ALIGN`]; `None` when the system has none left.
    pub fn host(bytes: usize) -> Option<Buffer> {
        let layout = layout(bytes)?;
        // SAFETY: the layout's size is not 0.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) })?.as_ptr();
        huge_pages(ptr, layout.size());
        Some(Buffer { ptr, cap: layout.size(), space: SpaceId::HOST, owner: Owner::Host(layout) })
    }

    /// Host memory of somebody else.
    ///
    /// # Safety
    /// `ptr..ptr + bytes` is readable and stays so, unwritten, while `owner` lives.
    pub unsafe fn foreign(ptr: *const u8, bytes: usize, owner: Box<dyn Any + Send + Sync>) -> Buffer {
        let owner = Owner::User { writable: false, owner };
        Buffer { ptr: ptr.cast_mut(), cap: bytes, space: SpaceId::HOST, owner }
    }

    /// Host memory of somebody else, which whoever holds the buffer alone may write to.
    ///
    /// # Safety
    /// `ptr..ptr + bytes` is initialised, and nobody else reads or writes it while `owner` lives.
    pub unsafe fn foreign_mut(ptr: *mut u8, bytes: usize, owner: Box<dyn Any + Send + Sync>) -> Buffer {
        Buffer { ptr, cap: bytes, space: SpaceId::HOST, owner: Owner::User { writable: true, owner } }
    }

    /// Memory of an EP; `release` is called with `ctx` when nobody holds it any more.
    pub(crate) fn of_ep(
        ptr: *mut u8,
        bytes: usize,
        space: SpaceId,
        release: ReleaseFn,
        ctx: *mut c_void,
        lender: Arc<dyn Lender>,
    ) -> Buffer {
        Buffer { ptr, cap: bytes, space, owner: Owner::Ep { release, ctx, lender } }
    }

    /// First byte, or the handle.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Bytes that fit.
    pub fn capacity(&self) -> usize {
        self.cap
    }

    /// Where it lies.
    pub fn space(&self) -> SpaceId {
        self.space
    }

    /// Whether the host made it, so that whoever holds it alone may write to it.
    pub(crate) fn is_host_made(&self) -> bool {
        matches!(self.owner, Owner::Host(_))
    }

    /// Whether whoever holds it alone may write to it through the host.
    pub(crate) fn may_be_written(&self) -> bool {
        matches!(self.owner, Owner::Host(_) | Owner::User { writable: true, .. })
    }

    /// Whether an EP that is its last reader may overwrite it. Memory that an EP gave without a release is its constants.
    pub(crate) fn may_be_donated(&self) -> bool {
        match &self.owner {
            Owner::Ep { release, .. } => release.f.is_some(),
            _ => self.may_be_written(),
        }
    }

    pub(crate) fn lender(&self) -> Option<&Arc<dyn Lender>> {
        match &self.owner {
            Owner::Ep { lender, .. } => Some(lender),
            _ => None,
        }
    }
}

fn layout(bytes: usize) -> Option<Layout> {
    let size = bytes.max(1).checked_next_multiple_of(ALIGN)?;
    Layout::from_size_align(size, if size >= HUGE { HUGE_PAGE } else { ALIGN }).ok()
}

/// Asks for huge pages; a refusal costs nothing but speed.
fn huge_pages(ptr: *mut u8, bytes: usize) {
    #[cfg(target_os = "linux")]
    if bytes >= HUGE {
        // SAFETY: the range was just allocated and is ours; advice changes no contents.
        unsafe { libc::madvise(ptr.cast(), bytes, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (ptr, bytes);
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match &self.owner {
            // SAFETY: allocated with this layout in `host`, freed once.
            Owner::Host(layout) => unsafe { dealloc(self.ptr, *layout) },
            Owner::User { .. } => {}
            Owner::Ep { release, ctx, .. } => {
                if let Some(f) = release.f {
                    // SAFETY: the EP handed over function and context to be called once, on any thread; its library
                    // is kept by `lender`.
                    unsafe { f(*ctx) }
                }
            }
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = match self.owner {
            Owner::Host(_) => "host",
            Owner::User { .. } => "user",
            Owner::Ep { .. } => "ep",
        };
        write!(f, "Buffer({} B, {owner}, space {})", self.cap, self.space.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_aligned_and_zero_at_every_size() {
        for bytes in [0, 1, 63, 64, 65, 4096, HUGE + 1] {
            let b = Buffer::host(bytes).unwrap();
            assert!(b.capacity() >= bytes && b.ptr().addr().is_multiple_of(ALIGN));
            // SAFETY: the buffer is that long.
            let all = unsafe { std::slice::from_raw_parts(b.ptr(), bytes) };
            assert!(all.iter().all(|&b| b == 0));
        }
        assert!(Buffer::host(usize::MAX).is_none());
        assert!(Buffer::host(isize::MAX as usize - 128).is_none());
    }
}
