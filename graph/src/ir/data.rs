//! Constants: where their bytes lie, and the file maps that large ones point into.
//!
//! Large raw data stays in the map of its file, at any offset, so **constants promise no alignment**.
//! Small ones are copied to 64-byte aligned memory. This file knows nothing of protobuf.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use memmap2::Mmap;
use smallvec::SmallVec;

use super::{ConstId, DType, ExprTable, TensorType};

/// Raw data up to this many bytes is copied out of the map.
pub const SMALL: u64 = 64 << 10;

/// Concrete dims of a constant.
pub type Sizes = SmallVec<[i64; 4]>;

/// A constant tensor.
#[derive(Clone, Debug)]
pub struct Constant {
    /// Equal ids mean equal bytes.
    pub id: ConstId,
    /// Element type.
    pub dtype: DType,
    /// Dims, none negative; their product fits in `i64`.
    pub dims: Sizes,
    /// The elements: dense, row-major, little-endian, sub-byte types packed with the low bits first.
    pub data: Data,
}

/// Where the bytes of a constant lie.
#[derive(Clone)]
pub enum Data {
    /// At most [`SMALL`] bytes, 64-byte aligned.
    Small(Arc<AlignedBuf>),
    /// In a model file or an external data file; any alignment.
    Mapped {
        /// The file.
        map: Arc<Map>,
        /// Offset of the first byte.
        at: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Decoded from a form that is not the memory form, or computed; 64-byte aligned.
    Heap(Arc<AlignedBuf>),
    /// Elements of a string tensor.
    Strings(Arc<[String]>),
}

impl Constant {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().map(|d| d.unsigned_abs()).product()
    }

    /// The bytes; empty for strings. Reading them makes the file's pages resident.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Its type, with the dims as expressions of `exprs`.
    pub fn ty(&self, exprs: &mut ExprTable) -> TensorType {
        TensorType { dtype: self.dtype, dims: Some(exprs.constants(&self.dims)) }
    }

    /// The elements as integers, if the type is an integer of at least 8 bits or bool and there are at most `limit`.
    pub fn ints(&self, limit: usize) -> Option<Vec<i64>> {
        if self.elements() > limit as u64 {
            return None;
        }
        let b = self.bytes();
        Some(match self.dtype {
            DType::I64 => chunks(b, i64::from_le_bytes),
            DType::I32 => chunks(b, |c| i32::from_le_bytes(c).into()),
            DType::I16 => chunks(b, |c| i16::from_le_bytes(c).into()),
            DType::I8 => chunks(b, |c| i8::from_le_bytes(c).into()),
            DType::U8 => chunks(b, |c| u8::from_le_bytes(c).into()),
            DType::U16 => chunks(b, |c| u16::from_le_bytes(c).into()),
            DType::U32 => chunks(b, |c| u32::from_le_bytes(c).into()),
            DType::U64 => chunks(b, |c| i64::try_from(u64::from_le_bytes(c)).unwrap_or(i64::MAX)),
            DType::Bool => chunks(b, |c: [u8; 1]| i64::from(c[0] != 0)),
            _ => return None,
        })
    }

    /// The elements as integers, if they are floats that are whole numbers, small enough for a float to tell them all.
    pub(crate) fn whole(&self, limit: usize) -> Option<Vec<i64>> {
        let fits = |f: &f64| f.fract() == 0.0 && f.abs() <= f64::from(1 << 24);
        self.floats(limit)?.into_iter().map(|f| fits(&f).then_some(f as i64)).collect()
    }

    /// The elements as floats, if the type is float or double and there are at most `limit`.
    pub fn floats(&self, limit: usize) -> Option<Vec<f64>> {
        if self.elements() > limit as u64 {
            return None;
        }
        match self.dtype {
            DType::F32 => Some(chunks(self.bytes(), |c| f32::from_le_bytes(c).into())),
            DType::F64 => Some(chunks(self.bytes(), f64::from_le_bytes)),
            _ => None,
        }
    }
}

fn chunks<const N: usize, T>(bytes: &[u8], f: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|&c| f(c)).collect()
}

