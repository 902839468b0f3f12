//! The walker over toy kernels: every road that a value can take through a part.

use crate::testing::{Dim, Model, OpTest, Session, Tensor, ValueId};
use crate::*;
use core::sync::atomic::{AtomicUsize, Ordering};
use ortolan_ep_abi::raw;

/// Element-wise, same shapes.
struct Plain;
impl Op for Plain {
    type Bound = ();
    fn parse(_: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(Plain)
    }
    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements()))
    }
}

trait Num: Element + core::ops::Add<Output = Self> + PartialOrd + Default {}
impl Num for f32 {}
impl Num for i64 {}

fn relu<T: Num>(_: &Plain, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let clip = |x: T| if x > T::default() { x } else { T::default() };
    match args.alias(0) {
        Some(_) => args.output::<T>(0).iter_mut().for_each(|y| *y = clip(*y)),
        None => args.output::<T>(0).iter_mut().zip(args.input::<T>(0)).for_each(|(y, &x)| *y = clip(x)),
    }
    Ok(())
}

fn add<T: Num>(_: &Plain, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let other = match args.alias(0) {
        Some(i) => 1 - i,
        None => {
            let (a, b) = (args.input::<T>(0), args.input::<T>(1));
            args.output::<T>(0).iter_mut().zip(a.iter().zip(b)).for_each(|(y, (&a, &b))| *y = a + b);
            return Ok(());
        }
    };
    let b = args.input::<T>(other);
    args.output::<T>(0).iter_mut().zip(b).for_each(|(y, &b)| *y = *y + b);
    Ok(())
}

fn broken(_: &Plain, (): &(), _: &mut Args<'_>) -> Result<(), Fault> {
    panic!("a kernel gives up")
}

fn cast(_: &Plain, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    args.output::<f32>(0).iter_mut().zip(args.input::<i64>(0)).for_each(|(y, &x)| *y = x as f32);
    Ok(())
}

fn never(_: &Plain, (): &(), _: &mut Args<'_>) -> Result<(), Fault> {
    panic!("a view runs")
}

fn round(_: &Plain, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    args.output::<i64>(0).iter_mut().zip(args.input::<f32>(0)).for_each(|(y, &x)| *y = x as i64);
    Ok(())
}

/// The positive elements of a list.
fn keep(_: &Plain, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let kept: Vec<f32> = args.input::<f32>(0).iter().copied().filter(|&x| x > 0.0).collect();
    args.emit::<f32>(0, &[kept.len() as i64])?.copy_from_slice(&kept);
    Ok(())
}

/// The positive elements of a list, and where they stand: two outputs of one unknown size.
fn keep_both(_: &Plain, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let x = args.input::<f32>(0);
    let places: Vec<usize> = (0..x.len()).filter(|&k| x[k] > 0.0).collect();
    let dims = [places.len() as i64];
    args.emit::<f32>(0, &dims)?.iter_mut().zip(&places).for_each(|(y, &k)| *y = x[k]);
    args.emit::<i64>(1, &dims)?.iter_mut().zip(&places).for_each(|(y, &k)| *y = k as i64);
    Ok(())
}

/// Ones in the shape of its input's elements.
#[derive(Default)]
struct Ones;
impl Op for Ones {
    type Bound = usize;
    fn parse(_: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(Ones)
    }
    fn bind(&self, shapes: &Shapes<'_>, bound: &mut usize) -> Result<(), Fault> {
        *bound = shapes.output_len(0);
        if shapes.elements(0).is_some_and(|e| e != shapes.output(0)) {
            return Err(Fault::data("the elements are not the dimensions"));
        }
        Ok(())
    }
    fn scratch(&self, bound: &usize, width: usize) -> usize {
        *bound * width
    }
}

fn ones(_: &Ones, n: &usize, args: &mut Args<'_>) -> Result<(), Fault> {
    assert_eq!(args.scratch::<u8>().len(), n * args.par().width());
    args.output::<f32>(0).fill(1.0);
    Ok(())
}

