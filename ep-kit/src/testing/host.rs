//! The fake host: its C table, and sessions that drive an EP through the EP's own C table.
//!
//! One of the files with `unsafe`: it stands on the other side of the ABI. Only for tests, so broken rules panic.

use super::Tensor;
use super::model::{Built, Model};
use crate::ep::{Kit, KitPart};
use crate::item::{Item, Plain};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use ortolan_ep_abi::author::{Factory, Options, Table};
use ortolan_ep_abi::call::{Call, DevicesCall, EMPTY, Result as AuthorResult};
use ortolan_ep_abi::codes::{DType, RejectCode};
use ortolan_ep_abi::raw::{self, CallCtx, Claim, EpV1, Event, HostV1, PartDesc, RangeFn, ReleaseFn, Str, Value};
use ortolan_ep_abi::view;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// What a kit says to a node: its cost, or why not.
pub type Answer = Result<f64, (RejectCode, String)>;

/// Carries the C table of [`Kit`]; never made.
struct Never;

impl Factory for Never {
    type Ep = Kit;
    fn new(_: &Call<'_>) -> AuthorResult<Self> {
        Ok(Never)
    }
    fn devices(&self, _: &DevicesCall<'_>) -> AuthorResult<()> {
        Ok(())
    }
    fn create(&self, _: &Call<'_>, _: u32, _: Options<'_>) -> AuthorResult<Kit> {
        Ok(Kit::new(&[], "none", ()))
    }
}

const V1: EpV1 = Table::<Never, false>::V1;

/// Memory with stale content, at an address that is a multiple of 64, or just behind one.
struct Buffer {
    words: Vec<Line>,
    bytes: usize,
    skip: usize,
}

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code /* read by address only */)] [u8; 64]);

impl Buffer {
    fn new(bytes: usize, skip: usize) -> Self {
        Buffer { words: vec![Line([0xa5; 64]); (bytes + skip).div_ceil(64)], bytes, skip }
    }

    fn ptr(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast::<u8>().wrapping_add(self.skip)
    }

    fn bytes(&mut self) -> &mut [u8] {
        let (ptr, len) = (self.ptr(), self.bytes);
        // SAFETY: inside the lines, which are plain bytes.
        unsafe { core::slice::from_raw_parts_mut(ptr, len) }
    }
}

/// An output: type, dimensions, memory.
type Made = (u32, Vec<i64>, Buffer);

/// A value that is handed in whole, with what its struct points into.
struct Whole {
    value: Value,
    _item: Box<Item>,
    _items: Vec<Box<[Value]>>,
    _texts: Vec<Box<[Str]>>,
}

impl Whole {
    fn new(item: &Item) -> Whole {
        let (item, mut items, mut texts) = (Box::new(item.clone()), Vec::new(), Vec::new());
        let value = Self::value(&item, &mut items, &mut texts);
        Whole { value, _item: item, _items: items, _texts: texts }
    }

    fn value(item: &Item, items: &mut Vec<Box<[Value]>>, texts: &mut Vec<Box<[Str]>>) -> Value {
        let dims = item.dims();
        let tensor = Value { kind: raw::VALUE_TENSOR, rank: dims.len() as u32, shape: dims.as_ptr(), ..EMPTY };
        let (kind, all): (u32, Vec<&Item>) = match item {
            Item::Tensor(t) => {
                let (data, bytes) = (t.bytes.as_ptr().cast_mut(), t.bytes.len() as u64);
                return Value { dtype: t.dtype as u32, data, bytes, ..tensor };
            }
            Item::Texts(t) => {
                let list: Box<[Str]> = t.texts.iter().map(|text| Str::new(text)).collect();
                let (data, bytes) = (list.as_ptr().cast_mut().cast(), size_of_val(&*list) as u64);
                texts.push(list);
                return Value { dtype: DType::Str as u32, data, bytes, ..tensor };
            }
            Item::Sequence(all) => (raw::VALUE_SEQUENCE, all.iter().map(|item| &**item).collect()),
            Item::Optional(one) => (raw::VALUE_OPTIONAL, one.iter().map(|item| &**item).collect()),
            Item::Map { keys, values } => (raw::VALUE_MAP, vec![keys, values]),
        };
        let all: Box<[Value]> = all.into_iter().map(|item| Self::value(item, items, texts)).collect();
        let value = Value { kind, items: all.as_ptr(), item_count: all.len() as u32, ..EMPTY };
        items.push(all);
        value
    }
}

