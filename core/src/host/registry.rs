//! The plugin host's public face: options, discovery, loading, and what is loaded.

use super::codes;
use super::compat::Offer;
use super::discover::{self, Candidate, Report, Request, Rules};
use super::entry::{Entry, Expected};
use super::error::{HostError, Result};
use super::library::{self, Library, Registration};
use super::loaded::{LoadedEp, Origin};
use super::manifest::Manifest;
use super::places::{self, PlaceKind, PlaceOptions};
use super::probe::{Probe, ProbePolicy};
use ortolan_ep_abi::raw;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Finds, checks and loads execution providers, and keeps those that are loaded.
///
/// Libraries are never unloaded; [`unregister`](Self::unregister) drops the objects of an EP. All methods may be called
/// from any thread.
#[derive(Debug)]
pub struct PluginHost {
    places: PlaceOptions,
    rules: Rules,
    probe: Probe,
    loaded: Mutex<Vec<Arc<LoadedEp>>>,
    report: Mutex<Option<Arc<Report>>>,
}

/// Options of a [`PluginHost`].
#[derive(Debug, Default)]
pub struct PluginHostBuilder {
    places: PlaceOptions,
    strict: bool,
    offer: Offer,
    probe: Probe,
}

impl PluginHostBuilder {
    /// A library, or a folder with libraries, to be considered before all other places (`--ep-path`).
    #[must_use]
    pub fn path(mut self, path: impl Into<PathBuf>) -> Self {
        self.places.given.push(path.into());
        self
    }

    /// A folder that comes with the embedding program, considered after those beside it.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.places.embedder.push(folder.into());
        self
    }

    /// Looks nowhere but at the given paths.
    #[must_use]
    pub fn only_given_paths(mut self) -> Self {
        self.places.only_given = true;
        self
    }

    /// Refuses what is otherwise a warning (files of other users), and libraries that cannot be probed.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// What to do with libraries that were not probed yet.
    #[must_use]
    pub fn probe(mut self, policy: ProbePolicy) -> Self {
        self.probe.policy = policy;
        self
    }

    /// How long a probe may take; 5 s if not set.
    #[must_use]
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.probe.timeout = timeout;
        self
    }

    /// The helper that probes, with arguments that come before the library's path; looked for beside the program and
    /// the core library if not set.
    #[must_use]
    pub fn probe_helper(mut self, program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        self.probe.helper = Some((program.into(), arguments.iter().map(|a| (*a).to_owned()).collect()));
        self
    }

    /// Where verdicts of probes are remembered; a folder in the user's cache if not set.
    #[must_use]
    pub fn probe_cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.probe.cache = Some(folder.into());
        self
    }

    /// Minor versions of the ABI that are let in.
    #[must_use]
    pub fn abi_minors(mut self, minors: RangeInclusive<u32>) -> Self {
        self.offer.abi_minors = minors;
        self
    }

    /// The host. Nothing is searched or loaded yet.
    pub fn build(mut self) -> PluginHost {
        if self.strict && self.probe.policy == ProbePolicy::IfAvailable {
            self.probe.policy = ProbePolicy::Require;
        }
        PluginHost {
            places: self.places,
            rules: Rules { strict: self.strict, offer: self.offer },
            probe: self.probe,
            loaded: Mutex::default(),
            report: Mutex::default(),
        }
    }
}

impl PluginHost {
    /// Options, all at their defaults.
    pub fn builder() -> PluginHostBuilder {
        PluginHostBuilder::default()
    }

    /// Looks into all places and checks what lies there, without running any code of it.
    pub fn discover(&self) -> Arc<Report> {
        let report = Arc::new(discover::discover(places::all(&self.places), &self.rules));
        *lock(&self.report) = Some(Arc::clone(&report));
        report
    }

    /// Checks one file without running any code of it.
    pub fn inspect(&self, path: &Path) -> Result<Candidate> {
        discover::inspect(path, PlaceKind::Given, &self.rules)
    }

    /// All checks on one file, with a fresh probe, up to its devices. Nothing is registered.
    pub fn verify(&self, path: &Path) -> Result<LoadedEp> {
        let candidate = self.inspect(path)?;
        let ep = self.open(candidate, true)?;
        ep.devices()?;
        Ok(ep)
    }

    /// Loads the EP that a request means, `NAME` or `NAME@REQUIREMENT`. Gives back the one that is loaded already if its
    /// version will do.
    ///
    /// # Errors
    /// The code of the check that the library did not pass, or why no library fits the request.
    pub fn load(&self, request: &str) -> Result<Arc<LoadedEp>> {
        let request: Request = request.parse()?;
        if let Some(ep) = self.get(&request.name) {
            return ep.check_version(&request).map(|()| ep);
        }
        let known = lock(&self.report).clone();
        let path = match known.as_ref().map(|report| report.select(&request)) {
            Some(Ok(candidate)) => (candidate.path.clone(), candidate.place),
            // It may have been installed since.
            _ => {
                let report = self.discover();
                let candidate = report.select(&request)?;
                (candidate.path.clone(), candidate.place)
            }
        };
        let candidate = discover::inspect(&path.0, path.1, &self.rules)?;
        self.register(self.open(candidate, false)?)
    }