/// Adds a constant that is packed in reverse, and takes over Relu.
struct AddPacked {
    packed: bool,
    relu: bool,
    extra: Option<usize>,
}

static FILLS: AtomicUsize = AtomicUsize::new(0);

impl Op for AddPacked {
    type Bound = ();
    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        node.needs(1)?;
        if node.int_if("bad") == Some(1) {
            return Err(Reject::attribute("attribute bad = 1 is not done"));
        }
        Ok(AddPacked { packed: false, relu: false, extra: None })
    }
    fn pack(&mut self, input: usize, source: &WeightSource<'_>) -> Option<Pack> {
        self.packed = input == 1;
        let from_base = matches!(source.chain, [Link::Perm(p)] if p.as_slice() == [1, 0]);
        self.packed.then_some(Pack { format: 7 + u64::from(from_base), bytes: count(source.dims) * 4, from_base })
    }
    fn fill(&self, _: usize, weight: &Weight<'_>, to: &mut [u8], _: &dyn Parallel) -> Result<(), Fault> {
        FILLS.fetch_add(1, Ordering::Relaxed);
        let to = bytes::elements_mut::<f32>(to);
        to.copy_from_slice(&weight.elements::<f32>());
        to.reverse();
        Ok(())
    }
    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        match next.op() {
            "Relu" if !self.relu => self.relu = true,
            "Add" if self.extra.is_none() && !self.relu => self.extra = Some(seam.extra),
            _ => return false,
        }
        true
    }
}

fn add_packed(op: &AddPacked, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, w, y) = (args.input::<f32>(0), args.input::<f32>(1), args.output::<f32>(0));
    let extra = op.extra.map(|i| args.input::<f32>(i));
    for (k, y) in y.iter_mut().enumerate() {
        *y = x[k] + w[if op.packed { w.len() - 1 - k } else { k }] + extra.map_or(0.0, |e| e[k]);
        *y = if op.relu { y.max(0.0) } else { *y };
    }
    Ok(())
}

/// Transposes a matrix.
struct Turn;
impl Op for Turn {
    type Bound = (usize, usize);
    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        match node.needs(0)?.rank() {
            2 => Ok(Turn),
            rank => Err(Reject::rank(format!("input 0 has rank {rank}, only 2 is done"))),
        }
    }
    fn bind(&self, shapes: &Shapes<'_>, bound: &mut (usize, usize)) -> Result<(), Fault> {
        *bound = (size(shapes.input(0)[0]), size(shapes.input(0)[1]));
        Ok(())
    }
    fn link(&self) -> Link {
        Link::Perm(Ints::from_slice(&[1, 0]))
    }
}

fn turn(_: &Turn, &(m, n): &(usize, usize), args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y) = (args.input::<f32>(0), args.output::<f32>(0));
    (0..m * n).for_each(|k| y[k % n * m + k / n] = x[k]);
    Ok(())
}

/// One more than its input, or than the Relu of it that it reads through.
struct Next {
    through: bool,
}
impl Op for Next {
    type Bound = ();
    fn parse(_: &NodeView<'_>) -> Result<Self, Reject> {
        Ok(Next { through: false })
    }
    fn read_through(&mut self, _: &NodeView<'_>, around: &Around<'_>) -> u32 {
        self.through = around.makers[0].is_some_and(|maker| maker.op() == "Relu");
        u32::from(self.through)
    }
}

fn next(op: &Next, (): &(), args: &mut Args<'_>) -> Result<(), Fault> {
    let (x, y) = (args.input::<f32>(0), args.output::<f32>(0));
    y.iter_mut().zip(x).for_each(|(y, &x)| *y = 1.0 + if op.through { x.max(0.0) } else { x });
    Ok(())
}

