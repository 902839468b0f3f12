//! The one table of host functions. Each function is a thin barrier: no panic leaves it, and a wrong call is refused.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::time::Instant;

use ortolan_ep_abi::raw::{self, Call, FAILED, HostFenceV1, HostV1, NONE, OK, Str};
use tracing::Level;

use super::accept::{Release, describe};
use super::ctx::{Ctx, Kind, Refusal};
use super::fence::Fence;
use super::{sentence, space};
use crate::pool::{Pool, Work};

/// Target of plugins' log lines; the plugin's own target is the field `plugin_target`.
const LOG: &str = "ortolan::ep";

static HOST: HostV1 = HostV1 {
    struct_size: size_of::<HostV1>() as u32,
    version: 1,
    log_enabled,
    log,
    now_ns,
    space: intern,
    query,
    error,
    device,
    no_device,
    claim,
    reject,
    onnx,
    done_with,
    port,
    output,
    give,
    alloc,
    parallel_for,
    profile,
};

static FENCE: HostFenceV1 =
    HostFenceV1 { struct_size: size_of::<HostFenceV1>() as u32, version: 1, defer, complete, profile: profile_late };

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The table that every call carries.
pub fn host_table() -> &'static HostV1 {
    &HOST
}

/// Nanoseconds on the clock of events.
pub(crate) fn now() -> u64 {
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Keeps a panic of the host (of a log subscriber, say) on its side.
#[inline]
fn barrier<T>(otherwise: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(otherwise)
}

/// Runs `f` with the call's context; a refusal is kept there and becomes the status.
///
/// # Safety
/// As [`Ctx::of`].
#[inline]
unsafe fn within(call: *const Call, function: &str, f: impl FnOnce(&Ctx<'_>) -> Result<(), Refusal>) -> i32 {
    barrier(FAILED, || {
        // SAFETY: the caller's promise.
        let Some(ctx) = (unsafe { Ctx::of(call) }) else {
            tracing::error!("{function} was called without a call of this host");
            return FAILED;
        };
        match f(ctx) {
            Ok(()) => OK,
            Err(refusal) => ctx.refuse(refusal),
        }
    })
}

fn wrong_kind(function: &str, wants: &str) -> Refusal {
    Refusal::fault(format!("{function} was called outside {wants}"))
}

macro_rules! by_level {
    ($level:expr, $do:ident!($($arg:tt)*)) => {
        match $level {
            0 | 1 => tracing::$do!(target: LOG, Level::ERROR $($arg)*),
            2 => tracing::$do!(target: LOG, Level::WARN $($arg)*),
            3 => tracing::$do!(target: LOG, Level::INFO $($arg)*),
            4 => tracing::$do!(target: LOG, Level::DEBUG $($arg)*),
            _ => tracing::$do!(target: LOG, Level::TRACE $($arg)*),
        }
    };
}

unsafe extern "C" fn log_enabled(level: u32, _target: Str) -> u32 {
    barrier(0, || u32::from(by_level!(level, enabled!())))
}

unsafe extern "C" fn log(level: u32, target: Str, message: Str) {
    barrier((), || {
        // SAFETY: the plugin's texts live over the call.
        let (target, message) = unsafe { (target.as_str(), message.as_str()) };
        by_level!(level, event!(, plugin_target = target, "{message}"));
    });
}

unsafe extern "C" fn now_ns() -> u64 {
    now()
}

unsafe extern "C" fn intern(name: Str) -> u32 {
    // SAFETY: the plugin's text lives over the call.
    barrier(NONE, || space::space(unsafe { name.as_str() }).map_or(NONE, |id| id.0))
}

unsafe extern "C" fn query(id: Str) -> *const c_void {
    // SAFETY: the plugin's text lives over the call.
    match unsafe { id.as_str() } {
        raw::HOST_V1_ID => (&raw const HOST).cast(),
        raw::HOST_FENCE_V1_ID => (&raw const FENCE).cast(),
        _ => std::ptr::null(),
    }
}

unsafe extern "C" fn error(call: *const Call, code: i32, node: u32, text: Str) -> i32 {
    let code = if code == OK { FAILED } else { code };
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "error", |ctx| {
            ctx.report(node, sentence(text));
            Ok(())
        })
    };
    code
}