    /// Loads the EP in a file.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_file(&self, path: &Path) -> Result<Arc<LoadedEp>> {
        self.register(self.open(self.inspect(path)?, false)?)
    }

    /// Registers an EP that is linked into this program. It goes through the same checks, as far as they apply to it.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn register_static(&self, entry: &'static raw::Entry) -> Result<Arc<LoadedEp>> {
        // SAFETY: texts of a static; they live as long as the program.
        let (manifest_bytes, catalogue_bytes) = unsafe { (entry.manifest.as_bytes(), entry.catalogue.as_bytes()) };
        let manifest = Manifest::parse(manifest_bytes)?;
        let of = |e: HostError| e.of(&manifest.name);
        let (catalogue, set_aside) = discover::inspect_texts(&manifest, catalogue_bytes, &self.rules).map_err(of)?;
        let expected = Expected { manifest: &manifest, manifest_bytes, catalogue_bytes, image: None };
        // SAFETY: a static of this program.
        let entry = unsafe { Entry::check(std::ptr::from_ref(entry).cast(), &expected) }.map_err(of)?;
        let factory = library::factory(entry, &manifest.name, &manifest.provides).map_err(of)?;
        let library = Library { factory, proven: true, entry };
        let registration = Registration::new(&library);
        drop(library.factory);
        self.register(LoadedEp {
            origin: Origin::Static,
            catalogue,
            set_aside,
            warnings: Vec::new(),
            proven: true,
            devices: Mutex::default(),
            registration,
            manifest,
        })
    }

    /// The EP of that name, if it is loaded.
    pub fn get(&self, name: &str) -> Option<Arc<LoadedEp>> {
        lock(&self.loaded).iter().find(|ep| ep.name() == name).cloned()
    }

    /// All that are loaded, in the order of loading.
    pub fn loaded(&self) -> Vec<Arc<LoadedEp>> {
        lock(&self.loaded).clone()
    }

    /// Drops an EP's objects. Its library stays mapped.
    ///
    /// # Errors
    /// `in-use` while a session, a value in its memory or a handle holds it; `not-loaded`.
    pub fn unregister(&self, name: &str) -> Result<()> {
        let mut loaded = lock(&self.loaded);
        let Some(at) = loaded.iter().position(|ep| ep.name() == name) else {
            return Err(HostError::new(codes::NOT_LOADED, format!("no execution provider {name:?} is loaded")));
        };
        let handles = Arc::strong_count(&loaded[at]) - 1;
        let holders = loaded[at].registration.holders();
        if handles + holders > 0 {
            let sentence = format!("{name:?} is held by {handles} handles and {holders} sessions or values");
            return Err(HostError::new(codes::IN_USE, sentence).of(name));
        }
        let ep = loaded.remove(at);
        drop(loaded); // the factory's code may take its time
        tracing::info!("{} is unregistered", ep.manifest.id());
        Ok(())
    }

    /// Checks 6 to 11.
    fn open(&self, candidate: Candidate, fresh: bool) -> Result<LoadedEp> {
        let (name, path) = (candidate.manifest.name.clone(), candidate.path.clone());
        let warning = self.probe.check(&candidate, fresh).map_err(|e| e.of(&name).at(&path))?;
        let library = library::open(&candidate)?;
        tracing::info!(path = %path.display(), proven = library.proven, "{} is loaded", candidate.manifest.id());
        let registration = Registration::new(&library);
        let proven = library.proven;
        drop(library);
        let Candidate { place, manifest, catalogue, set_aside, mut warnings, .. } = candidate;
        warnings.extend(warning);
        for warning in &warnings {
            tracing::warn!(code = %warning.code, "loaded all the same: {warning}");
        }
        let origin = Origin::File { path, place };
        Ok(LoadedEp {
            origin,
            manifest,
            catalogue,
            set_aside,
            warnings,
            proven,
            devices: Mutex::default(),
            registration,
        })
    }

    fn register(&self, ep: LoadedEp) -> Result<Arc<LoadedEp>> {
        let mut loaded = lock(&self.loaded);
        if let Some(other) = loaded.iter().find(|other| other.name() == ep.name()) {
            if Arc::ptr_eq(other.factory(), ep.factory()) {
                return Ok(Arc::clone(other));
            }
            let sentence = format!("{} is loaded from {} already", other.manifest.id(), other.origin);
            return Err(HostError::new(codes::NAME_TAKEN, sentence).of(ep.name()));
        }
        let ep = Arc::new(ep);
        loaded.push(Arc::clone(&ep));
        Ok(ep)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
