//! Dense tensors: owned and counted, or borrowed for a run.
//!
//! A tensor is dense and row-major in the host's byte order, with sub-byte types packed, low bits first. It may lie in a
//! memory space of an EP; then only its type and shape can be read here until [`Tensor::to_host`].

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use ortolan_ep_abi::raw;
use ortolan_graph::ir::DType;
use smallvec::SmallVec;

use super::buffer::{Buffer, SpaceId};
use super::element::{Element, align_of_dtype};
use crate::error::{Error, Result, codes};

/// Sizes of a tensor.
pub type Shape = SmallVec<[i64; 6]>;

/// A counted tensor; clones share the memory.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) buffer: Arc<Buffer>,
    /// Where it begins in the buffer; 0 outside host memory.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

/// A tensor in the caller's host memory, lent for a run.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [i64],
    pub(crate) data: &'a [u8],
}

/// Bytes of a tensor in memory; strings take a `Str` each.
pub(crate) fn byte_len(dtype: DType, shape: &[i64]) -> Result<usize> {
    let elements = shape.iter().try_fold(1u64, |n, &d| u64::try_from(d).ok().and_then(|d| n.checked_mul(d)));
    let bytes = match (elements, dtype) {
        (Some(n), DType::String) => n.checked_mul(size_of::<raw::Str>() as u64),
        (Some(n), _) => dtype.bytes(n),
        (None, _) => None,
    };
    bytes
        .and_then(|b| usize::try_from(b).ok())
        .filter(|&b| isize::try_from(b).is_ok())
        .ok_or_else(|| Error::new(codes::BAD_VALUE, format!("no tensor of {dtype} can have the shape {shape:?}")))
}

fn out_of_memory(bytes: usize) -> Error {
    Error::new(codes::OUT_OF_MEMORY, format!("the system has no {bytes} bytes left"))
}

