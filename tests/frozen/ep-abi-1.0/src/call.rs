//! Safe wrappers of [`raw::Call`]: one per kind of call, so that an author can only do what that call allows.

use crate::codes::{DType, NoDeviceCode, RejectCode};
use crate::raw::{self, NONE, Str};
use crate::view::{Element, PartDesc, Program, Value};
use core::cell::{Cell, RefCell};
use core::ffi::c_void;
use core::ops::{Deref, Range};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// `FAILED`, `CANCELLED`, `MEMORY`, `LOST`, or the EP's own code above 0.
    pub code: i32,
    /// Node at which it happened, or NONE.
    pub node: u32,
    /// The sentence; empty when the host said it already.
    pub message: String,
}

/// Result of an author's function.
pub type Result<T, E = Error> = core::result::Result<T, E>;

impl Error {
    /// An error with a sentence.
    pub fn new(message: impl Into<String>) -> Self {
        Error { code: raw::FAILED, node: NONE, message: message.into() }
    }

    /// The call was cancelled.
    pub fn cancelled() -> Self {
        Error { code: raw::CANCELLED, node: NONE, message: String::new() }
    }

    /// The device is gone: the host plans without this EP from now on.
    pub fn lost(message: impl Into<String>) -> Self {
        Error { code: raw::LOST, ..Error::new(message) }
    }

    /// With a code of the EP's own, above 0.
    pub fn with_code(self, code: i32) -> Self {
        Error { code, ..self }
    }

    /// At a node.
    pub fn at(self, node: u32) -> Self {
        Error { node, ..self }
    }

    /// The host reported this code and has the sentence.
    pub fn reported(code: i32) -> Self {
        Error { code, node: NONE, message: String::new() }
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} (code {})", self.message, self.code)
    }
}

impl std::error::Error for Error {}

/// What any call offers.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    raw: &'a raw::Call,
    host: &'a raw::HostV1,
}

// SAFETY: the host's functions that `&Call` reaches from other threads are those allowed on any thread.
unsafe impl Sync for Call<'_> {}

impl core::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Call {{ binding: {}, width: {} }}", self.raw.binding, self.raw.width)
    }
}

impl<'a> Call<'a> {
    /// # Safety
    /// `raw` is a call of the host, live for `'a`.
    pub unsafe fn new(raw: &'a raw::Call) -> Self {
        // SAFETY: a call's host table lives as long as the process.
        Call { raw, host: unsafe { &*raw.host } }
    }

    /// The struct behind the wrapper.
    pub fn raw(&self) -> &'a raw::Call {
        self.raw
    }

    /// Is this level (1 error to 5 trace) wanted for the target?
    pub fn log_enabled(&self, level: u32, target: &str) -> bool {
        // SAFETY: texts live over the call.
        unsafe { (self.host.log_enabled)(level, Str::new(target)) != 0 }
    }

    /// Logs a message with the host.
    pub fn log(&self, level: u32, target: &str, message: &str) {
        // SAFETY: texts live over the call.
        unsafe { (self.host.log)(level, Str::new(target), Str::new(message)) }
    }

    /// Nanoseconds on the host's clock.
    pub fn now_ns(&self) -> u64 {
        // SAFETY: no arguments.
        unsafe { (self.host.now_ns)() }
    }

    /// Interns the name of a memory space.
    pub fn space(&self, name: &str) -> u32 {
        // SAFETY: the text lives over the call.
        unsafe { (self.host.space)(Str::new(name)) }
    }

    /// Whether the call should stop.
    pub fn is_cancelled(&self) -> bool {
        if self.raw.cancel.is_null() {
            return false;
        }
        // SAFETY: the word lives as long as the call and is only accessed atomically.
        unsafe { AtomicU32::from_ptr(self.raw.cancel.cast_mut()) }.load(Ordering::Relaxed) != 0
    }

    /// Bodies that `parallel_for` runs at once.
    pub fn width(&self) -> usize {
        self.raw.width.max(1) as usize
    }

    /// Numbers of the program's symbols, or `UNKNOWN`.
    pub fn symbols(&self) -> &'a [i64] {
        // SAFETY: pointer and count belong together.
        unsafe { raw::slice(self.raw.symbols, self.raw.symbol_count as usize) }
    }

    /// Runs `body(worker, range)` over `0..n` in chunks that begin at multiples of `grain`. A panic in a body skips the
    /// rest and goes on in the caller after all have ended. Fails when the call is cancelled.
    pub fn parallel_for<F: Fn(usize, Range<usize>) + Sync>(&self, n: usize, grain: usize, body: F) -> Result<()> {
        let lanes = Lanes { body, stop: AtomicBool::new(false), panic: Mutex::new(None) };
        let user = (&raw const lanes).cast_mut().cast::<c_void>();
        // SAFETY: the host calls the trampoline only before this call returns, with this pointer.
        let code = unsafe { (self.host.parallel_for)(self.raw, n, grain, raw::RangeFn { f: run_lane::<F> }, user) };
        if let Some(panic) = lanes.panic.into_inner().unwrap_or_else(|e| e.into_inner()) {
            resume_unwind(panic);
        }
        check(code)
    }
}

