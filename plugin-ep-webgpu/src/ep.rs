//! The EP of one session: answers claims from the tables, compiles parts, copies values.

use crate::bind::{Bound, Place};
use crate::cache::Cache;
use crate::gpu::Gpu;
use crate::handle;
use crate::ops::Settings;
use crate::part::{Plan, WebPart};
use crate::shader::Elem;
use ortolan_ep_abi::author::Ep;
use ortolan_ep_abi::call::{ClaimCall, CompileCall, Error, Result, RunCall};
use ortolan_ep_abi::codes::DType;
use ortolan_ep_abi::view::{PartDesc, Program, Value};
use ortolan_ep_kit::outline::{Outline, Rows, Source};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// See the module.
pub struct WebEp {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) rows: Rows,
    pub(crate) settings: Settings,
    /// Pipelines on disk.
    pub(crate) cache: Option<Arc<Cache>>,
    pub(crate) space: u32,
    pub(crate) space_name: String,
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
        let read = roots_read(&plan.outline, &plan.steps);
        for (k, &value) in plan.outline.inputs.iter().enumerate() {
            if !plan.on_device[k] {
                continue;
            }
            plan.on_device[k] = read.contains(&plan.outline.values[value as usize].root);
            match plan.on_device[k] {
                true => call.input_port(k as u32, self.space),
                false => call.shape_port(k as u32),
            }
        }
        for (k, &value) in plan.outline.outputs.iter().enumerate() {
            if plan.outline.values[value as usize].source != Source::Known {
                call.output_port(k as u32, self.space);
            }
        }
        Ok(WebPart(plan))
    }

    fn copy(&self, call: &RunCall<'_>, space: u32) -> Result<()> {
        let values = call.inputs();
        let is_here = values.iter().all(|v| v.raw().space == self.space);
        if space == self.space {
            return (0..).zip(values).try_for_each(|(at, value)| self.bring(call, at, value));
        }
        if space != 0 || !is_here {
            return Err(Error::new(format!("webgpu copies between {} and host memory only", self.space_name)));
        }
        let mut parts = Vec::with_capacity(values.len());
        for (at, value) in (0..).zip(values) {
            let (dtype, elem) = held(value)?;
            parts.push((handle::slice(&self.gpu, value)?, elem, handle::output(call, at, dtype, value.shape())?));
        }
        self.gpu.download(parts, &|| call.is_cancelled())
    }
}

/// Type of a value that the device can hold, and how it lies there.
fn held(value: &Value<'_>) -> Result<(DType, Elem)> {
    let dtype = value.dtype().ok_or_else(|| Error::new(format!("{value:?} is no tensor")))?;
    let elem = Elem::of(dtype).ok_or_else(|| Error::new(format!("the device does not hold {dtype}")))?;
    Ok((dtype, elem))
}

/// Roots of the values whose elements steps read or outputs are.
fn roots_read(outline: &Outline, steps: &[usize]) -> HashSet<u32> {
    let root = |v: u32| outline.values[v as usize].root;
    let mut read: HashSet<u32> = outline.outputs.iter().map(|&v| root(v)).collect();
    for step in steps.iter().map(|&k| &outline.steps[k]) {
        let inputs = step.inputs.iter().enumerate().filter(|(k, _)| step.reads(*k));
        read.extend(inputs.filter_map(|(_, v)| v.map(root)));
    }
    read
}

impl WebEp {
    /// Puts a value on the device.
    fn bring(&self, call: &RunCall<'_>, at: u32, value: &Value<'_>) -> Result<()> {
        let (dtype, elem) = held(value)?;
        let slice = match value.raw().space == self.space {
            // Nothing is ever written in place, so both can be the same.
            true => handle::slice(&self.gpu, value)?,
            false => {
                let bytes = value.bytes().ok_or_else(|| Error::new(format!("{value:?} is not in host memory")))?;
                self.gpu.upload(elem, bytes)?
            }
        };
        handle::give(call, at, (dtype, value.shape()), self.space, &self.gpu, slice)
    }

    /// Uploads what steps and outputs read; the host may drop its copies.
    fn bring_constants(&self, call: &CompileCall<'_>, program: Program<'_>, plan: &mut Plan) -> Result<()> {
        let outline = &plan.outline;
        let read = roots_read(outline, &(0..outline.steps.len()).collect::<Vec<_>>());
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
                        plan.held.insert(k, self.gpu.weight(id, elem, bytes)?);
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
