//! Shaders made ready to run, kept by their text: equal text is compiled once per device, and what the driver made of it is
//! kept on disk for other processes.

use crate::cache::Cache;
use crate::gpu::{Gpu, lock};
use crate::shader::{PARAM_BYTES, Shader};
use ortolan_ep_abi::call::Error;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Storage buffers that a shader may bind: the standard's default.
pub const MOST_BUFFERS: usize = 8;

/// See the module.
#[derive(Debug)]
pub struct Pipelines {
    /// Layouts by the number of storage buffers: 0 to [`MOST_BUFFERS`].
    layouts: Vec<(wgpu::BindGroupLayout, wgpu::PipelineLayout)>,
    made: Mutex<HashMap<Arc<str>, wgpu::ComputePipeline>>,
}

impl Pipelines {
    pub fn new(device: &wgpu::Device) -> Pipelines {
        let entry = |binding: u32, ty, size| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty,
                has_dynamic_offset: false,
                min_binding_size: wgpu::BufferSize::new(size),
            },
            count: None,
        };
        let layout = |buffers: usize| {
            // All buffers may be written: slices of one block meet in one dispatch, and a block has one use at a time.
            let storage = wgpu::BufferBindingType::Storage { read_only: false };
            let mut entries = vec![entry(0, wgpu::BufferBindingType::Uniform, PARAM_BYTES)];
            entries.extend((1..).take(buffers).map(|k| entry(k, storage, 0)));
            let desc = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
            let group = device.create_bind_group_layout(&desc);
            let desc =
                wgpu::PipelineLayoutDescriptor { label: None, bind_group_layouts: &[Some(&group)], immediate_size: 0 };
            let whole = device.create_pipeline_layout(&desc);
            (group, whole)
        };
        Pipelines { layouts: (0..=MOST_BUFFERS).map(layout).collect(), made: Mutex::default() }
    }

    pub fn layout(&self, buffers: usize) -> &wgpu::BindGroupLayout {
        &self.layouts[buffers].0
    }
}

impl Gpu {
    /// The pipeline of a shader.
    pub fn pipeline(&self, shader: &Shader, cache: Option<&Cache>) -> Result<wgpu::ComputePipeline, Error> {
        if let Some(made) = lock(&self.pipelines.made).get(&shader.text) {
            return Ok(made.clone());
        }
        let made = match cache.filter(|_| self.keeps_pipelines) {
            Some(cache) => self.compile_with(shader, cache)?,
            None => self.compile(shader, None)?,
        };
        lock(&self.pipelines.made).insert(shader.text.clone(), made.clone());
        Ok(made)
    }

    fn compile(&self, shader: &Shader, cache: Option<&wgpu::PipelineCache>) -> Result<wgpu::ComputePipeline, Error> {
        self.guarded(&format!("shader {}", shader.name), || {
            let source = wgpu::ShaderSource::Wgsl(std::borrow::Cow::Borrowed(&shader.text));
            let module =
                self.device.create_shader_module(wgpu::ShaderModuleDescriptor { label: Some(shader.name), source });
            self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(shader.name),
                layout: Some(&self.pipelines.layouts[shader.buffers].1),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache,
            })
        })
    }

    fn compile_with(&self, shader: &Shader, cache: &Cache) -> Result<wgpu::ComputePipeline, Error> {
        let key = format!("{}{}\n{}", self.identity, shader.buffers, shader.text).into_bytes();
        if let Some(content) = cache.load(&key) {
            match self.driver_cache(Some(&content)) {
                Ok(kept) => {
                    cache.reused.fetch_add(1, Ordering::Relaxed);
                    return self.compile(shader, Some(&kept));
                }
                Err(e) => cache.forget(&key, &e.message),
            }
        }
        let Ok(kept) = self.driver_cache(None) else { return self.compile(shader, None) };
        let made = self.compile(shader, Some(&kept))?;
        if let Some(content) = kept.get_data() {
            cache.store(&key, &content);
        }
        Ok(made)
    }

    /// A driver's cache with what it gave out earlier; fails if it does not take that any more.
    fn driver_cache(&self, content: Option<&[u8]>) -> Result<wgpu::PipelineCache, Error> {
        let desc = wgpu::PipelineCacheDescriptor { label: None, data: content, fallback: false };
        // SAFETY: the content's digest is that of what this library got from `get_data` for the same adapter and driver, in
        // a file that only this user can write.
        self.guarded("pipeline cache", || unsafe { self.device.create_pipeline_cache(&desc) })
    }
}
