//! An interpreter as an EP, whose options make it behave in every way that a test needs.
//!
//! Devices: 0 is a CPU, 1 has memory of its own, 2 wants fixed shapes, 3 states that transfers are dear.
//! Options: `ops=Add,Relu` what it claims (`*` all it knows), `nodes=Add_y,..` by node name instead, `cost=N` per node in
//! ns, `space=NAME` inputs and outputs lie there as handles, `late=1` runs finish on another thread, `in_place=1`
//! overwrites donated inputs, `break=MODE` what it does wrong, `log=NAME` where it notes what it is asked to do,
//! `lose=N` the device goes away in the N-th run (0: while it compiles), `shape_of=K` of input K of each part only the shape
//! is read, `meet=N` a late run ends only when so many late runs are under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock, Mutex};

use ortolan_ep_abi::author::{self, Options};
use ortolan_ep_abi::call::{self, Call, ClaimCall, CompileCall, DevicesCall, EMPTY, Error, Result, RunCall};
use ortolan_ep_abi::codes::{DType, RejectCode};
use ortolan_ep_abi::raw::{self, WANT_HOST};
use ortolan_ep_abi::view::{PartDesc, Program, Value};

use ortolan::SessionEp;
use ortolan::abi::FactoryHandle;

use super::interpret::{Data, OPS, Step, T, interpret};

/// Fakes by log name: one line per call.
static LOGS: LazyLock<Mutex<HashMap<String, Vec<String>>>> = LazyLock::new(Default::default);
/// Parts that fakes got as ONNX, by log name.
static MODELS: LazyLock<Mutex<HashMap<String, Vec<Vec<u8>>>>> = LazyLock::new(Default::default);

pub fn models(name: &str) -> Vec<Vec<u8>> {
    MODELS.lock().unwrap().get(name).cloned().unwrap_or_default()
}

/// What lies in fake memory, by handle.
static DEVICE: LazyLock<Mutex<HashMap<u64, (u32, T)>>> = LazyLock::new(Default::default);
static NEXT: AtomicU64 = AtomicU64::new(3);

pub fn log(name: &str) -> Vec<String> {
    LOGS.lock().unwrap().get(name).cloned().unwrap_or_default()
}

/// How many values lie in a space.
pub fn on_device(space: &str) -> usize {
    let space = ortolan::abi::space(space).unwrap();
    let of = |id: u32| ortolan::abi::space_name(space) == space_name(id);
    DEVICE.lock().unwrap().values().filter(|(id, _)| of(*id)).count()
}

/// Names of spaces by the numbers that the fakes got.
static SPACES: LazyLock<Mutex<HashMap<u32, String>>> = LazyLock::new(Default::default);

fn space_name(id: u32) -> String {
    SPACES.lock().unwrap().get(&id).cloned().unwrap_or_default()
}

/// How often factories were asked to let go.
pub static TRIMS: AtomicU64 = AtomicU64::new(0);

/// A fake EP for a session.
pub fn fake(name: &str, options: &[(&str, &str)]) -> SessionEp {
    static V1: raw::EpV1 = author::Table::<Fake, false>::V1;
    of_table(&V1, name, &[("", 21)], options)
}

/// A factory of fakes.
pub fn factory() -> FactoryHandle {
    static V1: raw::EpV1 = author::Table::<Fake, false>::V1;
    // SAFETY: a complete table of this binary.
    unsafe { FactoryHandle::new("fake", &V1, None) }.unwrap()
}

/// The same without a `copy`.
pub fn without_copy(name: &str, options: &[(&str, &str)]) -> SessionEp {
    static V1: raw::EpV1 = raw::EpV1 { copy: None, ..author::Table::<Fake, false>::V1 };
    of_table(&V1, name, &[("", 21)], options)
}

/// The same for programs in these opsets.
pub fn at_opset(name: &str, opset: &[(&str, u32)], options: &[(&str, &str)]) -> SessionEp {
    static V1: raw::EpV1 = author::Table::<Fake, false>::V1;
    of_table(&V1, name, opset, options)
}

