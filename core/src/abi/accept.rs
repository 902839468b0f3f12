//! Takes a value that an EP gives: checks all that can be checked, then shares, adopts or copies it.

use std::ffi::c_void;
use std::sync::Arc;

use ortolan_ep_abi::raw;
use ortolan_graph::ir::DType;

use super::{Refusal, space};
use crate::error::codes;
use crate::value::{Buffer, Lender, Map, Shape, SpaceId, Tensor, Value, align_of_dtype, byte_len};

/// Nesting of sequences, optionals and maps that a value may have.
const DEPTH: u32 = 8;
/// More dims than any operator makes.
const RANK: u32 = 64;

/// A release function that is owed a call.
pub(crate) struct Release {
    f: raw::ReleaseFn,
    ctx: *mut c_void,
}

impl Release {
    pub fn new(f: raw::ReleaseFn, ctx: *mut c_void) -> Release {
        Release { f, ctx }
    }

    fn is_set(&self) -> bool {
        self.f.f.is_some()
    }

    /// Hands the duty over.
    fn take(mut self) -> (raw::ReleaseFn, *mut c_void) {
        (std::mem::replace(&mut self.f, raw::ReleaseFn { f: None }), self.ctx)
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(f) = self.f.f {
            // SAFETY: the EP handed both over to be called once, on any thread.
            unsafe { f(self.ctx) }
        }
    }
}

/// What the giving call knows.
pub(crate) trait Giver {
    /// The buffer behind a handle, if it belongs to an input or a loose element of this call.
    fn find(&self, buffer: *mut raw::Buffer) -> Option<Arc<Buffer>>;
    /// Whether the address lies in an input that was lent for the run only.
    fn is_borrowed(&self, data: *const u8) -> bool;
    /// What keeps the EP's own memory alive.
    fn lender(&self) -> Arc<dyn Lender>;
}

/// The value, shared (`buffer` is set), adopted (`release` is set), or else the part's constant memory or a copy.
///
/// # Safety
/// `value` and all it points to are live, as the ABI asks of `give`.
pub(crate) unsafe fn accept(value: &raw::Value, release: Release, giver: &dyn Giver) -> Result<Value, Refusal> {
    // SAFETY: the caller's promise.
    unsafe { any(value, release, giver, 0) }
}

/// # Safety
/// As [`accept`].
unsafe fn any(value: &raw::Value, release: Release, giver: &dyn Giver, depth: u32) -> Result<Value, Refusal> {
    if value.kind == raw::VALUE_TENSOR {
        // SAFETY: the caller's promise.
        return unsafe { tensor(value, release, giver) }.map(Value::Tensor);
    }
    if depth >= DEPTH {
        return Err(Refusal::fault(format!("give: values are nested deeper than {DEPTH}")));
    }
    if value.items.is_null() && value.item_count > 0 {
        return Err(Refusal::fault("give: the item list is null"));
    }
    // SAFETY: the caller's promise.
    let raws = unsafe { raw::slice(value.items, value.item_count as usize) };
    let none = || Release::new(raw::ReleaseFn { f: None }, std::ptr::null_mut());
    // Items have no release of their own; the whole's is called once they are copied or shared.
    let items = raws.iter().map(|item| {
        // SAFETY: the caller's promise holds for all that the value points to.
        let item = unsafe { any(item, none(), giver, depth + 1) }?;
        if release.is_set() { detached(item) } else { Ok(item) }
    });
    let items = items.collect::<Result<Vec<_>, Refusal>>()?;
    composite(value.kind, items)
}

fn composite(kind: u32, mut items: Vec<Value>) -> Result<Value, Refusal> {
    match (kind, items.len()) {
        (raw::VALUE_SEQUENCE, _) => Ok(Value::Sequence(items.into())),
        (raw::VALUE_OPTIONAL, 0 | 1) => Ok(Value::Optional(items.pop().map(Arc::new))),
        (raw::VALUE_MAP, 2) => {
            let (values, keys) = (items.pop(), items.pop());
            match (keys, values) {
                (Some(Value::Tensor(keys)), Some(values)) => Ok(Value::Map(Arc::new(Map { keys, values }))),
                _ => Err(Refusal::fault("give: the keys of a map are not a tensor")),
            }
        }
        (kind, n) => Err(Refusal::fault(format!("give: kind {kind} with {n} items is no value"))),
    }
}

