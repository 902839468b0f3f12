//! An execution provider as a session takes it: the border between the plugin host, which finds and loads libraries, and
//! everything that uses them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::abi::{DeviceInfo, DeviceList, EpHandle, FactoryHandle, Rejection};
use crate::error::{Error, Result, codes};
use crate::host::LoadedEp;

/// A loaded EP, with the device and the options that a session wants of it.
#[derive(Clone, Debug)]
pub struct SessionEp {
    factory: Arc<FactoryHandle>,
    version: String,
    opset: BTreeMap<String, u32>,
    device: Option<u32>,
    options: Vec<(String, String)>,
    /// What it has, if somebody asked already.
    devices: Option<Arc<DeviceList>>,
    /// Operators that it is not given, by domain and name, and why.
    set_aside: BTreeMap<(String, String), Rejection>,
}

impl From<&LoadedEp> for SessionEp {
    fn from(ep: &LoadedEp) -> SessionEp {
        let m = ep.manifest();
        let opset = m.opset.iter().map(|(d, &v)| (d.clone(), u32::try_from(v).unwrap_or(u32::MAX))).collect();
        let aside = ep.set_aside().iter().map(|a| {
            let why = Rejection { code: a.reason.code.name().to_owned(), sentence: a.reason.sentence.clone() };
            ((a.domain.clone(), a.op.clone()), why)
        });
        SessionEp {
            // A failure shows when the session starts the EP.
            devices: ep.devices().ok(),
            set_aside: aside.collect(),
            ..SessionEp::new(Arc::clone(ep.factory()), &m.version.to_string(), opset)
        }
    }
}

impl SessionEp {
    /// An EP by its factory and what its manifest says: version, and the opset per domain in which it wants its programs
    /// (the standard domain is empty).
    pub fn new(factory: Arc<FactoryHandle>, version: &str, opset: BTreeMap<String, u32>) -> SessionEp {
        SessionEp {
            factory,
            version: version.to_owned(),
            opset,
            device: None,
            options: Vec::new(),
            devices: None,
            set_aside: BTreeMap::new(),
        }
    }

    /// Uses the device with this number, instead of the first.
    #[must_use]
    pub fn device(mut self, ordinal: u32) -> SessionEp {
        self.device = Some(ordinal);
        self
    }

    /// Sets an option of the EP.
    #[must_use]
    pub fn option(mut self, key: &str, value: &str) -> SessionEp {
        self.options.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Name by which users ask for it.
    pub fn name(&self) -> &str {
        self.factory.name()
    }

    /// Version of the plugin.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Makes the EP of a session.
    pub(crate) fn start(&self) -> Result<StartedEp> {
        let (opset, set_aside) = (self.opset.clone(), self.set_aside.clone());
        Ok(StartedEp { handle: self.create()?, opset, set_aside })
    }

    fn create(&self) -> Result<Arc<EpHandle>> {
        let list = match &self.devices {
            Some(list) => Arc::clone(list),
            None => Arc::new(self.factory.devices()?),
        };
        let found = match self.device {
            None => list.devices.first(),
            Some(ordinal) => list.devices.iter().find(|d| d.ordinal == ordinal),
        };
        let device: &DeviceInfo = found.ok_or_else(|| {
            let reasons: Vec<&str> = list.reasons.iter().map(|r| r.sentence.as_str()).collect();
            let text = match self.device {
                Some(ordinal) if !list.devices.is_empty() => format!("it has no device {ordinal}"),
                _ => format!("it has no device: {}", reasons.join("; ")),
            };
            Error::new(codes::EP_NEW_FAILED, text).from_ep(self.name(), None)
        })?;
        self.factory.create(device, &self.options).map(Arc::new)
    }
}

/// The EP of one session.
#[derive(Clone, Debug)]
pub(crate) struct StartedEp {
    pub handle: Arc<EpHandle>,
    /// The opset in which it wants its programs.
    pub opset: BTreeMap<String, u32>,
    /// Operators that it is not given, and why.
    pub set_aside: BTreeMap<(String, String), Rejection>,
}

impl StartedEp {
    /// Whether its device is taken to have memory of its own.
    pub fn own_memory(&self) -> bool {
        crate::partition::Link::of(self.handle.device()).is_some()
    }
}