fn bytes_of<T: Element>(data: &[T]) -> &[u8] {
    // SAFETY: elements have no padding, so all their bytes are initialised.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}

fn check_len(dtype: DType, shape: &[i64], have: usize) -> Result<()> {
    let want = byte_len(dtype, shape)?;
    if want == have {
        return Ok(());
    }
    let text = format!("{dtype} of shape {shape:?} takes {want} bytes, and {have} were given");
    Err(Error::new(codes::BAD_VALUE, text))
}

impl Tensor {
    /// Takes over a vector, without a copy.
    pub fn new<T: Element>(shape: &[i64], mut data: Vec<T>) -> Result<Tensor> {
        check_len(T::DTYPE, shape, size_of_val(&data[..]))?;
        let (ptr, bytes) = (data.as_mut_ptr().cast::<u8>(), size_of_val(&data[..]));
        // SAFETY: the vector's heap block stays where it is while the box owns it, and nobody else has it.
        let buffer = unsafe { Buffer::foreign_mut(ptr, bytes, Box::new(data)) };
        Ok(Tensor { dtype: T::DTYPE, shape: Shape::from_slice(shape), buffer: Arc::new(buffer), at: 0, bytes })
    }

    /// Copies a slice.
    pub fn from_slice<T: Element>(shape: &[i64], data: &[T]) -> Result<Tensor> {
        Tensor::from_bytes(T::DTYPE, shape, bytes_of(data))
    }

    /// Copies bytes, in the form that the type has in memory. Not for strings.
    pub fn from_bytes(dtype: DType, shape: &[i64], data: &[u8]) -> Result<Tensor> {
        if dtype == DType::String {
            return Err(Error::new(codes::VALUE_KIND, "strings are made with Tensor::strings, not from bytes"));
        }
        check_len(dtype, shape, data.len())?;
        let tensor = Tensor::zeros(dtype, shape)?;
        // SAFETY: the buffer was just made with at least that many bytes, and nobody else has it.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), tensor.buffer.ptr(), data.len()) };
        Ok(tensor)
    }

    /// Uses memory of somebody else, without a copy.
    ///
    /// # Safety
    /// `data..data + bytes` is initialised and stays readable, unwritten, while `owner` lives.
    pub unsafe fn from_owner(
        dtype: DType,
        shape: &[i64],
        data: *const u8,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Tensor> {
        check_len(dtype, shape, bytes)?;
        if dtype == DType::String || !data.addr().is_multiple_of(align_of_dtype(dtype)) {
            return Err(Error::new(codes::BAD_VALUE, format!("{dtype} at this address cannot be used without a copy")));
        }
        // SAFETY: the caller's promise.
        let buffer = unsafe { Buffer::foreign(data, bytes, owner) };
        Ok(Tensor { dtype, shape: Shape::from_slice(shape), buffer: Arc::new(buffer), at: 0, bytes })
    }

    /// Uses memory of somebody else, which may be written through this tensor alone: for outputs that are to be made there.
    ///
    /// # Safety
    /// `data..data + bytes` is initialised, and nobody else reads or writes it while `owner` lives and a run may write.
    pub unsafe fn from_owner_mut(
        dtype: DType,
        shape: &[i64],
        data: *mut u8,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Result<Tensor> {
        check_len(dtype, shape, bytes)?;
        if dtype == DType::String || !data.addr().is_multiple_of(align_of_dtype(dtype)) {
            return Err(Error::new(codes::BAD_VALUE, format!("{dtype} at this address cannot be written")));
        }
        // SAFETY: the caller's promise.
        let buffer = unsafe { Buffer::foreign_mut(data, bytes, owner) };
        Ok(Tensor { dtype, shape: Shape::from_slice(shape), buffer: Arc::new(buffer), at: 0, bytes })
    }

    /// Whether nobody shares it and its memory may be written.
    pub fn is_writable(&self) -> bool {
        self.dtype != DType::String && self.buffer.may_be_written() && Arc::strong_count(&self.buffer) == 1
    }

    /// All zero. Not for strings.
    pub fn zeros(dtype: DType, shape: &[i64]) -> Result<Tensor> {
        let bytes = byte_len(dtype, shape)?;
        if dtype == DType::String {
            return Err(Error::new(codes::VALUE_KIND, "strings are made with Tensor::strings"));
        }
        let buffer = Buffer::host(bytes).ok_or_else(|| out_of_memory(bytes))?;
        Ok(Tensor { dtype, shape: Shape::from_slice(shape), buffer: Arc::new(buffer), at: 0, bytes })
    }

    /// Copies texts.
    pub fn strings<S: AsRef<str>>(shape: &[i64], texts: &[S]) -> Result<Tensor> {
        check_len(DType::String, shape, size_of::<raw::Str>() * texts.len())?;
        Tensor::pack_strings(shape, texts.iter().map(|t| t.as_ref().as_bytes()))
    }

    /// One block: the table of texts, then the texts.
    pub(crate) fn pack_strings<'a>(shape: &[i64], texts: impl Iterator<Item = &'a [u8]> + Clone) -> Result<Tensor> {
        let table = byte_len(DType::String, shape)?;
        let total = texts.clone().try_fold(table, |n, t| n.checked_add(t.len()));
        let buffer = total.and_then(Buffer::host).ok_or_else(|| out_of_memory(total.unwrap_or(usize::MAX)))?;
        let (mut entry, mut at) = (buffer.ptr().cast::<raw::Str>(), table);
        for text in texts {
            // SAFETY: table and texts were counted above, so both stay inside the fresh block.
            let to = unsafe { buffer.ptr().add(at) };
            // SAFETY: as above; the source is somebody else's memory.
            unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len()) };
            // SAFETY: as above; the block is aligned for the table.
            unsafe { entry.write(raw::Str { ptr: to, len: text.len() }) };
            // SAFETY: at most one behind the table.
            entry = unsafe { entry.add(1) };
            at += text.len();
        }
        let shape = Shape::from_slice(shape);
        Ok(Tensor { dtype: DType::String, shape, buffer: Arc::new(buffer), at: 0, bytes: table })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, none negative.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().map(|&d| usize::try_from(d).unwrap_or(0)).product()
    }

    /// The memory space that it lies in.
    pub fn space(&self) -> SpaceId {
        self.buffer.space()
    }

    /// Whether it lies in host memory.
    pub fn is_host(&self) -> bool {
        self.space() == SpaceId::HOST
    }

    /// The same in host memory: itself, or a copy that its EP makes.
    pub fn to_host(&self) -> Result<Tensor> {
        match self.buffer.lender() {
            _ if self.is_host() => Ok(self.clone()),
            Some(lender) => lender.to_host(self),
            None => Err(Error::new(codes::NO_COPY, "the value's memory belongs to no EP")),
        }
    }

    fn host_data(&self) -> Result<*const u8> {
        if !self.is_host() {
            return Err(Error::new(codes::VALUE_KIND, "the tensor lies in an EP's memory: call to_host first"));
        }
        // SAFETY: the tensor lies inside its buffer.
        Ok(unsafe { self.buffer.ptr().add(self.at) })
    }

    /// The bytes. Not for strings, nor outside host memory.
    pub fn bytes(&self) -> Result<&[u8]> {
        if self.dtype == DType::String {
            return Err(Error::new(codes::VALUE_KIND, "the tensor holds strings, which have no plain bytes"));
        }
        let data = self.host_data()?;
        // SAFETY: host memory of that many bytes that nobody writes while the buffer is shared.
        Ok(unsafe { raw::slice(data, self.bytes) })
    }

    /// The elements, if they are of this type and in host memory.
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        self.view()?.as_slice()
    }

    /// The elements, to be written. Fails when somebody else shares the memory or it may not be written.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T]> {
        let (count, data) = {
            let all = self.as_slice::<T>()?;
            (all.len(), all.as_ptr().cast_mut())
        };
        match Arc::get_mut(&mut self.buffer) {
            // SAFETY: memory of the host's own that only this tensor holds, borrowed mutably; `as_slice` checked type,
            // alignment and length.
            Some(b) if b.may_be_written() => Ok(unsafe { std::slice::from_raw_parts_mut(data, count) }),
            _ => Err(Error::new(codes::VALUE_KIND, "the tensor's memory is shared: copy it first")),
        }
    }

    /// The texts of a string tensor.
    pub fn texts(&self) -> Result<impl ExactSizeIterator<Item = &str> + Clone> {
        if self.dtype != DType::String {
            return Err(Error::new(codes::VALUE_KIND, format!("the tensor holds {}, not strings", self.dtype)));
        }
        let table = self.host_data()?.cast::<raw::Str>();
        // SAFETY: a string tensor of the host is a table of texts in its own block.
        let table = unsafe { raw::slice(table, self.elements()) };
        // SAFETY: as above; the texts live as long as the block.
        Ok(table.iter().map(|t| unsafe { t.as_str() }))
    }

    /// Borrows it. Not outside host memory.
    pub fn view(&self) -> Result<TensorView<'_>> {
        let data = self.host_data()?;
        // SAFETY: host memory of that many bytes that nobody writes while the buffer is shared.
        let data = unsafe { raw::slice(data, self.bytes) };
        Ok(TensorView { dtype: self.dtype, shape: &self.shape, data })
    }
}

