//! A part for one set of shapes: where each value lies, and everything that a run submits, made ready.

use crate::gpu::Gpu;
use crate::memory::Slice;
use crate::part::Plan;
use crate::recipe::{Buf, Recipe};
use crate::shader::{Elem, PARAM_BYTES};
use crate::times::Times;
use crate::transfer::device_bytes;
use core::num::NonZero;
use ortolan_ep_abi::call::{Error, Result};
use ortolan_ep_kit::Fault;
use ortolan_ep_kit::outline::{Outline, Sizes, Source, Step};
use std::collections::HashMap;
use std::sync::Arc;

/// Where a value's bytes are in a run.
#[derive(Debug, Clone)]
pub enum Place {
    /// In memory that stays.
    Kept(Arc<Slice>),
    /// In an input of the part.
    Input(usize),
    /// In an output of the part, fresh for each run.
    Output(usize),
}

/// A buffer of a pass.
#[derive(Debug, Clone)]
enum Resource {
    Value(u32),
    Fixed(Arc<Slice>),
}

/// One dispatch, ready.
#[derive(Debug)]
pub struct Pass {
    /// The step that it belongs to.
    pub step: usize,
    pub flops: u64,
    pipeline: wgpu::ComputePipeline,
    resources: Vec<(Resource, u64)>,
    groups: [u32; 3],
    /// All resources stay, so the group does, too.
    group: Option<wgpu::BindGroup>,
}

/// Indices that the host reads.
#[derive(Debug)]
pub struct List {
    /// Value that has them.
    pub value: u32,
    /// Step that reads them.
    pub step: usize,
    /// Each lies in `-bound..bound`.
    pub bound: i64,
    slice: Arc<Slice>,
}

/// See the module.
#[derive(Debug)]
pub struct Bound {
    gpu: Arc<Gpu>,
    pub sizes: Sizes,
    /// By value; `None` for what nobody computes or reads.
    pub places: Vec<Option<Place>>,
    /// Lists that may differ in each run.
    pub lists: Vec<List>,
    pub passes: Vec<Pass>,
    params: Option<wgpu::Buffer>,
    pub staging: Option<wgpu::Buffer>,
}

/// How values of a step are stored.
pub fn elem(outline: &Outline, value: u32) -> Result<Elem> {
    let v = &outline.values[value as usize];
    Elem::of(v.dtype)
        .ok_or_else(|| Error::new(format!("value '{}' is {}, which the device does not hold", v.name, v.dtype)))
}

/// Bytes of a value in device memory.
pub fn bytes(outline: &Outline, sizes: &Sizes, value: u32) -> Result<u64> {
    Ok(device_bytes(elem(outline, value)?, outline.count(sizes, value)))
}

impl Bound {
    /// Follows shapes: `steps` of the plan will run. `fixed`: what they make is to be kept, and nothing of it is an output.
    pub fn new(plan: &Plan, sizes: Sizes, steps: &[usize], fixed: bool) -> Result<Bound> {
        let outline = &plan.outline;
        check_views(outline, &sizes, fixed)?;
        let mut places: Vec<Option<Place>> = vec![None; outline.values.len()];
        for (value, slice) in &plan.held {
            places[*value as usize] = Some(Place::Kept(slice.clone()));
        }
        for (k, &value) in outline.inputs.iter().enumerate() {
            places[value as usize].get_or_insert(Place::Input(k));
        }
        if !fixed {
            for (k, &value) in outline.outputs.iter().enumerate() {
                let root = outline.values[value as usize].root;
                if outline.values[root as usize].source == Source::Step {
                    places[root as usize].get_or_insert(Place::Output(k));
                }
            }
        }
        let gpu = plan.gpu.clone();
        let mut bound =
            Bound { gpu, sizes, places, lists: Vec::new(), passes: Vec::new(), params: None, staging: None };
        bound.place_rest(plan, steps, fixed)?;
        let mut params = Vec::new();
        for &k in steps {
            bound.add(plan, k, &mut params)?;
        }
        bound.finish(&plan.gpu, &params)?;
        Ok(bound)
    }