/// The host's side of a call.
#[derive(Default)]
struct Ctx {
    answers: HashMap<u32, Answer>,
    error: Option<String>,
    done: Vec<u32>,
    outputs: Vec<Option<Made>>,
    /// Outputs that are no plain tensors.
    items: HashMap<u32, Item>,
    /// Tensors inside other values.
    loose: Vec<Buffer>,
    /// Outputs of the last run, to be used again.
    spare: Vec<Option<Made>>,
    scratch: Vec<Buffer>,
    scratch_used: usize,
    events: Vec<(String, u32)>,
    alloc_limit: Option<usize>,
    shared: Vec<(u32, usize)>,
}

fn ctx<'c>(call: *const raw::Call) -> &'c Mutex<Ctx> {
    // SAFETY: every call of this host carries a live mutex of its own making.
    unsafe { &*(*call).ctx.cast::<Mutex<Ctx>>() }
}

fn with<R>(call: *const raw::Call, f: impl FnOnce(&mut Ctx) -> R) -> R {
    f(&mut ctx(call).lock().unwrap_or_else(PoisonError::into_inner))
}

fn text(s: Str) -> String {
    // SAFETY: the plugin's text lives over the call.
    unsafe { s.as_str() }.to_owned()
}

unsafe extern "C" fn log_enabled(_: u32, _: Str) -> u32 {
    0
}
unsafe extern "C" fn log(_: u32, _: Str, _: Str) {}
unsafe extern "C" fn now_ns() -> u64 {
    static CLOCK: AtomicUsize = AtomicUsize::new(1);
    CLOCK.fetch_add(1, Ordering::Relaxed) as u64
}
unsafe extern "C" fn space(_: Str) -> u32 {
    1
}
unsafe extern "C" fn query(_: Str) -> *const c_void {
    core::ptr::null()
}
unsafe extern "C" fn error(call: *const raw::Call, code: i32, node: u32, sentence: Str) -> i32 {
    with(call, |c| c.error = Some(format!("{} (code {code}, node {})", text(sentence), node as i32)));
    code
}
unsafe extern "C" fn device(_: *const raw::Call, _: *const raw::Device) {}
unsafe extern "C" fn no_device(_: *const raw::Call, _: u32, _: Str) {}
unsafe extern "C" fn claim(call: *const raw::Call, claim: *const Claim) {
    // SAFETY: the plugin's claim lives over the call.
    let (nodes, cost) = unsafe { (raw::slice((*claim).nodes, (*claim).count as usize), (*claim).cost_ns) };
    with(call, |c| {
        for &node in nodes {
            assert!(c.answers.insert(node, Ok(cost)).is_none(), "node {node} is answered twice");
        }
    });
}
unsafe extern "C" fn reject(call: *const raw::Call, node: u32, code: u32, sentence: Str) {
    let code = RejectCode::from_u32(code).unwrap_or(RejectCode::Error);
    with(call, |c| {
        assert!(c.answers.insert(node, Err((code, text(sentence)))).is_none(), "node {node} is answered twice");
    });
}
unsafe extern "C" fn onnx(_: *const raw::Call, _: *const raw::Program, _: *const PartDesc, _: *mut Str) -> i32 {
    raw::FAILED
}
unsafe extern "C" fn done_with(call: *const raw::Call, constant: u32) {
    with(call, |c| {
        assert!(!c.done.contains(&constant), "done_with was said twice for constant {constant}");
        c.done.push(constant);
    });
}
unsafe extern "C" fn port(_: *const raw::Call, _: u32, _: u32, _: u32) {}

fn size_of_tensor(dtype: u32, dims: &[i64]) -> Option<usize> {
    let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(usize::try_from(d).ok()?))?;
    DType::from_u32(dtype)?.bytes(count)
}

