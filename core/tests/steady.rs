//! What a run costs once it is steady: no allocation, and times beside their bounds.
//!
//! The EP is a bare table, so that everything counted is the host's. Times are printed, and held to generous bounds in
//! optimised builds only.

#![allow(clippy::unwrap_used)] // helpers of tests

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use common::model::*;
use common::view;
use ortolan::abi::FactoryHandle;
use ortolan::{Session, SessionEp, Tensor, Value};
use ortolan_ep_abi::call::EMPTY;
use ortolan_ep_abi::raw::{self, Call, EpV1, NONE, PartDesc, Program, Str};

/// Counts allocations of this thread.
struct Counting;

thread_local!(static COUNT: Cell<u64> = const { Cell::new(0) });

// SAFETY: the system's allocator, with a counter beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many allocations `f` makes on this thread.
fn allocations(f: impl FnOnce()) -> u64 {
    let before = COUNT.get();
    f();
    COUNT.get() - before
}

mod bare {
    //! An EP that claims every other Relu (option `odd`/`even`) and adds 1 to all elements.
    use super::*;

    pub unsafe extern "C" fn factory_new(_: *const Call, out: *mut *mut raw::Factory) -> i32 {
        // SAFETY: the host's out pointer.
        unsafe { *out = std::ptr::without_provenance_mut(8) };
        0
    }
    pub unsafe extern "C" fn factory_free(_: *mut raw::Factory) {}
    pub unsafe extern "C" fn devices(_: *mut raw::Factory, call: *const Call) -> i32 {
        let device = raw::Device {
            name: Str::new("bare"),
            vendor: Str::new("test"),
            kind: raw::DEVICE_CPU,
            ordinal: 0,
            memory_bytes: 0,
            info: std::ptr::null(),
            info_count: 0,
            flags: 0,
            transfer_ns: 0,
            transfer_bytes_per_s: 0,
        };
        // SAFETY: the host's call.
        unsafe { ((*(*call).host).device)(call, &device) };
        0
    }
    pub unsafe extern "C" fn ep_new(
        _: *mut raw::Factory,
        _: *const Call,
        _: u32,
        options: *const raw::Kv,
        count: usize,
        out: *mut *mut raw::Ep,
    ) -> i32 {
        // SAFETY: the host's options and out pointer.
        unsafe {
            let odd = raw::slice(options, count).iter().any(|o| o.key.as_str() == "odd");
            let even = raw::slice(options, count).iter().any(|o| o.key.as_str() == "even");
            *out = std::ptr::without_provenance_mut(16 + usize::from(odd) + 2 * usize::from(even));
        }
        0
    }
    pub unsafe extern "C" fn ep_free(_: *mut raw::Ep) {}
    pub unsafe extern "C" fn claim(
        ep: *mut raw::Ep,
        call: *const Call,
        _: *const Program,
        part: *const PartDesc,
    ) -> i32 {
        // SAFETY: the host's call and part.
        unsafe {
            let host = &*(*call).host;
            for &node in raw::slice((*part).nodes, (*part).node_count as usize) {
                let mine = match ep.addr() - 16 {
                    1 => node % 2 == 1,
                    2 => node % 2 == 0,
                    _ => true,
                };
                if mine {
                    (host.claim)(call, &raw::Claim { nodes: &node, count: 1, flags: 0, cost_ns: f64::NAN });
                } else {
                    (host.reject)(call, node, 9, Str::new("not mine"));
                }
            }
        }
        0
    }
    pub unsafe extern "C" fn compile(
        _: *mut raw::Ep,
        _: *const Call,
        _: *const Program,
        _: *const PartDesc,
        out: *mut *mut raw::Part,
    ) -> i32 {
        // SAFETY: the host's out pointer.
        unsafe { *out = std::ptr::without_provenance_mut(8) };
        0
    }
    pub unsafe extern "C" fn part_free(_: *mut raw::Part) {}
    pub unsafe extern "C" fn run(_: *const raw::Part, lane: *mut *mut raw::Lane, call: *const Call) -> i32 {
        // SAFETY: the host's lane and call: one input and one output of f32.
        unsafe {
            *lane = std::ptr::without_provenance_mut(8);
            let (host, x) = (&*(*call).host, &*(*call).inputs);
            let mut y = EMPTY;
            let code = (host.output)(call, 0, x.dtype, x.rank, x.shape, &mut y);
            if code != 0 {
                return (host.error)(call, code, NONE, Str::new("no output"));
            }
            let scratch = (host.alloc)(call, 256);
            assert!(!scratch.is_null());
            for i in 0..(x.bytes / 4) as usize {
                *y.data.cast::<f32>().add(i) = *x.data.cast::<f32>().add(i) + 1.0;
            }
        }
        0
    }
    pub unsafe extern "C" fn lane_free(_: *const raw::Part, _: *mut raw::Lane) {}
}