struct Lanes<F> {
    body: F,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

unsafe extern "C" fn run_lane<F: Fn(usize, Range<usize>) + Sync>(
    user: *mut c_void,
    worker: u32,
    begin: usize,
    end: usize,
) {
    // SAFETY: `parallel_for` above passes a live `Lanes<F>`.
    let lanes = unsafe { &*user.cast::<Lanes<F>>() };
    if lanes.stop.load(Ordering::Relaxed) {
        return;
    }
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (lanes.body)(worker as usize, begin..end))) {
        lanes.stop.store(true, Ordering::Relaxed);
        let mut first = lanes.panic.lock().unwrap_or_else(|e| e.into_inner());
        if first.is_none() {
            *first = Some(panic);
        } else {
            drop_payload(panic);
        }
    }
}

/// Drops what a panic carried. The payload's destructor may panic as well; what that one carries is leaked.
pub(crate) fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        core::mem::forget(second);
    }
}

fn check(code: i32) -> Result<()> {
    if code == raw::OK { Ok(()) } else { Err(Error::reported(code)) }
}

macro_rules! kinds {
    ($($(#[$m:meta])* $n:ident;)*) => { $(
        $(#[$m])*
        #[derive(Debug, Clone, Copy)]
        pub struct $n<'a>(pub(crate) Call<'a>);
        impl<'a> Deref for $n<'a> {
            type Target = Call<'a>;
            fn deref(&self) -> &Call<'a> { &self.0 }
        }
    )* };
}

kinds! {
    /// A call that lists devices.
    DevicesCall;
    /// A call that asks which nodes an EP takes.
    ClaimCall;
    /// A call that compiles a part.
    CompileCall;
}

/// A device, as an author states it.
#[derive(Debug, Clone, Default)]
pub struct Device<'a> {
    /// Name that a person knows it by.
    pub name: &'a str,
    /// Maker.
    pub vendor: &'a str,
    /// `DEVICE_CPU`, `DEVICE_GPU`, `DEVICE_NPU`, `DEVICE_OTHER`.
    pub kind: u32,
    /// Number by which it is asked for.
    pub ordinal: u32,
    /// Its memory; 0 is unknown.
    pub memory_bytes: u64,
    /// More about it.
    pub info: &'a [(&'a str, &'a str)],
    /// Wants every symbol bound when it compiles.
    pub static_shapes: bool,
    /// A transfer between its memory and the host's, to begin with, in ns.
    pub transfer_ns: u64,
    /// And bytes per second of a large one; `u64::MAX`: it works in host memory. Both 0: not known.
    pub transfer_bytes_per_s: u64,
}

