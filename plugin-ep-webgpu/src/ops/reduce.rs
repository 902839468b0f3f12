//! Reductions over axes. Short ones have a thread per result, long ones a workgroup.

use super::{ALL, FLOATS, LIST, NUMBERS, axes, input, list, on, output, told};
use crate::recipe::{Buf, Build, Recipe, word};
use crate::shader::Elem;
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{Cost, DType, Fault, Kernel, NodeView, Op, Reject, Shapes, size};

macro_rules! row {
    ($op:literal, $since:expr, $name:literal, $types:expr) => {
        Kernel::new($op, $since, $name, on!(Reduce)).types(&[("T", $types), ("tensor(int64)", LIST)]).unread(&[1])
    };
}

const SIGNED: u64 = FLOATS | set(&[DType::I32]);

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    row!("ReduceL1", (18, 18), "reducel1", SIGNED),
    row!("ReduceL2", (18, 18), "reducel2", FLOATS),
    row!("ReduceLogSum", (18, 28), "reducelogsum", FLOATS),
    row!("ReduceLogSumExp", (18, 28), "reducelogsumexp", FLOATS),
    row!("ReduceMax", (18, 20), "reducemax", ALL),
    row!("ReduceMean", (18, 18), "reducemean", NUMBERS),
    row!("ReduceMin", (18, 20), "reducemin", ALL),
    row!("ReduceProd", (18, 18), "reduceprod", NUMBERS),
    row!("ReduceSum", (13, 13), "reducesum", NUMBERS),
    row!("ReduceSumSquare", (18, 18), "reducesumsquare", NUMBERS),
];

/// Elements from which on a workgroup shares a reduction.
const LONG: u64 = 128;

/// What elements are folded into, as WGSL of `x`, `a`, `b`, `n` (their number) and `m` (the greatest, if it is needed).
#[derive(Debug, Clone, Copy)]
struct Fold {
    op: &'static str,
    map: &'static str,
    join: &'static str,
    finish: &'static str,
    /// Bits that change nothing: of floats, of i32, of u32 and bool.
    neutral: [u32; 3],
    /// It needs the greatest element first.
    greatest: bool,
}

const INFINITY: u32 = f32::INFINITY.to_bits();
const MINUS_INFINITY: u32 = f32::NEG_INFINITY.to_bits();
const ONE: u32 = 1.0f32.to_bits();

const fn fold(op: &'static str, map: &'static str, join: &'static str, finish: &'static str) -> Fold {
    Fold { op, map, join, finish, neutral: [0; 3], greatest: false }
}

/// Sorted by operator.
const FOLDS: &[Fold] = &[
    fold("ReduceL1", "abs(x)", "a + b", "a"),
    fold("ReduceL2", "x * x", "a + b", "sqrt(a)"),
    fold("ReduceLogSum", "x", "a + b", "log(a)"),
    Fold { greatest: true, ..fold("ReduceLogSumExp", "exp(x - m)", "a + b", "log(a) + m") },
    Fold { neutral: [MINUS_INFINITY, 1 << 31, 0], ..fold("ReduceMax", "x", "max(a, b)", "a") },
    fold("ReduceMean", "x", "a + b", "a / $type(n)"),
    Fold { neutral: [INFINITY, u32::MAX >> 1, u32::MAX], ..fold("ReduceMin", "x", "min(a, b)", "a") },
    Fold { neutral: [ONE, 1, 1], ..fold("ReduceProd", "x", "a * b", "a") },
    fold("ReduceSum", "x", "a + b", "a"),
    fold("ReduceSumSquare", "x * x", "a + b", "a"),
];

/// See the module.
#[derive(Debug)]
struct Reduce {
    elem: Elem,
    out: Elem,
    fold: Fold,
    /// What no axes means: none of them.
    noop: bool,
}

impl Op for Reduce {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        told(node, 1, "axes")?;
        let fold = FOLDS.iter().find(|f| f.op == node.op()).ok_or_else(|| Reject::operator("it is no reduction"))?;
        let noop = node.int_if("noop_with_empty_axes").unwrap_or(0) != 0;
        Ok(Reduce { elem: input(node, 0)?, out: output(node, 0)?, fold: *fold, noop })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.input(0).map_or(f64::NAN, |x| x.elements() * 0.03))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let x = shapes.input(0);
        let given = list(shapes, 1)?.unwrap_or_default();
        let goes = axes(given, x.len())?;
        let all = given.is_empty() && !self.noop;
        let (mut kept, mut gone, mut step) = (Vec::new(), Vec::new(), 1);
        for k in (0..x.len()).rev() {
            let to = if all || goes.contains(&k) { &mut gone } else { &mut kept };
            to.push((size(x[k]), step));
            step *= size(x[k]);
        }
        let count: u64 = kept.iter().map(|a| a.0 as u64).product();
        let inner: u64 = gone.iter().map(|a| a.0 as u64).product();
        if count != shapes.output_len(0) as u64 {
            return Err(Fault::data(format!("{x:?} without axes {goes:?} is not {:?}", shapes.output(0))));
        }
        let neutral = match self.elem {
            Elem::F32 | Elem::F16 => self.fold.neutral[0],
            Elem::I32 => self.fold.neutral[1],
            _ => self.fold.neutral[2],
        };
        let mut params = vec![word(count)?, word(inner)?, word(kept.len())?, word(gone.len())?, neutral];
        for &(len, step) in kept.iter().rev().chain(gone.iter().rev()) {
            params.extend([word(len)?, word(step)?]);
        }
        let long = inner >= LONG;
        let build = Build {
            name: if long { "reduce_shared" } else { "reduce" },
            template: if long { SHARED } else { SINGLE },
            buffers: vec![(Buf::In(0), self.elem), (Buf::Out(0), self.out)],
            places: self.places(),
            params,
        };
        if long { recipe.groups(build, count) } else { recipe.each(build, count) }
    }
}

const SINGLE: &str = concat!(include_str!("../shaders/fold.wgsl"), include_str!("../shaders/reduce.wgsl"));
const SHARED: &str = concat!(include_str!("../shaders/fold.wgsl"), include_str!("../shaders/reduce_shared.wgsl"));

impl Reduce {
    fn places(&self) -> Vec<(&'static str, String)> {
        let ty = self.elem.computed();
        let join = match (self.elem, self.fold.join) {
            (Elem::Bool, "max(a, b)") => "a || b",
            (Elem::Bool, _) => "a && b",
            (_, join) => join,
        };
        let neutral = match self.elem {
            Elem::Bool => "P(4u) != 0u".to_owned(),
            _ => format!("bitcast<{ty}>(P(4u))"),
        };
        let bottom = if self.fold.greatest { "-3.4028235e38" } else { "0.0" };
        vec![
            ("map", self.fold.map.to_owned()),
            ("join", join.to_owned()),
            ("finish", self.fold.finish.replace("$type", ty)),
            ("neutral", neutral),
            ("greatest", self.fold.greatest.to_string()),
            ("bottom", bottom.to_owned()),
            ("float", if self.fold.greatest { "x" } else { "0.0" }.to_owned()),
            ("type", ty.to_owned()),
        ]
    }
}
