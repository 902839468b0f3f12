//! The abi_stable proof layer: a root module that points at the same C tables.
//!
//! It is carried by Rust plugins only, and only proves layout; no call goes through it, so that it can be dropped
//! without an ABI break. New tables become suffix fields.
#![allow(non_camel_case_types)] // `EpModule_Ref` is abi_stable's convention

use crate::raw::{Entry, EpV1, HostFenceV1, HostV1};
use abi_stable::{
    RRef, StableAbi, declare_root_module_statics,
    library::{CheckTypeLayout, LibHeader, RootModule, RootModuleResult},
    package_version_strings,
    prefix_type::PrefixTypeTrait,
    sabi_types::VersionStrings,
    std_types::{RNone, ROption},
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

/// The root module of a plugin.
#[doc(hidden)]
pub fn root(entry: &'static Entry, v1: &'static EpV1) -> EpModule_Ref {
    EpModule { entry: RRef::new(entry), v1: RRef::new(v1), host_v1: RNone }.leak_into_prefix()
}

/// The static behind abi_stable's symbol.
#[doc(hidden)]
pub const fn header(root: extern "C" fn() -> RootModuleResult) -> LibHeader {
    // SAFETY: `export_ep!` passes a function that returns an `EpModule_Ref`.
    unsafe { LibHeader::from_constructor::<EpModule_Ref>(root, CheckTypeLayout::Yes) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn symbol_is_the_one_that_hosts_look_for() {
        // `export_ep!` has to write it out, as an identifier.
        let name = abi_stable::library::ROOT_MODULE_LOADER_NAME_WITH_NUL;
        assert_eq!(name, "_1as_0lib_1header_0root_bmodule_bloader\0");
    }
}
