//! A fake host in the process, so that kernels are tested through the real road: claim, compile, run.
//!
//! [`OpTest`] is one node; [`Model`] builds programs of several. The host is unfriendly on purpose: memory comes with
//! stale content, constants are misaligned by a byte, inputs have no more alignment than their elements need, and
//! `parallel_for` uses real threads.
//!
//! ```
//! use ortolan_ep_kit::testing::{OpTest, Tensor};
//! use ortolan_ep_kit::*;
//!
//! struct Negate;
//! impl Op for Negate {
//!     type Bound = ();
//!     fn parse(_: &NodeView<'_>) -> Result<Self, Reject> { Ok(Negate) }
//! }
//! fn negate<T: Element + std::ops::Neg<Output = T>>(_: &Negate, _: &(), args: &mut Args<'_>) -> Result<(), Fault> {
//!     let (x, y) = (args.input::<T>(0), args.output::<T>(0));
//!     y.iter_mut().zip(x).for_each(|(y, &x)| *y = -x);
//!     Ok(())
//! }
//! const KERNELS: &[Kernel] = &[Kernel::new("Neg", (6, 13), "neg", typed!(negate: f32 i64))];
//!
//! let x = Tensor::new(&[2], &[1.0f32, -2.0]);
//! let y = OpTest::new(&[KERNELS], "Neg", 13).input(&x).output(DType::F32, &[2]).run();
//! assert_eq!(y[0].to_vec::<f32>(), [-1.0, 2.0]);
//! ```

mod host;
mod model;

pub use host::{Answer, Compiled, Session};
pub use model::{Dim, Model, NodeId, ValueId};

use crate::element::Element;
use crate::ep::Kit;
use crate::item::{Item, Plain, Texts};
use crate::kernel::Kernel;
use ortolan_ep_abi::codes::{DType, RejectCode};

/// A tensor of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub dims: Vec<i64>,
    /// Elements as they lie in memory.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// A tensor of some elements.
    ///
    /// # Panics
    /// When their number is not that of the dimensions.
    pub fn new<T: Element>(dims: &[i64], elements: &[T]) -> Self {
        assert_eq!(dims.iter().product::<i64>(), elements.len() as i64, "{dims:?}");
        Tensor { dtype: T::DTYPE, dims: dims.to_vec(), bytes: crate::bytes::of(elements).to_vec() }
    }

    /// Elements that a function of the position gives.
    pub fn from_fn<T: Element>(dims: &[i64], element: impl FnMut(usize) -> T) -> Self {
        let elements: Vec<T> = (0..dims.iter().product::<i64>() as usize).map(element).collect();
        Tensor::new(dims, &elements)
    }

    /// Floats between -1 and 1 that depend on the seed alone.
    pub fn random(dims: &[i64], seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Tensor::from_fn(dims, |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
    }

    /// Its elements.
    ///
    /// # Panics
    /// When they are of another type.
    pub fn to_vec<T: Element>(&self) -> Vec<T> {
        assert_eq!(self.dtype, T::DTYPE);
        crate::bytes::elements(&self.bytes).into_owned()
    }
}

/// Asserts that two float tensors agree within `tolerance`, relative to values above 1.
///
/// # Panics
/// When they do not.
#[track_caller]
pub fn assert_close(got: &Tensor, want: &Tensor, tolerance: f64) {
    assert_eq!((got.dtype, &got.dims), (want.dtype, &want.dims));
    let numbers = |t: &Tensor| -> Vec<f64> {
        match t.dtype {
            DType::F64 => t.to_vec::<f64>(),
            _ => t.to_vec::<f32>().into_iter().map(f64::from).collect(),
        }
    };
    for (k, (g, w)) in numbers(got).into_iter().zip(numbers(want)).enumerate() {
        let near = (g - w).abs() <= tolerance * w.abs().max(1.0);
        assert!(near || g == w || (g.is_nan() && w.is_nan()), "element {k} of {:?}: {g}, expected {w}", want.dims);
    }
}

/// One node, from claim to result.
pub struct OpTest {
    kit: Kit,
    model: Model,
    node: NodeId,
    inputs: Vec<Item>,
    width: usize,
}

