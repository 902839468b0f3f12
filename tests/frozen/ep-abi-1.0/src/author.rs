//! What Rust authors implement, and the C table made from it.
//!
//! Every exported function is a barrier: a panic becomes code `PANIC` with the text and place of the panic.

use crate::call::{Call, ClaimCall, CompileCall, DevicesCall, Error, Result, RunCall, drop_payload};
use crate::plugin;
use crate::raw::{self, NONE, Str};
use crate::view::{PartDesc, Program};
use core::ffi::c_void;
use core::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One per process and library.
pub trait Factory: Send + Sync + Sized + 'static {
    /// Its EPs.
    type Ep: Ep;
    /// Starts no device and no thread; may refuse the host.
    fn new(call: &Call<'_>) -> Result<Self>;
    /// Lists devices, or says why there is none.
    fn devices(&self, call: &DevicesCall<'_>) -> Result<()>;
    /// An EP for one session on one device. An unknown option is an error.
    fn create(&self, call: &Call<'_>, device: u32, options: Options<'_>) -> Result<Self::Ep>;
    /// Lets go of whatever it keeps for EPs to come: opened devices, compiled kernels. Those in use stay.
    fn trim(&self) {}
}

/// One per session and device.
pub trait Ep: Send + Sync + Sized + 'static {
    /// Its compiled parts.
    type Part: Part;
    /// Whether [`copy`](Self::copy) is implemented: required of an EP that owns a memory space.
    const COPIES: bool = false;
    /// Claims or rejects every node of the part, once. Keeps no memory of earlier calls.
    fn claim(&self, call: &ClaimCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<()>;
    /// Compiles a part.
    fn compile(&self, call: &CompileCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<Self::Part>;
    /// Copies every input k to output k in the given space. All inputs lie in one space.
    fn copy(&self, _call: &RunCall<'_>, _space: u32) -> Result<()> {
        Err(Error::new("this EP has no memory space of its own"))
    }
}

/// A compiled part; many threads run it at once, each with a lane of its own.
pub trait Part: Send + Sync + 'static {
    /// Whatever changes during a run.
    type Lane: Default + Send + 'static;
    /// Computes the outputs.
    fn run(&self, lane: &mut Self::Lane, call: &RunCall<'_>) -> Result<()>;
}

/// Options of a session for one EP.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a>(&'a [raw::Kv]);

impl<'a> Options<'a> {
    /// Keys and values.
    pub fn iter(self) -> impl ExactSizeIterator<Item = (&'a str, &'a str)> {
        // SAFETY: the texts live as long as the options.
        self.0.iter().map(|kv| unsafe { (kv.key.as_str(), kv.value.as_str()) })
    }
}

/// The C table of one author type. `OWN_STD`: the library has a standard library of its own (a cdylib), so that its
/// panic hook and tracing dispatcher are its own to set.
#[derive(Debug)]
pub struct Table<F, const OWN_STD: bool>(PhantomData<F>);

impl<F: Factory, const OWN_STD: bool> Table<F, OWN_STD> {
    /// `ortolan.ep.v1`.
    pub const V1: raw::EpV1 = raw::EpV1 {
        struct_size: size_of::<raw::EpV1>() as u32,
        version: 1,
        factory_new: Self::factory_new,
        factory_free: Self::factory_free,
        devices: Self::devices,
        ep_new: Self::ep_new,
        ep_free: Self::ep_free,
        claim: Self::claim,
        compile: Self::compile,
        part_free: Self::part_free,
        run: Self::run,
        lane_free: Self::lane_free,
        copy: if <F::Ep as Ep>::COPIES { Some(Self::copy) } else { None },
        factory_trim: Some(Self::factory_trim),
    };

    unsafe extern "C" fn factory_new(call: *const raw::Call, out: *mut *mut raw::Factory) -> i32 {
        // SAFETY: the host's call.
        let call = unsafe { Call::new(&*call) };
        if OWN_STD {
            plugin::install(call.raw().host);
        }
        guard(&call, || {
            let factory = into_handle(F::new(&call)?);
            // SAFETY: the host's out pointer.
            unsafe { *out = factory };
            Ok(())
        })
    }

    unsafe extern "C" fn factory_free(factory: *mut raw::Factory) {
        // SAFETY: made by `factory_new`, freed once.
        unsafe { free::<F>(factory.cast()) }
    }

    unsafe extern "C" fn factory_trim(factory: *mut raw::Factory) {
        // SAFETY: made by `factory_new`.
        let factory = unsafe { &*factory.cast::<F>() };
        quietly("trimming", || factory.trim());
    }

    unsafe extern "C" fn devices(factory: *mut raw::Factory, call: *const raw::Call) -> i32 {
        // SAFETY: the host's call.
        let call = DevicesCall(unsafe { Call::new(&*call) });
        // SAFETY: made by `factory_new`.
        let factory = unsafe { &*factory.cast::<F>() };
        guard(&call, || factory.devices(&call))
    }

    unsafe extern "C" fn ep_new(
        factory: *mut raw::Factory,
        call: *const raw::Call,
        device: u32,
        options: *const raw::Kv,
        count: usize,
        out: *mut *mut raw::Ep,
    ) -> i32 {
        // SAFETY: the host's call.
        let call = unsafe { Call::new(&*call) };
        // SAFETY: made by `factory_new`.
        let factory = unsafe { &*factory.cast::<F>() };
        // SAFETY: pointer and count belong together.
        let options = Options(unsafe { raw::slice(options, count) });
        guard(&call, || {
            let ep = into_handle(factory.create(&call, device, options)?);
            // SAFETY: the host's out pointer.
            unsafe { *out = ep };
            Ok(())
        })
    }

    unsafe extern "C" fn ep_free(ep: *mut raw::Ep) {
        // SAFETY: made by `ep_new`, freed once.
        unsafe { free::<F::Ep>(ep.cast()) }
    }

    unsafe extern "C" fn claim(
        ep: *mut raw::Ep,
        call: *const raw::Call,
        program: *const raw::Program,
        part: *const raw::PartDesc,
    ) -> i32 {
        // SAFETY: the host's call.
        let call = ClaimCall(unsafe { Call::new(&*call) });
        // SAFETY: made by `ep_new`.
        let ep = unsafe { &*ep.cast::<F::Ep>() };
        // SAFETY: the host's program and part live over the call.
        let (program, part) = unsafe { (Program::new(&*program), PartDesc::new(&*part)) };
        guard(&call, || ep.claim(&call, program, part))
    }

    unsafe extern "C" fn compile(
        ep: *mut raw::Ep,
        call: *const raw::Call,
        program: *const raw::Program,
        part: *const raw::PartDesc,
        out: *mut *mut raw::Part,
    ) -> i32 {
        // SAFETY: the host's call.
        let call = CompileCall(unsafe { Call::new(&*call) });
        // SAFETY: made by `ep_new`.
        let ep = unsafe { &*ep.cast::<F::Ep>() };
        // SAFETY: the host's program and part live over the call.
        let (program, part) = unsafe { (Program::new(&*program), PartDesc::new(&*part)) };
        guard(&call, || {
            let part = into_handle(ep.compile(&call, program, part)?);
            // SAFETY: the host's out pointer.
            unsafe { *out = part };
            Ok(())
        })
    }

    unsafe extern "C" fn part_free(part: *mut raw::Part) {
        // SAFETY: made by `compile`, freed once.
        unsafe { free::<<F::Ep as Ep>::Part>(part.cast()) }
    }

    unsafe extern "C" fn run(part: *const raw::Part, lane: *mut *mut raw::Lane, call: *const raw::Call) -> i32 {
        type LaneOf<F> = <<<F as Factory>::Ep as Ep>::Part as Part>::Lane;
        // SAFETY: the host's call.
        let call = RunCall::new(unsafe { Call::new(&*call) });
        // SAFETY: made by `compile`.
        let part = unsafe { &*part.cast::<<F::Ep as Ep>::Part>() };
        guard(&call, || {
            // SAFETY: the host's slot, used by nobody else during this call.
            let slot = unsafe { &mut *lane };
            if slot.is_null() {
                *slot = into_handle(LaneOf::<F>::default());
            }
            // SAFETY: made above, and used by nobody else during this call.
            part.run(unsafe { &mut *slot.cast::<LaneOf<F>>() }, &call)
        })
    }

    unsafe extern "C" fn lane_free(_part: *const raw::Part, lane: *mut raw::Lane) {
        // SAFETY: made by `run`, freed once.
        unsafe { free::<<<F::Ep as Ep>::Part as Part>::Lane>(lane.cast()) }
    }

    unsafe extern "C" fn copy(ep: *mut raw::Ep, call: *const raw::Call, space: u32) -> i32 {
        // SAFETY: the host's call.
        let call = RunCall::new(unsafe { Call::new(&*call) });
        // SAFETY: made by `ep_new`.
        let ep = unsafe { &*ep.cast::<F::Ep>() };
        guard(&call, || ep.copy(&call, space))
    }
}

/// The `query` function of an entry that serves one table.
///
/// # Safety
/// `id` describes live text.
pub unsafe fn query(id: Str, v1: &'static raw::EpV1) -> *const c_void {
    // SAFETY: the caller's promise.
    match unsafe { id.as_str() } {
        raw::EP_V1_ID => core::ptr::from_ref(v1).cast(),
        _ => core::ptr::null(),
    }
}

fn into_handle<T, H>(object: T) -> *mut H {
    Box::into_raw(Box::new(object)).cast()
}

/// Drops an object behind a handle; a panic is logged.
///
/// # Safety
/// `object` was made by `into_handle::<T, _>` and is not used again.
unsafe fn free<T>(object: *mut c_void) {
    // SAFETY: the caller's promise.
    let object = unsafe { Box::from_raw(object.cast::<T>()) };
    quietly("freeing", || drop(object));
}

/// Does what can report nothing; a panic is logged.
fn quietly(what: &str, f: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(f)) {
        plugin::log(1, &format!("panic while {what}: {}", plugin::panic_text(panic.as_ref())));
        drop_payload(panic);
    }
}

/// Runs an author's function inside the barrier and reports its error to the host.
pub(crate) fn guard(call: &Call<'_>, f: impl FnOnce() -> Result<()>) -> i32 {
    let error = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => return raw::OK,
        Ok(Err(error)) => error,
        Err(panic) => {
            let message = format!("panic: {}", plugin::panic_text(panic.as_ref()));
            drop_payload(panic);
            Error { code: raw::PANIC, node: NONE, message }
        }
    };
    let code = if error.code == raw::OK { raw::FAILED } else { error.code };
    if error.message.is_empty() {
        return code;
    }
    // SAFETY: the host's call and its table.
    unsafe { ((*call.raw().host).error)(call.raw(), code, error.node, Str::new(&error.message)) }
}
