//! A compiled part: what stays the same over runs, the lanes' bindings, and a run.

use crate::bind::{Bound, Pass, Place, elem};
use crate::cache::Cache;
use crate::gpu::Gpu;
use crate::handle;
use crate::memory::Slice;
use crate::shader::Elem;
use crate::times::Times;
use crate::transfer::device_bytes;
use ortolan_ep_abi::author::Part;
use ortolan_ep_abi::call::{Call, Error, Result, RunCall};
use ortolan_ep_abi::raw;
use ortolan_ep_kit::outline::{Outline, Sizes, Source};
use std::collections::HashMap;
use std::sync::Arc;

/// Bindings that a lane remembers: each has memory of its own for what lies between its steps.
const KEPT: usize = 2;

/// What all lanes share.
pub struct Plan {
    pub gpu: Arc<Gpu>,
    /// Pipelines on disk.
    pub cache: Option<Arc<Cache>>,
    pub space: u32,
    pub outline: Outline,
    /// Constants, and what is computed from them, by value.
    pub held: HashMap<u32, Arc<Slice>>,
    /// Integer constants that the host reads, by value.
    pub lists: HashMap<u32, Vec<i64>>,
    /// Steps of a run.
    pub steps: Vec<usize>,
    /// Whether each input is wanted on the device.
    pub on_device: Vec<bool>,
}

impl Plan {
    /// Logs what the cache has to say.
    pub fn tell(&self, call: &Call<'_>) {
        if let Some(cache) = &self.cache {
            cache.tell(call);
        }
    }

    /// Integers of a value that no run has to bring.
    pub fn list<'a>(&'a self, outline: &Outline, sizes: &'a Sizes, value: u32) -> Option<&'a [i64]> {
        outline.elements(sizes, value).or_else(|| self.lists.get(&value).map(Vec::as_slice))
    }
}

impl core::fmt::Debug for Plan {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(&self.outline.steps).finish()
    }
}

/// See the module.
#[derive(Debug)]
pub struct WebPart(pub Plan);

/// What changes while a part runs.
#[derive(Debug, Default)]
pub struct Lane {
    /// By number of the binding, the one used last at the end.
    bounds: Vec<(u64, Bound)>,
}

impl Lane {
    fn bind(&mut self, plan: &Plan, call: &RunCall<'_>) -> Result<&mut Bound> {
        let number = call.raw().binding;
        let entry = match self.bounds.iter().position(|b| b.0 == number) {
            Some(at) => self.bounds.remove(at),
            None => {
                if self.bounds.len() == KEPT {
                    self.bounds.remove(0);
                }
                let sizes = plan.outline.sizes(call.symbols(), false)?;
                let bound = Bound::new(plan, sizes, &plan.steps, false);
                plan.tell(call);
                (number, bound?)
            }
        };
        self.bounds.push(entry);
        self.bounds.last_mut().map(|b| &mut b.1).ok_or_else(|| Error::new("a lane has no binding"))
    }
}

/// A result on its way to the host.
struct Readback {
    output: u32,
    slice: Arc<Slice>,
    elem: Elem,
    at: u64,
    bytes: u64,
}

impl Part for WebPart {
    type Lane = Lane;

    fn run(&self, lane: &mut Lane, call: &RunCall<'_>) -> Result<()> {
        let plan = &self.0;
        plan.gpu.check()?;
        let bound = lane.bind(plan, call)?;
        for list in &bound.lists {
            let numbers = plan.numbers(call, list.value)?;
            list.write(plan, &numbers)?;
        }
        let inputs = plan.inputs(call)?;
        let outputs = plan.outputs(bound)?;
        if call.is_cancelled() {
            return Err(Error::cancelled());
        }
        let back = plan.readbacks(call, bound, &inputs, &outputs)?;
        let total: u64 = back.iter().map(|b| b.bytes.next_multiple_of(8)).sum();
        if total > 0 && bound.staging.as_ref().is_none_or(|s| s.size() < total) {
            bound.staging = Some(plan.gpu.staging(total)?);
        }
        let times = if call.is_profiled() { Times::new(&plan.gpu, bound.passes.len())? } else { None };
        let submitted = call.now_ns();
        plan.submit(bound, &inputs, &outputs, &back, times.as_ref())?;
        if plan.gpu.burns() {
            plan.gpu.lose();
        }
        if let Some(times) = times {
            plan.tell_times(call, bound, &times, submitted)?;
        }
        plan.give_rest(call, bound, &inputs, &outputs, &back)?;
        let mut hosts = Vec::new();
        for b in &back {
            let value = plan.outline.outputs[b.output as usize];
            let dims = plan.outline.dims(&bound.sizes, value);
            hosts.push((
                b.elem,
                b.at,
                handle::output(call, b.output, plan.outline.values[value as usize].dtype, dims)?,
            ));
        }
        if let (Some(staging), true) = (&bound.staging, total > 0) {
            plan.gpu.read(staging, &mut hosts, &|| call.is_cancelled())?;
        }
        plan.give_known(call, bound)
    }
}

impl Plan {
    /// Integers that a run brings.
    fn numbers(&self, call: &RunCall<'_>, value: u32) -> Result<Vec<i64>> {
        let found = self.outline.inputs.iter().position(|&v| v == value).and_then(|k| call.inputs().get(k));
        found.and_then(|v| v.to_vec::<i64>()).ok_or_else(|| {
            let name = &self.outline.values[value as usize].name;
            Error::new(format!("value '{name}' holds indices, and is not in host memory as i64"))
        })
    }

