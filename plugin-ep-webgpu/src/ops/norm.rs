//! Normalization: of rows (a workgroup each), of channels by given statistics, and over neighbouring channels.

use super::elementwise::append;
use super::{FLOATS, input, on, output, product};
use crate::chain::Chain;
use crate::recipe::{Buf, Build, Recipe, word};
use crate::shader::Elem;
use ortolan_ep_kit::element::set;
use ortolan_ep_kit::{Cost, DType, Fault, Kernel, NodeView, Op, Reject, Seam, Shapes, Slot};

const BATCH: &[Slot] = &[Slot::In(0), Slot::In(1), Slot::In(3)];
const F32: u64 = set(&[DType::F32]);

/// Sorted by operator.
pub const KERNELS: &[Kernel] = &[
    Kernel::new("BatchNormalization", (14, 15), "batchnorm", on!(Batch))
        .types(&[("T", FLOATS), ("T1", FLOATS), ("T2", FLOATS)])
        .at(BATCH),
    Kernel::new("GroupNormalization", (21, 21), "groupnorm", on!(Rows)).types(&[("T", FLOATS)]),
    Kernel::new("InstanceNormalization", (6, 22), "instancenorm", on!(Rows)).types(&[("T", FLOATS)]),
    Kernel::new("LRN", (1, 13), "lrn", on!(Lrn)).types(&[("T", FLOATS)]),
    Kernel::new("LayerNormalization", (17, 17), "layernorm", on!(Rows))
        .types(&[("T", FLOATS), ("U", F32)])
        .at(&[Slot::In(0), Slot::Out(1)]),
    Kernel::new("RMSNormalization", (23, 23), "rmsnorm", on!(Rows)).types(&[("T", FLOATS), ("V", FLOATS)]),
    // ONNX Runtime has it in the standard domain, and models do so too.
    Kernel::new("SimplifiedLayerNormalization", (1, 1), "rmsnorm", on!(Rows)).types(&[("T", FLOATS), ("V", FLOATS)]),
];

/// What a row is, and how scale and bias lie under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All axes from one on; scale and bias have an element for each of a row.
    Layer { axis: usize },
    /// The channels of a group; scale and bias have an element per channel. 0: a group per channel.
    Group { groups: i64 },
}

/// `y = (x - mean) / sqrt(variance + epsilon) * scale + bias`, row by row.
#[derive(Debug)]
struct Rows {
    kind: Kind,
    centred: bool,
    epsilon: f32,
    elems: Vec<Elem>,
    out: Elem,
    statistics: [Option<Elem>; 2],
}

impl Op for Rows {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let (x, scale) = (node.needs(0)?, node.needs(1)?);
        let layer = !matches!(node.op(), "GroupNormalization" | "InstanceNormalization");
        let kind = match (layer, node.op()) {
            (true, _) => {
                let axis = if x.rank() == 0 { 0 } else { node.axis("axis", x.rank())? };
                for side in [Some(scale), node.input(2)].into_iter().flatten() {
                    let skipped = x.rank() - axis;
                    let alike = side.rank() == skipped && (0..skipped).all(|k| side.same_dim(k, &x, axis + k));
                    if !alike {
                        return Err(Reject::shape("scale or bias is broadcast under the normalized dimensions"));
                    }
                }
                Kind::Layer { axis }
            }
            (false, "GroupNormalization") => Kind::Group { groups: node.int("num_groups")? },
            _ => Kind::Group { groups: 0 },
        };
        if matches!(kind, Kind::Group { .. }) && x.rank() < 3 {
            return Err(Reject::rank(format!("input 0 has rank {}: there are no spatial dimensions", x.rank())));
        }
        let stash = node.int_if("stash_type").unwrap_or(1);
        if stash != 1 {
            return Err(Reject::attribute(format!("attribute stash_type = {stash}; kernels compute in f32 (1)")));
        }
        let count = if node.has_input(2) { 3 } else { 2 };
        let elems = (0..count).map(|k| input(node, k)).collect::<Result<_, _>>()?;
        let statistic = |k: usize| node.output(k).map(|_| output(node, k)).transpose();
        Ok(Rows {
            kind,
            centred: !matches!(node.op(), "RMSNormalization" | "SimplifiedLayerNormalization"),
            epsilon: node.float("epsilon")?,
            elems,
            out: output(node, 0)?,
            statistics: [statistic(1)?, statistic(2)?],
        })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * 0.1))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let x = shapes.input(0);
        // Rows, their length, after how many rows scales repeat, and elements per scale.
        let (rows, len, repeat, each) = match self.kind {
            Kind::Layer { axis } => (product(&x[..axis]), product(&x[axis..]), 1, 1),
            Kind::Group { groups } => {
                let (channels, plane) = (product(&x[1..2]), product(&x[2..]));
                let groups = if groups == 0 { channels } else { u64::try_from(groups).unwrap_or(0) };
                if groups == 0 || channels % groups != 0 || shapes.input_len(1) as u64 != channels {
                    return Err(Fault::data(format!(
                        "{x:?} does not fall into {groups} groups with a scale per channel"
                    )));
                }
                (product(&x[..1]) * groups, channels / groups * plane, groups, plane)
            }
        };
        let mut buffers: Vec<(Buf, Elem)> = self.elems.iter().enumerate().map(|(k, &e)| (Buf::In(k), e)).collect();
        let out = buffers.len();
        buffers.push((Buf::Out(0), self.out));
        let bias = if self.elems.len() == 3 { " + get2(at)" } else { "" };
        let mut extra = String::new();
        let order = if self.centred { ["mean", "inverse"] } else { ["inverse", "inverse"] };
        for (k, elem) in self.statistics.iter().enumerate() {
            if let Some(elem) = elem {
                extra += &format!("    put{}(row, {});\n", buffers.len(), order[k]);
                buffers.push((Buf::Out(k + 1), *elem));
            }
        }
        let build = Build {
            name: "norm",
            template: include_str!("../shaders/norm.wgsl"),
            buffers,
            places: vec![
                ("centred", self.centred.to_string()),
                ("bias", bias.to_owned()),
                ("extra", extra),
                ("out", out.to_string()),
            ],
            params: vec![word(rows)?, word(len)?, word(repeat)?, word(each)?, self.epsilon.to_bits()],
        };
        recipe.groups(build, if len == 0 { 0 } else { rows })
    }
}