const KERNELS: &[Kernel] = &[
    Kernel::new("Add", (7, 14), "add", typed!(add: f32 i64)).in_place(&[(0, 0), (1, 0)]),
    Kernel::new("AddPacked", (1, 1), "addpacked", any!(add_packed: f32)),
    Kernel::new("Broken", (1, 1), "broken", any!(broken)).types(&[("T", element::PLAIN)]),
    Kernel::new("Cast", (1, 1), "cast", any!(cast))
        .types(&[("T1", DType::I64.mask()), ("T2", DType::F32.mask())])
        .at(&[Slot::In(0), Slot::Out(0)]),
    Kernel::new("Keep", (1, 1), "keep", any!(keep: f32)).late(),
    // Where the size is known this row fits; else the next one.
    Kernel::new("KeepBoth", (1, 1), "never", any!(broken)).types(&[("T", DType::F32.mask())]),
    Kernel::new("KeepBoth", (1, 1), "keepboth", any!(keep_both: f32)).late(),
    Kernel::new("Next", (1, 1), "next", any!(next: f32)),
    Kernel::new("Ones", (1, 1), "ones", any!(ones: i64)).unread(&[0]).fallback(),
    Kernel::new("Relu", (6, 14), "relu", typed!(relu: f32 i64)).in_place(&[(0, 0)]),
    Kernel::new("Reshape", (5, 25), "reshape", any!(never)).types(&[("T", element::PLAIN)]).unread(&[1]).view(),
    Kernel::new("Round", (1, 1), "round", any!(round: f32)),
    Kernel::new("Turn", (1, 1), "turn", any!(turn: f32)),
];

fn kit() -> Kit {
    Kit::new(&[KERNELS], "toy", ())
}

fn vector(x: &[f32]) -> Tensor {
    Tensor::new(&[x.len() as i64], x)
}

fn f32s(model: &mut Model, name: &str, dims: &[Dim]) -> ValueId {
    model.value(name, DType::F32, dims)
}

/// A model with one input vector of length n.
fn with_input() -> (Model, Dim, ValueId) {
    let mut m = Model::new();
    let n = m.symbol();
    let x = f32s(&mut m, "x", &[n]);
    m.mark_input(x);
    (m, n, x)
}

#[test]
fn a_chain_is_computed_in_the_output() {
    let (mut m, n, x) = with_input();
    let [a, b, c] = ["a", "b", "c"].map(|name| f32s(&mut m, name, &[n]));
    m.call("Add", 14, &[x, x], &[a]);
    m.call("Relu", 14, &[a], &[b]);
    m.call("Relu", 14, &[b], &[c]);
    m.mark_output(c);
    let session = Session::new(kit(), m, 1);
    let mut part = session.compile().unwrap();
    part.alloc_limit = Some(0); // everything is written straight to the output
    let y = part.run_profiled(&[vector(&[1.0, -2.0, 3.0])]).unwrap();
    assert_eq!(y, [vector(&[2.0, 0.0, 6.0])]);
    let names: Vec<_> = part.events.iter().map(|(name, node)| (name.as_str(), *node)).collect();
    assert_eq!(names, [("add_f32_toy", 0), ("relu_f32_toy", 1), ("relu_f32_toy", 2)]);
}

#[test]
fn a_value_that_is_read_again_is_not_overwritten() {
    let (mut m, n, x) = with_input();
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| f32s(&mut m, name, &[n]));
    m.call("Add", 14, &[x, x], &[a]);
    m.call("Relu", 14, &[a], &[b]);
    m.call("Add", 14, &[a, b], &[c]);
    m.call("Add", 14, &[c, c], &[d]); // both inputs are one value: not in place
    m.mark_output(d);
    let session = Session::new(kit(), m, 1);
    let y = session.compile().unwrap().run(&[vector(&[1.0, -2.0])]).unwrap();
    assert_eq!(y, [vector(&[8.0, -8.0])]);
}