fn of_table(table: &'static raw::EpV1, name: &str, opset: &[(&str, u32)], options: &[(&str, &str)]) -> SessionEp {
    // SAFETY: a complete table of this binary.
    let factory = unsafe { FactoryHandle::new(name, table, None) }.unwrap();
    let opset = opset.iter().map(|(d, v)| ((*d).to_owned(), *v)).collect();
    let ep = SessionEp::new(Arc::new(factory), "1.0.0", opset);
    options.iter().fold(ep, |ep, (k, v)| ep.option(k, v))
}

pub struct Fake;

#[derive(Clone, Debug, Default)]
pub struct Config {
    ops: Vec<String>,
    nodes: Vec<String>,
    cost: Option<f64>,
    space: Option<u32>,
    late: bool,
    in_place: bool,
    broken: String,
    log: String,
    sleep_us: u64,
    /// Runs, or what else counts, until the device is gone.
    lose: Option<Arc<AtomicU64>>,
    shape_of: Option<u32>,
    meet: u64,
}

impl Config {
    /// Counts down; the device goes away at 0 and stays away.
    fn alive(&self) -> Result<()> {
        let Some(left) = &self.lose else { return Ok(()) };
        match left.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)) {
            Ok(n) if n > 1 => Ok(()),
            _ => Err(Error::lost("somebody pulled the plug")),
        }
    }

    fn is_gone(&self) -> bool {
        self.lose.as_ref().is_some_and(|left| left.load(SeqCst) == 0)
    }
}

/// Late runs under way.
static UNDER_WAY: AtomicU64 = AtomicU64::new(0);

impl author::Factory for Fake {
    type Ep = FakeEp;

    fn new(_: &Call<'_>) -> Result<Self> {
        Ok(Fake)
    }

    fn devices(&self, call: &DevicesCall<'_>) -> Result<()> {
        let device = |ordinal, kind, static_shapes| call::Device {
            name: "fake",
            vendor: "test",
            ordinal,
            kind,
            static_shapes,
            ..call::Device::default()
        };
        call.device(&device(0, raw::DEVICE_CPU, false));
        call.device(&device(1, raw::DEVICE_GPU, false));
        call.device(&device(2, raw::DEVICE_NPU, true));
        let dear = device(3, raw::DEVICE_CPU, false);
        call.device(&call::Device { transfer_ns: 1_000_000, transfer_bytes_per_s: 1_000_000, ..dear });
        Ok(())
    }

    fn trim(&self) {
        TRIMS.fetch_add(1, SeqCst);
    }

    fn create(&self, call: &Call<'_>, device: u32, options: Options<'_>) -> Result<FakeEp> {
        let mut c = Config::default();
        let list = |v: &str| v.split(',').filter(|s| !s.is_empty()).map(str::to_owned).collect();
        for (key, value) in options.iter() {
            match key {
                "ops" if value == "*" => c.ops = OPS.iter().map(|s| (*s).to_owned()).collect(),
                "ops" => c.ops = list(value),
                "nodes" => c.nodes = list(value),
                "cost" => c.cost = value.parse().ok(),
                "space" => {
                    let id = call.space(value);
                    SPACES.lock().unwrap().insert(id, value.to_owned());
                    c.space = Some(id);
                }
                "late" => c.late = true,
                "in_place" => c.in_place = true,
                "break" => c.broken = value.to_owned(),
                "log" => c.log = value.to_owned(),
                "sleep_us" => c.sleep_us = value.parse().unwrap_or(0),
                "lose" => c.lose = Some(Arc::new(AtomicU64::new(value.parse().unwrap_or(0)))),
                "shape_of" => c.shape_of = value.parse().ok(),
                "meet" => c.meet = value.parse().unwrap_or(0),
                _ => return Err(Error::new(format!("there is no option {key}")).with_code(7)),
            }
        }
        Ok(FakeEp { config: c, device })
    }
}

