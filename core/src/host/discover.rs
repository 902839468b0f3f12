//! Checks 1 to 5 over every place, and which library a request means. No code of any library runs here.

use super::catalogue::{self, CatalogueRow};
use super::codes;
use super::compat::{self, Offer};
use super::error::{HostError, Result, join_names};
use super::file::{self, PluginFile};
use super::image;
use super::manifest::{Manifest, parse_hex};
use super::places::{self, Place, PlaceKind};
use ortolan_ep_abi::layout::{FNV, fnv};
use semver::VersionReq;
use serde::Serialize;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A library that passed checks 1 to 5.
#[derive(Debug, Clone, Serialize)]
pub struct Candidate {
    /// Absolute, without links.
    pub path: PathBuf,
    /// Why the place was searched.
    pub place: PlaceKind,
    /// What it says of itself.
    pub manifest: Manifest,
    /// What it says it runs, without the rows in `set_aside`.
    #[serde(skip)]
    pub catalogue: Vec<CatalogueRow>,
    /// Operators that the core defines differently; the EP is not given them.
    pub set_aside: Vec<SetAside>,
    /// What is not as it should be, but no reason to refuse.
    pub warnings: Vec<HostError>,
    #[serde(skip)]
    pub(super) checked: Arc<Checked>,
}

/// An operator that an EP is not given, because the core defines it differently.
#[derive(Debug, Clone, Serialize)]
pub struct SetAside {
    /// Domain; empty is the standard one.
    pub domain: String,
    /// Operator.
    pub op: String,
    /// Why.
    #[serde(flatten)]
    pub reason: HostError,
}

/// What later checks compare with.
#[derive(Debug)]
pub(super) struct Checked {
    pub file: PluginFile,
    pub manifest: Vec<u8>,
    pub catalogue: Vec<u8>,
    /// Bytes of memory that the library will occupy.
    pub span: u64,
}

/// What the checks go by.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub strict: bool,
    pub offer: Offer,
}

/// Checks 1 to 5 for one file.
pub(super) fn inspect(given: &Path, place: PlaceKind, rules: &Rules) -> Result<Candidate> {
    let (file, warnings) = file::open(given, rules.strict)?;
    let path = file.path.clone();
    inspect_image(file, place, warnings, rules).map_err(|e| e.at(&path))
}

fn inspect_image(file: PluginFile, place: PlaceKind, warnings: Vec<HostError>, rules: &Rules) -> Result<Candidate> {
    let image = image::read(&file.file)?;
    let manifest_bytes = image.manifest.filter(|m| !m.is_empty()).ok_or_else(|| {
        HostError::new(
            codes::NO_MANIFEST,
            "a shared library without a manifest section: not an execution-provider plugin",
        )
    })?;
    let manifest = Manifest::parse(&manifest_bytes)?;
    let catalogue_bytes = image.catalogue.unwrap_or_default();
    let (catalogue, set_aside) = inspect_texts(&manifest, &catalogue_bytes, rules).map_err(|e| e.of(&manifest.name))?;
    let (path, span) = (file.path.clone(), image.span);
    let checked = Arc::new(Checked { file, manifest: manifest_bytes, catalogue: catalogue_bytes, span });
    Ok(Candidate { path, place, manifest, catalogue, set_aside, warnings, checked })
}

/// The parts of checks 3 to 5 that need only manifest and catalogue; a statically linked EP goes through them too.
pub(super) fn inspect_texts(
    m: &Manifest,
    catalogue: &[u8],
    rules: &Rules,
) -> Result<(Vec<CatalogueRow>, Vec<SetAside>)> {
    check_hash(m, catalogue)?;
    let mut rows = catalogue::parse(catalogue)?;
    compat::check(m, &rules.offer)?;
    let mut set_aside = Vec::new();
    for (at, reason) in compat::differing_schemas(&rows, &rules.offer).into_iter().rev() {
        let row = rows.remove(at);
        set_aside.push(SetAside { domain: row.domain, op: row.op, reason });
    }
    Ok((rows, set_aside))
}

fn check_hash(m: &Manifest, catalogue: &[u8]) -> Result<()> {
    let found = fnv(FNV, catalogue);
    let sentence = match m.catalogue.as_deref() {
        None if catalogue.is_empty() => return Ok(()),
        None => "there is a catalogue, but the manifest does not state its hash".to_owned(),
        Some(text) if parse_hex(text) == Some(found) => return Ok(()),
        Some(text) => format!(
            "the manifest states hash {text} for the catalogue, its {} bytes have {found:#018x}",
            catalogue.len()
        ),
    };
    Err(HostError::new(codes::CATALOGUE_HASH, sentence))
}