impl Data {
    /// The bytes; empty for strings.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Data::Small(b) | Data::Heap(b) => b.as_slice(),
            Data::Mapped { map, at, len } => {
                let end = at.saturating_add(*len);
                let range = usize::try_from(*at).ok().zip(usize::try_from(end).ok());
                range.and_then(|(from, to)| map.as_slice().get(from..to)).unwrap_or(&[])
            }
            Data::Strings(_) => &[],
        }
    }

    /// The bytes as a counted slice, which keeps their owner alive.
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Data::Small(b) | Data::Heap(b) => Bytes::from_owner(Shared(b.clone())),
            Data::Mapped { map, at, len } => {
                let all = Bytes::from_owner(Shared(map.clone()));
                let end = at.saturating_add(*len);
                match (usize::try_from(*at), usize::try_from(end)) {
                    (Ok(from), Ok(to)) if to <= all.len() => all.slice(from..to),
                    _ => Bytes::new(),
                }
            }
            Data::Strings(_) => Bytes::new(),
        }
    }

    /// Copies bytes to aligned memory, as `Small` or `Heap` by their length.
    pub fn copied(bytes: &[u8]) -> Data {
        let buf = Arc::new(AlignedBuf::copy_of(bytes));
        if bytes.len() as u64 <= SMALL { Data::Small(buf) } else { Data::Heap(buf) }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Data::Small(b) => write!(f, "Small({} B)", b.as_slice().len()),
            Data::Heap(b) => write!(f, "Heap({} B)", b.as_slice().len()),
            Data::Mapped { map, at, len } => write!(f, "Mapped({} B at {at} of {})", len, map.name()),
            Data::Strings(s) => write!(f, "Strings({})", s.len()),
        }
    }
}

struct Shared<T>(Arc<T>);

impl<T: AsRef<[u8]>> AsRef<[u8]> for Shared<T> {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

/// Bytes at a 64-byte aligned address.
pub struct AlignedBuf {
    blocks: Box<[Block]>,
    len: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Block([u8; 64]);

impl AlignedBuf {
    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let (whole, rest) = bytes.as_chunks::<64>();
        let mut blocks = Vec::with_capacity(bytes.len().div_ceil(64));
        blocks.extend(whole.iter().map(|&c| Block(c)));
        if !rest.is_empty() {
            let mut last = [0; 64];
            last[..rest.len()].copy_from_slice(rest);
            blocks.push(Block(last));
        }
        AlignedBuf { blocks: blocks.into_boxed_slice(), len: bytes.len() }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `blocks` owns at least `len` initialised bytes, one after the other: `Block` is
        // 64 bytes without padding (size = alignment = 64), and `u8` has no alignment to keep.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast::<u8>(), self.len) }
    }
}

/// Contents of a model or external data file: mapped, or read when small or asked to.
///
/// A mapped file must not be cut shorter by another process while the map is in use; reading past
/// the new end is a fault of the operating system (SIGBUS), as with every memory map.
pub struct Map {
    name: PathBuf,
    bytes: Backing,
    id: Option<FileId>,
}

/// What tells the contents of a file from those of any other, and from what was in it before: device, inode, length and
/// time of the last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId([u64; 5]);

impl FileId {
    #[cfg(unix)]
    fn of(file: &std::fs::Metadata) -> Option<FileId> {
        use std::os::unix::fs::MetadataExt;
        let time = [file.ctime(), file.ctime_nsec()].map(i64::cast_unsigned);
        Some(FileId([file.dev(), file.ino(), file.len(), time[0], time[1]]))
    }

    #[cfg(not(unix))]
    fn of(_: &std::fs::Metadata) -> Option<FileId> {
        None
    }
}

enum Backing {
    File(Mmap),
    Memory(Bytes),
}

impl Map {
    /// Maps a file, or reads it when `map` is false or it is smaller than [`Map::READ_BELOW`].
    pub fn open(path: &Path, map: bool) -> std::io::Result<Map> {
        let file = File::open(path)?;
        Map::of(&file, path, map)
    }

