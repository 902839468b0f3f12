//! Counts heap blocks that are asked for on any thread, in this program and in the plugins it loads.
//!
//! A plugin library brings an allocator of its own, which a `#[global_allocator]` here does not see. All of them end in
//! the C library's `malloc`, so this program defines that family itself: its symbols go before the C library's.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static BLOCKS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
    fn __libc_free(block: *mut c_void);
}

/// Runs `f` and counts the blocks that were asked for meanwhile.
pub fn counted<R>(f: impl FnOnce() -> R) -> (u64, R) {
    let before = BLOCKS.load(Relaxed);
    let result = f();
    (BLOCKS.load(Relaxed) - before, result)
}

fn count() {
    BLOCKS.fetch_add(1, Relaxed);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    count();
    // SAFETY: the C library's own function behind this one.
    unsafe { __libc_malloc(size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn calloc(many: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: as above.
    unsafe { __libc_calloc(many, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    count();
    // SAFETY: as above; the block came from this family.
    unsafe { __libc_realloc(block, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: as above.
    unsafe { __libc_free(block) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    count();
    // SAFETY: as above.
    unsafe { __libc_memalign(align, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: as above.
    unsafe { memalign(align, size) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    const NO_MEMORY: c_int = 12;
    // SAFETY: as above.
    let block = unsafe { memalign(align, size) };
    if block.is_null() {
        return NO_MEMORY;
    }
    // SAFETY: the caller's place for the block.
    unsafe { to.write(block) };
    0
}
