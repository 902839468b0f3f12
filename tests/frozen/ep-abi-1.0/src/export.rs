//! [`export_ep!`](crate::export_ep): everything that makes a crate an EP library.

/// Makes a crate an EP: manifest and catalogue sections, entry static, C table, abi_stable root module.
///
/// ```
/// use ortolan_ep_abi::{author::*, call::*, catalogue, codes::*, export_ep, text::CatalogueRow, view::*};
///
/// const CATALOGUE: &str = catalogue!(&[CatalogueRow {
///     domain: "", op: "Abs", since: 13, until: 13, types: &[("T", DType::F32.mask())], digest: 0, limits: &[],
/// }]);
///
/// struct Absolute;
/// impl Factory for Absolute {
///     type Ep = Absolute;
///     fn new(_: &Call<'_>) -> Result<Self> { Ok(Absolute) }
///     fn devices(&self, call: &DevicesCall<'_>) -> Result<()> {
///         call.device(&Device { name: "example", ..Device::default() });
///         Ok(())
///     }
///     fn create(&self, _: &Call<'_>, _device: u32, options: Options<'_>) -> Result<Self> {
///         match options.iter().next() {
///             Some((key, _)) => Err(Error::new(format!("there is no option {key}"))),
///             None => Ok(Absolute),
///         }
///     }
/// }
/// impl Ep for Absolute {
///     type Part = Absolute;
///     fn claim(&self, call: &ClaimCall<'_>, program: Program<'_>, part: PartDesc<'_>) -> Result<()> {
///         for &id in part.nodes() {
///             let Some(node) = program.node(id) else { continue };
///             let dtype = node.input(0).and_then(|v| v.dtype());
///             match (node.op(), dtype) {
///                 ("Abs", Some(DType::F32)) => call.claim(&[id], f64::NAN, false),
///                 ("Abs", other) => call.reject(id, RejectCode::Dtype, &format!("X is {other:?}, only f32 is done")),
///                 (op, _) => call.reject(id, RejectCode::Operator, &format!("{op} is not done")),
///             }
///         }
///         Ok(())
///     }
///     // For brevity this one claims single nodes only, so a part is one Abs.
///     fn compile(&self, _: &CompileCall<'_>, _: Program<'_>, part: PartDesc<'_>) -> Result<Absolute> {
///         if part.nodes().len() == 1 { Ok(Absolute) } else { Err(Error::new("one node at a time")) }
///     }
/// }
/// impl Part for Absolute {
///     type Lane = ();
///     fn run(&self, _: &mut (), call: &RunCall<'_>) -> Result<()> {
///         let x = call.input::<f32>(0)?;
///         let y = call.output::<f32>(0, call.inputs()[0].shape())?;
///         y.iter_mut().zip(x).for_each(|(y, x)| *y = x.abs());
///         Ok(())
///     }
/// }
///
/// export_ep! {
///     factory: Absolute,                     // implements author::Factory
///     name: "absolute",                      // by which users ask for it
///     vendor: "Example Ltd",
///     requires_core: ">=0.1, <2",            // semver
///     opset: [("", 21)],                     // in which it wants its programs
///     device_kinds: ["cpu"],
///     catalogue: CATALOGUE,
///     // From here on all is optional, but in this order.
///     needs: ["ortolan.host.v1"],            // refused by a core that does not serve these
///     wants: ["ortolan.host.fence.v1"],
///     needs_libs: [],                        // vendor libraries opened at run time
///     threads: "host",                       // "own" when a vendor library brings its own
///     symbol: cfg(not(feature = "static")),  // when the C symbol and the sections are made
/// }
/// # fn main() { assert!(ENTRY.abi_major == 1); }
/// ```
///
/// `pub static ENTRY` registers the EP when it is linked into a host's binary. Two EPs in one binary must not both make
/// the C symbol: switch it off with `symbol`.
#[macro_export]
macro_rules! export_ep {
    (
        factory: $factory:ty,
        name: $name:expr,
        vendor: $vendor:expr,
        requires_core: $core:expr,
        opset: [$($opset:expr),* $(,)?],
        device_kinds: [$($kind:expr),* $(,)?],
        catalogue: $catalogue:expr
        $(, needs: [$($needs:expr),* $(,)?])?
        $(, wants: [$($wants:expr),* $(,)?])?
        $(, needs_libs: [$($lib:expr),* $(,)?])?
        $(, threads: $threads:expr)?
        $(, symbol: cfg($($cfg:tt)*))?
        $(,)?
    ) => {
        const __FACTS: $crate::text::ManifestFacts = $crate::text::ManifestFacts {
            name: $name,
            version: env!("CARGO_PKG_VERSION"),
            vendor: $vendor,
            requires_core: $core,
            needs: &[$($($needs),*)?],
            wants: &[$($($wants),*)?],
            needs_libs: &[$($($lib),*)?],
            device_kinds: &[$($kind),*],
            opset: &[$($opset),*],
            threads: $crate::__first!($($threads,)? "host",),
            cpu: $crate::text::CPU,
            catalogue: __CATALOGUE,
        };
        const __CATALOGUE: &str = $catalogue;
        #[allow(long_running_const_eval)] // it ends: one pass over fixed text
        const __MANIFEST_LEN: usize = {
            let mut writer = $crate::text::Writer::<0>::new();
            writer.manifest(&__FACTS);
            writer.len()
        };
        #[allow(long_running_const_eval)] // as above
        const __MANIFEST_BYTES: [u8; __MANIFEST_LEN] = {
            let mut writer = $crate::text::Writer::<__MANIFEST_LEN>::new();
            writer.manifest(&__FACTS);
            writer.finish()
        };
        const __MANIFEST: &str = $crate::text::str_of(&__MANIFEST_BYTES);

        /// The entry for a host that has this EP linked in.
        pub static ENTRY: $crate::raw::Entry = {
            static V1: $crate::raw::EpV1 = $crate::author::Table::<$factory, false>::V1;
            unsafe extern "C" fn query(id: $crate::raw::Str) -> *const ::core::ffi::c_void {
                // SAFETY: the host's text.
                unsafe { $crate::author::query(id, &V1) }
            }
            $crate::export::entry(__MANIFEST, __CATALOGUE, query, $crate::raw::ENTRY_STATIC)
        };

        $(#[cfg($($cfg)*)])?
        mod __ortolan_ep {
            use super::*;
            #[used]
            #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".ortolan"))]
            #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__TEXT,__ortolan"))]
            static MANIFEST: [u8; __MANIFEST.len()] = *$crate::export::array(__MANIFEST);
            #[used]
            #[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".ortcat"))]
            #[cfg_attr(target_vendor = "apple", unsafe(link_section = "__TEXT,__ortcat"))]
            static CATALOGUE: [u8; __CATALOGUE.len()] = *$crate::export::array(__CATALOGUE);
            static V1: $crate::raw::EpV1 = $crate::author::Table::<$factory, true>::V1;
            unsafe extern "C" fn query(id: $crate::raw::Str) -> *const ::core::ffi::c_void {
                // SAFETY: the host's text.
                unsafe { $crate::author::query(id, &V1) }
            }
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals)] // the name is the ABI's
            pub static ortolan_ep_entry_v1: $crate::raw::Entry = $crate::export::entry(
                $crate::text::str_of(&MANIFEST), $crate::text::str_of(&CATALOGUE), query, 0);
            $crate::__export_sabi_root!(ortolan_ep_entry_v1, V1);
        }
    };
}

