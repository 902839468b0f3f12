//! The EP of one session: answers claims from the tables, compiles parts, copies values.

use crate::bind::{Bound, Place};
use crate::cache::Cache;
use crate::gpu::{Gpu, lock};
use crate::handle;
use crate::memory::Slice;
use crate::ops::Settings;
use crate::part::{Plan, WebPart};
use crate::shader::Elem;
use ortolan_ep_abi::author::Ep;
use ortolan_ep_abi::call::{ClaimCall, CompileCall, Error, Result, RunCall};
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::view::{PartDesc, Program, Value};
use ortolan_ep_kit::outline::{Outline, Rows, Source};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Weak};

/// See the module.
pub struct WebEp {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) rows: Rows,
    pub(crate) settings: Settings,
    /// Pipelines on disk.
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) space: u32,
    pub(crate) space_name: String,
    /// Constants on the device, by their session-wide id: parts share them.
    pub(crate) weights: Mutex<HashMap<u64, Weak<Slice>>>,
}

impl core::fmt::Debug for WebEp {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "WebEp {{ {:?} }}", self.gpu)
    }
}

impl Ep for WebEp {
    type Part = WebPart;
    const COPIES: bool = true;

    fn claim(&self, call: &ClaimCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<()> {
        self.rows.claim(call, program, part, &self.settings, true);
        Ok(())
    }

    fn compile(&self, call: &CompileCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<WebPart> {
        self.gpu.check()?;
        let outline = self.rows.outline(program, part, call.symbols(), &self.settings)?;
        let mut plan = Plan {
            gpu: self.gpu.clone(),
            cache: self.cache.clone(),
            space: self.space,
            held: HashMap::new(),
            lists: HashMap::new(),
            steps: (0..outline.steps.len()).filter(|&k| !outline.steps[k].fixed).collect(),
            on_device: outline.inputs.iter().map(|&v| Elem::of(outline.values[v as usize].dtype).is_some()).collect(),
            outline,
        };
        self.bring_constants(call, program, &mut plan)?;
        let computed = compute_fixed(&mut plan, call.symbols());
        plan.tell(call);
        computed?;
        for (k, _) in plan.on_device.iter().enumerate().filter(|(_, on)| **on) {
            call.input_port(k as u32, self.space);
        }
        for (k, &value) in plan.outline.outputs.iter().enumerate() {
            if plan.outline.values[value as usize].source != Source::Known {
                call.output_port(k as u32, self.space);
            }
        }
        Ok(WebPart(plan))
    }

    fn copy(&self, call: &RunCall<'_>, space: u32) -> Result<()> {
        (0..).zip(call.inputs()).try_for_each(|(at, value)| self.copy_one(call, (at, value), space))
    }
}

impl WebEp {
    fn copy_one(&self, call: &RunCall<'_>, (at, value): (u32, &Value<'_>), space: u32) -> Result<()> {
        let dtype = value.dtype().ok_or_else(|| Error::new(format!("{value:?} is no tensor")))?;
        let elem = Elem::of(dtype).ok_or_else(|| Error::new(format!("the device does not hold {dtype}")))?;
        let is_here = value.raw().space == self.space;
        if space == self.space {
            let slice = match is_here {
                // Nothing is ever written in place, so both can be the same.
                true => handle::slice(&self.gpu, value)?,
                false => {
                    let bytes = value.bytes().ok_or_else(|| Error::new(format!("{value:?} is not in host memory")))?;
                    self.gpu.upload(elem, bytes)?
                }
            };
            return handle::give(call, at, (dtype, value.shape()), space, &self.gpu, slice);
        }
        if space != 0 || !is_here {
            return Err(Error::new(format!("webgpu copies between {} and host memory only", self.space_name)));
        }
        let slice = handle::slice(&self.gpu, value)?;
        let to = handle::output(call, at, dtype, value.shape())?;
        self.gpu.download(&slice, elem, to, &|| call.is_cancelled())
    }

    /// Uploads what steps and outputs read; the host may drop its copies.
    fn bring_constants(&self, call: &CompileCall<'_>, program: Program<'_>, plan: &mut Plan) -> Result<()> {
        let outline = &plan.outline;
        let mut read: HashSet<u32> = outline.outputs.iter().map(|&v| outline.values[v as usize].root).collect();
        for step in &outline.steps {
            let inputs = step.inputs.iter().enumerate().filter(|(k, _)| step.reads(*k));
            read.extend(inputs.filter_map(|(_, v)| v.map(|v| outline.values[v as usize].root)));
        }
        for (k, value) in (0..).zip(&outline.values) {
            let Source::Constant(index) = value.source else { continue };
            if read.contains(&k) {
                let (data, id) =
                    program.constant(index).ok_or_else(|| Error::new(format!("there is no constant {index}")))?;
                match (Elem::of(value.dtype), value.dtype) {
                    (Some(elem), _) => {
                        let bytes = data
                            .bytes()
                            .ok_or_else(|| Error::new(format!("constant '{}' has no bytes", value.name)))?;
                        plan.held.insert(k, self.weight(id, elem, bytes)?);
                    }
                    (None, DType::I64) => {
                        let list = data.to_vec::<i64>();
                        plan.lists.insert(
                            k,
                            list.ok_or_else(|| Error::new(format!("constant '{}' has no bytes", value.name)))?,
                        );
                    }
                    (None, other) => {
                        return Err(Error::new(format!(
                            "constant '{}' is {other}, which the device does not hold",
                            value.name
                        )));
                    }
                }
            }
            call.done_with(index);
        }
        Ok(())
    }

    fn weight(&self, id: u64, elem: Elem, bytes: &[u8]) -> Result<Arc<Slice>> {
        if let Some(slice) = lock(&self.weights).get(&id).and_then(Weak::upgrade) {
            return Ok(slice);
        }
        let slice = self.gpu.upload(elem, bytes)?;
        lock(&self.weights).insert(id, Arc::downgrade(&slice));
        Ok(slice)
    }
}

/// Computes what depends on constants alone.
fn compute_fixed(plan: &mut Plan, symbols: &[i64]) -> Result<()> {
    let fixed: Vec<usize> = (0..plan.outline.steps.len()).filter(|&k| plan.outline.steps[k].fixed).collect();
    if fixed.is_empty() {
        return Ok(());
    }
    let sizes = plan.outline.sizes(symbols, true)?;
    let bound = Bound::new(plan, sizes, &fixed, true)?;
    let encoded = plan.gpu.guarded("constant expressions", || {
        let mut encoder = plan.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let whole = bound.encode(&plan.gpu, &mut encoder, &[], &[], None);
        plan.gpu.queue.submit([encoder.finish()]);
        whole
    })?;
    if !encoded {
        return Err(Error::new("a constant expression reads what is not constant"));
    }
    for &k in &fixed {
        for &v in plan.outline.steps[k].outputs.iter().flatten() {
            if let Some(Place::Kept(slice)) = &bound.places[v as usize] {
                plan.held.insert(v, slice.clone());
            }
        }
    }
    // Only what is still read stays.
    let outline: &Outline = &plan.outline;
    let root = |v: &u32| outline.values[*v as usize].root;
    let inputs = plan.steps.iter().flat_map(|&k| outline.steps[k].inputs.iter().flatten());
    let needed: HashSet<u32> = inputs.chain(&outline.outputs).map(root).collect();
    plan.held.retain(|v, _| needed.contains(v));
    Ok(())
}