    fn inputs(&self, call: &RunCall<'_>) -> Result<Vec<Option<Arc<Slice>>>> {
        let take = |(k, value): (usize, &ortolan_ep_abi::view::Value<'_>)| match self.on_device.get(k) {
            Some(true) if value.raw().space == self.space => handle::slice(&self.gpu, value).map(Some),
            Some(true) => Err(Error::new(format!("input {k} is not on the device, as its port asks for"))),
            _ => Ok(None),
        };
        call.inputs().iter().enumerate().map(take).collect()
    }

    /// Fresh memory for each output that steps write.
    fn outputs(&self, bound: &Bound) -> Result<Vec<Option<Arc<Slice>>>> {
        let mut out = vec![None; self.outline.outputs.len()];
        for (k, &value) in self.outline.outputs.iter().enumerate() {
            let root = self.outline.values[value as usize].root;
            if let Some(Place::Output(j)) = bound.places[root as usize]
                && j == k
            {
                let bytes = crate::bind::bytes(&self.outline, &bound.sizes, root)?;
                out[k] = Some(self.gpu.allocate(bytes)?);
            }
        }
        Ok(out)
    }

    /// Where an output's bytes are; `None` for what is known from shapes.
    fn source(
        &self,
        bound: &Bound,
        k: usize,
        inputs: &[Option<Arc<Slice>>],
        outputs: &[Option<Arc<Slice>>],
    ) -> Result<Option<Arc<Slice>>> {
        let value = &self.outline.values[self.outline.outputs[k] as usize];
        if value.source == Source::Known {
            return Ok(None);
        }
        let found = match &bound.places[value.root as usize] {
            Some(Place::Kept(slice)) => Some(slice.clone()),
            Some(Place::Input(i)) => inputs.get(*i).cloned().flatten(),
            Some(Place::Output(j)) => outputs[*j].clone(),
            None => None,
        };
        found.map(Some).ok_or_else(|| Error::new(format!("output {k} ('{}') is made by nobody", value.name)))
    }

    fn readbacks(
        &self,
        call: &RunCall<'_>,
        bound: &Bound,
        inputs: &[Option<Arc<Slice>>],
        outputs: &[Option<Arc<Slice>>],
    ) -> Result<Vec<Readback>> {
        let (mut back, mut at) = (Vec::new(), 0);
        for (k, &value) in self.outline.outputs.iter().enumerate() {
            if call.wants(k) != raw::WANT_HOST {
                continue;
            }
            let Some(slice) = self.source(bound, k, inputs, outputs)? else { continue };
            let elem = elem(&self.outline, value)?;
            let bytes = device_bytes(elem, self.outline.count(&bound.sizes, value));
            back.push(Readback { output: k as u32, slice, elem, at, bytes });
            at += bytes.next_multiple_of(8);
        }
        Ok(back)
    }

    /// One submission: all steps, then all copies for the host.
    fn submit(
        &self,
        bound: &Bound,
        inputs: &[Option<Arc<Slice>>],
        outputs: &[Option<Arc<Slice>>],
        back: &[Readback],
        times: Option<&Times>,
    ) -> Result<()> {
        if bound.is_empty() && back.is_empty() {
            return Ok(());
        }
        self.gpu.guarded("run", || {
            let mut encoder = self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            if !bound.encode(&self.gpu, &mut encoder, inputs, outputs, times) {
                return Err(Error::new("a step reads a value that is not on the device"));
            }
            if let Some(times) = times {
                times.resolve(&mut encoder);
            }
            for b in back.iter().filter(|b| b.bytes > 0) {
                if let Some(staging) = &bound.staging {
                    encoder.copy_buffer_to_buffer(&b.slice.buffer, b.slice.at, staging, b.at, b.bytes);
                }
            }
            self.gpu.queue.submit([encoder.finish()]);
            Ok(())
        })?
    }

    /// Reports a profiled run's dispatches, once the device is through.
    fn tell_times(&self, call: &RunCall<'_>, bound: &Bound, times: &Times, submitted: u64) -> Result<()> {
        let found = times.read(&self.gpu, submitted, &|| call.now_ns(), &|| call.is_cancelled())?;
        let event = |(pass, (start_ns, dur_ns)): (&Pass, (u64, u64))| {
            let step = &self.outline.steps[pass.step];
            let kernel = raw::Str::new(&step.name);
            raw::Event { kernel, node: step.node, worker: 0, start_ns, dur_ns, flops: pass.flops, bytes: pass.bytes() }
        };
        call.profile(&bound.passes.iter().zip(found).map(event).collect::<Vec<_>>());
        Ok(())
    }

    /// Outputs that stay on the device.
    fn give_rest(
        &self,
        call: &RunCall<'_>,
        bound: &Bound,
        inputs: &[Option<Arc<Slice>>],
        outputs: &[Option<Arc<Slice>>],
        back: &[Readback],
    ) -> Result<()> {
        for (k, &value) in self.outline.outputs.iter().enumerate() {
            let index = k as u32;
            if back.iter().any(|b| b.output == index) {
                continue;
            }
            let Some(slice) = self.source(bound, k, inputs, outputs)? else { continue };
            let tensor = (self.outline.values[value as usize].dtype, self.outline.dims(&bound.sizes, value));
            handle::give(call, index, tensor, self.space, &self.gpu, slice)?;
        }
        Ok(())
    }

    /// Outputs that shapes decide.
    fn give_known(&self, call: &RunCall<'_>, bound: &Bound) -> Result<()> {
        for (k, &value) in self.outline.outputs.iter().enumerate() {
            let v = &self.outline.values[value as usize];
            if v.source != Source::Known {
                continue;
            }
            let bytes = self.outline.known_bytes(&bound.sizes, value);
            let bytes = bytes.ok_or_else(|| Error::new(format!("output '{}' is not known", v.name)))?;
            handle::output(call, k as u32, v.dtype, self.outline.dims(&bound.sizes, value))?.copy_from_slice(&bytes);
        }
        Ok(())
    }
}