/// A copy of what lies in constant memory of the EP, because that memory goes now.
fn detached(value: Value) -> Result<Value, Refusal> {
    match value {
        Value::Tensor(t) if t.is_host() && t.buffer.lender().is_some() => {
            let bytes = t.bytes().map_err(|e| Refusal::fault(e.message()))?;
            copied(t.dtype, &t.shape, bytes).map(Value::Tensor)
        }
        other => Ok(other),
    }
}

fn copied(dtype: DType, shape: &[i64], bytes: &[u8]) -> Result<Tensor, Refusal> {
    Tensor::from_bytes(dtype, shape, bytes).map_err(|e| Refusal::memory(codes::OUT_OF_MEMORY, e.message()))
}

/// Element type, shape and bytes of a tensor that a plugin describes, checked against each other.
///
/// # Safety
/// `shape` is null or has `rank` sizes.
pub(super) unsafe fn describe(dtype: u32, rank: u32, shape: *const i64) -> Result<(DType, Shape, usize), Refusal> {
    let known = i32::try_from(dtype).ok().and_then(DType::from_number);
    let Some(dtype) = known else { return Err(Refusal::fault(format!("{dtype} is no element type"))) };
    if rank > RANK || (rank > 0 && shape.is_null()) {
        return Err(Refusal::fault(format!("rank {rank} is too large or has no shape")));
    }
    // SAFETY: the caller's promise; not null unless empty.
    let shape = Shape::from_slice(unsafe { raw::slice(shape, rank as usize) });
    let bytes = byte_len(dtype, &shape).map_err(|e| Refusal::fault(e.message()))?;
    Ok((dtype, shape, bytes))
}

/// # Safety
/// As [`accept`].
unsafe fn tensor(value: &raw::Value, release: Release, giver: &dyn Giver) -> Result<Tensor, Refusal> {
    // SAFETY: the caller's promise.
    let (dtype, shape, bytes) = unsafe { describe(value.dtype, value.rank, value.shape) }?;
    if !space::known(value.space) {
        return Err(Refusal::fault(format!("give: there is no memory space {}", value.space)));
    }
    let (space, host) = (SpaceId(value.space), value.space == 0);
    if host && value.data.is_null() && bytes > 0 {
        return Err(Refusal::fault("give: the data is null"));
    }
    if !value.buffer.is_null() {
        return shared(value, (dtype, shape, bytes), &release, giver);
    }
    if dtype == DType::String {
        if !host {
            return Err(Refusal::fault("give: strings lie in host memory only"));
        }
        // SAFETY: a string tensor of that many elements, by the caller's promise.
        return unsafe { strings(&shape, value.data) };
    }
    if host && value.bytes < bytes as u64 {
        return Err(Refusal::fault(format!("give: {} bytes, and {dtype} {shape:?} has {bytes}", value.bytes)));
    }
    let aligned = value.data.addr().is_multiple_of(align_of_dtype(dtype));
    if release.is_set() && host && !aligned {
        return Err(Refusal::fault(format!("give: {dtype} at {:p} is not aligned", value.data)));
    }
    if !release.is_set() && host && (!aligned || giver.is_borrowed(value.data)) {
        // SAFETY: the part's constant memory or an input, live now.
        return copied(dtype, &shape, unsafe { raw::slice(value.data, bytes) });
    }
    let capacity = usize::try_from(value.bytes).unwrap_or(usize::MAX).max(bytes);
    let (f, ctx) = release.take();
    let buffer = Buffer::of_ep(value.data, capacity, space, f, ctx, giver.lender());
    Ok(Tensor { dtype, shape, buffer: Arc::new(buffer), at: 0, bytes })
}