#[test]
fn makers_that_all_read_through_are_gone() {
    for wanted in [false, true] {
        let (mut m, n, x) = with_input();
        let [a, b, c] = ["a", "b", "c"].map(|name| f32s(&mut m, name, &[n]));
        m.call("Relu", 14, &[x], &[a]);
        m.call("Next", 1, &[a], &[b]);
        m.call("Next", 1, &[a], &[c]);
        [b, c].into_iter().chain(wanted.then_some(a)).for_each(|v| m.mark_output(v));
        let session = Session::new(kit(), m, 1);
        let mut part = session.compile().unwrap();
        let names: Vec<_> = part.part().steps().map(|s| s.1.to_owned()).collect();
        assert_eq!(names[usize::from(wanted)..], ["next_f32_toy+relu", "next_f32_toy+relu"]);
        assert_eq!(names.len(), 2 + usize::from(wanted));
        let y = part.run(&[vector(&[-3.0, 2.0])]).unwrap();
        assert_eq!(y[..2], [vector(&[1.0, 3.0]), vector(&[1.0, 3.0])]);
        assert_eq!(y.get(2), wanted.then_some(&vector(&[0.0, 2.0])));
    }
}

#[test]
fn views_cost_nothing() {
    let (mut m, n, x) = with_input();
    let shape = m.constant(&Tensor::new(&[2], &[1i64, -1]));
    let [seen, made] = ["seen", "made"].map(|name| f32s(&mut m, name, &[1.into(), n]));
    let (a, b) = (f32s(&mut m, "a", &[n]), f32s(&mut m, "b", &[1.into(), n]));
    m.call("Reshape", 14, &[x, shape], &[seen]);
    m.call("Relu", 14, &[x], &[a]);
    m.call("Reshape", 14, &[a, shape], &[made]);
    m.call("Relu", 14, &[made], &[b]);
    for v in [seen, made, a, b] {
        m.mark_output(v);
    }
    let session = Session::new(kit(), m, 1);
    let mut part = session.compile().unwrap();
    let y = part.run_profiled(&[vector(&[-1.0, 2.0])]).unwrap();
    let row = |x: &[f32]| Tensor::new(&[1, 2], x);
    assert_eq!(y, [row(&[-1.0, 2.0]), row(&[0.0, 2.0]), vector(&[0.0, 2.0]), row(&[0.0, 2.0])]);
    assert_eq!(part.shared, [(0, 1)], "the view of the input is the input's buffer");
    assert_eq!(part.events.len(), 2, "only the two Relus run");
}

#[test]
fn outputs_may_be_constants_inputs_and_twice_the_same() {
    let (mut m, n, x) = with_input();
    let c = m.constant(&vector(&[5.0, 6.0]));
    let a = f32s(&mut m, "a", &[n]);
    m.call("Relu", 14, &[x], &[a]);
    for v in [c, x, a, a] {
        m.mark_output(v);
    }
    let session = Session::new(kit(), m, 1);
    let mut part = session.compile().unwrap();
    for _ in 0..2 {
        let y = part.run(&[vector(&[-1.0])]).unwrap();
        assert_eq!(y, [vector(&[5.0, 6.0]), vector(&[-1.0]), vector(&[0.0]), vector(&[0.0])]);
    }
}

#[test]
fn known_values_are_not_computed() {
    let (mut m, n, x) = with_input();
    let (shape, double) = (m.value("shape", DType::I64, &[1.into()]), m.value("double", DType::I64, &[1.into()]));
    m.known(shape, &[n]);
    let n2 = m.expr(raw::expr::ADD, n, n);
    m.known(double, &[n2]);
    let (f, o) = (f32s(&mut m, "f", &[1.into()]), f32s(&mut m, "o", &[n2]));
    m.call("Broken", 1, &[x], &[shape]);
    m.call("Add", 14, &[shape, shape], &[double]);
    m.call("Cast", 1, &[double], &[f]);
    m.call("Ones", 1, &[double], &[o]);
    for v in [double, f, o] {
        m.mark_output(v);
    }
    let session = Session::new(kit(), m, 2);
    let mut part = session.compile().unwrap();
    for len in [3, 0, 3, 1] {
        let y = part.run(&[vector(&vec![0.5; len])]).unwrap();
        let want = [Tensor::new(&[1], &[2 * len as i64]), vector(&[2.0 * len as f32]), vector(&vec![1.0; 2 * len])];
        assert_eq!(y, want);
    }
    assert_eq!(part.part().steps().map(|s| s.1).collect::<Vec<_>>(), ["cast_i64_toy", "ones_i64_scalar"]);
}

