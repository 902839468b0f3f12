//! Checks 8 and 10: the entry static and the table behind it, read field by field.
//!
//! Nothing is taken for a struct or a function before its size and its slots were checked, and no read goes past what
//! the plugin declares.

use super::codes;
use super::error::{HostError, Result};
use super::manifest::Manifest;
use super::sys;
use ortolan_ep_abi::layout::StructLayout;
use ortolan_ep_abi::raw::{self, EP_V1_ID, EpV1, MAGIC, Str, V1_FINGERPRINT};
use std::ffi::c_void;
use std::mem::offset_of;
use std::ops::Range;

/// What the entry must agree with.
pub(super) struct Expected<'a> {
    pub manifest: &'a Manifest,
    pub manifest_bytes: &'a [u8],
    pub catalogue_bytes: &'a [u8],
    /// Addresses of the library, where known: the entry and its texts must lie in them.
    pub image: Option<Range<usize>>,
}

/// Where the library of a symbol lies in memory.
pub(super) fn image_range(symbol: *const c_void, span: u64) -> Option<Range<usize>> {
    let base = sys::image_base(symbol)?;
    Some(base..base.checked_add(usize::try_from(span).ok()?)?)
}

/// A checked entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry(&'static raw::Entry);

impl Entry {
    /// Check 8.
    ///
    /// # Safety
    /// `address` is the symbol of an entry in a library that stays loaded, or a static of this program.
    pub unsafe fn check(address: *const c_void, expected: &Expected<'_>) -> Result<Self> {
        let magic = || HostError::new(codes::ENTRY_MAGIC, format!("{} does not lead to an entry", raw::ENTRY_SYMBOL));
        let head = offset_of!(raw::Entry, flags);
        if !address.cast::<raw::Entry>().is_aligned() || !lies_in(&expected.image, address, head) {
            return Err(magic());
        }
        let at = |offset: usize| address.wrapping_byte_add(offset);
        // SAFETY: an aligned address inside the library, or a static; the first fields up to `flags` are there.
        if unsafe { at(offset_of!(raw::Entry, magic)).cast::<[u8; 8]>().read() } != MAGIC {
            return Err(magic());
        }
        // SAFETY: as above.
        let number = |offset: usize| unsafe { at(offset).cast::<u32>().read() };
        let abi = (number(offset_of!(raw::Entry, abi_major)), number(offset_of!(raw::Entry, abi_minor)));
        let stated = (expected.manifest.abi.major, expected.manifest.abi.minor);
        if abi != stated {
            let sentence = format!("the manifest states ABI {}.{}, the entry {}.{}", stated.0, stated.1, abi.0, abi.1);
            return Err(HostError::new(codes::MANIFEST_DIFFERS, sentence));
        }
        let (size, needed) = (number(offset_of!(raw::Entry, struct_size)) as usize, size_of::<raw::Entry>());
        if size < needed || !lies_in(&expected.image, address, needed) {
            return Err(HostError::new(
                codes::ENTRY_SIZE,
                format!("its entry has {size} bytes, this ABI demands {needed}"),
            ));
        }
        // SAFETY: aligned, large enough; a null `query` is found before the struct is formed.
        if unsafe { at(offset_of!(raw::Entry, query)).cast::<usize>().read() } == 0 {
            return Err(HostError::new(codes::NULL_SLOT, "its entry has no function `query`"));
        }
        // SAFETY: aligned, large enough, no null function; the library stays loaded.
        let entry = Entry(unsafe { &*address.cast::<raw::Entry>() });
        entry.check_fingerprint(expected)?;
        entry.check_texts(expected)?;
        Ok(entry)
    }

    fn check_fingerprint(self, expected: &Expected<'_>) -> Result<()> {
        let stated = expected.manifest.fingerprint.as_deref().and_then(super::manifest::parse_hex);
        let found = [Some(self.0.fingerprint), stated].into_iter().flatten().find(|f| *f != V1_FINGERPRINT);
        let Some(found) = found else { return Ok(()) };
        let sentence = format!("its tables have the layout {found:#018x}, those of this core {V1_FINGERPRINT:#018x}");
        Err(HostError::new(codes::FINGERPRINT, sentence))
    }

    fn check_texts(self, expected: &Expected<'_>) -> Result<()> {
        let texts = [
            ("manifest", self.0.manifest, expected.manifest_bytes),
            ("catalogue", self.0.catalogue, expected.catalogue_bytes),
        ];
        for (what, text, bytes) in texts {
            let same = text.len == bytes.len()
                && (bytes.is_empty() || lies_in(&expected.image, text.ptr.cast(), text.len))
                // SAFETY: a non-null text of that length inside the library, which stays loaded.
                && unsafe { text.as_bytes() } == bytes;
            if !same {
                let sentence =
                    format!("the {what} in memory is not the one in the file ({} and {} bytes)", text.len, bytes.len());
                return Err(HostError::new(codes::MANIFEST_DIFFERS, sentence));
            }
        }
        Ok(())
    }

    /// The address, which is the library's identity in this process.
    pub fn address(self) -> usize {
        std::ptr::from_ref(self.0).addr()
    }

    fn query(self, id: &str) -> *const c_void {
        // SAFETY: a function of a checked entry; the text lives over the call.
        unsafe { (self.0.query)(Str::new(id)) }
    }

    /// Check 10: every promised table is there, and that of every EP is complete.
    pub fn table(self, provides: &[String]) -> Result<EpV1> {
        for id in provides {
            if self.query(id).is_null() {
                return Err(HostError::new(
                    codes::NO_INTERFACE,
                    format!("its manifest promises {id}, but it does not serve it"),
                ));
            }
        }
        let address = self.query(EP_V1_ID);
        // SAFETY: a checked library says that a table lies there; what it says of itself is checked before use.
        unsafe { check_table(address, EP_V1_ID, &EpV1::LAYOUT) }?;
        // SAFETY: aligned, large enough, no null function.
        Ok(unsafe { address.cast::<EpV1>().read() })
    }
}

/// Whether `len` bytes from `address` on lie in the library; true if it is not known where that is.
fn lies_in(image: &Option<Range<usize>>, address: *const c_void, len: usize) -> bool {
    let start = address.addr();
    !address.is_null()
        && image.as_ref().is_none_or(|i| i.start <= start && start.checked_add(len).is_some_and(|end| end <= i.end))
}

/// Size, alignment and functions of a table.
///
/// # Safety
/// `address` is null or that of a table that begins with its size in bytes.
unsafe fn check_table(address: *const c_void, id: &str, layout: &StructLayout) -> Result<()> {
    if address.is_null() {
        return Err(HostError::new(codes::NO_INTERFACE, format!("it does not serve {id}")));
    }
    if !address.addr().is_multiple_of(layout.align) {
        return Err(HostError::new(
            codes::TABLE_SIZE,
            format!("its table {id} is not aligned to {} bytes", layout.align),
        ));
    }
    // SAFETY: aligned; every table begins with this number.
    let size = unsafe { address.cast::<u32>().read() } as usize;
    if size < layout.size {
        let sentence = format!("its table {id} has {size} bytes, {} are demanded", layout.size);
        return Err(HostError::new(codes::TABLE_SIZE, sentence));
    }
    for field in layout.fields.iter().filter(|f| f.ty.starts_with("unsafe extern")) {
        // SAFETY: inside the declared size; a function pointer is read as a number.
        if unsafe { address.wrapping_byte_add(field.offset).cast::<usize>().read() } == 0 {
            return Err(HostError::new(codes::NULL_SLOT, format!("its table {id} has no function `{}`", field.name)));
        }
    }
    Ok(())
}
