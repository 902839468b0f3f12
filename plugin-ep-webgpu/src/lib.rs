//! The WebGPU execution provider of Ortolan: WGSL kernels through `wgpu`, on Vulkan, Metal, Direct3D 12 and OpenGL ES.
//!
//! [`ops`] has the operator tables. Claims and the outline of a part are the kit's; where values lie on the device, what is
//! submitted and when the host waits is decided here. Values stay in the memory space `webgpu:N` until somebody asks for
//! them in host memory. Integer lists of 64 bits (indices, shapes) are read by the host. This library must not know the
//! core or other plugins.

mod bind;
mod cache;
mod chain;
mod ep;
mod factory;
mod gpu;
mod handle;
mod memory;
pub mod ops;
mod part;
mod pipeline;
mod recipe;
mod shader;
mod times;
mod transfer;

pub use ep::WebEp;
pub use factory::WebFactory;
pub use gpu::{LOST, REFUSED};
pub use part::{Lane, WebPart};

/// The operators of this library, as its catalogue section has them.
pub const CATALOGUE: &str = ortolan_ep_kit::kernel_catalogue!(ops::FAMILIES);

ortolan_ep_abi::export_ep! {
    factory: WebFactory,
    name: "webgpu",
    vendor: "Ortolan",
    requires_core: ">=0.1, <2",
    opset: [("", 28)],
    device_kinds: ["gpu", "cpu"],
    catalogue: CATALOGUE,
    threads: "own",
    symbol: cfg(not(feature = "static")),
}
