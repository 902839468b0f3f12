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
use abi_stable::type_layout::{TLFieldOrFunction, TypeLayout};
use ortolan_ep_abi::sabi::EpModule_Ref;

/// How many problems a sentence names.
const SHOWN: usize = 4;

/// Checks the proof if the library has one: C plugins have not, and are held to the fingerprint alone.
/// Gives back whether there was one.
pub(super) fn check(library: &Opened, entry: Entry) -> Result<bool> {
    let Some(header) = header(library)? else { return Ok(false) };
    check_layout(header)?;
    // SAFETY: the layout was just checked.
    let module = unsafe { header.init_root_module_with_unchecked_layout::<EpModule_Ref>() };
    let module = module.map_err(|e| HostError::new(codes::LAYOUT_HEADER, format!("its layout proof failed: {e:?}")))?;
    if std::ptr::from_ref(module.entry().get()).addr() != entry.address() {
        let sentence = "its layout proof is about another entry than the one it exports";
        return Err(HostError::new(codes::LAYOUT_HEADER, sentence));
    }
    Ok(true)
}

/// What differs, for a library whose fingerprint does; `None` if it has no proof that tells.
pub(super) fn differences(library: &Opened) -> Option<String> {
    let header = header(library).ok()??;
    check_layout(header).err().filter(|e| e.code == codes::LAYOUT).map(|e| e.sentence)
}

fn header(library: &Opened) -> Result<Option<&'static LibHeader>> {
    let symbol = ROOT_MODULE_LOADER_NAME_WITH_NUL.trim_end_matches('\0');
    let Some(address) = library.symbol(symbol) else { return Ok(None) };
    // SAFETY: abi_stable defines the symbol's address to be this reference, which has the size of a pointer.
    let header: AbiHeaderRef = unsafe { std::mem::transmute(address) };
    header.upgrade().map(Some).map_err(|_| {
        let sentence = "its layout proof was made with another version of abi_stable than 0.11";
        HostError::new(codes::LAYOUT_HEADER, sentence)
    })
}

fn check_layout(header: &LibHeader) -> Result<()> {
    let unreadable = |what: String| HostError::new(codes::LAYOUT_HEADER, what);
    let version = |text| VersionNumber::new(text).map_err(|e| unreadable(e.to_string()));
    let layout = header.layout().ok_or_else(|| unreadable("its layout proof is empty".to_owned()))?;
    let host = (<EpModule_Ref as StableAbi>::LAYOUT, version(EpModule_Ref::VERSION_STRINGS)?);
    compare(host, (layout, version(header.version_strings())?))
}

/// The older side is the interface. Fresh globals, so that nothing points into the library afterwards.
fn compare(host: (&'static TypeLayout, VersionNumber), plugin: (&'static TypeLayout, VersionNumber)) -> Result<()> {
    if host.1.major != plugin.1.major {
        let sentence = format!("its layout proof is of ABI {}, this core's of {}", plugin.1, host.1);
        return Err(HostError::new(codes::LAYOUT, sentence));
    }
    let host_is_older = (host.1.major, host.1.minor) <= (plugin.1.major, plugin.1.minor);
    let (interface, implementation) = if host_is_older { (host.0, plugin.0) } else { (plugin.0, host.0) };
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
    if !matches!(field.name(), "0" | "field_0" | "f" | "ref_") {
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

#[cfg(test)]
mod tests {
    use super::*;
    use abi_stable::sabi_types::VersionNumber as V;

    mod changed {
        #[repr(C)]
        #[derive(abi_stable::StableAbi)]
        pub struct Old {
            a: u32,
            b: u64,
            callback: extern "C" fn(u32),
        }

        pub mod later {
            #[repr(C)]
            #[derive(abi_stable::StableAbi)]
            pub struct Old {
                a: u64,
                b: u64,
                callback: extern "C" fn(u64),
            }
        }
    }

    fn version(major: u32, minor: u32) -> V {
        V { major, minor, patch: 0 }
    }

    #[test]
    fn equal_layouts_pass_and_majors_are_compared_first() {
        let own = <EpModule_Ref as StableAbi>::LAYOUT;
        for (host, plugin) in [(0, 0), (0, 3), (3, 0)] {
            compare((own, version(1, host)), (own, version(1, plugin))).expect("the same layout");
        }
        let error = compare((own, version(1, 0)), (own, version(2, 0))).expect_err("another major");
        assert!(error.code == codes::LAYOUT && error.sentence.contains("2.0.0"), "{error}");
    }

    #[test]
    fn changed_fields_become_a_short_sentence() {
        let (old, new) = (<changed::Old as StableAbi>::LAYOUT, <changed::later::Old as StableAbi>::LAYOUT);
        let error = compare((old, version(1, 0)), (new, version(1, 1))).expect_err("changed");
        assert!(error.code == codes::LAYOUT && error.sentence.len() <= super::super::SENTENCE_LIMIT, "{error}");
        assert!(error.sentence.contains("a: ") && error.sentence.contains("expected u32, found u64"), "{error}");
    }
}
