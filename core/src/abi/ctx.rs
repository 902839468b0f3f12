//! What stands behind a [`raw::Call`]: its kind, what it collects, and the errors reported during it.

use std::cell::{RefCell, UnsafeCell};
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, OnceLock, PoisonError};

use ortolan_ep_abi::raw::{self, NONE};

use super::accept::Release;
use super::{Claims, Compiling, DeviceList, host_table};
use crate::codes::Code;
use crate::error::{Error, codes};

/// The host's side of one call. It lives on the stack of whoever makes the call.
pub(crate) struct Ctx<'a> {
    ep: &'a str,
    thread: usize,
    width: u32,
    cancel: Option<&'a AtomicU32>,
    kind: Kind<'a>,
    /// Nearly never made: a run that reports nothing takes no lock.
    reports: OnceLock<Mutex<Vec<Report>>>,
}

/// What a call is for, and where its answers go.
pub(crate) enum Kind<'a> {
    /// `factory_new`, `ep_new`: nothing but errors.
    Plain,
    Devices(&'a RefCell<DeviceList>),
    Claim(&'a RefCell<Claims>),
    Compile(&'a Compiling<'a>),
    /// `run` and `copy`. Only touched on the call's own thread, one function at a time.
    Run(UnsafeCell<&'a mut dyn RunSink>),
}

/// Receives what a run makes.
pub(crate) trait RunSink {
    /// Host memory for an output; index `NONE` is a loose element.
    fn output(&mut self, index: u32, dtype: u32, shape: &[i64], out: &mut raw::Value) -> Result<(), Refusal>;
    /// A value of the EP's own, or a shared one.
    fn give(&mut self, index: u32, value: &raw::Value, release: Release) -> Result<(), Refusal>;
    /// Scratch.
    fn alloc(&mut self, bytes: u64) -> Result<*mut u8, Refusal>;
    /// Kernels of this run.
    fn profile(&mut self, events: &[raw::Event]);
    /// The run will finish later.
    fn defer(&mut self) -> Result<*mut raw::Fence, Refusal>;
}

/// Why the host says no. Boxed, because results that may hold it are on the path of every output.
#[derive(Debug)]
pub(crate) struct Refusal(Box<Why>);

#[derive(Debug)]
pub(crate) struct Why {
    /// What the function returns.
    pub status: i32,
    /// What the user sees.
    pub code: Code,
    pub text: String,
}

impl Refusal {
    /// The plugin broke a rule.
    #[cold]
    pub fn fault(text: impl Into<String>) -> Refusal {
        Refusal::new(raw::FAILED, codes::EP_FAULT, text)
    }

    #[cold]
    pub fn memory(code: Code, text: impl Into<String>) -> Refusal {
        Refusal::new(raw::MEMORY, code, text)
    }

    #[cold]
    pub fn new(status: i32, code: Code, text: impl Into<String>) -> Refusal {
        Refusal(Box::new(Why { status, code, text: text.into() }))
    }
}

impl std::ops::Deref for Refusal {
    type Target = Why;
    fn deref(&self) -> &Why {
        &self.0
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::new(refusal.0.code, refusal.0.text)
    }
}

#[derive(Debug)]
struct Report {
    node: u32,
    /// Set when the host itself refused something.
    host: Option<Code>,
    text: String,
}

/// What all calls of one purpose have in common.
#[derive(Clone, Copy)]
pub(crate) struct Setup<'a> {
    pub ep: &'a str,
    pub width: u32,
    pub cancel: Option<&'a AtomicU32>,
    /// Numbers of the program's symbols, -1 for unknown.
    pub symbols: &'a [i64],
    /// Of a copy: what is copied.
    pub inputs: &'a [raw::Value],
    /// Of a copy: how each output is wanted.
    pub wants: &'a [u32],
    /// How errors name a node.
    pub place: &'a dyn Fn(u32) -> Option<String>,
}

impl<'a> Setup<'a> {
    /// A call without program or values.
    pub fn plain(ep: &'a str, width: u32) -> Setup<'a> {
        Setup { ep, width, cancel: None, symbols: &[], inputs: &[], wants: &[], place: &by_number }
    }
}

fn by_number(node: u32) -> Option<String> {
    (node != NONE).then(|| format!("node {node}"))
}

/// The code of a status that says more than that something failed.
pub(crate) fn code_of(status: i32, otherwise: Code) -> Code {
    match status {
        raw::CANCELLED => codes::CANCELLED,
        raw::MEMORY => codes::OUT_OF_MEMORY,
        raw::LOST => codes::DEVICE_LOST,
        raw::PANIC => codes::EP_PANIC,
        _ => otherwise,
    }
}

/// An address that no other living thread has.
#[inline]
fn this_thread() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|m| std::ptr::from_ref(m).addr())
}