    /// The same for a file that is open already; `path` is only for messages.
    pub(crate) fn of(file: &File, path: &Path, map: bool) -> std::io::Result<Map> {
        let about = file.metadata()?;
        let bytes = if map && about.len() >= Map::READ_BELOW {
            // SAFETY: the map is private and only read; what happens when the file shrinks
            // meanwhile is stated on `Map` and is the same for every mapped file.
            Backing::File(unsafe { Mmap::map(file) }?)
        } else {
            let mut all = Vec::new();
            std::io::Read::read_to_end(&mut &*file, &mut all)?;
            Backing::Memory(all.into())
        };
        Ok(Map { name: path.to_owned(), bytes, id: FileId::of(&about) })
    }

    /// Files below this size are read: a map costs more than it saves.
    pub const READ_BELOW: u64 = 4 << 20;

    /// Bytes that the caller has; `name` is for messages.
    pub fn in_memory(name: impl Into<PathBuf>, bytes: Bytes) -> Map {
        Map { name: name.into(), bytes: Backing::Memory(bytes), id: None }
    }

    /// `len` zeros, which take address space but no memory.
    pub(crate) fn zeros(len: u64) -> std::io::Result<Map> {
        let len = usize::try_from(len).map_err(std::io::Error::other)?;
        let map = memmap2::MmapMut::map_anon(len)?.make_read_only()?;
        Ok(Map { name: "zeros".into(), bytes: Backing::File(map), id: None })
    }

    /// All bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.bytes {
            Backing::File(m) => m,
            Backing::Memory(b) => b,
        }
    }

    /// The file, for messages.
    pub fn name(&self) -> std::path::Display<'_> {
        self.name.display()
    }

    /// Which file it is, where the system tells.
    pub fn id(&self) -> Option<FileId> {
        self.id
    }

    /// Whether the bytes are a file's pages, which [`release`](Self::release) gives back.
    pub fn is_mapped(&self) -> bool {
        matches!(self.bytes, Backing::File(_))
    }

    /// Gives the whole pages inside `at..at + len` back to the system; reading them again reads the file again.
    pub fn release(&self, at: u64, len: u64) {
        #[cfg(unix)]
        if let Backing::File(map) = &self.bytes {
            let page = 4096;
            let (Ok(at), Ok(len)) = (usize::try_from(at), usize::try_from(len)) else { return };
            let end = at.saturating_add(len).min(map.len());
            let (from, to) = (at.next_multiple_of(page), end - end % page);
            if from < to {
                // SAFETY: the map is private, read-only and backed by a file, so dropped pages
                // come back with the same bytes; nobody sees a difference but in memory use.
                let dropped =
                    unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, from, to - from) };
                if let Err(e) = dropped {
                    tracing::debug!(file = %self.name(), %e, "pages were not given back");
                }
            }
        }
        #[cfg(not(unix))]
        let _ = (at, len);
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Map({}, {} B)", self.name(), self.as_slice().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_aligned_at_every_length() {
        for len in [0usize, 1, 63, 64, 65, 200] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let buf = AlignedBuf::copy_of(&bytes);
            assert_eq!(buf.as_slice(), bytes);
            assert_eq!(buf.as_slice().as_ptr() as usize % 64, 0);
        }
    }

    #[test]
    fn small_ints_are_read_in_their_own_width() {
        let c = |dtype, bytes: &[u8], n| Constant {
            id: ConstId::from_index(0).unwrap(),
            dtype,
            dims: Sizes::from_slice(&[n]),
            data: Data::copied(bytes),
        };
        assert_eq!(c(DType::I8, &[255, 1], 2).ints(64), Some(vec![-1, 1]));
        assert_eq!(c(DType::I64, &(-5i64).to_le_bytes(), 1).ints(64), Some(vec![-5]));
        assert_eq!(c(DType::Bool, &[0, 7], 2).ints(64), Some(vec![0, 1]));
        assert_eq!(c(DType::I8, &[255, 1], 2).ints(1), None);
        assert_eq!(c(DType::F32, &[0; 8], 2).ints(64), None);
    }
}
