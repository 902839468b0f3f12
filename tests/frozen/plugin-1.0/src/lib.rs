//! An execution provider (EP) in one file, as its author sees it: f32 `Add` and `Relu`.
//!
//! The host shows the model as a flat [`Program`] and asks three things: which nodes do you *claim*, *compile* this part,
//! *run* it. Everything that an EP must state beside that is in [`export_ep!`] at the end.

use ortolan_ep_abi::author::{Ep, Factory, Options, Part};
use ortolan_ep_abi::call::{Call, ClaimCall, CompileCall, Device, DevicesCall, Error, Result, RunCall};
use ortolan_ep_abi::codes::{DType, RejectCode};
use ortolan_ep_abi::view::{Node, PartDesc, Program, ValueInfo};
use ortolan_ep_abi::{catalogue, export_ep, text::CatalogueRow};
use std::{borrow::Cow, collections::HashMap};

/// What the EP can run, for people and tools that look at the file without running it. `Add-7` to `-14` mean the same.
const CATALOGUE: &str = catalogue!(&[
    CatalogueRow { domain: "", op: "Add", since: 7, until: 14, types: F32, digest: 0, limits: &[] },
    CatalogueRow { domain: "", op: "Relu", since: 6, until: 14, types: F32, digest: 0, limits: &[] },
]);
const F32: &[(&str, u64)] = &[("T", DType::F32.mask())];

/// One per process, and here also one per session, since there is nothing to keep.
struct Tiny;
impl Factory for Tiny {
    type Ep = Tiny;
    fn new(_: &Call<'_>) -> Result<Self> {
        Ok(Tiny)
    }
    fn devices(&self, call: &DevicesCall<'_>) -> Result<()> {
        call.device(&Device { name: "any CPU", vendor: "Tiny", ..Device::default() });
        Ok(())
    }
    fn create(&self, _: &Call<'_>, _device: u32, options: Options<'_>) -> Result<Self> {
        options.iter().next().map_or(Ok(Tiny), |(key, _)| Err(Error::new(format!("tiny has no option {key}"))))
    }
}

/// A node: what it computes of one element of each input, the input that has the shape of the output, values read and made.
struct Step(fn(&[f32]) -> f32, usize, Vec<u32>, u32);

/// How `node` is run, or why it cannot be. Claim and compile both ask, so they cannot disagree.
fn step(node: Node<'_>) -> Result<Step, (RejectCode, String)> {
    let inputs: Vec<ValueInfo<'_>> = (0..node.inputs().len()).filter_map(|i| node.input(i)).collect();
    let other = inputs.iter().find(|x| x.dtype() != Some(DType::F32)).map(|x| x.name());
    let f: fn(&[f32]) -> f32 = match (node.domain(), node.op(), node.version(), other) {
        ("", "Add", 7.., None) => |x| x[0] + x[1],
        ("", "Relu", 6.., None) => |x| x[0].max(0.0),
        ("", "Add" | "Relu", _, Some(x)) => return Err((RejectCode::Dtype, format!("'{x}' is not f32"))),
        (_, op, version, _) => return Err((RejectCode::Operator, format!("{op}-{version} is not done"))),
    };
    // Equal expressions are equal sizes, whatever they are in a run.
    let y = node.output(0).map_or(&[][..], |y| y.dims());
    let full = inputs.iter().position(|x| x.dims() == y).filter(|_| inputs.iter().all(|x| y.ends_with(x.dims())));
    let full = full.ok_or_else(|| (RejectCode::Shape, "only the first axes may be broadcast".to_owned()))?;
    Ok(Step(f, full, node.inputs().to_vec(), node.outputs()[0]))
}

/// A compiled part: constants by value, steps, and the values that a run hands in and asks for.
struct Steps(HashMap<u32, Tensor<'static>>, Vec<Step>, [Vec<u32>; 2]);
/// Shape and elements.
type Tensor<'a> = (Cow<'a, [i64]>, Cow<'a, [f32]>);

impl Ep for Tiny {
    type Part = Steps;
    fn claim(&self, call: &ClaimCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<()> {
        let nodes = part.nodes().iter().filter_map(|&id| program.node(id));
        nodes.for_each(|node| match step(node) {
            Ok(_) => call.claim(&[node.id], f64::NAN, false), // the cost is not known
            Err((code, sentence)) => call.reject(node.id, code, &sentence),
        });
        Ok(())
    }
    fn compile(&self, call: &CompileCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<Steps> {
        let (mut constants, mut steps) = (HashMap::new(), Vec::new());
        for node in part.nodes().iter().filter_map(|&id| program.node(id)) {
            steps.push(step(node).map_err(|(_, sentence)| Error::new(sentence).at(node.id))?);
            for value in (0..node.inputs().len()).filter_map(|i| node.input(i)) {
                // Constants have no alignment and go away after compile: copy what is needed, then say so.
                if let (Some(index), Some(c)) = (value.constant_index(), value.constant()) {
                    let data: Vec<f32> = c.to_vec().ok_or_else(|| Error::new("a constant is not f32").at(node.id))?;
                    constants.insert(value.id, (c.shape().to_vec().into(), data.into()));
                    call.done_with(index);
                }
            }
        }
        Ok(Steps(constants, steps, [part.inputs().to_vec(), part.outputs().to_vec()]))
    }
}

impl Part for Steps {
    type Lane = (); // nothing to keep from one run to the next
    fn run(&self, _: &mut (), call: &RunCall<'_>) -> Result<()> {
        let Steps(constants, steps, [inputs, outputs]) = self;
        let mut values: HashMap<u32, Tensor<'_>> = constants.clone();
        for (i, &id) in inputs.iter().enumerate() {
            values.insert(id, (call.inputs()[i].shape().into(), call.input(i)?.into()));
        }
        for Step(f, full, reads, writes) in steps {
            let reads: Vec<&Tensor<'_>> = reads.iter().map(|id| &values[id]).collect();
            let (shape, count) = (reads[*full].0.clone(), reads[*full].1.len());
            let element = |i: usize| reads.iter().map(|x| x.1[i % x.1.len()]).collect::<Vec<f32>>();
            let data: Vec<f32> = (0..count).map(|i| f(&element(i))).collect();
            if let Some(index) = outputs.iter().position(|id| id == writes) {
                call.output::<f32>(index as u32, &shape)?.copy_from_slice(&data); // the host's memory for this output
            }
            values.insert(*writes, (shape, data.into()));
        }
        Ok(())
    }
}

export_ep! {
    factory: Tiny,
    name: "tiny",
    vendor: "Ortolan's tests",
    requires_core: ">=0.1, <2",
    opset: [("", 21)],
    device_kinds: ["cpu"],
    catalogue: CATALOGUE,
    symbol: cfg(not(feature = "static")),
}