    /// Memory for what steps make and later ones read: a slice is used anew when its last reader is through.
    fn place_rest(&mut self, plan: &Plan, steps: &[usize], fixed: bool) -> Result<()> {
        let outline = &plan.outline;
        let root = |v: u32| outline.values[v as usize].root;
        let mut last: HashMap<u32, usize> = HashMap::new();
        for (at, &k) in steps.iter().enumerate() {
            let step = &outline.steps[k];
            for &v in step.inputs.iter().chain(&step.outputs).flatten() {
                last.insert(root(v), at);
            }
        }
        let mut free: Vec<Arc<Slice>> = Vec::new();
        for (at, &k) in steps.iter().enumerate() {
            let step = &outline.steps[k];
            for &v in step.outputs.iter().flatten() {
                if self.places[v as usize].is_some() {
                    continue;
                }
                let need = bytes(outline, &self.sizes, v)?;
                let fitting = (0..free.len()).filter(|&i| free[i].size >= need && free[i].size / 4 <= need.max(4096));
                let slice = match fitting.min_by_key(|&i| free[i].size) {
                    Some(i) => free.swap_remove(i),
                    None => plan.gpu.allocate(need).map_err(|e| e.at(step.node))?,
                };
                self.places[v as usize] = Some(Place::Kept(slice));
            }
            if fixed {
                continue; // what is made here is kept
            }
            for &v in step.inputs.iter().chain(&step.outputs).flatten() {
                let v = root(v);
                let made = outline.values[v as usize].source == Source::Step && !plan.held.contains_key(&v);
                let ends = made && last.get(&v) == Some(&at) && last.remove(&v).is_some();
                if let (true, Some(Place::Kept(slice))) = (ends, &self.places[v as usize]) {
                    free.push(slice.clone());
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, plan: &Plan, k: usize, params: &mut Vec<u8>) -> Result<()> {
        let (outline, step) = (&plan.outline, &plan.outline.steps[k]);
        let recipe: Box<Recipe> = outline.bind(&self.sizes, step)?;
        let missing = |what: &str| outline.fault(step, Fault::data(format!("its kernel reads {what} that is absent")));
        let mut lists = Vec::new();
        for host in &recipe.hosts {
            let value = step.inputs.get(host.input).copied().flatten().ok_or_else(|| missing("an input"))?;
            let slice = plan.gpu.allocate(4 * outline.count(&self.sizes, value) as u64)?;
            lists.push(slice.clone());
            let list = List { value, step: k, bound: host.bound, slice };
            match plan.list(outline, &self.sizes, value) {
                // The same in every run.
                Some(numbers) => list.write(plan, numbers)?,
                None => self.lists.push(list),
            }
        }
        let mut tables = Vec::new();
        for table in &recipe.tables {
            let bytes: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
            tables.push(plan.gpu.upload(Elem::U32, &bytes)?);
        }
        for pass in &recipe.passes {
            let mut resources = Vec::new();
            for buffer in &pass.buffers {
                let value = match *buffer {
                    Buf::In(i) => step.inputs.get(i).copied().flatten().ok_or_else(|| missing("an input"))?,
                    Buf::Out(i) => step.outputs.get(i).copied().flatten().ok_or_else(|| missing("an output"))?,
                    Buf::Host(i) => {
                        resources.push((Resource::Fixed(lists[i].clone()), lists[i].size));
                        continue;
                    }
                    Buf::Table(i) => {
                        resources.push((Resource::Fixed(tables[i].clone()), tables[i].size));
                        continue;
                    }
                };
                let root = outline.values[value as usize].root;
                let resource = match &self.places[root as usize] {
                    Some(Place::Kept(slice)) => Resource::Fixed(slice.clone()),
                    Some(_) => Resource::Value(root),
                    None => return Err(missing("a value that nobody made")),
                };
                resources.push((resource, bytes(outline, &self.sizes, value)?.max(4)));
            }
            let pipeline = plan.gpu.pipeline(&pass.shader, plan.cache.as_deref()).map_err(|e| e.at(step.node))?;
            params.extend(pass.params.iter().flat_map(|word| word.to_le_bytes()));
            params.resize(params.len().next_multiple_of(PARAM_BYTES as usize), 0);
            // A step's operations are its first dispatch's.
            let flops = if self.passes.last().is_some_and(|p| p.step == k) { 0 } else { recipe.flops };
            self.passes.push(Pass { step: k, flops, pipeline, resources, groups: pass.groups, group: None });
        }
        Ok(())
    }

    /// Lays parameters down, and makes the groups that stay.
    fn finish(&mut self, gpu: &Arc<Gpu>, params: &[u8]) -> Result<()> {
        if params.is_empty() {
            return Ok(());
        }
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let desc = wgpu::BufferDescriptor {
            label: Some("params"),
            size: params.len() as u64,
            usage,
            mapped_at_creation: false,
        };
        let buffer = gpu.guarded("parameters", || {
            let buffer = gpu.device.create_buffer(&desc);
            gpu.queue.write_buffer(&buffer, 0, params);
            buffer
        })?;
        self.params = Some(buffer);
        for k in 0..self.passes.len() {
            if self.passes[k].resources.iter().all(|r| matches!(r.0, Resource::Fixed(_))) {
                let group = gpu.guarded("bindings", || self.group(gpu, k, &[], &[]))?;
                self.passes[k].group = group;
            }
        }
        Ok(())
    }

    fn group(
        &self,
        gpu: &Gpu,
        k: usize,
        inputs: &[Option<Arc<Slice>>],
        outputs: &[Option<Arc<Slice>>],
    ) -> Option<wgpu::BindGroup> {
        let pass = &self.passes[k];
        let at = k as u64 * PARAM_BYTES;
        let binding = |buffer, offset, size| {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size: NonZero::new(size) })
        };
        let mut entries =
            vec![wgpu::BindGroupEntry { binding: 0, resource: binding(self.params.as_ref()?, at, PARAM_BYTES) }];
        for (n, (resource, size)) in (1..).zip(&pass.resources) {
            let slice = match resource {
                Resource::Fixed(slice) => slice,
                Resource::Value(v) => match self.places[*v as usize].as_ref()? {
                    Place::Kept(slice) => slice,
                    Place::Input(i) => inputs.get(*i)?.as_ref()?,
                    Place::Output(j) => outputs.get(*j)?.as_ref()?,
                },
            };
            entries.push(wgpu::BindGroupEntry { binding: n, resource: binding(&slice.buffer, slice.at, *size) });
        }
        let layout = gpu.pipelines.layout(pass.resources.len());
        Some(gpu.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries }))
    }

    /// Writes all passes: in one compute pass, or in one each when they are timed. The answer is whether every value was
    /// there.
    pub fn encode(
        &self,
        gpu: &Gpu,
        encoder: &mut wgpu::CommandEncoder,
        inputs: &[Option<Arc<Slice>>],
        outputs: &[Option<Arc<Slice>>],
        times: Option<&Times>,
    ) -> bool {
        let mut work = None;
        for (k, pass) in self.passes.iter().enumerate() {
            let made;
            let group = match &pass.group {
                Some(group) => group,
                None => {
                    let Some(group) = self.group(gpu, k, inputs, outputs) else { return false };
                    made = group;
                    &made
                }
            };
            if times.is_some() {
                work = None; // ends the pass before, whose encoder is locked until then
            }
            let work = work.get_or_insert_with(|| {
                let timestamp_writes = times.map(|times| times.writes(k));
                let desc = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
                encoder.begin_compute_pass(&desc).forget_lifetime()
            });
            work.set_pipeline(&pass.pipeline);
            work.set_bind_group(0, group, &[]);
            let [x, y, z] = pass.groups;
            work.dispatch_workgroups(x, y, z);
        }
        true
    }

    /// Whether there is anything to submit.
    pub fn is_empty(&self) -> bool {
        self.passes.is_empty()
    }
}