#[test]
fn late_values_end_a_segment() {
    let (mut m, n, x) = with_input();
    let k = m.symbol();
    let [a, b, c] = ["a", "b", "c"].map(|name| f32s(&mut m, name, &[n]));
    let [kept, more, out] = ["kept", "more", "out"].map(|name| f32s(&mut m, name, &[k]));
    let k2 = m.expr(raw::expr::MUL, k, 2.into());
    let shape = m.value("shape", DType::I64, &[1.into()]);
    m.known(shape, &[k2]);
    let o = f32s(&mut m, "o", &[k2]);
    m.call("Add", 14, &[x, x], &[a]);
    m.call("Keep", 1, &[a], &[kept]);
    m.call("Relu", 14, &[a], &[b]); // read across the cut
    m.call("Add", 14, &[kept, kept], &[more]);
    m.call("Add", 14, &[more, kept], &[out]);
    m.call("Relu", 14, &[b], &[c]);
    m.call("Ones", 1, &[shape], &[o]);
    for v in [kept, out, c, o] {
        m.mark_output(v);
    }
    let session = Session::new(kit(), m, 1);
    let mut part = session.compile().unwrap();
    for input in [vec![1.0, -2.0, 3.0], vec![-1.0, -1.0, -1.0], vec![1.0, 1.0, 1.0], vec![2.0], vec![], vec![4.0, -5.0]]
    {
        let y = part.run(&[vector(&input)]).unwrap();
        let kept: Vec<f32> = input.iter().map(|x| 2.0 * x).filter(|&x| x > 0.0).collect();
        let tripled: Vec<f32> = kept.iter().map(|x| 3.0 * x).collect();
        let clipped: Vec<f32> = input.iter().map(|x| (2.0 * x).max(0.0)).collect();
        let ones = vec![1.0; 2 * kept.len()];
        assert_eq!(y, [vector(&kept), vector(&tripled), vector(&clipped), vector(&ones)], "{input:?}");
    }
}

#[test]
fn late_outputs_may_share_a_size() {
    let (mut m, _, x) = with_input();
    let k = m.symbol();
    let (kept, more) = (f32s(&mut m, "kept", &[k]), f32s(&mut m, "more", &[k]));
    let places = m.value("places", DType::I64, &[k]);
    let floats = f32s(&mut m, "floats", &[k]);
    m.call("KeepBoth", 1, &[x], &[kept, places]);
    m.call("Cast", 1, &[places], &[floats]);
    m.call("Add", 14, &[kept, floats], &[more]);
    m.mark_output(more);
    let session = Session::new(kit(), m, 1);
    let mut part = session.compile().unwrap();
    for (input, want) in
        [(vec![-1.0, 5.0, 6.0], vec![6.0, 8.0]), (vec![-1.0], vec![]), (vec![2.0, -1.0, 2.0], vec![2.0, 4.0])]
    {
        assert_eq!(part.run(&[vector(&input)]).unwrap(), [vector(&want)]);
    }
}

#[test]
fn elements_that_a_kernel_computes_become_sizes() {
    let (mut m, _, x) = with_input();
    let shape = m.value("shape", DType::I64, &[1.into()]);
    let size = m.element(shape, 0);
    let o = f32s(&mut m, "o", &[size]);
    m.call("Round", 1, &[x], &[shape]);
    m.call("Ones", 1, &[shape], &[o]);
    m.mark_output(o);
    let session = Session::new(kit(), m, 1);
    let mut part = session.compile().unwrap();
    for len in [3, 5, 0] {
        assert_eq!(part.run(&[vector(&[len as f32])]).unwrap(), [vector(&vec![1.0; len])]);
    }
    let error = part.run(&[vector(&[-1.0])]).unwrap_err();
    assert!(error.contains("value 'o' would have the dimensions [?]"), "{error}");
    assert_eq!(part.run(&[vector(&[2.0])]).unwrap(), [vector(&[1.0, 1.0])], "usable after an error");
}

