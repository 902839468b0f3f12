//! An EP that is loaded: what it said of itself, its factory, and check 12, its devices.

use super::catalogue::CatalogueRow;
use super::codes;
use super::discover::{Request, SetAside};
use super::error::{HostError, Result, device_code, join_names};
use super::library::{Registration, from_ep};
use super::manifest::Manifest;
use super::places::PlaceKind;
use crate::abi::{DeviceList, FactoryHandle, NoDevice};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Where an EP came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A library.
    File {
        /// Its file.
        path: PathBuf,
        /// Why the place was searched.
        place: PlaceKind,
    },
    /// This very program.
    Static,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::File { path, .. } => path.display().fmt(f),
            Origin::Static => f.write_str("this program"),
        }
    }
}

/// An EP that passed checks 1 to 11. As long as somebody holds it, or anything made from it, its objects stay.
#[derive(Debug)]
pub struct LoadedEp {
    pub(super) origin: Origin,
    pub(super) manifest: Manifest,
    pub(super) catalogue: Vec<CatalogueRow>,
    pub(super) set_aside: Vec<SetAside>,
    pub(super) warnings: Vec<HostError>,
    pub(super) proven: bool,
    pub(super) devices: Mutex<Option<Arc<DeviceList>>>,
    pub(super) registration: Registration,
}

impl LoadedEp {
    /// Name in the manifest, by which users ask for it.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// What it says of itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What it says it runs, without operators that are set aside.
    pub fn catalogue(&self) -> &[CatalogueRow] {
        &self.catalogue
    }

    /// Operators that it is not given, because the core defines them differently.
    pub fn set_aside(&self) -> &[SetAside] {
        &self.set_aside
    }

    /// What is not as it should be, but no reason to refuse it.
    pub fn warnings(&self) -> &[HostError] {
        &self.warnings
    }

    /// Where it came from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether its tables were compared field by field, not by fingerprint alone.
    pub fn is_proven(&self) -> bool {
        self.proven
    }

    /// Its factory, from which sessions make their EPs.
    pub fn factory(&self) -> &Arc<FactoryHandle> {
        self.registration.factory()
    }

    /// Check 12: its devices, asked for once; the EP may start its driver now. No devices with reasons is an answer, see
    /// [`usable_devices`](Self::usable_devices).
    ///
    /// # Errors
    /// `no-cause` if there are none and it does not say why; `devices-failed`.
    pub fn devices(&self) -> Result<Arc<DeviceList>> {
        let mut known = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = &*known {
            return Ok(Arc::clone(list));
        }
        let list = self.ask_for_devices().map_err(|e| match &self.origin {
            Origin::File { path, .. } => e.of(self.name()).at(path),
            Origin::Static => e.of(self.name()),
        })?;
        Ok(Arc::clone(known.insert(Arc::new(list))))
    }

    /// Its devices, of which there is at least one.
    ///
    /// # Errors
    /// As [`devices`](Self::devices), and `no-device` with its reasons.
    pub fn usable_devices(&self) -> Result<Arc<DeviceList>> {
        let list = self.devices()?;
        if !list.devices.is_empty() {
            return Ok(list);
        }
        let reason = |r: &NoDevice| format!("{} ({})", r.sentence, device_code(r.known));
        let reasons: Vec<String> = list.reasons.iter().map(reason).collect();
        let sentence = format!("{} has no device here: {}", self.manifest.id(), reasons.join("; "));
        Err(HostError::new(codes::NO_DEVICE, sentence).of(self.name()))
    }

    fn ask_for_devices(&self) -> Result<DeviceList> {
        let list = self.factory().devices().map_err(|e| from_ep(e, codes::DEVICES_FAILED))?;
        if list.devices.is_empty() && list.reasons.iter().all(|r| r.sentence.is_empty() && r.known.is_none()) {
            return Err(HostError::new(codes::NO_CAUSE, "it has no device and does not say why"));
        }
        let ordinals: Vec<u32> = list.devices.iter().map(|d| d.ordinal).collect();
        let twice: Vec<String> = ordinals
            .iter()
            .enumerate()
            .filter(|(at, ordinal)| ordinals[..*at].contains(ordinal))
            .map(|(_, ordinal)| ordinal.to_string())
            .collect();
        if !twice.is_empty() {
            let sentence = format!("it listed several devices under the number {}", join_names(&twice, 4));
            return Err(HostError::new(codes::DEVICES_FAILED, sentence));
        }
        Ok(list)
    }

    /// Whether a request that names it may have this version.
    pub(super) fn check_version(&self, request: &Request) -> Result<()> {
        match &request.version {
            Some(req) if !req.matches(&self.manifest.version) => {
                let sentence = format!("{} is loaded, which the request {request} does not allow", self.manifest.id());
                Err(HostError::new(codes::NO_MATCHING_VERSION, sentence).of(self.name()))
            }
            _ => Ok(()),
        }
    }
}
