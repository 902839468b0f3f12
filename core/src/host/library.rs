//! Checks 7 to 11 in their order, and the one factory of each library in this process.
//!
//! A library is opened once and stays. Its factory is made when a host first needs it, shared by all hosts, and freed
//! with the last handle; then it may be made again.

use super::discover::Candidate;
use super::entry::{Entry, Expected, image_range};
use super::error::{HostError, Result};
use super::{codes, open, proof};
use crate::abi::FactoryHandle;
use crate::error::{Error, codes as session_codes};
use ortolan_ep_abi::raw::{ENTRY_SYMBOL, EpV1};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// An opened library with its factory.
#[derive(Debug)]
pub(super) struct Library {
    pub factory: Arc<FactoryHandle>,
    /// Whether its layout was compared field by field, not by fingerprint alone.
    pub proven: bool,
    pub entry: Entry,
}

/// Checks 7 to 11 for a library in a file.
pub(super) fn open(candidate: &Candidate) -> Result<Library> {
    let m = &candidate.manifest;
    open_checked(candidate).map_err(|e| e.of(&m.name).at(&candidate.path))
}

fn open_checked(candidate: &Candidate) -> Result<Library> {
    let (m, checked) = (&candidate.manifest, &candidate.checked);
    let opened = open::open(candidate)?;
    let Some(address) = opened.symbol(ENTRY_SYMBOL) else {
        return Err(HostError::new(codes::ENTRY_MISSING, format!("it does not export {ENTRY_SYMBOL}")));
    };
    let expected = Expected {
        manifest: m,
        manifest_bytes: &checked.manifest,
        catalogue_bytes: &checked.catalogue,
        image: image_range(address, checked.span),
    };
    // SAFETY: the symbol of the entry; the library is never unloaded.
    let entry = unsafe { Entry::check(address, &expected) }.map_err(|e| match proof::differences(&opened) {
        Some(fields) if e.code == codes::FINGERPRINT => HostError::new(e.code, format!("{}: {fields}", e.sentence)),
        _ => e,
    })?;
    let proven = proof::check(&opened, entry)?;
    let factory = factory(entry, &m.name, &m.provides)?;
    Ok(Library { factory, proven, entry })
}

/// What this process knows of a library's entry.
struct Slot {
    entry: usize,
    table: &'static EpV1,
    factory: Weak<FactoryHandle>,
    /// A factory is being made, is in use, or is being freed.
    alive: bool,
    /// Hosts that have it registered.
    hosts: usize,
}

/// The plugin list: global, because a library is one per process whatever hosts there are.
static SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();

fn slots() -> MutexGuard<'static, Vec<Slot>> {
    SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_slot<R>(entry: usize, f: impl FnOnce(&mut Slot) -> R) -> Option<R> {
    let found = slots().iter_mut().find(|slot| slot.entry == entry).map(f);
    CHANGED.notify_all();
    found
}

/// Dropped after the factory was freed, or could not be made.
struct Alive(usize);

impl Drop for Alive {
    fn drop(&mut self) {
        with_slot(self.0, |slot| slot.alive = false);
    }
}

/// Checks 10 and 11: the table, and the factory made from it, or the one that lives already.
pub(super) fn factory(entry: Entry, name: &str, provides: &[String]) -> Result<Arc<FactoryHandle>> {
    let address = entry.address();
    let table = loop {
        let mut slots = slots();
        let Some(slot) = slots.iter_mut().find(|slot| slot.entry == address) else {
            drop(slots);
            let table: &'static EpV1 = Box::leak(Box::new(entry.table(provides)?));
            let mut slots = self::slots();
            if !slots.iter().any(|slot| slot.entry == address) {
                slots.push(Slot { entry: address, table, factory: Weak::new(), alive: false, hosts: 0 });
            }
            continue;
        };
        if let Some(factory) = slot.factory.upgrade() {
            return Ok(factory);
        }
        if !slot.alive {
            slot.alive = true;
            break slot.table;
        }
        // Another thread makes it, or frees the last one.
        drop(CHANGED.wait(slots).unwrap_or_else(PoisonError::into_inner));
    };
    // SAFETY: check 10 found the table complete, and the library stays loaded.
    let made = unsafe { FactoryHandle::new(name, table, Some(Box::new(Alive(address)))) };
    let factory = Arc::new(made.map_err(|e| from_ep(e, codes::FACTORY_FAILED))?);
    with_slot(address, |slot| slot.factory = Arc::downgrade(&factory));
    Ok(factory)
}

/// An EP's failure in the host's words; `otherwise` stands for "it said no".
pub(super) fn from_ep(error: Error, otherwise: crate::codes::Code) -> HostError {
    let code = match crate::codes::find(error.code()) {
        Some(code) if !error.is(session_codes::EP_FAILED) => code,
        _ => otherwise,
    };
    HostError::new(code, error.message())
}

/// A host's registration of a factory.
#[derive(Debug)]
pub(super) struct Registration {
    factory: Arc<FactoryHandle>,
    entry: usize,
}

impl Registration {
    pub fn new(library: &Library) -> Self {
        let entry = library.entry.address();
        with_slot(entry, |slot| slot.hosts += 1);
        Registration { factory: Arc::clone(&library.factory), entry }
    }

    pub fn factory(&self) -> &Arc<FactoryHandle> {
        &self.factory
    }

    /// How many sessions and values hold the factory, hosts not counted.
    pub fn holders(&self) -> usize {
        let hosts = with_slot(self.entry, |slot| slot.hosts).unwrap_or(1);
        Arc::strong_count(&self.factory).saturating_sub(hosts)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        with_slot(self.entry, |slot| slot.hosts = slot.hosts.saturating_sub(1));
    }
}