#[test]
fn elements_that_become_sizes_are_not_written_over_their_input() {
    let (mut m, _, x) = with_input();
    let (whole, shape) = (m.value("whole", DType::I64, &[1.into()]), m.value("shape", DType::I64, &[1.into()]));
    let size = m.element(shape, 0);
    m.known(shape, &[size]);
    let o = f32s(&mut m, "o", &[size]);
    m.call("Round", 1, &[x], &[whole]);
    m.call("Relu", 14, &[whole], &[shape]);
    m.call("Ones", 1, &[shape], &[o]);
    m.mark_output(o);
    let session = Session::new(kit(), m, 1);
    let mut part = session.compile().unwrap();
    for len in [3, 5, 0] {
        assert_eq!(part.run(&[vector(&[len as f32])]).unwrap(), [vector(&vec![1.0; len])]);
    }
}

#[test]
fn a_view_of_another_size_is_a_fault() {
    let (mut m, n, x) = with_input();
    let (shape, y) = (m.constant(&Tensor::new(&[1], &[3i64])), f32s(&mut m, "y", &[3.into()]));
    let z = f32s(&mut m, "z", &[3.into()]);
    let _ = n;
    m.call("Reshape", 14, &[x, shape], &[y]);
    m.call("Relu", 14, &[y], &[z]);
    m.mark_output(z);
    let session = Session::new(kit(), m, 1);
    let mut part = session.compile().unwrap();
    assert_eq!(part.run(&[vector(&[1.0, 2.0, 3.0])]).unwrap(), [vector(&[1.0, 2.0, 3.0])]);
    let error = part.run(&[vector(&[1.0, 2.0])]).unwrap_err();
    assert!(error.contains("node 'n0' (Reshape): [2] cannot become [3]"), "{error}");
}

/// x + Turn(w), twice, with w behind one or two hops.
fn packing_model(hops: usize) -> Model {
    let mut m = Model::new();
    let dims = [Dim::Fixed(2), Dim::Fixed(3)];
    let turned = [Dim::Fixed(3), Dim::Fixed(2)];
    let x = f32s(&mut m, "x", &turned);
    m.mark_input(x);
    let base = m.constant(&Tensor::new(&[2, 3], &[0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0]));
    let mut w = base;
    for _ in 1..hops {
        let next = f32s(&mut m, "w", &dims);
        m.const_expr(next);
        m.call("Relu", 14, &[w], &[next]);
        w = next;
    }
    let t = f32s(&mut m, "t", &turned);
    m.const_expr(t);
    m.call("Turn", 1, &[w], &[t]);
    let (a, y) = (f32s(&mut m, "a", &turned), f32s(&mut m, "y", &turned));
    m.call("AddPacked", 1, &[x, t], &[a]);
    m.call("AddPacked", 1, &[a, t], &[y]);
    m.mark_output(y);
    m
}

#[test]
fn weights_are_packed_once_through_their_chain() {
    let zeros = Tensor::new(&[3, 2], &[0.0f32; 6]);
    // One hop is read through: the packer gets the base as it stands in the file, which shows as it forgets to turn it.
    // Two hops are evaluated.
    let cases = [(1, [0.0f32, 2.0, 4.0, 6.0, 8.0, 10.0]), (2, [0.0, 6.0, 2.0, 8.0, 4.0, 10.0])];
    let before = FILLS.load(Ordering::Relaxed);
    for (hops, want) in cases {
        let session = Session::new(kit(), packing_model(hops), 1);
        let mut part = session.compile().unwrap();
        assert_eq!(part.done, [0], "the constant is let go");
        let names: Vec<_> = part.part().steps().map(|s| s.1.to_owned()).collect();
        assert_eq!(names, ["addpacked_f32_toy"; 2]);
        assert_eq!(part.part().held_bytes(), 24);
        let y = part.run(std::slice::from_ref(&zeros)).unwrap();
        assert_eq!(y, [Tensor::new(&[3, 2], &want)]);
        let mut again = session.compile().unwrap();
        assert_eq!(again.done, [0]);
        assert_eq!(again.run(std::slice::from_ref(&zeros)).unwrap(), y);
    }
    assert_eq!(FILLS.load(Ordering::Relaxed) - before, 2, "once per source: the second part shares");
}