unsafe extern "C" fn output(
    call: *const raw::Call,
    index: u32,
    dtype: u32,
    rank: u32,
    shape: *const i64,
    to: *mut Value,
) -> i32 {
    // SAFETY: the plugin's shape lives over the call.
    let dims = unsafe { raw::slice(shape, rank as usize) };
    with(call, |c| {
        let Some(bytes) = size_of_tensor(dtype, dims) else {
            c.error = Some(format!("output {index} cannot have dimensions {dims:?}"));
            return raw::FAILED;
        };
        if index == raw::NONE {
            let mut buffer = Buffer::new(bytes, 0);
            let data = buffer.ptr();
            c.loose.push(buffer);
            // SAFETY: the plugin's place for the answer.
            unsafe { *to = Value { kind: raw::VALUE_TENSOR, dtype, rank, shape, data, bytes: bytes as u64, ..EMPTY } };
            return raw::OK;
        }
        let slot = index as usize;
        assert!(c.outputs[slot].is_none(), "output {index} is asked for twice");
        let fits =
            |spare: &Option<Made>| spare.as_ref().is_some_and(|s| s.0 == dtype && s.1 == dims && s.2.bytes == bytes);
        let spare = c.spare.get_mut(slot).filter(|s| fits(s)).and_then(Option::take);
        let mut made = spare.unwrap_or_else(|| (dtype, dims.to_vec(), Buffer::new(bytes, 0)));
        let data = made.2.ptr();
        c.outputs[slot] = Some(made);
        // SAFETY: the plugin's place for the answer.
        unsafe { *to = Value { kind: raw::VALUE_TENSOR, dtype, rank, shape, data, bytes: bytes as u64, ..EMPTY } };
        raw::OK
    })
}

unsafe extern "C" fn give(
    call: *const raw::Call,
    index: u32,
    value: *const Value,
    release: ReleaseFn,
    user: *mut c_void,
) -> i32 {
    // SAFETY: the plugin's value lives over the call.
    let value = unsafe { *value };
    if value.kind != raw::VALUE_TENSOR || value.dtype == DType::Str as u32 {
        // SAFETY: as above, with all that it points to.
        let item = Item::of(&unsafe { view::Value::new(value) });
        let item = item.unwrap_or_else(|| panic!("output {index} is given as something that cannot be read"));
        with(call, |c| assert!(c.items.insert(index, item).is_none(), "output {index} is given twice"));
        return raw::OK;
    }
    // SAFETY: as above.
    let dims = unsafe { raw::slice(value.shape, value.rank as usize) };
    // SAFETY: as above; the bytes are an input's, or memory of the part.
    let bytes = unsafe { raw::slice(value.data, value.bytes as usize) };
    with(call, |c| {
        assert_eq!(size_of_tensor(value.dtype, dims), Some(bytes.len()), "output {index} is given with other bytes");
        let mut buffer = Buffer::new(bytes.len(), 0);
        buffer.bytes().copy_from_slice(bytes);
        assert!(c.outputs[index as usize].is_none(), "output {index} is given twice");
        c.shared.push((index, value.buffer.addr()));
        c.outputs[index as usize] = Some((value.dtype, dims.to_vec(), buffer));
    });
    if let Some(release) = release.f {
        // SAFETY: called once, as promised.
        unsafe { release(user) };
    }
    raw::OK
}

unsafe extern "C" fn alloc(call: *const raw::Call, bytes: u64) -> *mut u8 {
    with(call, |c| {
        let bytes = bytes as usize;
        if c.alloc_limit.is_some_and(|limit| bytes > limit) {
            return core::ptr::null_mut();
        }
        let at = c.scratch_used;
        c.scratch_used += 1;
        match c.scratch.get_mut(at) {
            Some(buffer) if buffer.bytes >= bytes => {}
            Some(buffer) => *buffer = Buffer::new(bytes, 0),
            None => c.scratch.push(Buffer::new(bytes, 0)),
        }
        c.scratch[at].ptr()
    })
}

/// Real threads, one chunk a grain.
unsafe extern "C" fn parallel_for(
    call: *const raw::Call,
    n: usize,
    grain: usize,
    f: RangeFn,
    user: *mut c_void,
) -> i32 {
    // SAFETY: the call is live.
    let (width, cancel) = unsafe { ((*call).width as usize, (*call).cancel) };
    let grain = grain.max(1);
    let next = AtomicUsize::new(0);
    let user = user.expose_provenance();
    let work = |worker: u32| loop {
        let begin = next.fetch_add(grain, Ordering::Relaxed);
        if begin >= n {
            return;
        }
        // SAFETY: the plugin's function and its data live until `parallel_for` returns.
        unsafe { (f.f)(core::ptr::with_exposed_provenance_mut(user), worker, begin, n.min(begin + grain)) };
    };
    std::thread::scope(|scope| {
        for worker in 1..width {
            let work = &work;
            scope.spawn(move || work(worker as u32));
        }
        work(0);
    });
    // SAFETY: the word lives as long as the call.
    let cancelled = !cancel.is_null() && unsafe { AtomicU32::from_ptr(cancel.cast_mut()) }.load(Ordering::Relaxed) != 0;
    if cancelled { raw::CANCELLED } else { raw::OK }
}