static BARE: EpV1 = EpV1 {
    struct_size: size_of::<EpV1>() as u32,
    version: 1,
    factory_new: bare::factory_new,
    factory_free: bare::factory_free,
    devices: bare::devices,
    ep_new: bare::ep_new,
    ep_free: bare::ep_free,
    claim: bare::claim,
    compile: bare::compile,
    part_free: bare::part_free,
    run: bare::run,
    lane_free: bare::lane_free,
    copy: None,
    factory_trim: None,
};

fn ep(name: &str, option: Option<&str>) -> SessionEp {
    // SAFETY: a complete table of this binary.
    let factory = unsafe { FactoryHandle::new(name, &BARE, None) }.unwrap();
    let ep = SessionEp::new(Arc::new(factory), "1.0.0", [(String::new(), 21)].into());
    option.into_iter().fold(ep, |ep, o| ep.option(o, "1"))
}

/// A chain of `n` nodes.
fn chain(n: usize) -> Vec<u8> {
    let name = |i: usize| if i == 0 { "x".to_owned() } else { format!("v{i}") };
    let nodes = (0..n).map(|i| node("Relu", &[&name(i)], &[&name(i + 1)]));
    model(graph([value("x", F32, &["N"])], [], nodes, [value(&name(n), F32, &["N"])]))
}

fn split(n: usize) -> Session {
    Session::builder().eps([ep("odd", Some("odd")), ep("even", Some("even"))]).threads(1).build(chain(n)).unwrap()
}

fn run(s: &Session, data: &[f32], want: f32) {
    let shape = [data.len() as i64];
    let out = s.run([("x", view(&shape, data))]).unwrap();
    assert_eq!(out[0].as_slice::<f32>().unwrap()[0], want);
}

#[test]
fn steady_runs_allocate_nothing() {
    let data = [0.0f32; 64];
    let one = Session::builder().eps([ep("all", None)]).threads(1).build(chain(1)).unwrap();
    let many = split(20);
    assert_eq!(many.report().parts.len(), 20);
    for (s, want) in [(&one, 1.0), (&many, 20.0)] {
        let mut lengths = [4usize, 64, 17].into_iter().cycle();
        let mut once = |n: usize| run(s, &data[..n], want);
        (0..4).for_each(|_| once(64));
        assert_eq!(allocations(|| (0..1000).for_each(|_| once(64))), 0, "one length");
        lengths.by_ref().take(6).for_each(&mut once);
        assert_eq!(allocations(|| lengths.take(1000).for_each(&mut once)), 0, "three lengths in turn");
    }
    let shared = Value::from(vec![0.0f32; 64]);
    let by_value = || assert_eq!(one.run([("x", &shared)]).unwrap()[0].shape(), [64]);
    by_value();
    assert_eq!(allocations(|| (0..100).for_each(|_| by_value())), 0, "shared values");
    let mut binding = many.bind().unwrap();
    binding.input("x", shared).unwrap();
    let y = Tensor::zeros(ortolan_graph::ir::DType::F32, &[64]).unwrap();
    binding.output("v20", y).unwrap();
    binding.run().unwrap();
    assert_eq!(allocations(|| (0..100).for_each(|_| drop(binding.run().unwrap()))), 0, "bound");
}

#[test]
fn growing_runs_allocate_outputs_and_little_else() {
    let s = split(4);
    let data = vec![0.0f32; 2000];
    run(&s, &data[..100], 4.0);
    let grown = allocations(|| (101..301).for_each(|n| run(&s, &data[..n], 4.0)));
    // A buffer and its counter for the output of each run; those inside grow by a quarter at a time.
    assert!(grown <= 200 * 2 + 40, "{grown} allocations in 200 growing runs");
}

/// The least time of several rounds, in ns per call.
fn best(mut f: impl FnMut()) -> f64 {
    let (rounds, calls) = if cfg!(debug_assertions) { (3, 100) } else { (50, 1000) };
    let round = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..calls).for_each(|_| f());
        start.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    (0..rounds).map(|_| round(&mut f)).fold(f64::MAX, f64::min)
}

#[test]
fn a_run_and_a_part_cost_little() {
    let data = [0.0f32; 4];
    let time = |n: usize| {
        let s = split(n);
        assert_eq!(s.report().parts.len(), n);
        best(|| run(&s, &data, n as f32))
    };
    let (one, many) = (time(1), time(101));
    let part = (many - one) / 100.0;
    let grow = {
        let (s, mut n) = (split(1), 0);
        let data = [0.0f32; 64];
        best(|| {
            n = (n + 1) % 60;
            run(&s, &data[..n + 1], 1.0);
        })
    };
    let pool = ortolan::pool::Pool::global();
    let _caller = pool.enter();
    let work = ortolan::pool::Work { n: 2, grain: 1, width: 2, cancel: None, owner: 1 };
    let empty = best(|| assert_eq!(pool.for_each(work, |_, _| ()), 0));
    println!(
        "one tiny node {one:.0} ns, a further part {part:.0} ns, a new shape {grow:.0} ns, an empty parallel_for {empty:.0} ns"
    );
    if !cfg!(debug_assertions) {
        // Twice the bounds of ARCHITECTURE section 7: the machine may be busy.
        assert!(one < 800.0 && part < 120.0, "one node {one:.0} ns, a further part {part:.0} ns");
    }
}