/// Channels normalized by given statistics.
#[derive(Debug)]
struct Batch {
    epsilon: f32,
    elems: Vec<Elem>,
    chain: Chain,
}

impl Op for Batch {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        if node.int_if("training_mode").unwrap_or(0) != 0 {
            return Err(Reject::attribute("attribute training_mode = 1; only inference is done"));
        }
        if node.needs(0)?.rank() < 2 {
            return Err(Reject::rank("input 0 has no dimension of channels"));
        }
        let elems = (0..5).map(|k| input(node, k)).collect::<Result<_, _>>()?;
        Ok(Batch { epsilon: node.float("epsilon")?, elems, chain: Chain::identity(output(node, 0)?) })
    }

    fn cost(&self, node: &NodeView<'_>) -> Cost {
        Cost::ns(node.output(0).map_or(f64::NAN, |y| y.elements() * 0.03))
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (x, count) = (shapes.input(0), shapes.output_len(0) as u64);
        let mut buffers: Vec<(Buf, Elem)> = self.elems.iter().enumerate().map(|(k, &e)| (Buf::In(k), e)).collect();
        buffers.push((Buf::Out(0), self.chain.output()));
        let mut params = vec![word(count)?, word(product(&x[1..2]))?, word(product(&x[2..]))?, self.epsilon.to_bits()];
        let end = self.chain.end(shapes, buffers.len(), &mut params)?;
        buffers.extend(end.buffers);
        let template = include_str!("../shaders/batchnorm.wgsl");
        recipe.each(Build { name: "batchnorm", template, buffers, places: vec![("chain", end.text)], params }, count)
    }

    fn fuse(&mut self, next: &NodeView<'_>, seam: Seam) -> bool {
        append(&mut self.chain, next, seam, 6)
    }
}

/// `y = x / (bias + alpha / size * sum of squares of neighbours)^beta`
#[derive(Debug)]
struct Lrn {
    elem: Elem,
    numbers: [f32; 3],
    size: u64,
}

impl Op for Lrn {
    type Bound = Recipe;

    fn parse(node: &NodeView<'_>) -> Result<Self, Reject> {
        let size = node.int("size")?;
        let size = u64::try_from(size).ok().filter(|&n| n > 0);
        let size = size.ok_or_else(|| Reject::attribute(format!("attribute size = {size:?} is not positive")))?;
        if node.needs(0)?.rank() < 2 {
            return Err(Reject::rank("input 0 has no dimension of channels"));
        }
        output(node, 0)?;
        let numbers = [node.float("alpha")? / size as f32, node.float("beta")?, node.float("bias")?];
        Ok(Lrn { elem: input(node, 0)?, numbers, size })
    }

    fn bind(&self, shapes: &Shapes<'_>, recipe: &mut Recipe) -> Result<(), Fault> {
        recipe.clear();
        let (x, count) = (shapes.input(0), shapes.output_len(0) as u64);
        let mut params = vec![word(count)?, word(product(&x[1..2]))?, word(product(&x[2..]))?];
        params.extend(self.numbers.map(f32::to_bits));
        params.extend([word((self.size - 1) / 2)?, word(self.size / 2)?]);
        let buffers = vec![(Buf::In(0), self.elem), (Buf::Out(0), self.elem)];
        let template = include_str!("../shaders/lrn.wgsl");
        recipe.each(Build { name: "lrn", template, buffers, places: Vec::new(), params }, count)
    }
}