impl<'a> TensorView<'a> {
    /// Borrows a slice.
    pub fn new<T: Element>(shape: &'a [i64], data: &'a [T]) -> Result<TensorView<'a>> {
        TensorView::from_bytes(T::DTYPE, shape, bytes_of(data))
    }

    /// Borrows bytes in the form that the type has in memory, at any alignment. Not for strings.
    pub fn from_bytes(dtype: DType, shape: &'a [i64], data: &'a [u8]) -> Result<TensorView<'a>> {
        if dtype == DType::String {
            return Err(Error::new(codes::VALUE_KIND, "strings cannot be borrowed: make a Tensor of them"));
        }
        check_len(dtype, shape, data.len())?;
        Ok(TensorView { dtype, shape, data })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes.
    pub fn shape(&self) -> &'a [i64] {
        self.shape
    }

    /// The elements, if they are of this type.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T]> {
        if self.dtype != T::DTYPE {
            let text = format!("the tensor holds {}, not {}", self.dtype, T::DTYPE);
            return Err(Error::new(codes::VALUE_KIND, text));
        }
        if self.data.is_empty() {
            return Ok(&[]);
        }
        if !T::valid(self.data) || !self.data.as_ptr().addr().is_multiple_of(align_of::<T>()) {
            return Err(Error::new(codes::BAD_VALUE, format!("the bytes are no aligned {}", T::DTYPE)));
        }
        // SAFETY: right type, valid bytes, aligned; the length was checked when the view was made.
        Ok(unsafe { raw::slice(self.data.as_ptr().cast(), self.data.len() / size_of::<T>()) })
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {:?}, {:?})", self.dtype, &self.shape[..], self.buffer)
    }
}

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorView({} {:?})", self.dtype, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_taken_over_without_a_copy() {
        let data = vec![1.0f32, 2.0, 3.0];
        let at = data.as_ptr();
        let t = Tensor::new(&[3, 1], data).unwrap();
        assert_eq!(t.as_slice::<f32>().unwrap().as_ptr(), at);
        assert_eq!((t.shape(), t.elements(), t.dtype()), (&[3i64, 1][..], 3, DType::F32));
        assert!(t.as_slice::<i32>().unwrap_err().is(codes::VALUE_KIND));
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let cases: &[(&[i64], usize)] =
            &[(&[2], 3), (&[-1], 0), (&[i64::MAX, 2], 0), (&[1 << 62], 0), (&[0, i64::MAX], 1)];
        for &(shape, n) in cases {
            assert!(Tensor::new(shape, vec![0f32; n]).unwrap_err().is(codes::BAD_VALUE), "{shape:?}");
        }
        assert!(Tensor::new(&[0, 5], Vec::<f32>::new()).is_ok());
        assert!(Tensor::new(&[], vec![1i64]).is_ok());
        assert_eq!(Tensor::from_bytes(DType::I4, &[3], &[0x21, 3]).unwrap().bytes().unwrap(), [0x21, 3]);
    }

    #[test]
    fn strings_are_kept_in_order() {
        let t = Tensor::strings(&[2, 2], &["", "a", "größer", "日本"]).unwrap();
        assert_eq!(t.texts().unwrap().collect::<Vec<_>>(), ["", "a", "größer", "日本"]);
        assert!(t.bytes().is_err() && t.as_slice::<u8>().is_err());
        assert!(Tensor::strings(&[2], &["a"]).unwrap_err().is(codes::BAD_VALUE));
        assert_eq!(Tensor::strings::<&str>(&[0], &[]).unwrap().texts().unwrap().len(), 0);
    }

    #[test]
    fn only_a_sole_owner_of_memory_may_write() {
        let mut t = Tensor::from_slice(&[2], &[1u8, 2]).unwrap();
        t.as_mut_slice::<u8>().unwrap()[0] = 9;
        let other = t.clone();
        assert!(t.as_mut_slice::<u8>().is_err());
        drop(other);
        assert_eq!(t.as_mut_slice::<u8>().unwrap(), [9, 2]);
        let mut vector = Tensor::new(&[1], vec![1u8]).unwrap();
        vector.as_mut_slice::<u8>().unwrap()[0] = 2;
        assert_eq!(vector.bytes().unwrap(), [2]);
        let theirs = Arc::new([1u8, 2]);
        let (at, owner) = (theirs.as_ptr(), Box::new(Arc::clone(&theirs)));
        // SAFETY: the array lives in the `Arc`, which nobody writes.
        let mut lent = unsafe { Tensor::from_owner(DType::U8, &[2], at, 2, owner) }.unwrap();
        assert!(lent.as_mut_slice::<u8>().is_err() && !lent.is_writable());
    }

    #[test]
    fn bytes_that_are_no_bool_are_not_read_as_bool() {
        let t = Tensor::from_bytes(DType::Bool, &[2], &[1, 2]).unwrap();
        assert!(t.as_slice::<bool>().unwrap_err().is(codes::BAD_VALUE));
        assert_eq!(t.bytes().unwrap(), [1, 2]);
    }
}