unsafe extern "C" fn device(call: *const Call, device: *const raw::Device) {
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "device", |ctx| match ctx.kind("device")? {
            Kind::Devices(list) => {
                let device = device.as_ref().ok_or_else(|| Refusal::fault("device: the device is null"))?;
                list.borrow_mut().add(device)
            }
            _ => Err(wrong_kind("device", "devices")),
        })
    };
}

unsafe extern "C" fn no_device(call: *const Call, code: u32, text: Str) {
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "no_device", |ctx| match ctx.kind("no_device")? {
            Kind::Devices(list) => {
                list.borrow_mut().add_reason(code, text);
                Ok(())
            }
            _ => Err(wrong_kind("no_device", "devices")),
        })
    };
}

unsafe extern "C" fn claim(call: *const Call, claim: *const raw::Claim) {
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "claim", |ctx| match ctx.kind("claim")? {
            Kind::Claim(claims) => {
                let claim = claim.as_ref().ok_or_else(|| Refusal::fault("claim: the claim is null"))?;
                claims.borrow_mut().claim(claim);
                Ok(())
            }
            _ => Err(wrong_kind("claim", "claim")),
        })
    };
}

unsafe extern "C" fn reject(call: *const Call, node: u32, code: u32, text: Str) {
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "reject", |ctx| match ctx.kind("reject")? {
            Kind::Claim(claims) => {
                claims.borrow_mut().reject(node, code, text);
                Ok(())
            }
            _ => Err(wrong_kind("reject", "claim")),
        })
    };
}

unsafe extern "C" fn onnx(
    call: *const Call,
    _program: *const raw::Program,
    part: *const raw::PartDesc,
    out: *mut Str,
) -> i32 {
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "onnx", |ctx| match ctx.kind("onnx")? {
            Kind::Compile(compiling) => {
                let part = part.as_ref().ok_or_else(|| Refusal::fault("onnx: the part is null"))?;
                let out = out.as_mut().ok_or_else(|| Refusal::fault("onnx: there is nowhere to put the bytes"))?;
                let refuse = |e: crate::error::Error| Refusal::fault(e.to_string());
                let bytes = (compiling.onnx)(part).map_err(refuse)?;
                *out = Str { ptr: bytes.as_ptr(), len: bytes.len() };
                compiling.bytes.borrow_mut().push(bytes);
                Ok(())
            }
            _ => Err(wrong_kind("onnx", "compile")),
        })
    }
}

unsafe extern "C" fn done_with(call: *const Call, constant: u32) {
    // SAFETY: the plugin's call. On any thread: what it touches is atomic.
    unsafe {
        within(call, "done_with", |ctx| match ctx.kind_anywhere() {
            Kind::Compile(compiling) => compiling.done_with(constant),
            _ => Err(wrong_kind("done_with", "compile")),
        })
    };
}

unsafe extern "C" fn port(call: *const Call, direction: u32, index: u32, to: u32) {
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "port", |ctx| match ctx.kind("port")? {
            Kind::Compile(compiling) => compiling.port(direction, index, to),
            _ => Err(wrong_kind("port", "compile")),
        })
    };
}

unsafe extern "C" fn output(
    call: *const Call,
    index: u32,
    dtype: u32,
    rank: u32,
    shape: *const i64,
    out: *mut raw::Value,
) -> i32 {
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "output", |ctx| {
            let sink = ctx.run("output")?;
            let out = out.as_mut().ok_or_else(|| Refusal::fault("output: there is nowhere to put the value"))?;
            if rank > 64 || (rank > 0 && shape.is_null()) {
                // Says what is wrong with it.
                describe(dtype, rank, shape)?;
            }
            sink.output(index, dtype, raw::slice(shape, rank as usize), out)
        })
    }
}

