//! Models on the device beside the same on the EPs that work in the host's memory, at sizes that no tile divides.

use crate::{Eps, Run};
use ortolan::{ProfileEvent, RunOptions, Session, Tensor};
use ortolan_tests::model::{self, Model};

pub const ALL: &[(&str, Run)] = &[
    ("products_agree_with_and_without_tiles", products),
    ("convolutions_agree", convolutions),
    ("chains_and_rows_agree_for_changing_sizes", chains),
    ("runs_at_once_agree", at_once),
    ("values_that_are_kept_stay_on_the_device", kept),
    ("profiled_runs_tell_when_each_kernel_ran", profiled),
];

/// Names of inputs, with their dimensions.
type Shapes<'a> = &'a [(&'a str, &'a [i64])];

fn say(e: ortolan::Error) -> String {
    e.to_string()
}

/// Numbers that are the same for the same name and shape.
fn input(shape: &[i64], seed: u64) -> Tensor {
    let made = model::Tensor::random(shape, seed);
    Tensor::new(shape, made.data).expect("as many numbers as the shape says")
}

/// The output `y` of a session.
fn run(session: &Session, shapes: Shapes<'_>, seed: u64) -> Result<(Vec<i64>, Vec<f32>), String> {
    let inputs = shapes.iter().zip(seed..).map(|(&(name, shape), seed)| (name, input(shape, seed)));
    let outputs = session.run(inputs).map_err(say)?;
    let y = outputs.get("y").ok_or("there is no y")?;
    Ok((y.shape().to_vec(), y.as_slice::<f32>().map_err(say)?.to_vec()))
}

fn agree(found: &(Vec<i64>, Vec<f32>), want: &(Vec<i64>, Vec<f32>), what: &str) -> Result<(), String> {
    if found.0 != want.0 {
        return Err(format!("{what}: it is {:?}, expected {:?}", found.0, want.0));
    }
    let close = |(x, y): (&f32, &f32)| (x - y).abs() <= 1e-4 + 1e-4 * y.abs();
    match found.1.iter().zip(&want.1).position(|pair| !close(pair)) {
        Some(at) => Err(format!("{what}: element {at} is {}, expected {}", found.1[at], want.1[at])),
        None => Ok(()),
    }
}

