//! Check 9: the layout proof that Rust plugins carry, compared field by field.
//!
//! abi_stable's own check takes the host for the older side, which refuses every plugin that is older than the host; so
//! the older side is found first. Its texts run to thousands of lines; here the first problems become a sentence.

use super::codes;
use super::entry::Entry;
use super::error::{HostError, Result};
use super::sys::Opened;
use abi_stable::abi_stability::StableAbi;
use abi_stable::abi_stability::abi_checking::{
    AbiInstability, AbiInstabilityErrors, CheckingGlobals, check_layout_compatibility_with_globals,
};
use abi_stable::library::{AbiHeaderRef, LibHeader, ROOT_MODULE_LOADER_NAME_WITH_NUL, RootModule};
use abi_stable::sabi_types::VersionNumber;
use abi_stable::type_layout::TLFieldOrFunction;
use ortolan_ep_abi::sabi::EpModule_Ref;

/// How many problems a sentence names.
const SHOWN: usize = 4;

/// Checks the proof if the library has one: C plugins have not, and are held to the fingerprint alone.
/// Gives back whether there was one.
pub(super) fn check(library: &Opened, entry: Entry) -> Result<bool> {
    let symbol = ROOT_MODULE_LOADER_NAME_WITH_NUL.trim_end_matches('\0');
    let Some(address) = library.symbol(symbol) else { return Ok(false) };
    // SAFETY: abi_stable defines the symbol's address to be this reference, which has the size of a pointer.
    let header: AbiHeaderRef = unsafe { std::mem::transmute(address) };
    let header = header.upgrade().map_err(|_| {
        HostError::new(codes::LAYOUT_HEADER, "its layout proof was made with another version of abi_stable than 0.11")
    })?;
    check_layout(header)?;
    // SAFETY: the layout was just checked.
    let module = unsafe { header.init_root_module_with_unchecked_layout::<EpModule_Ref>() };
    let module = module.map_err(|e| HostError::new(codes::LAYOUT_HEADER, format!("its layout proof failed: {e:?}")))?;
    if std::ptr::from_ref(module.entry().get()).addr() != entry.address() {
        return Err(HostError::new(
            codes::LAYOUT_HEADER,
            "its layout proof is about another entry than the one it exports",
        ));
    }
    Ok(true)
}

/// The older side is the interface. Fresh globals, so that nothing points into the library afterwards.
fn check_layout(header: &'static LibHeader) -> Result<()> {
    let unreadable = |what: String| HostError::new(codes::LAYOUT_HEADER, what);
    let host = <EpModule_Ref as StableAbi>::LAYOUT;
    let plugin = header.layout().ok_or_else(|| unreadable("its layout proof is empty".to_owned()))?;
    let host_version = VersionNumber::new(EpModule_Ref::VERSION_STRINGS).map_err(|e| unreadable(e.to_string()))?;
    let plugin_version = VersionNumber::new(header.version_strings()).map_err(|e| unreadable(e.to_string()))?;
    if host_version.major != plugin_version.major {
        let sentence = format!("its layout proof is of ABI {plugin_version}, this core's of {host_version}");
        return Err(HostError::new(codes::LAYOUT, sentence));
    }
    let host_is_older = (host_version.major, host_version.minor) <= (plugin_version.major, plugin_version.minor);
    let (interface, implementation) = if host_is_older { (host, plugin) } else { (plugin, host) };
    check_layout_compatibility_with_globals(interface, implementation, &CheckingGlobals::new()).map_err(|errors| {
        tracing::debug!("{errors}");
        HostError::new(codes::LAYOUT, sentence(&problems(&errors)))
    })
}

fn sentence(problems: &[String]) -> String {
    let shown = problems.iter().take(SHOWN).cloned().collect::<Vec<_>>().join("; ");
    match problems.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} (and {more} more)"),
        _ => shown,
    }
}

/// `path.to.field<Type>: what`, each once.
fn problems(errors: &AbiInstabilityErrors) -> Vec<String> {
    let mut found = Vec::new();
    for error in errors.errors.iter() {
        let mut path = String::new();
        for step in error.stack_trace.iter() {
            add_step(&mut path, &step.found);
        }
        for problem in error.errs.iter() {
            let text = format!("{path}: {}", describe(problem));
            if !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}

fn add_step(path: &mut String, step: &TLFieldOrFunction) {
    let TLFieldOrFunction::Field(field) = step else {
        path.push_str("()");
        return;
    };
    if !matches!(field.name(), "0" | "field_0" | "f") {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(field.name().trim_end_matches(','));
    }
    let layout = field.layout();
    if layout.package().as_str() == "ortolan-ep-abi" {
        path.push('<');
        path.push_str(layout.name());
        path.push('>');
    }
}

fn describe(problem: &AbiInstability) -> String {
    use AbiInstability as P;
    match problem {
        P::FieldCountMismatch(v) => {
            format!("count of fields or parameters: expected {}, found {}", v.expected, v.found)
        }
        P::Size(v) => format!("size: expected {}, found {}", v.expected, v.found),
        P::Alignment(v) => format!("alignment: expected {}, found {}", v.expected, v.found),
        P::PackageVersion(v) => format!("version: expected {}, found {}", v.expected, v.found),
        P::MismatchedPrimitive(v) => format!("type: expected {:?}, found {:?}", v.expected, v.found),
        P::Name(v) => format!("type: expected {}, found {}", v.expected, v.found),
        P::UnexpectedField(v) => format!("field: expected {}, found {}", v.expected.name(), v.found.name()),
        P::MismatchedPrefixSize(v) => format!("fields in the prefix: expected {}, found {}", v.expected, v.found),
        other => format!("{other:?}").chars().take(120).collect(),
    }
}