#[test]
fn parts_that_run_once_pack_nothing() {
    let session = Session::new(kit(), packing_model(2), 1);
    let mut part = session.compile_with(raw::PART_EXACT | raw::PART_ONCE).unwrap();
    assert_eq!(part.done, [], "the part may read the constant in place");
    let y = part.run(&[Tensor::new(&[3, 2], &[0.0f32; 6])]).unwrap();
    assert_eq!(y, [Tensor::new(&[3, 2], &[0.0f32, 6.0, 2.0, 8.0, 4.0, 10.0])]);
    assert_eq!(part.part().steps().count(), 4);
}

#[test]
fn steps_are_fused() {
    let (mut m, n, x) = with_input();
    let c = m.constant(&vector(&[1.0, 1.0]));
    let [a, b, y, z] = ["a", "b", "y", "z"].map(|name| f32s(&mut m, name, &[n]));
    let r = f32s(&mut m, "r", &[n]);
    m.call("AddPacked", 1, &[x, c], &[a]);
    m.call("Relu", 14, &[x], &[r]);
    m.call("Add", 14, &[r, a], &[b]);
    m.call("Relu", 14, &[b], &[y]);
    m.call("Relu", 14, &[y], &[z]);
    m.mark_output(z);
    let session = Session::new(kit(), m, 1);
    let mut part = session.compile().unwrap();
    let names: Vec<_> = part.part().steps().map(|s| s.1.to_owned()).collect();
    assert_eq!(names, ["relu_f32_toy", "addpacked_f32_toy+add+relu", "relu_f32_toy"]);
    assert_eq!(part.run(&[vector(&[1.0, -3.0])]).unwrap(), [vector(&[3.0, 0.0])]);
}

#[test]
fn what_nobody_reads_does_not_run() {
    let (mut m, n, x) = with_input();
    let [a, b] = ["a", "b"].map(|name| f32s(&mut m, name, &[n]));
    m.call("Relu", 14, &[x], &[a]);
    m.call("Broken", 1, &[x], &[b]);
    m.mark_output(a);
    let session = Session::new(kit(), m, 1);
    assert_eq!(session.compile().unwrap().run(&[vector(&[1.0])]).unwrap(), [vector(&[1.0])]);
}

/// Any order of lengths gives what a new lane gives.
#[test]
fn rebinding_equals_binding_afresh() {
    let build = || {
        let (mut m, n, x) = with_input();
        let half = m.expr(raw::expr::DIV, n, 2.into());
        let shape = m.value("shape", DType::I64, &[1.into()]);
        m.known(shape, &[half]);
        let [a, b, c] = ["a", "b", "c"].map(|name| f32s(&mut m, name, &[n]));
        let [o, p] = ["o", "p"].map(|name| f32s(&mut m, name, &[half]));
        m.call("Relu", 14, &[x], &[a]);
        m.call("Ones", 1, &[shape], &[o]);
        m.call("Add", 14, &[a, x], &[b]);
        m.call("Add", 14, &[o, o], &[p]);
        m.call("Add", 14, &[b, a], &[c]);
        m.mark_output(c);
        m.mark_output(p);
        m.mark_output(a);
        Session::new(kit(), m, 2)
    };
    let session = build();
    let mut kept = session.compile().unwrap();
    let mut seed = 7u64;
    for round in 0..100 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let x = Tensor::random(&[(seed >> 33) as i64 % 300], round);
        let fresh = build();
        assert_eq!(kept.run(std::slice::from_ref(&x)), fresh.compile().unwrap().run(&[x]), "round {round}");
    }
}