/// Everything that was found, and what became of it.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Where was looked, in order.
    pub places: Vec<Place>,
    /// Libraries that passed checks 1 to 5, in the order in which a request considers them.
    pub found: Vec<Candidate>,
    /// Libraries that did not, and why.
    pub refused: Vec<Refused>,
    /// Libraries that a bare name does not reach.
    pub shadowed: Vec<Shadowed>,
    /// Those that share name and version with another file in their place; also among `refused`.
    #[serde(skip)]
    ambiguous: Vec<(Candidate, HostError)>,
}

/// A library that was refused.
#[derive(Debug, Clone, Serialize)]
pub struct Refused {
    /// Why the place was searched.
    pub place: PlaceKind,
    /// Why it was refused.
    #[serde(flatten)]
    pub error: HostError,
    /// A person named this very file.
    #[serde(skip)]
    named: bool,
}

/// A library that another one of the same name hides.
#[derive(Debug, Clone, Serialize)]
pub struct Shadowed {
    /// `name@version` of the hidden one.
    pub id: String,
    /// Its file.
    pub path: PathBuf,
    /// `name@version` of the one that a bare name means.
    pub by_id: String,
    /// Its file.
    pub by: PathBuf,
}

/// Looks into every place.
pub(super) fn discover(places: Vec<Place>, rules: &Rules) -> Report {
    let mut report = Report { places, ..Report::default() };
    let mut seen = Vec::new();
    for place in report.places.clone() {
        let mut here = Vec::new();
        let files = match places::files(&place) {
            Ok(files) => files,
            Err(e) => {
                let error = HostError::new(codes::FILE_NOT_FOUND, format!("this place cannot be searched: {e}"));
                report.refuse(&place, &place.path, error.at(&place.path));
                continue;
            }
        };
        tracing::debug!(place = %place.path.display(), files = files.len(), "searched for plugins");
        for file in files {
            match inspect(&file, place.kind, rules) {
                Ok(candidate) => {
                    let id = candidate.checked.file.id;
                    if !seen.contains(&(id.device, id.inode)) {
                        seen.push((id.device, id.inode));
                        here.push(candidate);
                    }
                }
                Err(error) => report.refuse(&place, &file, error),
            }
        }
        report.add_place(&place, here);
    }
    report.find_shadowed();
    report
}

impl Report {
    fn refuse(&mut self, place: &Place, file: &Path, error: HostError) {
        if !self.refused.iter().any(|r| r.error == error) {
            tracing::warn!(code = %error.code, "plugin refused: {error}");
            let named = place.kind.is_asked_for() && place.path == file && error.code != codes::DUPLICATE_VERSION;
            self.refused.push(Refused { place: place.kind, error, named });
        }
    }

    /// Adds the candidates of one folder. All paths that a person gave count as one place for ambiguity.
    fn add_place(&mut self, place: &Place, mut here: Vec<Candidate>) {
        here.sort_by(|a, b| {
            (&a.manifest.name, Reverse(&a.manifest.version)).cmp(&(&b.manifest.name, Reverse(&b.manifest.version)))
        });
        for candidate in here {
            let same = |other: &Candidate| {
                other.manifest.id() == candidate.manifest.id()
                    && (other.place == candidate.place)
                    && shares_place(other, &candidate)
            };
            if let Some(at) = self.found.iter().position(same) {
                let first = self.found.remove(at);
                let error = ambiguity(&first, &candidate);
                self.refuse(place, &first.path, error.clone());
                self.ambiguous.push((first, error));
            } else if !self.ambiguous.iter().any(|(other, _)| same(other)) {
                self.found.push(candidate);
            }
        }
    }

    fn find_shadowed(&mut self) {
        let mut shadowed = Vec::new();
        for (at, candidate) in self.found.iter().enumerate() {
            let name = &candidate.manifest.name;
            if let Some(winner) = self.found[..at].iter().find(|c| c.manifest.name == *name) {
                let (id, by_id) = (candidate.manifest.id(), winner.manifest.id());
                tracing::info!(
                    "{id} at {} is shadowed by {by_id} at {}",
                    candidate.path.display(),
                    winner.path.display()
                );
                shadowed.push(Shadowed { id, path: candidate.path.clone(), by_id, by: winner.path.clone() });
            }
        }
        self.shadowed = shadowed;
    }

