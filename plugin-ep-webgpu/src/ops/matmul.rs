//! Matrix products. Each thread holds a tile of results in registers; on real GPUs a workgroup shares tiles of the
//! operands, on drivers that run on the CPU every thread reads for itself, as barriers are dear there.

use super::elementwise::append;
use super::{FLOATS, Settings, input, on, output, product};
use crate::chain::{Chain, Function, broadcast};
use crate::recipe::{Buf, Build, Recipe, signed, word};
use crate::shader::{Elem, literal};
use ortolan_ep_kit::{Cost, Fault, Kernel, NodeView, Op, Reject, Seam, Shapes};

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("Gemm", (7, 13), "gemm", on!(Gemm)).types(&[("T", FLOATS)]),
    Kernel::new("MatMul", (1, 13), "matmul", on!(MatMul)).types(&[("T", FLOATS)]),
];

/// Products of so few rows would leave most of a tile idle.
const THIN: u64 = 4;

/// `y[b, m, n] = Σ_k a[b, m, k] · w[b, k, n]`, with steps in elements.
#[derive(Debug)]
pub struct Product<'a> {
    pub sizes: [u64; 3],
    /// Row and column step of the left operand, then of the right one.
    pub steps: [i64; 4],
    /// Length of each batch axis, with the steps of both operands.
    pub batch: Vec<(i64, i64, i64)>,
    pub left: (Buf, Elem),
    pub right: (Buf, Elem),
    /// A value that is added to all results of a row, and the buffer that has it.
    pub row_bias: Option<(Buf, Elem)>,
    pub chain: &'a Chain,
    pub tiles: bool,
}

impl Product<'_> {
    /// Adds the product to a recipe.
    pub fn push(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        let [m, n, k] = self.sizes;
        let batches: u64 = self.batch.iter().map(|b| u64::try_from(b.0).unwrap_or(0)).product();
        recipe.flops = [2, m, n, k, batches].into_iter().fold(1, u64::saturating_mul);
        let mut buffers = vec![self.left, self.right, (Buf::Out(0), self.chain.output())];
        let bias = match self.row_bias {
            Some(bias) => {
                buffers.push(bias);
                "get3(m)"
            }
            None => "0.0",
        };
        let mut params = vec![word(m)?, word(n)?, word(k)?, word(self.batch.len())?];
        for step in self.steps {
            params.push(signed(step)?);
        }
        for &(len, left, right) in &self.batch {
            params.extend([word(len)?, signed(left)?, signed(right)?]);
        }
        let end = self.chain.end(shapes, buffers.len(), &mut params)?;
        buffers.extend(end.buffers);
        let (name, body, rows, columns) = match (m <= THIN, self.tiles) {
            (true, _) => ("matmul_thin", include_str!("../shaders/matmul_thin.wgsl"), 1, 64),
            (false, true) => ("matmul_tiles", include_str!("../shaders/matmul_tiles.wgsl"), 64, 64),
            (false, false) => ("matmul", include_str!("../shaders/matmul.wgsl"), 32, 32),
        };
        let template = format!("{}{body}", include_str!("../shaders/product.wgsl"));
        let places = vec![("chain", end.text), ("bias", bias.to_owned())];
        let build = Build { name, template: &template, buffers, places, params };
        recipe.grid(build, [n.div_ceil(columns), m.div_ceil(rows), batches])
    }
}

/// Batched product of matrices.
#[derive(Debug)]
struct MatMul {
    elems: [Elem; 2],
    chain: Chain,
    tiles: bool,
}