unsafe extern "C" fn profile(call: *const raw::Call, events: *const Event, count: usize) {
    // SAFETY: the plugin's events live over the call.
    let events = unsafe { raw::slice(events, count) };
    with(call, |c| c.events.extend(events.iter().map(|e| (text(e.kernel), e.node))));
}

static HOST: HostV1 = HostV1 {
    struct_size: size_of::<HostV1>() as u32,
    version: 1,
    log_enabled,
    log,
    now_ns,
    space,
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

/// A model on an EP.
pub struct Session {
    ep: *mut raw::Ep,
    built: Built,
    width: usize,
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once; parts borrow the session.
        unsafe { (V1.ep_free)(self.ep) }
    }
}

impl Session {
    /// A session with so many threads.
    pub fn new(kit: Kit, model: Model, width: usize) -> Self {
        Session { ep: Box::into_raw(Box::new(kit)).cast(), built: model.build(), width }
    }

    fn call(&self, ctx: &Mutex<Ctx>, symbols: &[i64], binding: u64, cancel: &AtomicU32) -> raw::Call {
        raw::Call {
            host: &HOST,
            ctx: core::ptr::from_ref(ctx).cast_mut().cast::<CallCtx>(),
            inputs: core::ptr::null(),
            wants: core::ptr::null(),
            symbols: symbols.as_ptr(),
            binding,
            cancel: cancel.as_ptr(),
            input_count: 0,
            output_count: 0,
            symbol_count: symbols.len() as u32,
            width: self.width as u32,
            flags: 0,
        }
    }

    fn part(&self, nodes: &[u32], flags: u32) -> PartDesc {
        let built = &self.built;
        PartDesc {
            nodes: nodes.as_ptr(),
            inputs: built.inputs.as_ptr(),
            outputs: built.outputs.as_ptr(),
            node_count: nodes.len() as u32,
            input_count: built.inputs.len() as u32,
            output_count: built.outputs.len() as u32,
            flags,
        }
    }

    /// The answer to each node, in order.
    ///
    /// # Panics
    /// When the claim fails or a node is not answered once.
    pub fn claim(&self) -> Vec<Answer> {
        let (ctx, cancel) = (Mutex::new(Ctx::default()), AtomicU32::new(0));
        let symbols = vec![raw::UNKNOWN; self.built.symbols.len()];
        let call = self.call(&ctx, &symbols, 0, &cancel);
        let part = self.part(&self.built.nodes, raw::PART_FREE);
        // SAFETY: everything lives over the call.
        let code = unsafe { (V1.claim)(self.ep, &call, &self.built.program, &part) };
        let mut ctx = ctx.into_inner().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(code, raw::OK, "{:?}", ctx.error);
        let answer = |id: &u32| ctx.answers.remove(id).unwrap_or_else(|| panic!("node {id} was not answered"));
        self.built.nodes.iter().map(answer).collect()
    }

    /// Compiles all nodes as one part.
    pub fn compile(&self) -> Result<Compiled<'_>, String> {
        self.compile_with(raw::PART_EXACT)
    }

    /// Compiles all nodes as one part with `PART_*` flags.
    pub fn compile_with(&self, flags: u32) -> Result<Compiled<'_>, String> {
        let (ctx, cancel) = (Mutex::new(Ctx::default()), AtomicU32::new(0));
        let symbols = vec![raw::UNKNOWN; self.built.symbols.len()];
        let call = self.call(&ctx, &symbols, 0, &cancel);
        let desc = self.part(&self.built.nodes, flags);
        let mut part = core::ptr::null_mut();
        // SAFETY: everything lives over the call.
        let code = unsafe { (V1.compile)(self.ep, &call, &self.built.program, &desc, &mut part) };
        let ctx = ctx.into_inner().unwrap_or_else(PoisonError::into_inner);
        if code != raw::OK {
            return Err(ctx.error.unwrap_or_else(|| format!("code {code}")));
        }
        Ok(Compiled {
            session: self,
            part,
            lane: core::ptr::null_mut(),
            done: ctx.done,
            bindings: HashMap::new(),
            ctx: Mutex::default(),
            inputs: Vec::new(),
            whole: HashMap::new(),
            events: Vec::new(),
            shared: Vec::new(),
            alloc_limit: None,
        })
    }
}