impl<'a> Ctx<'a> {
    pub fn new(ep: &'a str, width: u32, cancel: Option<&'a AtomicU32>, kind: Kind<'a>) -> Ctx<'a> {
        Ctx { ep, thread: this_thread(), width, cancel, kind, reports: OnceLock::new() }
    }

    /// The context of a call that a plugin hands back; `None` for what cannot be one.
    ///
    /// # Safety
    /// `call` is null, or points to a `Call`; if that call is the host's own, it has not returned yet.
    pub unsafe fn of<'c>(call: *const raw::Call) -> Option<&'c Ctx<'c>> {
        // SAFETY: the caller's promise.
        let call = unsafe { call.as_ref() }?;
        if !std::ptr::eq(call.host, host_table()) {
            return None;
        }
        // SAFETY: a call with this table was made here, with a context that lives as long as the call.
        unsafe { call.ctx.cast::<Ctx<'c>>().as_ref() }
    }

    pub fn as_raw(&self) -> *mut raw::CallCtx {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    pub fn width(&self) -> u32 {
        self.width
    }

    pub fn cancel(&self) -> Option<&'a AtomicU32> {
        self.cancel
    }

    /// A number that is the same for everything inside this call.
    pub fn owner(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The kind, on the call's own thread; else a fault.
    pub fn kind(&self, function: &str) -> Result<&Kind<'a>, Refusal> {
        if self.thread == this_thread() {
            return Ok(&self.kind);
        }
        Err(Refusal::fault(format!("{function} was called on another thread than its call's")))
    }

    /// The kind, on any thread. The caller sees to it that what it touches may be touched there.
    pub fn kind_anywhere(&self) -> &Kind<'a> {
        &self.kind
    }

    /// The receiver of a run.
    #[expect(clippy::mut_from_ref, reason = "one function of a call at a time, on one thread, as `kind` checks")]
    #[inline]
    pub fn run(&self, function: &str) -> Result<&mut (dyn RunSink + 'a), Refusal> {
        match &self.kind {
            // SAFETY: only this thread gets here, and no sink calls back into a plugin that could call the host
            // while the reference is in use (release functions may only log).
            Kind::Run(sink) if self.thread == this_thread() => Ok(unsafe { &mut **sink.get() }),
            _ => Err(self.no_run(function)),
        }
    }

    #[cold]
    fn no_run(&self, function: &str) -> Refusal {
        match self.kind(function) {
            Err(refusal) => refusal,
            Ok(_) => Refusal::fault(format!("{function} was called outside run and copy")),
        }
    }

    /// Keeps what the plugin says of its failure.
    pub fn report(&self, node: u32, text: String) {
        self.push(Report { node, host: None, text });
    }

    /// Keeps why the host refused something; returns what the function returns.
    #[cold]
    pub fn refuse(&self, refusal: Refusal) -> i32 {
        tracing::debug!(ep = self.ep, code = %refusal.code, "{}", refusal.text);
        let status = refusal.status;
        self.push(Report { node: NONE, host: Some(refusal.code), text: refusal.0.text });
        status
    }

    fn push(&self, report: Report) {
        let mut all = self.reports.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < 16 {
            all.push(report);
        }
    }