#[test]
fn faults_are_told() {
    let one = |op: &str| {
        let (mut m, n, x) = with_input();
        let [a, b] = ["a", "b"].map(|name| f32s(&mut m, name, &[n]));
        m.call("Add", 14, &[x, x], &[a]);
        m.call(op, if op == "Relu" { 14 } else { 1 }, &[a], &[b]);
        m.mark_output(a);
        m.mark_output(b);
        Session::new(kit(), m, 1)
    };
    let x = vector(&[1.0, 2.0]);
    let session = one("Broken");
    let error = session.compile().unwrap().run(std::slice::from_ref(&x)).unwrap_err();
    assert!(error.contains("a kernel gives up") && error.contains("code -100"), "{error}");
    let session = one("Relu");
    let mut part = session.compile().unwrap();
    assert_eq!(part.run_cancelled(std::slice::from_ref(&x)).unwrap_err(), "code -2");
    part.load(std::slice::from_ref(&x));
    let error = part.run_bound(&[3], 99, 0, false).unwrap_err();
    assert!(error.contains("input 0 is not in host memory as f32 of dimensions [3]"), "{error}");
    assert!(part.run(&[x]).is_ok(), "usable after errors");

    let mut m = Model::new();
    let dims = [Dim::Fixed(1 << 20)];
    let shape = m.constant(&Tensor::new(&[1], &[1i64 << 20]));
    let (a, b, c) = (f32s(&mut m, "a", &dims), f32s(&mut m, "b", &dims), f32s(&mut m, "c", &dims));
    m.call("Ones", 1, &[shape], &[a]);
    m.call("Relu", 14, &[a], &[b]);
    m.call("Add", 14, &[a, b], &[c]);
    m.mark_output(c);
    let session = Session::new(kit(), m, 1);
    let mut part = session.compile().unwrap();
    part.alloc_limit = Some(1000);
    let error = part.run(&[]).unwrap_err();
    assert!(error.contains("memory for intermediate values") && error.contains("code -3"), "{error}");
}

#[test]
fn refusals_name_what_is_in_the_way() {
    let x = vector(&[1.0]);
    let half = Tensor { dtype: DType::F16, dims: vec![1], bytes: vec![0; 2] };
    let node = |op: &str, version| OpTest::new(&[KERNELS], op, version);
    let cases = [
        (node("Sin", 7).input(&x).output(DType::F32, &[1]), RejectCode::Operator, "Sin: there is no kernel"),
        (node("Relu", 14).domain("me").input(&x).output(DType::F32, &[1]), RejectCode::Operator, "of domain me"),
        (
            node("Relu", 5).input(&x).output(DType::F32, &[1]),
            RejectCode::Version,
            "version 5; kernels are there for 6 to 14",
        ),
        (
            node("Relu", 14).input(&half).output(DType::F16, &[1]),
            RejectCode::Dtype,
            "T = f16 (input 0) has no kernel; there are f32, i64",
        ),
        (
            node("Cast", 1).input(&Tensor::new(&[1], &[1i64])).output(DType::I64, &[1]),
            RejectCode::Dtype,
            "T2 = i64 (output 0)",
        ),
        (node("Turn", 1).input(&x).output(DType::F32, &[1]), RejectCode::Rank, "Turn: input 0 has rank 1"),
        (node("AddPacked", 1).input(&x).output(DType::F32, &[1]), RejectCode::Shape, "input 1 is missing"),
        (
            node("AddPacked", 1).int("bad", 1).input(&x).input(&x).output(DType::F32, &[1]),
            RejectCode::Attribute,
            "attribute bad = 1",
        ),
        (node("Relu", 14).input(&x).late_output(DType::F32, 1), RejectCode::Shape, "decided by data"),
    ];
    for (test, code, part) in cases {
        let (got, text) = test.rejection();
        assert!(got == code && text.contains(part), "{got}: {text}");
    }
    let cost = node("Relu", 14).input(&vector(&[0.0; 9])).output(DType::F32, &[9]).claim();
    assert_eq!(cost, Ok(9.0));
}

#[test]
fn the_catalogue_is_the_table() {
    const TEXT: &str = kernel_catalogue!(&[KERNELS]);
    assert_eq!(TEXT.lines().count(), KERNELS.len());
    assert_eq!(TEXT.lines().next(), Some("-	Add	7	14	T=f32,i64	-"));
    assert!(TEXT.contains(
        "-	Cast	1	1	T1=i64;T2=f32	-
"
    ));
}