/// A compiled part with one lane.
pub struct Compiled<'s> {
    session: &'s Session,
    part: *mut raw::Part,
    lane: *mut raw::Lane,
    /// Constants that the kit is done with.
    pub done: Vec<u32>,
    bindings: HashMap<Vec<i64>, u64>,
    ctx: Mutex<Ctx>,
    inputs: Vec<(Vec<i64>, Buffer)>,
    /// Inputs that are no plain tensors.
    whole: HashMap<usize, Whole>,
    /// Kernel names and nodes of the last profiled run.
    pub events: Vec<(String, u32)>,
    /// Outputs of the last run that were given, with the number of the input whose buffer they share (0: none; else one
    /// more than the position).
    pub shared: Vec<(u32, usize)>,
    /// Largest scratch block that the host hands out.
    pub alloc_limit: Option<usize>,
}

impl Drop for Compiled<'_> {
    fn drop(&mut self) {
        if !self.lane.is_null() {
            // SAFETY: made by a run of this part, freed once.
            unsafe { (V1.lane_free)(self.part, self.lane) };
        }
        // SAFETY: made by `compile`, freed once.
        unsafe { (V1.part_free)(self.part) }
    }
}

impl Compiled<'_> {
    /// The kit's part.
    pub fn part(&self) -> &KitPart {
        // SAFETY: the C table of `Kit` makes parts of this type.
        unsafe { &*self.part.cast::<KitPart>() }
    }

    /// Runs once.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
        self.load(inputs);
        self.rerun(0, false)?;
        Ok(self.outputs())
    }

    /// Runs once, with events.
    pub fn run_profiled(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
        self.load(inputs);
        self.rerun(raw::CALL_PROFILE, false)?;
        Ok(self.outputs())
    }

    /// Runs once with the cancel word set.
    pub fn run_cancelled(&mut self, inputs: &[Tensor]) -> Result<(), String> {
        self.load(inputs);
        self.rerun(0, true)
    }

    /// Lays inputs out for [`rerun`](Self::rerun), aligned for their elements and no more.
    pub fn load(&mut self, inputs: &[Tensor]) {
        self.inputs = inputs
            .iter()
            .map(|t| {
                let mut buffer = Buffer::new(t.bytes.len(), t.dtype.align());
                buffer.bytes().copy_from_slice(&t.bytes);
                (t.dims.clone(), buffer)
            })
            .collect();
    }

    /// The same for inputs of any kind.
    pub fn load_items(&mut self, inputs: &[Item]) {
        self.whole = inputs
            .iter()
            .enumerate()
            .filter(|(_, item)| !matches!(item, Item::Tensor(_)))
            .map(|(k, item)| (k, Whole::new(item)))
            .collect();
        let tensor = |item: &Item| match item {
            Item::Tensor(Plain { dtype, dims, bytes }) => {
                Tensor { dtype: *dtype, dims: dims.to_vec(), bytes: bytes.clone() }
            }
            other => Tensor { dtype: DType::U8, dims: other.dims().to_vec(), bytes: Vec::new() },
        };
        let tensors: Vec<Tensor> = inputs.iter().map(tensor).collect();
        self.load(&tensors);
    }

    /// Runs with the inputs that are loaded. Allocates nothing itself once it has seen the shapes.
    ///
    /// # Errors
    /// What the kit reports.
    pub fn rerun(&mut self, flags: u32, cancelled: bool) -> Result<(), String> {
        let symbols = self.symbols();
        let next = self.bindings.len() as u64 + 1;
        let binding = match self.bindings.get(&symbols) {
            Some(&binding) => binding,
            None => *self.bindings.entry(symbols.clone()).or_insert(next),
        };
        self.run_bound(&symbols, binding, flags, cancelled)
    }

    /// Numbers of the symbols that the loaded inputs define.
    pub fn symbols(&mut self) -> Vec<i64> {
        let built = &self.session.built;
        let inputs = &mut self.inputs;
        let mut number = |s: &raw::Symbol| {
            let input = built.inputs.iter().position(|&v| v == s.value)?;
            let (dims, buffer) = inputs.get_mut(input)?;
            match s.kind {
                raw::SYMBOL_DIM => dims.get(s.at as usize).copied(),
                _ => crate::bytes::read_number(built.values[s.value as usize].0, buffer.bytes(), s.at as usize),
            }
        };
        built.symbols.iter().map(|s| number(s).unwrap_or(raw::UNKNOWN)).collect()
    }

    /// Runs with stated symbol numbers and binding.
    pub fn run_bound(&mut self, symbols: &[i64], binding: u64, flags: u32, cancelled: bool) -> Result<(), String> {
        let built = &self.session.built;
        let mut values = [EMPTY; 16];
        for (k, (dims, buffer)) in self.inputs.iter_mut().enumerate() {
            let dtype = built.values[built.inputs[k] as usize].0;
            values[k] = Value {
                kind: raw::VALUE_TENSOR,
                dtype: dtype as u32,
                rank: dims.len() as u32,
                shape: dims.as_ptr(),
                data: buffer.ptr(),
                bytes: buffer.bytes as u64,
                buffer: core::ptr::without_provenance_mut(k + 1),
                ..EMPTY
            };
            if let Some(whole) = self.whole.get(&k) {
                values[k] = whole.value;
            }
        }
        {
            let ctx = self.ctx.get_mut().unwrap_or_else(PoisonError::into_inner);
            ctx.error = None;
            ctx.scratch_used = 0;
            ctx.alloc_limit = self.alloc_limit;
            ctx.shared.clear();
            ctx.items.clear();
            ctx.loose.clear();
            ctx.events.clear();
            core::mem::swap(&mut ctx.spare, &mut ctx.outputs);
            ctx.outputs.clear();
            ctx.outputs.resize_with(built.outputs.len(), || None);
        }
        let wants = [raw::WANT_HOST; 16];
        let cancel = AtomicU32::new(u32::from(cancelled));
        let mut call = self.session.call(&self.ctx, symbols, binding, &cancel);
        call.inputs = values.as_ptr();
        call.input_count = self.inputs.len() as u32;
        call.wants = wants.as_ptr();
        call.output_count = built.outputs.len() as u32;
        call.flags = flags;
        // SAFETY: everything lives over the call; one run at a time uses the lane.
        let code = unsafe { (V1.run)(self.part, &mut self.lane, &call) };
        let ctx = self.ctx.get_mut().unwrap_or_else(PoisonError::into_inner);
        if code != raw::OK {
            return Err(ctx.error.take().unwrap_or_else(|| format!("code {code}")));
        }
        if flags & raw::CALL_PROFILE != 0 {
            self.events.clone_from(&ctx.events);
        }
        self.shared.clone_from(&ctx.shared);
        Ok(())
    }

    /// The outputs of the last run.
    ///
    /// # Panics
    /// When one was not made.
    pub fn outputs(&mut self) -> Vec<Tensor> {
        let ctx = self.ctx.get_mut().unwrap_or_else(PoisonError::into_inner);
        let tensor = |(j, slot): (usize, &mut Option<Made>)| {
            let (dtype, dims, buffer) = slot.as_mut().unwrap_or_else(|| panic!("output {j} was not made"));
            let dtype = DType::from_u32(*dtype).unwrap_or_else(|| panic!("output {j} has no type"));
            Tensor { dtype, dims: dims.clone(), bytes: buffer.bytes().to_vec() }
        };
        ctx.outputs.iter_mut().enumerate().map(tensor).collect()
    }

    /// The outputs of the last run, of any kind.
    ///
    /// # Panics
    /// When one was not made.
    pub fn items(&mut self) -> Vec<Item> {
        let ctx = self.ctx.get_mut().unwrap_or_else(PoisonError::into_inner);
        let item = |(j, slot): (u32, &mut Option<Made>)| match slot {
            Some((dtype, dims, buffer)) => {
                let dtype = DType::from_u32(*dtype).unwrap_or_else(|| panic!("output {j} has no type"));
                Item::Tensor(Plain { dtype, dims: dims.as_slice().into(), bytes: buffer.bytes().to_vec() })
            }
            None => ctx.items.get(&j).cloned().unwrap_or_else(|| panic!("output {j} was not made")),
        };
        (0..).zip(ctx.outputs.iter_mut()).map(item).collect()
    }
}