pub struct FakeEp {
    config: Config,
    device: u32,
}

impl Config {
    fn note(&self, line: String) {
        if !self.log.is_empty() {
            LOGS.lock().unwrap().entry(self.log.clone()).or_default().push(line);
        }
    }
}

fn claim_node(c: &Config, program: Program<'_>, id: u32) -> Result<(), String> {
    let node = program.node(id).ok_or("there is no such node")?;
    let by_name = !c.nodes.is_empty();
    let wanted = if by_name { c.nodes.iter().any(|n| n == node.name()) } else { c.ops.iter().any(|o| o == node.op()) };
    if wanted && OPS.contains(&node.op()) { Ok(()) } else { Err(format!("{} is not done", node.op())) }
}

impl author::Ep for FakeEp {
    type Part = FakePart;
    const COPIES: bool = true;

    fn claim(&self, call: &ClaimCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<()> {
        let (c, mode) = (&self.config, self.config.broken.as_str());
        let kind = if part.is_exact() { "exact" } else { "free" };
        c.note(format!("claim {kind} {:?} symbols {:?}", part.nodes(), call.symbols()));
        let mut whole = Vec::new();
        for &id in part.nodes() {
            match claim_node(c, program, id) {
                Ok(()) if mode == "exact" && part.is_exact() => {
                    call.reject(id, RejectCode::Memory, "too large together")
                }
                Ok(()) if mode == "whole" => whole.push(id),
                Ok(()) => {
                    call.claim(&[id], c.cost.unwrap_or(f64::NAN), false);
                    if mode == "both" {
                        call.reject(id, RejectCode::Policy, "or not");
                    }
                }
                Err(_) if mode == "silent" => {}
                Err(text) => call.reject(id, RejectCode::Operator, &text),
            }
        }
        call.claim(&whole, c.cost.unwrap_or(f64::NAN), true);
        match mode {
            "nonsense" => call.claim(&[4_000_000], 1.0, false),
            "claim_fails" => return Err(Error::new("not today")),
            "claim_panics" => panic!("claim panics"),
            _ => {}
        }
        Ok(())
    }

    fn compile(&self, call: &CompileCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<FakePart> {
        self.config.note(format!("compile {:?} in {:?} out {:?}", part.nodes(), part.inputs(), part.outputs()));
        if self.config.is_gone() {
            return Err(Error::lost("it does not answer"));
        }
        match self.config.broken.as_str() {
            "compile" => return Err(Error::new("the compiler gave up").with_code(5)),
            "compile_panics" => panic!("compile panics"),
            _ => {}
        }
        if self.config.broken == "onnx" {
            let model = call.onnx(program, part)?.to_vec();
            MODELS.lock().unwrap().entry(self.config.log.clone()).or_default().push(model);
        }
        if self.device == 2 {
            let open = program.symbols().len() > call.symbols().iter().filter(|s| **s >= 0).count();
            if open {
                return Err(Error::new("a symbol is not bound"));
            }
        }
        if let Some(space) = self.config.space {
            (0..part.inputs().len() as u32).for_each(|i| call.input_port(i, space));
            (0..part.outputs().len() as u32).for_each(|i| call.output_port(i, space));
        }
        if let Some(input) = self.config.shape_of {
            call.shape_port(input);
        }
        if self.config.broken == "shape_out" {
            call.output_port(0, raw::PORT_SHAPE);
        }
        let mut steps = Vec::new();
        for &id in part.nodes() {
            let node = program.node(id).ok_or_else(|| Error::new("there is no such node"))?;
            let ints = |name: &str| node.attr(name).map_or(vec![], |a| a.ints().to_vec());
            steps.push(Step {
                op: node.op().to_owned(),
                id,
                inputs: node.inputs().to_vec(),
                outputs: node.outputs().to_vec(),
                axis: node.attr("axis").and_then(|a| a.int()).unwrap_or(0),
                to: node.attr("to").and_then(|a| a.int()).unwrap_or(1),
                perm: ints("perm"),
            });
        }
        let mut constants = HashMap::new();
        for id in steps.iter().flat_map(|s| s.inputs.iter().copied()) {
            if let Some(info) = program.value(id)
                && let Some(value) = info.constant()
            {
                constants.insert(id, read(&value)?);
                let number = info.constant_index().and_then(|at| program.constant(at)).map(|c| c.1);
                self.config.note(format!("constant {number:?}"));
                if self.config.broken != "holds" {
                    call.done_with(info.constant_index().unwrap_or(u32::MAX));
                }
            }
        }
        let (inputs, outputs) = (part.inputs().to_vec(), part.outputs().to_vec());
        let (config, constant_out) = (self.config.clone(), Default::default());
        Ok(FakePart { config, steps, constants, inputs, outputs, constant_out })
    }

    fn copy(&self, call: &RunCall<'_>, space: u32) -> Result<()> {
        self.config.note(format!("copy {} to {space}", call.inputs().len()));
        if self.config.is_gone() {
            return Err(Error::lost("it does not answer"));
        }
        for (at, value) in (0..).zip(call.inputs()) {
            let t = read(value)?;
            if space == 0 { write(call, at, &t) } else { give_device(call, (at, space), &t, None) }?;
        }
        Ok(())
    }
}

pub struct FakePart {
    config: Config,
    steps: Vec<Step>,
    constants: HashMap<u32, T>,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
    constant_out: std::sync::OnceLock<(Vec<i64>, Vec<u8>)>,
}

impl author::Part for FakePart {
    type Lane = u64;

    fn run(&self, lane: &mut u64, call: &RunCall<'_>) -> Result<()> {
        *lane += 1;
        let c = &self.config;
        c.note(format!("run binding {} symbols {:?}", call.raw().binding, call.symbols()));
        c.alive().map_err(|e| if c.broken == "no_node" { e } else { e.at(self.steps[0].id) })?;
        if c.sleep_us > 0 {
            let until = std::time::Instant::now() + std::time::Duration::from_micros(c.sleep_us);
            while std::time::Instant::now() < until {
                if call.is_cancelled() && c.broken != "deaf" {
                    return Err(Error::cancelled());
                }
            }
        }
        match c.broken.as_str() {
            "run" => return Err(Error::new("the kernel failed").with_code(9).at(self.steps[0].id)),
            "run_panics" => panic!("run panics"),
            "no_output" => return Ok(()),
            "bad_index" => return call.output_value(99, DType::F32, &[1]).map(|_| ()),
            "bad_dtype" => return call.output_value(0, DType::I8, &[1]).map(|_| ()),
            "bad_rank" => return call.output_value(0, DType::F32, &[1, 1, 1, 1, 1, 1, 1]).map(|_| ()),
            "huge" => return call.alloc(1 << 40).map(|_| ()),
            "lost" => {
                std::mem::forget(call.defer()?);
                return self.finish(call);
            }
            _ => {}
        }
        if c.late { self.late(call) } else { self.finish(call) }
    }
}

impl FakePart {
    fn compute(&self, call: &RunCall<'_>) -> Result<HashMap<u32, T>> {
        let mut env = self.constants.clone();
        for ((&id, value), at) in self.inputs.iter().zip(call.inputs()).zip(0..) {
            if self.config.shape_of == Some(at) {
                let shape = value.shape().to_vec();
                let data = Data::F(vec![7.0; shape.iter().product::<i64>() as usize]);
                self.config.note(format!("shape {shape:?} from space {}", value.raw().space));
                env.insert(id, T { shape, data });
                continue;
            }
            if value.raw().space != self.config.space.unwrap_or(0) {
                return Err(Error::new(format!("input {id} lies in space {}", value.raw().space)));
            }
            env.insert(id, read(value)?);
        }
        for step in &self.steps {
            let inputs: Vec<&T> = step.inputs.iter().filter_map(|id| env.get(id)).collect();
            let made = interpret(step, &inputs).map_err(|e| Error::new(e).at(step.id))?;
            env.insert(step.outputs[0], made);
        }
        Ok(env)
    }

    fn events(&self, call: &RunCall<'_>) -> Vec<raw::Event> {
        let event = |s: &Step| raw::Event {
            kernel: raw::Str::new("fake kernel"),
            node: s.id,
            worker: 0,
            start_ns: call.now_ns(),
            dur_ns: 5,
            flops: 10,
            bytes: 20,
        };
        if call.is_profiled() { self.steps.iter().map(event).collect() } else { Vec::new() }
    }

    fn finish(&self, call: &RunCall<'_>) -> Result<()> {
        let env = self.compute(call)?;
        for (at, id) in self.outputs.iter().enumerate() {
            if self.config.broken == "const" {
                self.give_constant(call, at as u32, &env[id])?;
            } else {
                self.put(call, at as u32, &env[id])?;
            }
        }
        Ok(())
    }

    /// Hands out memory of the part that is the same in every run.
    fn give_constant(&self, call: &RunCall<'_>, at: u32, t: &T) -> Result<()> {
        let (shape, data) = self.constant_out.get_or_init(|| (t.shape.clone(), bytes(t)));
        let value = raw::Value {
            kind: raw::VALUE_TENSOR,
            dtype: dtype(t) as u32,
            rank: shape.len() as u32,
            shape: shape.as_ptr(),
            data: data.as_ptr().cast_mut(),
            bytes: data.len() as u64,
            ..EMPTY
        };
        let none = raw::ReleaseFn { f: None };
        // SAFETY: the part's own memory, which lives as long as the part.
        match unsafe { ((*call.raw().host).give)(call.raw(), at, &value, none, std::ptr::null_mut()) } {
            raw::OK => Ok(()),
            code => Err(Error::reported(code)),
        }
    }

    fn put(&self, call: &RunCall<'_>, at: u32, t: &T) -> Result<()> {
        match self.config.space {
            Some(space) if call.wants(at as usize) != WANT_HOST => {
                // The device works in order: what fails there is found out when somebody reads the result.
                let failed = (self.config.broken == "poison").then_some(self.steps[0].id);
                give_device(call, (at, space), t, failed)
            }
            _ if self.config.in_place => {
                let donated = |v: &Value<'_>| v.is_donated() && v.shape() == t.shape && v.bytes().is_some();
                match call.inputs().iter().position(donated) {
                    Some(from) if at == 0 => {
                        let raw = call.inputs()[from].raw();
                        // SAFETY: donated host memory with room for exactly these elements.
                        unsafe { store(t, raw.data) };
                        self.config.note("in place".to_owned());
                        call.give_input(at, from)
                    }
                    _ => write(call, at, t),
                }
            }
            _ => write(call, at, t),
        }
    }

    /// Asks for the outputs now and fills them later, on another thread.
    fn late(&self, call: &RunCall<'_>) -> Result<()> {
        struct Events(Vec<raw::Event>);
        // SAFETY: the texts are static.
        unsafe impl Send for Events {}
        struct Sent(*mut u8, T);
        // SAFETY: the host keeps the memory until the fence is complete.
        unsafe impl Send for Sent {}
        let env = self.compute(call)?;
        let mut todo = Vec::new();
        for (at, id) in self.outputs.iter().enumerate() {
            let t = env[id].clone();
            let value = call.output_value(at as u32, dtype(&t), &t.shape)?;
            todo.push(Sent(value.data, t));
        }
        let fence = call.defer()?;
        let (broken, meet, events) = (self.config.broken.clone(), self.config.meet, Events(self.events(call)));
        UNDER_WAY.fetch_add(1, SeqCst);
        std::thread::spawn(move || {
            let Events(events) = { events };
            let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
            let waits = || meet > 0 && UNDER_WAY.load(SeqCst) < meet && std::time::Instant::now() < until;
            std::thread::sleep(std::time::Duration::from_millis(3));
            while waits() {
                std::thread::yield_now();
            }
            if meet > 0 && UNDER_WAY.load(SeqCst) < meet {
                return fence.complete(Err(Error::new("nobody else came")));
            }
            fence.profile(&events);
            for Sent(data, t) in todo {
                // SAFETY: as above; the memory is that of `t`'s shape.
                unsafe { store(&t, data) };
            }
            fence.complete(match broken.as_str() {
                "late" => Err(Error::new("the queue broke").with_code(4)),
                "late_lost" => Err(Error::lost("the queue is gone")),
                _ => Ok(()),
            });
        });
        Ok(())
    }
}

fn dtype(t: &T) -> DType {
    match t.data {
        Data::F(_) => DType::F32,
        Data::I(_) => DType::I64,
        Data::B(_) => DType::Bool,
    }
}

fn bytes(t: &T) -> Vec<u8> {
    match &t.data {
        Data::F(v) => v.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        Data::I(v) => v.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        Data::B(v) => v.clone(),
    }
}

/// # Safety
/// `to` has room for the elements.
unsafe fn store(t: &T, to: *mut u8) {
    let all = bytes(t);
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), to, all.len()) }
}