impl Op for MatMul {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        for k in 0..2 {
            if node.needs(k)?.rank() == 0 {
                return Err(Reject::rank(format!("input {k} has rank 0")));
            }
        }
        let elems = [input(node, 0)?, input(node, 1)?];
        Ok(MatMul { elems, chain: Chain::identity(output(node, 0)?), tiles: Settings::of(node).tiles })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let k = node.input(0).and_then(|a| a.dim(a.rank().checked_sub(1)?)).map_or(f64::NAN, |k| k as f64);
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * k * 0.002))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (mut a, mut b, mut y) = (shapes.input(0).to_vec(), shapes.input(1).to_vec(), shapes.output(0).to_vec());
        if b.len() == 1 {
            b.push(1);
            y.push(1);
        }
        if a.len() == 1 {
            a.insert(0, 1);
            y.insert(y.len() - 1, 1);
        }
        let (ra, rb, ry) = (a.len(), b.len(), y.len());
        let (m, k, n) = (a[ra - 2], a[ra - 1], b[rb - 1]);
        if b[rb - 2] != k || ry < 2 || y[ry - 2..] != [m, n] {
            return Err(Fault::data(format!("{a:?} times {b:?} is not {y:?}")));
        }
        let batch = &y[..ry - 2];
        let (left, right) = (broadcast(batch, &a[..ra - 2])?, broadcast(batch, &b[..rb - 2])?);
        let sizes = [m, n, k].map(|d| u64::try_from(d).unwrap_or(0));
        let mut axes: Vec<(i64, i64, i64)> = (0..batch.len())
            .map(|i| (batch[i], left[i] * m * k, right[i] * k * n))
            .filter(|axis| axis.0 != 1)
            .collect();
        let (mut rows, mut sizes) = (k, sizes);
        // One matrix on the right for dense batches on the left: more rows.
        if right.iter().all(|&s| s == 0) && product(&a[..ra - 2]) == product(batch) {
            sizes[0] *= product(batch);
            rows = k;
            axes.clear();
        }
        let product = Product {
            sizes,
            steps: [rows, 1, n, 1],
            batch: axes,
            left: (Buf::In(0), self.elems[0]),
            right: (Buf::In(1), self.elems[1]),
            row_bias: None,
            chain: &self.chain,
            tiles: self.tiles,
        };
        product.push(shapes, recipe)
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        append(&mut self.chain, next, seam, 3)
    }
}

/// `alpha · a · b + beta · c`
#[derive(Debug)]
struct Gemm {
    elems: [Elem; 2],
    turned: [bool; 2],
    chain: Chain,
    tiles: bool,
}

impl Op for Gemm {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let elems = [input(node, 0)?, input(node, 1)?];
        let out = output(node, 0)?;
        let (alpha, beta) = (node.float("alpha")?, node.float("beta")?);
        let mut chain = Chain::identity(out);
        let has_c = node.has_input(2);
        if alpha.is_nan() || beta.is_nan() {
            return Err(Reject::attribute("attribute alpha or beta is no number"));
        }
        let scaled = if alpha == 1.0 { "{0}".to_owned() } else { format!("{{0}} * {}", literal(alpha)) };
        let joined = match (has_c, beta == 1.0) {
            (true, true) => Some((format!("{scaled} + {{1}}"), vec![out, input(node, 2)?])),
            (true, false) => Some((format!("{scaled} + {{1}} * {}", literal(beta)), vec![out, input(node, 2)?])),
            (false, _) => (alpha != 1.0).then_some((scaled, vec![out])),
        };
        if let Some((text, inputs)) = joined {
            chain.then(&Function { text, inputs, output: out }, 0, 2, 5);
        }
        let turned = [node.int("transA")? != 0, node.int("transB")? != 0];
        Ok(Gemm { elems, turned, chain, tiles: Settings::of(node).tiles })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        let k = node.input(0).and_then(|a| a.dim(usize::from(!self.turned[0]))).map_or(f64::NAN, |k| k as f64);
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * k * 0.002))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (&[a0, a1], &[b0, b1], y) = (shapes.input(0), shapes.input(1), shapes.output(0)) else {
            return Err(Fault::data("inputs 0 and 1 are no matrices"));
        };
        let (m, k, a_steps) = if self.turned[0] { (a1, a0, [1, a1]) } else { (a0, a1, [a1, 1]) };
        let (k2, n, b_steps) = if self.turned[1] { (b1, b0, [1, b1]) } else { (b0, b1, [b1, 1]) };
        if k != k2 || y != [m, n] {
            return Err(Fault::data(format!("{:?} times {:?} is not {y:?}", shapes.input(0), shapes.input(1))));
        }
        let product = Product {
            sizes: [m, n, k].map(|d| u64::try_from(d).unwrap_or(0)),
            steps: [a_steps[0], a_steps[1], b_steps[0], b_steps[1]],
            batch: Vec::new(),
            left: (Buf::In(0), self.elems[0]),
            right: (Buf::In(1), self.elems[1]),
            row_bias: None,
            chain: &self.chain,
            tiles: self.tiles,
        };
        product.push(shapes, recipe)
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        append(&mut self.chain, next, seam, 3)
    }
}