fn beside(eps: &Eps, model: &Model, options: &[(&str, &str)], runs: &[Shapes<'_>]) -> Result<(), String> {
    let ep = options.iter().fold(eps.device(), |ep, (key, value)| ep.option(key, value));
    let device = Session::builder().eps([ep]).threads(1).build(model.bytes()).map_err(say)?;
    let host = Session::builder().eps(eps.host()).threads(1).build(model.bytes()).map_err(say)?;
    for (seed, shapes) in (1..).zip(runs) {
        let what = format!("{shapes:?} {options:?}");
        agree(&run(&device, shapes, seed)?, &run(&host, shapes, seed)?, &what)?;
    }
    Ok(())
}

fn products(eps: &Eps) -> Result<(), String> {
    let model = Model::new(21)
        .input("a", &["b", "m", "k"])
        .input("w", &["k", "n"])
        .input("c", &["n"])
        .node("MatMul", &["a", "w"], "p")
        .node("Add", &["p", "c"], "s")
        .node("Relu", &["s"], "y")
        .output("y");
    for tiles in ["0", "1"] {
        let case = |m, k, n| [("a", vec![2, m, k]), ("w", vec![k, n]), ("c", vec![n])];
        for (m, k, n) in [(1, 1, 1), (3, 5, 7), (33, 17, 65), (70, 100, 31)] {
            let shapes = case(m, k, n);
            let shapes: Vec<(&str, &[i64])> = shapes.iter().map(|(name, s)| (*name, &**s)).collect();
            beside(eps, &model, &[("tiles", tiles)], &[&shapes])?;
        }
    }
    Ok(())
}

fn convolutions(eps: &Eps) -> Result<(), String> {
    // Channels in and out, groups, edge of the filter.
    for (ins, outs, groups, edge) in
        [(3, 5, 1, 3), (6, 6, 6, 3), (4, 8, 2, 2), (7, 9, 1, 1), (4, 8, 4, 3), (5, 70, 1, 3)]
    {
        let filter = model::Tensor::random(&[outs, ins / groups, edge, edge], 7);
        let model = Model::new(21)
            .input("x", &["b", &ins.to_string(), "h", "w"])
            .weight("f", filter)
            .weight("bias", model::Tensor::random(&[outs], 8))
            .node_with("Conv", &["x", "f", "bias"], "c", &[("group", groups)])
            .node("Sigmoid", &["c"], "s")
            .node("Mul", &["s", "c"], "y")
            .output("y");
        let sizes = [[1, ins, 5, 4], [1, ins, 9, 7], [2, ins, 19, 23]];
        let runs: Vec<Vec<(&str, &[i64])>> = sizes.iter().map(|s| vec![("x", &s[..])]).collect();
        beside(eps, &model, &[], &runs.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn chain() -> Model {
    Model::new(21)
        .input("x", &["n", "m"])
        .input("b", &["m"])
        .node("Mul", &["x", "b"], "p")
        .node("Tanh", &["p"], "t")
        .node("Add", &["t", "x"], "s")
        .node_with("Softmax", &["s"], "r", &[("axis", 1)])
        .node("Transpose", &["r"], "z")
        .node("Sqrt", &["z"], "y")
        .output("y")
}

fn chains(eps: &Eps) -> Result<(), String> {
    let a: Shapes<'_> = &[("x", &[3, 200]), ("b", &[200])];
    let b: Shapes<'_> = &[("x", &[70, 5]), ("b", &[5])];
    let empty: Shapes<'_> = &[("x", &[0, 5]), ("b", &[5])];
    beside(eps, &chain(), &[], &[a, b, a, empty, b])
}

fn at_once(eps: &Eps) -> Result<(), String> {
    let bytes = chain().bytes();
    let device = Session::builder().eps([eps.device()]).threads(1).build(bytes.clone()).map_err(say)?;
    let host = Session::builder().eps(eps.host()).threads(1).build(bytes).map_err(say)?;
    std::thread::scope(|scope| {
        let work = |seed: u64| {
            let (device, host) = (&device, &host);
            move || {
                for round in 0..10 {
                    let n = 1 + ((seed + round) % 5) as i64;
                    let shapes: Shapes<'_> = &[("x", &[n, 33]), ("b", &[33])];
                    agree(&run(device, shapes, seed)?, &run(host, shapes, seed)?, "several runs at once")?;
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(work(seed))).collect();
        threads.into_iter().try_for_each(|t| t.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}

fn kept(eps: &Eps) -> Result<(), String> {
    let model = Model::new(21).input("x", &["n"]).input("s", &["n"]).node("Add", &["x", "s"], "y").output("y");
    let session = Session::builder().eps([eps.device()]).build(model.bytes()).map_err(say)?;
    let mut binding = session.bind().map_err(say)?;
    binding.keep("y", "s").map_err(say)?;
    binding.input("s", Tensor::new(&[3], vec![0.0f32; 3]).map_err(say)?).map_err(say)?;
    for round in 1..=3 {
        binding.input("x", Tensor::new(&[3], vec![1.0f32, 2.0, 3.0]).map_err(say)?).map_err(say)?;
        let outputs = binding.run().map_err(say)?;
        let y = outputs.get("y").ok_or("there is no y")?;
        let tensor = y.as_tensor().map_err(say)?;
        if tensor.is_host() {
            return Err("a value that is kept came back to the host".to_owned());
        }
        let found = y.to_host().map_err(say)?.as_slice::<f32>().map_err(say)?.to_vec();
        let r = round as f32;
        if found != [r, 2.0 * r, 3.0 * r] {
            return Err(format!("after {round} runs it is {found:?}"));
        }
    }
    Ok(())
}

fn profiled(eps: &Eps) -> Result<(), String> {
    let model = Model::new(21)
        .input("a", &["m", "k"])
        .input("w", &["k", "n"])
        .node("MatMul", &["a", "w"], "p")
        .node("Relu", &["p"], "r")
        .node_with("Softmax", &["r"], "y", &[("axis", 1)])
        .output("y");
    let session = Session::builder().eps([eps.device()]).build(model.bytes()).map_err(say)?;
    let options = RunOptions { profile: true, ..RunOptions::default() };
    for _ in 0..2 {
        let outputs =
            session.run_with([("a", input(&[30, 40], 1)), ("w", input(&[40, 50], 2))], &options).map_err(say)?;
        let profile = outputs.profile().ok_or("there is no profile")?;
        let ours = profile.events.iter().filter(|e| e.ep == eps.device.name());
        let (runs, kernels): (Vec<_>, Vec<_>) = ours.partition(|e| e.name == "run");
        let run = runs.first().ok_or("the host tells of no run")?;
        if eps.info("feature.timestamp-query")? == "false" {
            return if kernels.is_empty() { Ok(()) } else { Err(format!("without a clock: {kernels:?}")) };
        }
        let [product, softmax] = kernels[..] else { return Err(format!("two kernels, one with a Relu: {kernels:?}")) };
        let named =
            product.name.contains("matmul") && product.place.contains("'p'") && softmax.name.contains("softmax");
        let counted = product.flops == 2 * 30 * 40 * 50 && product.bytes == 4 * (30 * 40 + 40 * 50 + 30 * 50);
        let inside = |e: &ProfileEvent| {
            e.dur_ns > 0 && e.start_ns >= run.start_ns && e.start_ns + e.dur_ns <= run.start_ns + run.dur_ns
        };
        let ordered = product.start_ns + product.dur_ns <= softmax.start_ns + 1;
        if !(named && counted && inside(product) && inside(softmax) && ordered) {
            return Err(format!("{product:?} then {softmax:?} in {run:?}"));
        }
    }
    Ok(())
}
