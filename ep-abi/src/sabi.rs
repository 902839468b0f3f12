//! The abi_stable proof layer: a root module that points at the same C tables.
//!
//! It is carried by Rust plugins only, and only proves layout; no call goes through it, so that it can be dropped
//! without an ABI break. New tables become suffix fields.
#![allow(non_camel_case_types)] // `EpModule_Ref` is abi_stable's convention

use crate::raw::{Entry, EpV1, HostFenceV1, HostV1};
use abi_stable::{
    RRef, StableAbi, declare_root_module_statics, library::RootModule, package_version_strings,
    sabi_types::VersionStrings, std_types::ROption,
};

/// What the symbol of abi_stable leads to.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = EpModule_Ref)))]
#[sabi(missing_field(option))]
pub struct EpModule {
    /// The C entry; must be the very static behind `ortolan_ep_entry_v1`.
    pub entry: RRef<'static, Entry>,
    /// `ortolan.ep.v1`.
    pub v1: RRef<'static, EpV1>,
    /// Never set: carries the layout of the host's tables.
    #[sabi(last_prefix_field)]
    pub host_v1: ROption<RRef<'static, HostTables>>,
}

/// The tables that the host serves, for their layout.
#[repr(C)]
#[derive(Debug, Clone, Copy, StableAbi)]
pub struct HostTables {
    /// `ortolan.host.v1`.
    pub v1: RRef<'static, HostV1>,
    /// `ortolan.host.fence.v1`.
    pub fence_v1: RRef<'static, HostFenceV1>,
}

impl RootModule for EpModule_Ref {
    declare_root_module_statics! {EpModule_Ref}
    const BASE_NAME: &'static str = "ortolan_ep";
    const NAME: &'static str = "ortolan_ep";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}
