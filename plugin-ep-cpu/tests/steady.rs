//! In steady state a run allocates nothing: with one shape, and with three lengths in rotation.
//!
//! One test alone in its process, as it counts what all threads allocate.

use ortolan_ep_cpu::ops::{Cpu, FAMILIES};
use ortolan_ep_cpu::simd::Isa;
use ortolan_ep_kit::testing::{Model, Session, Tensor, ValueId};
use ortolan_ep_kit::{DType, Kit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: the system's allocator, counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Softmax(Relu(x W + b) Wt + x) Tanh, turned: what a small network is made of.
fn network() -> Model {
    let mut m = Model::new();
    let n = m.symbol();
    let wide = |m: &mut Model, name: &str, width: i64| m.value(name, DType::F32, &[n, width.into()]);
    let x = wide(&mut m, "x", 24);
    m.mark_input(x);
    let [w, b, v] = [(vec![24, 40], 1), (vec![40], 2), (vec![40, 24], 3)]
        .map(|(dims, seed)| m.constant(&Tensor::random(&dims, seed)));
    let scale = m.constant(&Tensor::new(&[], &[0.5f32]));
    let [p, s, r] = ["p", "s", "r"].map(|name| wide(&mut m, name, 40));
    let [q, t, u, y] = ["q", "t", "u", "y"].map(|name| wide(&mut m, name, 24));
    let turned = m.value("turned", DType::F32, &[24.into(), n]);
    let mut call = |op: &str, version, inputs: &[ValueId], output: ValueId| m.call(op, version, inputs, &[output]);
    call("MatMul", 13, &[x, w], p);
    call("Add", 14, &[p, b], s);
    call("Relu", 14, &[s], r);
    call("MatMul", 13, &[r, v], q);
    call("Mul", 14, &[q, scale], t);
    call("Add", 14, &[t, x], u);
    let softmax = call("Softmax", 13, &[u], y);
    let transpose = call("Transpose", 25, &[y], turned);
    m.ints(softmax, "axis", &[-1], false);
    m.ints(transpose, "perm", &[1, 0], true);
    m.mark_output(y);
    m.mark_output(turned);
    m
}

#[test]
fn a_steady_run_allocates_nothing() {
    let isa = Isa::best();
    let session = Session::new(Kit::new(FAMILIES, isa.name(), Cpu { isa }), network(), 1);
    let mut part = session.compile().expect("compiles");
    let lengths = [5, 17, 3];
    let inputs = lengths.map(|n| Tensor::random(&[n, 24], n as u64));
    let mut seen = Vec::new();
    for round in 0..4 {
        for (k, x) in inputs.iter().enumerate() {
            part.load(std::slice::from_ref(x));
            let symbols = part.symbols();
            let mut run = || part.run_bound(&symbols, k as u64, 0, false);
            // The fake host makes new outputs when the length changes, and keeps two sets of them.
            run().and_then(|()| run()).expect("runs");
            let before = COUNT.load(Ordering::Relaxed);
            let repeated = (0..1000).try_for_each(|_| run());
            let count = COUNT.load(Ordering::Relaxed) - before;
            repeated.expect("runs");
            assert_eq!(count, 0, "allocations in 1,000 runs of length {}", lengths[k]);
            let outputs = part.outputs();
            match round {
                0 => seen.push(outputs),
                _ => assert!(seen[k] == outputs, "length {} gives other bits in round {round}", lengths[k]),
            }
        }
    }
}