impl DevicesCall<'_> {
    /// There is this device.
    pub fn device(&self, device: &Device<'_>) {
        let info: Vec<raw::Kv> =
            device.info.iter().map(|&(k, v)| raw::Kv { key: Str::new(k), value: Str::new(v) }).collect();
        let raw = raw::Device {
            name: Str::new(device.name),
            vendor: Str::new(device.vendor),
            kind: device.kind,
            ordinal: device.ordinal,
            memory_bytes: device.memory_bytes,
            info: info.as_ptr(),
            info_count: u32::try_from(info.len()).unwrap_or(u32::MAX),
            flags: if device.static_shapes { raw::DEVICE_STATIC_SHAPES } else { 0 },
            transfer_ns: device.transfer_ns,
            transfer_bytes_per_s: device.transfer_bytes_per_s,
        };
        // SAFETY: everything behind the pointers lives over the call.
        unsafe { (self.host.device)(self.raw, &raw) }
    }

    /// There is none, for this reason.
    pub fn no_device(&self, code: NoDeviceCode, sentence: &str) {
        // SAFETY: the text lives over the call.
        unsafe { (self.host.no_device)(self.raw, code as u32, Str::new(sentence)) }
    }
}

impl ClaimCall<'_> {
    /// These nodes would run here, in about `cost_ns` (NaN: unknown). `whole`: all of them or none.
    pub fn claim(&self, nodes: &[u32], cost_ns: f64, whole: bool) {
        let flags = if whole { raw::CLAIM_WHOLE } else { 0 };
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let claim = raw::Claim { nodes: nodes.as_ptr(), count, flags, cost_ns };
        // SAFETY: everything behind the pointers lives over the call.
        unsafe { (self.host.claim)(self.raw, &claim) }
    }

    /// This node would not, for this reason. The sentence names the attribute, type or dimension.
    pub fn reject(&self, node: u32, code: RejectCode, sentence: &str) {
        // SAFETY: the text lives over the call.
        unsafe { (self.host.reject)(self.raw, node, code as u32, Str::new(sentence)) }
    }
}

impl<'a> CompileCall<'a> {
    /// This constant (by index) will never be read again.
    pub fn done_with(&self, constant: u32) {
        // SAFETY: allowed on any thread of the call.
        unsafe { (self.host.done_with)(self.raw, constant) }
    }

    /// Input `index` is wanted in this memory space.
    pub fn input_port(&self, index: u32, space: u32) {
        // SAFETY: plain numbers, checked by the host.
        unsafe { (self.host.port)(self.raw, 0, index, space) }
    }

    /// Of input `index` only the shape is read: it may lie anywhere.
    pub fn shape_port(&self, index: u32) {
        self.input_port(index, raw::PORT_SHAPE);
    }

    /// Output `index` will be left in this memory space.
    pub fn output_port(&self, index: u32, space: u32) {
        // SAFETY: plain numbers, checked by the host.
        unsafe { (self.host.port)(self.raw, 1, index, space) }
    }

    /// The part as a serialized ONNX model.
    pub fn onnx(&self, program: Program<'_>, part: PartDesc<'_>) -> Result<&'a [u8]> {
        let mut text = Str::new("");
        // SAFETY: all pointers live over the call.
        check(unsafe { (self.host.onnx)(self.raw, program.raw(), part.raw(), &mut text) })?;
        // SAFETY: the host keeps the bytes until the compile call returns.
        Ok(unsafe { text.as_bytes() })
    }
}

/// A call that runs a part or copies a value. It belongs to the thread that it came on.
#[derive(Debug)]
pub struct RunCall<'a> {
    call: Call<'a>,
    /// Outputs below 64 that were asked for; a run allocates nothing for the usual part.
    taken: Cell<u64>,
    /// Those from 64 on.
    taken_far: RefCell<Vec<u32>>,
}

impl<'a> Deref for RunCall<'a> {
    type Target = Call<'a>;
    fn deref(&self) -> &Call<'a> {
        &self.call
    }
}

impl<'a> RunCall<'a> {
    pub(crate) fn new(call: Call<'a>) -> Self {
        RunCall { call, taken: Cell::new(0), taken_far: RefCell::new(Vec::new()) }
    }

