//! The plugin host: from a file on disk to an execution provider that can be asked for devices.
//!
//! Twelve checks, cheap and code-free first; each refuses with a code of its own ([`codes`]):
//!
//! | | check | where |
//! |---|---|---|
//! | 1 | the file, who may write it | `file` |
//! | 2 | format, machine, segments inside the file | `image` |
//! | 3 | manifest and catalogue in the file's sections | `manifest`, `catalogue` |
//! | 4 | ABI version | `compat` |
//! | 5 | core version, interfaces, target, processor, panics, operator definitions | `compat` |
//! | 6 | a child process that loads it survives | `probe` |
//! | 7 | the system opens it; all missing libraries are named | `open`, `needed` |
//! | 8 | its entry: magic, size, fingerprint, the same manifest | `entry` |
//! | 9 | its layout proof | `proof` |
//! | 10 | its table: size, no null slot | `entry` |
//! | 11 | its factory | `library` |
//! | 12 | its devices, when somebody asks | `loaded` |
//!
//! Nothing here knows models, graphs or any particular EP.

mod catalogue;
pub mod codes;
mod compat;
mod discover;
mod entry;
mod error;
mod file;
mod image;
mod library;
mod loaded;
mod manifest;
mod needed;
mod open;
mod places;
mod probe;
mod proof;
mod registry;
mod sys;

pub use catalogue::CatalogueRow;
pub use compat::ABI_MINOR_MIN;
use compat::Offer;
pub use discover::{Candidate, Refused, Report, Request, SetAside, Shadowed};
pub use error::{HostError, Result, SENTENCE_LIMIT, device_code};
pub use loaded::{LoadedEp, Origin};
pub use manifest::{AbiVersion, Manifest, PanicStrategy, Threads};
pub use places::{EP_PATH_VARIABLE, Place, PlaceKind, probe_folder, user_folder};
pub use probe::{ProbePolicy, probe_main};
pub use registry::{PluginHost, PluginHostBuilder};