fn shared(
    value: &raw::Value,
    (dtype, shape, bytes): (DType, Shape, usize),
    release: &Release,
    giver: &dyn Giver,
) -> Result<Tensor, Refusal> {
    if release.is_set() {
        return Err(Refusal::fault("give: a host buffer and a release function exclude each other"));
    }
    let Some(buffer) = giver.find(value.buffer) else {
        return Err(Refusal::fault("give: the buffer belongs to no input and no loose element of this call"));
    };
    if buffer.space().0 != value.space {
        return Err(Refusal::fault("give: the buffer lies in another memory space"));
    }
    let at = value.data.addr().wrapping_sub(buffer.ptr().addr());
    let inside = at.checked_add(bytes).is_some_and(|end| end <= buffer.capacity());
    if bytes > 0 && (!inside || (value.space != 0 && at != 0)) {
        return Err(Refusal::fault("give: the data lies outside the buffer"));
    }
    if !value.data.addr().is_multiple_of(align_of_dtype(dtype)) && value.space == 0 {
        return Err(Refusal::fault(format!("give: {dtype} at {:p} is not aligned", value.data)));
    }
    Ok(Tensor { dtype, shape, buffer, at: if bytes > 0 { at } else { 0 }, bytes })
}

/// # Safety
/// `table` has as many live texts as the shape has elements.
unsafe fn strings(shape: &[i64], table: *const u8) -> Result<Tensor, Refusal> {
    let count = shape.iter().map(|&d| usize::try_from(d).unwrap_or(0)).product();
    if !table.addr().is_multiple_of(align_of::<raw::Str>()) {
        return Err(Refusal::fault("give: the table of strings is not aligned"));
    }
    // SAFETY: the caller's promise; aligned as just checked.
    let table = unsafe { raw::slice(table.cast::<raw::Str>(), count) };
    // SAFETY: the caller's promise.
    let texts = table.iter().map(|t| unsafe { t.as_bytes() });
    if let Some(bad) = texts.clone().position(|t| std::str::from_utf8(t).is_err()) {
        return Err(Refusal::fault(format!("give: string {bad} is not UTF-8")));
    }
    Tensor::pack_strings(shape, texts).map_err(|e| Refusal::memory(codes::OUT_OF_MEMORY, e.message()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    struct Nobody;
    impl Lender for Nobody {
        fn to_host(&self, t: &Tensor) -> crate::error::Result<Tensor> {
            Ok(t.clone())
        }
    }
    struct Call {
        buffers: Vec<Arc<Buffer>>,
        lent: *const u8,
    }
    impl Giver for Call {
        fn find(&self, buffer: *mut raw::Buffer) -> Option<Arc<Buffer>> {
            self.buffers.iter().find(|b| std::ptr::addr_eq(Arc::as_ptr(b), buffer)).cloned()
        }
        fn is_borrowed(&self, data: *const u8) -> bool {
            data == self.lent
        }
        fn lender(&self) -> Arc<dyn Lender> {
            Arc::new(Nobody)
        }
    }

    unsafe extern "C" fn release(count: *mut c_void) {
        // SAFETY: `owed` passes a counter that outlives all values of its test.
        unsafe { &*count.cast::<AtomicU32>() }.fetch_add(1, SeqCst);
    }
    fn owed(count: &AtomicU32) -> Release {
        Release::new(raw::ReleaseFn { f: Some(release) }, count.as_ptr().cast())
    }
    fn none() -> Release {
        Release::new(raw::ReleaseFn { f: None }, std::ptr::null_mut())
    }
    fn value(shape: &[i64], data: &[f32]) -> raw::Value {
        raw::Value {
            kind: raw::VALUE_TENSOR,
            dtype: 1,
            rank: u32::try_from(shape.len()).unwrap(),
            flags: 0,
            shape: shape.as_ptr(),
            data: data.as_ptr().cast_mut().cast(),
            bytes: size_of_val(data) as u64,
            space: 0,
            item_count: 0,
            items: std::ptr::null(),
            buffer: std::ptr::null_mut(),
        }
    }
    fn give(v: &raw::Value, r: Release, call: &Call) -> Result<Value, String> {
        // SAFETY: test values are live.
        unsafe { accept(v, r, call) }.map_err(|e| e.text.clone())
    }

    #[test]
    fn own_memory_is_released_once_and_a_refused_one_too() {
        let call = Call { buffers: vec![], lent: std::ptr::null() };
        let data = [1.0f32, 2.0, 3.0];
        let count = AtomicU32::new(0);
        let given = give(&value(&[3], &data), owed(&count), &call).unwrap();
        assert_eq!(given.as_slice::<f32>().unwrap().as_ptr(), data.as_ptr());
        assert_eq!(count.load(SeqCst), 0);
        let copy = given.clone();
        drop(given);
        assert_eq!(count.load(SeqCst), 0);
        drop(copy);
        assert_eq!(count.load(SeqCst), 1);
        assert!(give(&raw::Value { dtype: 99, ..value(&[3], &data) }, owed(&count), &call).is_err());
        assert_eq!(count.load(SeqCst), 2);
        let items = [value(&[3], &data), value(&[1], &data[..1])];
        let seq = raw::Value { kind: raw::VALUE_SEQUENCE, item_count: 2, items: items.as_ptr(), ..value(&[], &[]) };
        let Value::Sequence(s) = give(&seq, owed(&count), &call).unwrap() else { panic!("no sequence") };
        assert_eq!(count.load(SeqCst), 3);
        assert_ne!(s[0].as_slice::<f32>().unwrap().as_ptr(), data.as_ptr());
    }

    #[test]
    fn shared_buffers_are_found_and_checked() {
        let (buffer, count) = (Arc::new(Buffer::host(64).unwrap()), AtomicU32::new(0));
        let call = Call { buffers: vec![Arc::clone(&buffer)], lent: std::ptr::null() };
        let at = |offset: usize| raw::Value {
            // SAFETY: at most one behind the block.
            data: unsafe { buffer.ptr().add(offset) },
            buffer: Arc::as_ptr(&buffer).cast_mut().cast(),
            ..value(&[4], &[])
        };
        let Value::Tensor(t) = give(&at(16), none(), &call).unwrap() else { panic!("no tensor") };
        assert_eq!((t.at, t.bytes, Arc::strong_count(&buffer)), (16, 16, 3));
        for (v, text) in [
            (at(52), "outside the buffer"),
            (at(2), "not aligned"),
            (raw::Value { buffer: std::ptr::without_provenance_mut(64), ..at(0) }, "belongs to no input"),
            (raw::Value { space: u32::MAX, ..at(0) }, "no memory space"),
        ] {
            let error = give(&v, none(), &call).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        assert!(give(&at(0), owed(&count), &call).unwrap_err().contains("exclude each other"));
    }

    #[test]
    fn lent_and_misaligned_memory_is_copied() {
        let data = [1.0f32, 2.0];
        for lent in [true, false] {
            let call = Call { buffers: vec![], lent: if lent { data.as_ptr().cast() } else { std::ptr::null() } };
            let v = give(&value(&[2], &data), none(), &call).unwrap();
            assert_eq!(v.as_slice::<f32>().unwrap(), data);
            assert_eq!(v.as_slice::<f32>().unwrap().as_ptr() != data.as_ptr(), lent);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let call = Call { buffers: vec![], lent: std::ptr::null() };
        let data = [0.0f32; 4];
        let texts = [raw::Str { ptr: [0xffu8].as_ptr(), len: 1 }];
        let string = raw::Value { dtype: 8, data: texts.as_ptr().cast_mut().cast(), ..value(&[1], &[]) };
        for (v, text) in [
            (raw::Value { dtype: 0, ..value(&[4], &data) }, "0 is no element type"),
            (raw::Value { rank: 65, ..value(&[4], &data) }, "rank 65"),
            (raw::Value { shape: std::ptr::null(), ..value(&[4], &data) }, "rank 1"),
            (value(&[-4], &data), "[-4]"),
            (value(&[i64::MAX, 2], &data), "shape"),
            (raw::Value { data: std::ptr::null_mut(), ..value(&[4], &data) }, "data is null"),
            (raw::Value { bytes: 12, ..value(&[4], &data) }, "12 bytes"),
            (raw::Value { kind: 9, ..value(&[4], &data) }, "kind 9"),
            (raw::Value { kind: raw::VALUE_ABSENT, ..value(&[4], &data) }, "kind 0"),
            (raw::Value { kind: raw::VALUE_SEQUENCE, item_count: 1, ..value(&[], &data) }, "item list is null"),
            (string, "not UTF-8"),
        ] {
            let error = give(&v, none(), &call).unwrap_err();
            assert!(error.contains(text), "{text}: {error}");
        }
    }
}
