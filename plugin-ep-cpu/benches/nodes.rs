//! What a run costs beside arithmetic: per tiny node in a part, per part, per new shape.
//!
//! Differences between parts of many and of few nodes, so that the fake host's own cost drops out; minima of several
//! rounds. `cargo bench -p ortolan-ep-cpu --bench nodes` prints them beside their bounds and fails above.

use ortolan_ep_cpu::ops::{Cpu, FAMILIES};
use ortolan_ep_cpu::simd::Isa;
use ortolan_ep_kit::testing::{Compiled, Model, Session, Tensor, ValueId};
use ortolan_ep_kit::{DType, Kit};
use std::time::Instant;

/// `count` nodes in a row over `[n, 4]`; unfusable, and some make the arena work.
fn chain(count: usize, op: &str) -> Session {
    let mut m = Model::new();
    let n = m.symbol();
    let value = |m: &mut Model, k: usize| m.value(&format!("v{k}"), DType::F32, &[n, 4.into()]);
    let x = value(&mut m, 0);
    m.mark_input(x);
    let mut last: ValueId = x;
    for k in 1..=count {
        let next = value(&mut m, k);
        match op {
            "Add" => m.call("Add", 14, &[last, x], &[next]),
            _ => m.call(op, 14, &[last], &[next]),
        };
        last = next;
    }
    m.mark_output(last);
    let isa = Isa::best();
    Session::new(Kit::new(FAMILIES, isa.name(), Cpu { isa }), m, 1)
}

/// Nanoseconds per call, the least of many rounds.
fn time(rounds: usize, calls: usize, mut call: impl FnMut(usize)) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..rounds {
        let start = Instant::now();
        (0..calls).for_each(&mut call);
        least = least.min(start.elapsed().as_nanos() as f64 / calls as f64);
    }
    least
}

fn run_time(part: &mut Compiled<'_>) -> f64 {
    part.load(&[Tensor::random(&[1, 4], 1)]);
    let symbols = part.symbols();
    time(50, 2000, |_| part.run_bound(&symbols, 1, 0, false).expect("runs"))
}

/// Two lengths in turn, with bindings that the part has seen or, with `fresh`, never has.
fn turn_time(part: &mut Compiled<'_>, fresh: bool) -> f64 {
    part.load(&[Tensor::random(&[17, 4], 1)]);
    let mut next = 1000;
    time(50, 200, |k| {
        let length = 16 + (k % 2) as u64;
        next += 1;
        part.run_bound(&[length as i64], if fresh { next } else { length }, 0, false).expect("runs");
    })
}

fn main() {
    let mut failed = false;
    let mut report = |what: &str, ns: f64, bound: f64| {
        println!("{what:<44} {ns:>9.1} ns   bound {bound} ns");
        failed |= ns > bound;
    };
    for op in ["Relu", "Add"] {
        let (few, many) = (chain(10, op), chain(110, op));
        let (few, many) =
            (run_time(&mut few.compile().expect("compiles")), run_time(&mut many.compile().expect("compiles")));
        report(&format!("a tiny {op} inside a part"), (many - few) / 100.0, 50.0);
    }
    let one = chain(1, "Relu");
    let whole = run_time(&mut one.compile().expect("compiles"));
    report("a part of one node, the fake host included", whole, 150.0);
    for op in ["Relu", "Add"] {
        let many = chain(1000, op);
        let mut many = many.compile().expect("compiles");
        let kept = turn_time(&mut many, false);
        let fresh = turn_time(&mut many, true);
        report(&format!("a new shape: binding 1,000 values of {op}"), fresh - kept, 20_000.0);
    }
    std::process::exit(i32::from(failed));
}