/// The first of its arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! __first {
    ($first:expr, $($rest:tt)*) => {
        $first
    };
}

#[doc(hidden)]
#[cfg(feature = "sabi")]
#[macro_export]
macro_rules! __export_sabi_root {
    ($entry:ident, $v1:ident) => {
        // What `#[export_root_module]` expands to, but by a path that does not ask the plugin for abi_stable.
        extern "C" fn root() -> $crate::abi_stable::library::RootModuleResult {
            fn module() -> $crate::sabi::EpModule_Ref {
                $crate::sabi::root(&$entry, &$v1)
            }
            $crate::abi_stable::library::__call_root_module_loader(module)
        }
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)] // the name is abi_stable's
        pub static _1as_0lib_1header_0root_bmodule_bloader: $crate::abi_stable::library::LibHeader =
            $crate::sabi::header(root);
    };
}

#[doc(hidden)]
#[cfg(not(feature = "sabi"))]
#[macro_export]
macro_rules! __export_sabi_root {
    ($entry:ident, $v1:ident) => {};
}

/// An entry of this crate's ABI version.
pub const fn entry(
    manifest: &'static str,
    catalogue: &'static str,
    query: unsafe extern "C" fn(crate::raw::Str) -> *const core::ffi::c_void,
    flags: u32,
) -> crate::raw::Entry {
    crate::raw::Entry {
        magic: crate::raw::MAGIC,
        abi_major: crate::raw::ABI_MAJOR,
        abi_minor: crate::raw::ABI_MINOR,
        struct_size: size_of::<crate::raw::Entry>() as u32,
        flags,
        fingerprint: crate::raw::V1_FINGERPRINT,
        manifest: crate::raw::Str::new(manifest),
        catalogue: crate::raw::Str::new(catalogue),
        query,
    }
}

/// The bytes of a text as an array; N must be its length.
pub const fn array<const N: usize>(text: &'static str) -> &'static [u8; N] {
    match text.as_bytes().first_chunk::<N>() {
        Some(array) => array,
        None => panic!("the length differs"),
    }
}