    /// Inputs in the part's order.
    pub fn inputs(&self) -> &'a [Value<'a>] {
        // SAFETY: pointer and count belong together; the view is a transparent wrapper.
        unsafe { raw::slice(self.raw.inputs.cast(), self.raw.input_count as usize) }
    }

    /// An input as elements of one type.
    pub fn input<T: Element>(&self, index: usize) -> Result<&'a [T]> {
        let value = self.inputs().get(index).ok_or_else(|| Error::new(format!("the run has no input {index}")))?;
        value
            .as_slice()
            .ok_or_else(|| Error::new(format!("input {index} is {value:?}, not host memory of {}", T::DTYPE)))
    }

    /// `WANT_*` of an output.
    pub fn wants(&self, output: usize) -> u32 {
        // SAFETY: pointer and count belong together.
        let wants = unsafe { raw::slice(self.raw.wants, self.raw.output_count as usize) };
        wants.get(output).copied().unwrap_or(raw::WANT_HOST)
    }

    /// Host memory to write output `index` into: zeroed or stale, `shape` decides the size. Once per index.
    pub fn output<T: Element>(&self, index: u32, shape: &[i64]) -> Result<&'a mut [T]> {
        let value = self.output_value(index, T::DTYPE, shape)?;
        let count = value.bytes as usize / size_of::<T>();
        if count == 0 {
            return Ok(&mut []);
        }
        // SAFETY: the host gives aligned, initialised memory for this output, and only once as `take` checks.
        Ok(unsafe { core::slice::from_raw_parts_mut(value.data.cast(), count) })
    }

    /// As [`output`](Self::output), as a raw value of any type.
    pub fn output_value(&self, index: u32, dtype: DType, shape: &[i64]) -> Result<raw::Value> {
        self.take(index)?;
        let rank = u32::try_from(shape.len()).map_err(|_| Error::new("the rank is too large"))?;
        let mut value = EMPTY;
        // SAFETY: all pointers live over the call.
        check(unsafe { (self.call.host.output)(self.raw, index, dtype as u32, rank, shape.as_ptr(), &mut value) })?;
        Ok(value)
    }

    fn take(&self, index: u32) -> Result<()> {
        let again = match index {
            NONE => false,
            0..64 => {
                let before = self.taken.get();
                self.taken.set(before | 1 << index);
                before & 1 << index != 0
            }
            _ => {
                let mut far = self.taken_far.borrow_mut();
                let again = far.contains(&index);
                far.push(index);
                again
            }
        };
        if again { Err(Error::new(format!("output {index} was asked for twice"))) } else { Ok(()) }
    }

    /// Hands input `from` over as output `index`.
    pub fn give_input(&self, index: u32, from: usize) -> Result<()> {
        let value = self.inputs().get(from).ok_or_else(|| Error::new(format!("the run has no input {from}")))?;
        // SAFETY: the value is one of the call's inputs; nothing is to be released.
        let code = unsafe {
            (self.call.host.give)(self.raw, index, value.raw(), raw::ReleaseFn { f: None }, core::ptr::null_mut())
        };
        check(code)
    }

    /// Hands a value of the EP's own over as output `index`; `owner` is dropped when nobody holds it any more.
    ///
    /// # Safety
    /// `value` describes memory that `owner` keeps alive, in a space of this EP or in host memory.
    pub unsafe fn give_own<T: Send + 'static>(&self, index: u32, value: &raw::Value, owner: Box<T>) -> Result<()> {
        unsafe extern "C" fn release<T>(owner: *mut c_void) {
            // SAFETY: made by `Box::into_raw` below, released once.
            let owner = unsafe { Box::from_raw(owner.cast::<T>()) };
            // A panic of a destructor must not cross; there is nobody to tell.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(owner))) {
                drop_payload(panic);
            }
        }
        let owner = Box::into_raw(owner).cast::<c_void>();
        // SAFETY: the caller's promise; the host calls release once, also when it refuses.
        check(unsafe { (self.call.host.give)(self.raw, index, value, raw::ReleaseFn { f: Some(release::<T>) }, owner) })
    }

    /// Scratch memory, aligned to 64, gone when the call returns.
    pub fn alloc(&self, bytes: usize) -> Result<&'a mut [u8]> {
        // SAFETY: plain numbers.
        let ptr = unsafe { (self.call.host.alloc)(self.raw, bytes as u64) };
        if ptr.is_null() {
            return Err(Error { code: raw::MEMORY, node: NONE, message: format!("no {bytes} bytes of scratch") });
        }
        // SAFETY: fresh memory of the host for this call, zeroed once when it was mapped, and given to nobody else.
        Ok(unsafe { core::slice::from_raw_parts_mut(ptr, bytes) })
    }

    /// Whether events are wanted.
    pub fn is_profiled(&self) -> bool {
        self.raw.flags & raw::CALL_PROFILE != 0
    }

    /// Reports the events of this run. Those that come later are the [`Fence`]'s.
    pub fn profile(&self, events: &[raw::Event]) {
        // SAFETY: pointer and count belong together.
        unsafe { (self.call.host.profile)(self.raw, events.as_ptr(), events.len()) }
    }

    /// The run will be complete only when the fence is. All outputs must have been asked for; until then inputs, outputs
    /// and the lane stay as they are. Fails when the host does not serve `ortolan.host.fence.v1`.
    pub fn defer(&self) -> Result<Fence> {
        // SAFETY: the text lives over the call.
        let table = unsafe { (self.call.host.query)(Str::new(raw::HOST_FENCE_V1_ID)) }.cast::<raw::HostFenceV1>();
        // SAFETY: a served table lives as long as the process.
        let table = unsafe { table.as_ref() }.ok_or_else(|| Error::new("this core serves no fences"))?;
        let mut fence = core::ptr::null_mut();
        // SAFETY: all pointers live over the call.
        check(unsafe { (table.defer)(self.raw, &mut fence) })?;
        Ok(Fence { raw: fence, table })
    }
}

