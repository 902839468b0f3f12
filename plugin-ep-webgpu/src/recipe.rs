//! What a node asks of the device for finished shapes: dispatches over its inputs, outputs and tables.

use crate::shader::{Elem, PARAMS, Shader};
use ortolan_ep_kit::Fault;

/// Threads of a workgroup in kernels with one thread per element.
pub const GROUP: u64 = 64;
/// Workgroups that a dimension of a dispatch may have.
pub const MOST_GROUPS: u64 = 65535;

/// The [`Bound`](ortolan_ep_kit::Op::Bound) of every operator of this EP.
#[derive(Debug, Default)]
pub struct Recipe {
    pub passes: Vec<Dispatch>,
    /// Words that the shapes decide, laid down once.
    pub tables: Vec<Vec<u32>>,
    /// Integer inputs that a run reads in host memory and lays beside the others.
    pub hosts: Vec<HostList>,
    /// Multiplications and additions of the kernel; 0 if nobody counts them.
    pub flops: u64,
}

/// A buffer of a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buf {
    /// Input of the node.
    In(usize),
    /// Output of the node.
    Out(usize),
    /// Integers read by the host, by number, as i32.
    Host(usize),
    /// Words that the shapes decide, by number.
    Table(usize),
}

/// Indices: each lies in `-bound..bound`, negative ones count from the end.
#[derive(Debug, Clone, Copy)]
pub struct HostList {
    pub input: usize,
    pub bound: i64,
}

/// One run of a shader.
#[derive(Debug, Clone)]
pub struct Dispatch {
    pub shader: Shader,
    pub buffers: Vec<Buf>,
    pub params: Vec<u32>,
    pub groups: [u32; 3],
}

/// A kernel over typed buffers, before its parameters are known.
#[derive(Debug)]
pub struct Build<'a> {
    pub name: &'static str,
    pub template: &'a str,
    pub buffers: Vec<(Buf, Elem)>,
    pub places: Vec<(&'a str, String)>,
    pub params: Vec<u32>,
}

impl Recipe {
    /// Begins anew.
    pub fn clear(&mut self) {
        self.passes.clear();
        self.tables.clear();
        self.hosts.clear();
        self.flops = 0;
    }

    /// An integer input that holds indices of a dimension.
    pub fn host(&mut self, input: usize, bound: i64) -> Buf {
        self.hosts.push(HostList { input, bound });
        Buf::Host(self.hosts.len() - 1)
    }

    /// One thread per element of `count`; the shader's parameter 0 has to be the count.
    pub fn each(&mut self, build: Build<'_>, count: u64) -> Result<(), Fault> {
        self.groups(build, count.div_ceil(GROUP))
    }

    /// So many workgroups; the shader finds its number as `group_number`.
    pub fn groups(&mut self, build: Build<'_>, groups: u64) -> Result<(), Fault> {
        let x = groups.min(MOST_GROUPS);
        let y = groups.div_ceil(x.max(1));
        self.grid(build, [x, y, 1])
    }

    /// A grid of workgroups. Nothing is done when it is empty.
    pub fn grid(&mut self, build: Build<'_>, grid: [u64; 3]) -> Result<(), Fault> {
        if grid.contains(&0) {
            return Ok(());
        }
        if let Some(axis) = grid.iter().position(|&n| n > MOST_GROUPS) {
            let text =
                format!("the kernel needs {} workgroups on axis {axis}, and a device runs {MOST_GROUPS}", grid[axis]);
            return Err(Fault::data(text));
        }
        if build.params.len() > PARAMS {
            return Err(Fault::data(format!("the kernel needs {} parameters, and takes {PARAMS}", build.params.len())));
        }
        let elems: Vec<Elem> = build.buffers.iter().map(|b| b.1).collect();
        let places: Vec<(&str, &str)> = build.places.iter().map(|(k, v)| (*k, &**v)).collect();
        self.passes.push(Dispatch {
            shader: Shader::new(build.name, build.template, &elems, &places),
            buffers: build.buffers.iter().map(|b| b.0).collect(),
            params: build.params,
            groups: grid.map(|n| n as u32),
        });
        Ok(())
    }
}

/// A dimension or an offset as a parameter.
pub fn word(n: impl TryInto<u32>) -> Result<u32, Fault> {
    n.try_into().map_err(|_| Fault::data("a size does not fit the 32 bits that shaders count with"))
}

/// A signed step or offset as a parameter.
pub fn signed(n: i64) -> Result<u32, Fault> {
    let n = i32::try_from(n).map_err(|_| Fault::data("a step does not fit the 31 bits that shaders count with"))?;
    Ok(n as u32)
}