unsafe extern "C" fn give(
    call: *const Call,
    index: u32,
    value: *const raw::Value,
    release: raw::ReleaseFn,
    user: *mut c_void,
) -> i32 {
    // Owed from here on, whatever happens.
    let release = Release::new(release, user);
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "give", |ctx| {
            let sink = ctx.run("give")?;
            let value = value.as_ref().ok_or_else(|| Refusal::fault("give: the value is null"))?;
            sink.give(index, value, release)
        })
    }
}

unsafe extern "C" fn alloc(call: *const Call, bytes: u64) -> *mut u8 {
    let mut ptr = std::ptr::null_mut();
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "alloc", |ctx| {
            ptr = ctx.run("alloc")?.alloc(bytes)?;
            Ok(())
        })
    };
    ptr
}

unsafe extern "C" fn parallel_for(
    call: *const Call,
    n: usize,
    grain: usize,
    f: raw::RangeFn,
    user: *mut c_void,
) -> i32 {
    // SAFETY: the plugin's call.
    let Some(ctx) = (unsafe { Ctx::of(call) }) else {
        tracing::error!("parallel_for was called without a call of this host");
        return FAILED;
    };
    let work = Work { n, grain, width: ctx.width(), cancel: ctx.cancel(), owner: ctx.owner() };
    // SAFETY: the ABI asks of a body that it may run on any thread and never unwinds.
    barrier(FAILED, || unsafe { Pool::global().run(work, f, user) })
}

unsafe extern "C" fn profile(call: *const Call, events: *const raw::Event, count: usize) {
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "profile", |ctx| {
            ctx.run("profile")?.profile(raw::slice(events, count));
            Ok(())
        })
    };
}

unsafe extern "C" fn defer(call: *const Call, out: *mut *mut raw::Fence) -> i32 {
    // SAFETY: the plugin's call.
    unsafe {
        within(call, "defer", |ctx| {
            let out = out.as_mut().ok_or_else(|| Refusal::fault("defer: there is nowhere to put the fence"))?;
            *out = ctx.run("defer")?.defer()?;
            Ok(())
        })
    }
}

unsafe extern "C" fn complete(fence: *mut raw::Fence, status: i32, text: Str) {
    barrier((), || {
        if !Fence::complete(fence, status, sentence(text)) {
            tracing::error!("a fence was completed that is not open: twice, or after the host had given it up");
        }
    });
}