    /// Names in the order in which a session without a list of EPs prefers them: those with other devices than the CPU
    /// first, then by name.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<(bool, &str)> = Vec::new();
        for candidate in &self.found {
            let m = &candidate.manifest;
            if !names.iter().any(|(_, name)| *name == m.name) {
                names.push((m.device_kinds.iter().all(|kind| kind == "cpu"), &m.name));
            }
        }
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// The library that a request means, or why there is none.
    pub fn select(&self, request: &Request) -> Result<&Candidate> {
        let fits = |c: &&Candidate| c.manifest.name == request.name && request.allows(c);
        let chosen = self.found.iter().find(fits);
        let ambiguous = self.ambiguous.iter().find(|(c, _)| fits(&c));
        let before = |a: &Candidate, b: &Candidate| {
            (a.place, Reverse(&a.manifest.version)) <= (b.place, Reverse(&b.manifest.version))
        };
        if let Some((candidate, error)) = ambiguous
            && chosen.is_none_or(|c| before(candidate, c))
        {
            return Err(error.clone());
        }
        // A file that a person named is not silently replaced by one of the same name from elsewhere.
        let named = self.refused.iter().find(|r| r.named && r.error.ep.as_ref() == Some(&request.name));
        match (chosen, named) {
            (Some(chosen), None) => Ok(chosen),
            (Some(chosen), Some(named)) if chosen.place < named.place => Ok(chosen),
            (_, Some(named)) => Err(named.error.clone()),
            (None, None) => Err(self.not_found(request)),
        }
    }

    fn not_found(&self, request: &Request) -> HostError {
        let name = &request.name;
        let versions: Vec<String> =
            self.found.iter().filter(|c| c.manifest.name == *name).map(|c| c.manifest.version.to_string()).collect();
        if !versions.is_empty() {
            let sentence =
                format!("the request {request} allows none of the versions found: {}", join_names(&versions, 8));
            return HostError::new(codes::NO_MATCHING_VERSION, sentence).of(name);
        }
        if let Some(refused) =
            self.refused.iter().find(|r| r.error.ep.as_ref() == Some(name) || has_file_name(&r.error, name))
        {
            return refused.error.clone().of(name);
        }
        let others = match self.names() {
            names if names.is_empty() => "no execution provider at all was found".to_owned(),
            names => format!("found were {}", join_names(&names, 12)),
        };
        let sentence =
            format!("no library of the execution provider {name:?} in {} places; {others}", self.places.len());
        HostError::new(codes::EP_NOT_FOUND, sentence).of(name)
    }
}

/// One folder is one place; so are all paths that a person gave at once.
fn shares_place(a: &Candidate, b: &Candidate) -> bool {
    a.place.is_asked_for() || a.path.parent() == b.path.parent() || a.place == PlaceKind::User
}

fn ambiguity(a: &Candidate, b: &Candidate) -> HostError {
    let sentence = format!("{} is both this file and {}", a.manifest.id(), b.path.display());
    HostError::new(codes::DUPLICATE_VERSION, sentence).at(&a.path).of(&a.manifest.name)
}

/// Whether the file is named as a plugin of that name would be; its manifest could not be read.
fn has_file_name(error: &HostError, name: &str) -> bool {
    let stem = error.path.as_deref().and_then(Path::file_stem).and_then(|s| s.to_str()).unwrap_or_default();
    let wanted = format!("{}{}", places::FILE_NAME_PART, name.replace('-', "_"));
    error.ep.is_none() && stem.strip_prefix("lib").unwrap_or(stem) == wanted
}

/// A request for an EP: `NAME` or `NAME@REQUIREMENT`.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Name in the manifest.
    pub name: String,
    /// Versions that will do; `None` is any, pre-releases too.
    pub version: Option<VersionReq>,
}

impl Request {
    fn allows(&self, candidate: &Candidate) -> bool {
        self.version.as_ref().is_none_or(|req| req.matches(&candidate.manifest.version))
    }
}

impl std::str::FromStr for Request {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self> {
        let (name, version) = text.split_once('@').map_or((text, None), |(name, req)| (name, Some(req)));
        let bad = |what: String| HostError::new(codes::EP_REQUEST, format!("{text:?} is no request for an EP: {what}"));
        if name.is_empty() {
            return Err(bad("the name is empty".to_owned()));
        }
        let version = version.map(VersionReq::parse).transpose().map_err(|e| bad(e.to_string()))?;
        Ok(Request { name: name.to_owned(), version })
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_name_and_perhaps_a_requirement() {
        for (text, shown) in [("cpu", "cpu"), ("cpu@1.2", "cpu@^1.2"), ("a@>=1, <3", "a@>=1, <3")] {
            assert_eq!(text.parse::<Request>().expect(text).to_string(), shown);
        }
        for text in ["", "@1", "cpu@", "cpu@>=1 || <3"] {
            assert_eq!(text.parse::<Request>().expect_err(text).code, codes::EP_REQUEST);
        }
    }
}