fn write(call: &RunCall<'_>, at: u32, t: &T) -> Result<()> {
    let value = call.output_value(at, dtype(t), &t.shape)?;
    // SAFETY: the host gave memory for that shape.
    unsafe { store(t, value.data) };
    Ok(())
}

/// Frees its entry of the fake memory.
struct Handle(u64);

impl Drop for Handle {
    fn drop(&mut self) {
        DEVICE.lock().unwrap().remove(&self.0);
    }
}

/// Results that will never be there, by handle, with the node that failed.
static FAILED: LazyLock<Mutex<HashMap<u64, u32>>> = LazyLock::new(Default::default);

fn give_device(call: &RunCall<'_>, (at, space): (u32, u32), t: &T, failed: Option<u32>) -> Result<()> {
    // Odd and small: nothing that could be taken for an address.
    let id = NEXT.fetch_add(2, SeqCst);
    DEVICE.lock().unwrap().insert(id, (space, t.clone()));
    FAILED.lock().unwrap().extend(failed.map(|node| (id, node)));
    let value = raw::Value {
        kind: raw::VALUE_TENSOR,
        dtype: dtype(t) as u32,
        rank: t.shape.len() as u32,
        shape: t.shape.as_ptr(),
        data: std::ptr::without_provenance_mut(id as usize),
        bytes: bytes(t).len() as u64,
        space,
        ..EMPTY
    };
    // SAFETY: the value lies in the fake's own space until the handle is dropped.
    unsafe { call.give_own(at, &value, Box::new(Handle(id))) }
}

fn read(value: &Value<'_>) -> Result<T> {
    let shape = value.shape().to_vec();
    if value.raw().space != 0 {
        if let Some(&node) = FAILED.lock().unwrap().get(&(value.raw().data.addr() as u64)) {
            return Err(Error::new("the device trapped").with_code(6).at(node));
        }
        let all = DEVICE.lock().unwrap();
        let found = all.get(&(value.raw().data.addr() as u64)).map(|f| f.1.clone());
        return found.ok_or_else(|| Error::new("a handle that is gone"));
    }
    let data = match value.dtype() {
        Some(DType::F32) => value.to_vec().map(Data::F),
        Some(DType::I64) => value.to_vec().map(Data::I),
        Some(DType::Bool) => value.bytes().map(|b| Data::B(b.to_vec())),
        _ => None,
    };
    data.map(|data| T { shape, data }).ok_or_else(|| Error::new(format!("{value:?} cannot be read")))
}