    /// What a call comes to that returned `status`; `otherwise` is the code when the EP has none of its own.
    pub fn outcome(&self, status: i32, otherwise: Code, node: &dyn Fn(u32) -> Option<String>) -> Result<(), Error> {
        if status == raw::OK {
            return self.leftover();
        }
        Err(self.failure(status, otherwise, node))
    }

    /// A call that succeeded in spite of reports: the plugin went on after a refusal, which it may.
    fn leftover(&self) -> Result<(), Error> {
        if let Some(all) = self.reports.get() {
            for report in &*all.lock().unwrap_or_else(PoisonError::into_inner) {
                tracing::warn!(ep = self.ep, "the call succeeded although it reported: {}", report.text);
            }
        }
        Ok(())
    }

    #[cold]
    fn failure(&self, status: i32, otherwise: Code, node: &dyn Fn(u32) -> Option<String>) -> Error {
        let all = self.reports.get().map(|all| all.lock().unwrap_or_else(PoisonError::into_inner));
        let all = all.as_ref().map_or(&[][..], |all| all);
        // A device that is gone explains everything else.
        let lost = status == raw::LOST;
        let first = all.iter().find(|r| r.host.is_some() != lost).or(all.first());
        let code = first.and_then(|r| r.host).filter(|_| !lost).unwrap_or_else(|| code_of(status, otherwise));
        let text = match first {
            Some(report) => report.text.clone(),
            None if status == raw::CANCELLED => "the call was cancelled".to_owned(),
            None => format!("it returned {status} and no reason"),
        };
        let error = Error::new(code, text).from_ep(self.ep, Some(status));
        match first.and_then(|r| node(r.node)) {
            Some(place) => error.within(place),
            None => error,
        }
    }
}

/// A call with a pattern behind it: a plugin that was built with other declarations writes there.
#[repr(C)]
struct Guarded {
    call: raw::Call,
    fence: [u64; 8],
}

const PATTERN: [u64; 8] = [0x5ca1_ab1e_0ddb_a11d; 8];

/// Makes a call that is no run: `f` gets it and returns the plugin's status.
pub(crate) fn call<'a>(
    setup: &Setup<'a>,
    kind: Kind<'a>,
    otherwise: Code,
    f: impl FnOnce(*const raw::Call) -> i32,
) -> Result<(), Error> {
    let ctx = Ctx::new(setup.ep, setup.width, setup.cancel, kind);
    let call = raw::Call {
        host: host_table(),
        ctx: ctx.as_raw(),
        inputs: setup.inputs.as_ptr(),
        wants: setup.wants.as_ptr(),
        symbols: setup.symbols.as_ptr(),
        binding: 0,
        cancel: setup.cancel.map_or(std::ptr::null(), |c| c.as_ptr().cast_const()),
        input_count: count(setup.inputs.len()),
        output_count: count(setup.wants.len()),
        symbol_count: count(setup.symbols.len()),
        width: setup.width,
        flags: 0,
    };
    // In an UnsafeCell, so that a plugin that writes where it must not is seen and not optimised away.
    let guarded = UnsafeCell::new(Guarded { call, fence: PATTERN });
    let status = f(guarded.get().cast());
    // SAFETY: the call has returned; nobody else has the cell.
    let Guarded { call: after, fence } = unsafe { guarded.get().read_volatile() };
    if fence != PATTERN || !same(&call, &after) {
        let text = "the EP wrote into or past the call that it may only read";
        return Err(Error::new(codes::EP_FAULT, text).from_ep(setup.ep, Some(status)));
    }
    ctx.outcome(status, otherwise, setup.place)
}

fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(0)
}

fn same(a: &raw::Call, b: &raw::Call) -> bool {
    let numbers = |c: &raw::Call| (c.binding, c.input_count, c.output_count, c.symbol_count, c.width, c.flags);
    std::ptr::eq(a.host, b.host)
        && a.ctx == b.ctx
        && a.inputs == b.inputs
        && a.wants == b.wants
        && a.symbols == b.symbols
        && a.cancel == b.cancel
        && numbers(a) == numbers(b)
}