impl Pass {
    /// Bytes that it reads and writes, each buffer once.
    pub fn bytes(&self) -> u64 {
        self.resources.iter().map(|r| r.1).sum()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _turn = self.gpu.turn();
        self.passes.iter_mut().for_each(|pass| pass.group = None);
        (self.params, self.staging) = (None, None);
    }
}

impl List {
    /// Checks indices and lays them down for the device.
    pub fn write(&self, plan: &Plan, numbers: &[i64]) -> Result<()> {
        let step: &Step = &plan.outline.steps[self.step];
        let mut bytes = Vec::with_capacity(4 * numbers.len());
        for &n in numbers {
            let at = if n < 0 { n + self.bound } else { n };
            if !(0..self.bound).contains(&at) {
                let text = format!("index {n} does not lie in a dimension of {} elements", self.bound);
                return Err(plan.outline.fault(step, Fault::data(text)));
            }
            let at = i32::try_from(at).map_err(|_| Error::new(format!("index {n} does not fit 32 bits")))?;
            bytes.extend(at.to_le_bytes());
        }
        plan.gpu.write(&self.slice, &bytes)
    }
}

/// A view of another size would reach behind its memory.
fn check_views(outline: &Outline, sizes: &Sizes, fixed: bool) -> Result<()> {
    for (k, value) in outline.values.iter().enumerate() {
        let (own, root) = (outline.count(sizes, k as u32), outline.count(sizes, value.root));
        if own != root && !fixed {
            let text = format!("value '{}' of {own} elements is a view of {root} elements", value.name);
            return Err(Error::new(text));
        }
    }
    Ok(())
}