impl OpTest {
    /// A node of the standard domain in its form of `version`.
    pub fn new(families: &[&'static [Kernel]], op: &str, version: u32) -> Self {
        Self::with(Kit::new(families, "test", ()), op, version)
    }

    /// The same on a kit with a plugin's own context.
    pub fn with(kit: Kit, op: &str, version: u32) -> Self {
        let mut model = Model::new();
        let node = model.node(op, version);
        OpTest { kit, model, node, inputs: Vec::new(), width: 2 }
    }

    /// The node's domain.
    pub fn domain(mut self, domain: &str) -> Self {
        self.model.domain(self.node, domain);
        self
    }

    /// Threads of `parallel_for`; 2 if not said.
    pub fn width(mut self, width: usize) -> Self {
        self.width = width;
        self
    }

    /// An integer attribute.
    pub fn int(mut self, name: &str, value: i64) -> Self {
        self.model.ints(self.node, name, &[value], false);
        self
    }

    /// A list of integers.
    pub fn ints(mut self, name: &str, values: &[i64]) -> Self {
        self.model.ints(self.node, name, values, true);
        self
    }

    /// A float attribute.
    pub fn float(mut self, name: &str, value: f32) -> Self {
        self.model.floats(self.node, name, &[value], false);
        self
    }

    /// A list of floats.
    pub fn floats(mut self, name: &str, values: &[f32]) -> Self {
        self.model.floats(self.node, name, values, true);
        self
    }

    /// A text.
    pub fn text(mut self, name: &str, value: &str) -> Self {
        self.model.text(self.node, name, value);
        self
    }

    /// A list of texts.
    pub fn texts(mut self, name: &str, values: &[&str]) -> Self {
        self.model.texts(self.node, name, values);
        self
    }

    /// A tensor attribute.
    pub fn tensor(mut self, name: &str, value: &Tensor) -> Self {
        self.model.tensor(self.node, name, value);
        self
    }

    /// The next input, handed in at run.
    pub fn input(mut self, tensor: &Tensor) -> Self {
        let value = self.model.input_value(tensor);
        self.model.add_input(self.node, Some(value));
        let Tensor { dtype, dims, bytes } = tensor.clone();
        self.inputs.push(Item::Tensor(Plain { dtype, dims: dims.into(), bytes }));
        self
    }

    /// The next input, of any kind, handed in at run.
    pub fn item(mut self, item: impl Into<Item>) -> Self {
        let item = item.into();
        let value = self.model.input_item(&item);
        self.model.add_input(self.node, Some(value));
        self.inputs.push(item);
        self
    }

    /// The next input, constant texts.
    pub fn constant_texts(mut self, texts: &Texts) -> Self {
        let value = self.model.constant_texts(texts);
        self.model.add_input(self.node, Some(value));
        self
    }

    /// The next input, a constant.
    pub fn constant(mut self, tensor: &Tensor) -> Self {
        let value = self.model.constant(tensor);
        self.model.add_input(self.node, Some(value));
        self
    }

    /// The next input is absent.
    pub fn skip(mut self) -> Self {
        self.model.add_input(self.node, None);
        self
    }

    /// The next output, of a type that the host has inferred.
    pub fn output(mut self, dtype: DType, dims: &[i64]) -> Self {
        let dims: Vec<Dim> = dims.iter().map(|&d| Dim::Fixed(d)).collect();
        let value = self.model.value(&format!("y{}", self.model.value_count()), dtype, &dims);
        self.model.add_output(self.node, Some(value));
        self.model.mark_output(value);
        self
    }

    /// The next output, whose dimensions the kernel decides.
    pub fn late_output(mut self, dtype: DType, rank: usize) -> Self {
        let dims: Vec<Dim> = (0..rank).map(|_| self.model.symbol()).collect();
        let value = self.model.value(&format!("y{}", self.model.value_count()), dtype, &dims);
        self.model.add_output(self.node, Some(value));
        self.model.mark_output(value);
        self
    }

    /// The next output, of `VALUE_*` that is no tensor.
    pub fn whole_output(mut self, kind: u32) -> Self {
        let value = self.model.whole(&format!("y{}", self.model.value_count()), kind);
        self.model.add_output(self.node, Some(value));
        self.model.mark_output(value);
        self
    }

    /// What the kit says to the node.
    pub fn claim(self) -> Result<f64, (RejectCode, String)> {
        let session = Session::new(self.kit, self.model, self.width);
        session.claim().remove(0)
    }

    /// The sentence with which the node is refused.
    ///
    /// # Panics
    /// When it is taken.
    #[track_caller]
    pub fn rejection(self) -> (RejectCode, String) {
        match self.claim() {
            Err(rejection) => rejection,
            Ok(cost) => panic!("the node is taken, for {cost} ns"),
        }
    }

    /// The outputs, or what the kit says in compile or run.
    pub fn try_run(self) -> Result<Vec<Tensor>, String> {
        self.finish(|compiled| compiled.outputs())
    }

    /// The outputs, of any kind, or what the kit says in compile or run.
    pub fn try_items(self) -> Result<Vec<Item>, String> {
        self.finish(|compiled| compiled.items())
    }

    fn finish<R>(self, outputs: impl FnOnce(&mut Compiled<'_>) -> R) -> Result<R, String> {
        let session = Session::new(self.kit, self.model, self.width);
        if let Some(Err((code, text))) = session.claim().pop() {
            return Err(format!("{code}: {text}"));
        }
        let mut compiled = session.compile()?;
        compiled.load_items(&self.inputs);
        compiled.rerun(0, false)?;
        Ok(outputs(&mut compiled))
    }

    /// The outputs, of any kind.
    ///
    /// # Panics
    /// When the node is refused or fails.
    #[track_caller]
    pub fn run_items(self) -> Vec<Item> {
        self.try_items().unwrap_or_else(|e| panic!("{e}"))
    }

    /// The outputs.
    ///
    /// # Panics
    /// When the node is refused or fails.
    #[track_caller]
    pub fn run(self) -> Vec<Tensor> {
        self.try_run().unwrap_or_else(|e| panic!("{e}"))
    }
}