/// A run that has not finished. Dropping it without [`complete`](Self::complete) reports a failure.
#[derive(Debug)]
pub struct Fence {
    raw: *mut raw::Fence,
    table: &'static raw::HostFenceV1,
}

// SAFETY: `complete` may be called on any thread.
unsafe impl Send for Fence {}

impl Fence {
    /// Reports events of the run, if they are wanted.
    pub fn profile(&self, events: &[raw::Event]) {
        if !self.raw.is_null() {
            // SAFETY: pointer and count belong together; the fence is not complete yet.
            unsafe { (self.table.profile)(self.raw, events.as_ptr(), events.len()) }
        }
    }

    /// The run has finished.
    pub fn complete(mut self, result: Result<()>) {
        let (code, message) = match &result {
            Ok(()) => (raw::OK, ""),
            Err(e) => (e.code, e.message.as_str()),
        };
        self.signal(code, message);
    }

    fn signal(&mut self, code: i32, message: &str) {
        let fence = core::mem::replace(&mut self.raw, core::ptr::null_mut());
        if !fence.is_null() {
            // SAFETY: signalled once, as the pointer is gone now.
            unsafe { (self.table.complete)(fence, code, Str::new(message)) }
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.signal(raw::FAILED, "the EP dropped a run without finishing it");
    }
}

/// An absent value.
pub const EMPTY: raw::Value = raw::Value {
    kind: raw::VALUE_ABSENT,
    dtype: 0,
    rank: 0,
    flags: 0,
    shape: core::ptr::null(),
    data: core::ptr::null_mut(),
    bytes: 0,
    space: 0,
    item_count: 0,
    items: core::ptr::null(),
    buffer: core::ptr::null_mut(),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panicking_payload_is_dropped_without_unwinding() {
        struct Bomb(u32);
        impl Drop for Bomb {
            fn drop(&mut self) {
                if self.0 > 0 {
                    std::panic::panic_any(Bomb(self.0 - 1));
                }
            }
        }
        let caught = catch_unwind(|| std::panic::panic_any(Bomb(2))).expect_err("it panics");
        drop_payload(caught);
    }
}