unsafe extern "C" fn profile_late(fence: *mut raw::Fence, events: *const raw::Event, count: usize) {
    barrier((), || {
        // SAFETY: the plugin's list lives over the call.
        if !Fence::profile(fence, unsafe { raw::slice(events, count) }) {
            tracing::error!("events came for a fence that is not open");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::ctx::call as make;
    use crate::abi::{Claims, DeviceList, RunSink, Setup};
    use crate::error::codes;
    use std::cell::{RefCell, UnsafeCell};

    struct Nothing(Vec<String>);
    impl RunSink for Nothing {
        fn output(&mut self, index: u32, _: u32, shape: &[i64], _: &mut raw::Value) -> Result<(), Refusal> {
            self.0.push(format!("output {index} {shape:?}"));
            Err(Refusal::fault("none here"))
        }
        fn give(&mut self, _: u32, _: &raw::Value, _: Release) -> Result<(), Refusal> {
            Ok(())
        }
        fn alloc(&mut self, _: u64) -> Result<*mut u8, Refusal> {
            Err(Refusal::fault("none here"))
        }
        fn profile(&mut self, events: &[raw::Event]) {
            self.0.push(format!("{} events", events.len()));
        }
        fn defer(&mut self) -> Result<*mut raw::Fence, Refusal> {
            Err(Refusal::fault("no"))
        }
    }

    fn text(e: Result<(), crate::error::Error>) -> String {
        e.map_or_else(|e| e.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn functions_of_another_kind_of_call_are_refused() {
        fn claim_nothing(c: *const Call) {
            // SAFETY: a live call and an empty claim.
            unsafe { (HOST.claim)(c, &raw::Claim { nodes: std::ptr::null(), count: 0, flags: 0, cost_ns: 0.0 }) }
        }
        fn no_device(c: *const Call) {
            // SAFETY: a live call; null is refused.
            unsafe { (HOST.device)(c, std::ptr::null()) }
        }
        fn first_port(c: *const Call) {
            // SAFETY: a live call and plain numbers.
            unsafe { (HOST.port)(c, 0, 0, 0) }
        }
        fn done(c: *const Call) {
            // SAFETY: a live call and a plain number.
            unsafe { (HOST.done_with)(c, 0) }
        }
        fn scratch(c: *const Call) {
            // SAFETY: a live call and a plain number.
            assert!(unsafe { (HOST.alloc)(c, 8) }.is_null());
        }
        fn bytes(c: *const Call) {
            // SAFETY: a live call; nulls are refused.
            unsafe { (HOST.onnx)(c, std::ptr::null(), std::ptr::null(), std::ptr::null_mut()) };
        }
        type Case = (&'static str, fn(*const Call));
        let cases: &[Case] = &[
            ("claim was called outside claim", claim_nothing),
            ("device was called outside devices", no_device),
            ("port was called outside compile", first_port),
            ("done_with was called outside compile", done),
            ("alloc was called outside run and copy", scratch),
            ("onnx was called outside compile", bytes),
        ];
        for (want, f) in cases {
            let got = make(&Setup::plain("fake", 1), Kind::Plain, codes::EP_FAILED, |c| {
                f(c);
                FAILED
            });
            assert_eq!(text(got), format!("EP 'fake': {want} [ep-fault]"));
        }
    }

    #[test]
    fn calls_that_are_none_of_ours_do_nothing() {
        // SAFETY: null and foreign calls are what is tried; the foreign one is a live struct.
        unsafe {
            assert_eq!((HOST.error)(std::ptr::null(), 0, NONE, Str::new("x")), FAILED);
            assert_eq!((HOST.error)(std::ptr::null(), 5, NONE, Str::new("x")), 5);
            let mut foreign = std::mem::zeroed::<Call>();
            foreign.host = (&raw const FENCE).cast();
            assert!((HOST.alloc)(&foreign, 8).is_null());
            assert_eq!((HOST.output)(&foreign, 0, 1, 0, std::ptr::null(), std::ptr::null_mut()), FAILED);
            (HOST.profile)(std::ptr::null(), std::ptr::null(), 3);
            assert_eq!(
                (HOST.parallel_for)(std::ptr::null(), 1, 1, raw::RangeFn { f: never }, std::ptr::null_mut()),
                FAILED
            );
        }
    }

    unsafe extern "C" fn never(_: *mut c_void, _: u32, _: usize, _: usize) {
        unreachable!("the call was refused");
    }

    #[test]
    fn a_run_function_on_another_thread_is_refused() {
        struct Sent(*const Call);
        // SAFETY: the call outlives the scope that it is sent into.
        unsafe impl Send for Sent {}
        let mut sink = Nothing(Vec::new());
        let kind = Kind::Run(UnsafeCell::new(&mut sink));
        let got = make(&Setup::plain("fake", 1), kind, codes::EP_FAILED, |c| {
            let sent = Sent(c);
            std::thread::scope(|s| {
                let other = s.spawn(move || {
                    let sent = sent;
                    // SAFETY: the call is live.
                    unsafe { (HOST.alloc)(sent.0, 8) }.is_null()
                });
                assert!(other.join().unwrap());
            });
            FAILED
        });
        assert!(text(got).contains("alloc was called on another thread"));
    }

    #[test]
    fn the_first_host_refusal_decides_and_own_codes_are_kept() {
        let mut sink = Nothing(Vec::new());
        let kind = Kind::Run(UnsafeCell::new(&mut sink));
        // SAFETY: the call is live.
        let got = make(&Setup::plain("fake", 1), kind, codes::EP_FAILED, |c| unsafe {
            (HOST.profile)(c, std::ptr::null(), 0);
            let mut out = ortolan_ep_abi::call::EMPTY;
            assert_eq!((HOST.output)(c, 0, 1, 65, std::ptr::null(), &mut out), FAILED);
            (HOST.error)(c, (HOST.output)(c, 2, 1, 1, &7, &mut out), NONE, Str::new("could not"))
        });
        assert!(text(got).contains("rank 65"));
        assert_eq!(sink.0, ["0 events", "output 2 [7]"]);
        // SAFETY: the call is live.
        let got = make(&Setup::plain("fake", 1), Kind::Plain, codes::EP_FAILED, |c| unsafe {
            (HOST.error)(c, 42, 3, Str::new("no such option"))
        });
        assert_eq!(text(got), "node 3: EP 'fake': no such option (its code 42) [ep-failed]");
        let got = make(&Setup::plain("fake", 1), Kind::Plain, codes::EP_FAILED, |_| raw::PANIC);
        assert!(text(got).ends_with("[ep-panic]"));
    }

    #[test]
    fn a_plugin_that_writes_past_its_call_is_caught() {
        for at in [0, std::mem::offset_of!(Call, flags), size_of::<Call>()] {
            // SAFETY: the bytes belong to the guarded call, as a plugin built with other declarations would write them.
            let got = make(&Setup::plain("fake", 1), Kind::Plain, codes::EP_FAILED, |c| unsafe {
                c.cast::<u8>().cast_mut().add(at).cast::<u32>().write(7);
                OK
            });
            assert!(text(got).contains("wrote into or past the call"), "at {at}");
        }
    }

    #[test]
    fn devices_and_claims_are_collected() {
        let (list, claims) = (RefCell::new(DeviceList::default()), RefCell::new(Claims::new(&[1, 2])));
        let device = raw::Device {
            name: Str::new("one"),
            vendor: Str::new("us"),
            kind: 2,
            ordinal: 4,
            memory_bytes: 9,
            info: &raw::Kv { key: Str::new("k"), value: Str::new("v") },
            info_count: 1,
            flags: raw::DEVICE_STATIC_SHAPES,
            transfer_ns: 5,
            transfer_bytes_per_s: 6,
        };
        // SAFETY: calls and arguments are live.
        let done = make(&Setup::plain("fake", 1), Kind::Devices(&list), codes::EP_FAILED, |c| unsafe {
            (HOST.device)(c, &device);
            (HOST.no_device)(c, 1, Str::new("no driver for the second"));
            OK
        });
        assert_eq!(text(done), "fine");
        let list = list.into_inner();
        assert!(list.devices[0].static_shapes && list.devices[0].info == [("k".to_owned(), "v".to_owned())]);
        assert_eq!((list.devices[0].transfer_ns, list.devices[0].transfer_bytes_per_s), (5, 6));
        assert_eq!(list.reasons[0].known.map(|c| c.as_str()), Some("no-driver"));
        // SAFETY: as above.
        let done = make(&Setup::plain("fake", 1), Kind::Claim(&claims), codes::EP_FAILED, |c| unsafe {
            (HOST.claim)(c, &raw::Claim { nodes: &2, count: 1, flags: 0, cost_ns: 5.0 });
            (HOST.reject)(c, 1, 1, Str::new("no Foo"));
            OK
        });
        assert_eq!(text(done), "fine");
        assert_eq!(claims.into_inner().finish().groups[0].nodes, [2]);
    }

    #[test]
    fn spaces_and_tables_are_served() {
        // SAFETY: texts are live.
        unsafe {
            assert_eq!((HOST.space)(Str::new("host")), 0);
            assert_eq!((HOST.space)(Str::new("tbl")), (HOST.space)(Str::new("tbl")));
            assert_eq!((HOST.query)(Str::new(raw::HOST_V1_ID)), (&raw const HOST).cast());
            assert_eq!((HOST.query)(Str::new(raw::HOST_FENCE_V1_ID)), (&raw const FENCE).cast());
            assert!((HOST.query)(Str::new("ortolan.host.v9")).is_null());
            (HOST.log)(3, Str::new("t"), Str::new("hello"));
            assert!((HOST.now_ns)() <= (HOST.now_ns)());
        }
    }
}
