//! From arguments to a session: which EPs take part, how the model is opened, how it is run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ortolan::abi::DeviceInfo;
use ortolan::error::codes::{EP_NEW_FAILED, NO_EPS, UNPLACED};
use ortolan::host::{LoadedEp, PluginHost, Report as Found};
use ortolan::session::SessionBuilder;
use ortolan::{Report, RunOptions, Session, SessionEp, SessionOptions, Value};
use ortolan_graph::ir::Map;
use serde::Serialize;

use crate::args::{FeedArgs, SessionArgs};
use crate::cmd::{count, host};
use crate::codes;
use crate::error::{Error, Result, Status, is_file, names};
use crate::feed::Feed;
use crate::port::Port;
use crate::show;

/// The EPs of a session, loaded, each with its first device.
pub struct Chosen {
    eps: Vec<Member>,
    /// They were asked for by name, so that none may be left out.
    named: bool,
    // Dropped last: the loaded EPs are its.
    _host: PluginHost,
}

struct Member {
    ep: Arc<LoadedEp>,
    device: DeviceInfo,
    options: Vec<(String, String)>,
}

impl Member {
    fn session_ep(&self) -> SessionEp {
        let m = self.ep.manifest();
        let opset: BTreeMap<String, u32> =
            m.opset.iter().filter_map(|(domain, &v)| Some((domain.clone(), u32::try_from(v).ok()?))).collect();
        let ep = SessionEp::new(Arc::clone(self.ep.factory()), &m.version.to_string(), opset);
        self.options.iter().fold(ep.device(self.device.ordinal), |ep, (key, value)| ep.option(key, value))
    }
}

/// An EP in documents and texts.
#[derive(Serialize)]
pub struct EpDocument {
    /// Its name.
    pub name: String,
    version: String,
    device: String,
    /// Nodes that it runs.
    pub nodes: usize,
    parts: usize,
}

impl fmt::Display for EpDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} on {}: {}", self.name, self.version, self.device, count(self.nodes, "node"))?;
        if self.parts == 0 { Ok(()) } else { write!(f, " in {}", count(self.parts, "part")) }
    }
}

impl Chosen {
    /// Those of `--ep` in their order, or all that can be used.
    pub fn of(args: &SessionArgs) -> Result<Chosen> {
        let host = host(&args.search);
        let found = host.discover();
        let loaded = if args.ep.is_empty() { usable(&host, &found)? } else { named(&host, &args.ep)? };
        let member = |(ep, device): (Arc<LoadedEp>, DeviceInfo)| {
            let mine = args.ep_option.iter().filter(|o| o.ep == ep.name());
            let options = mine.map(|o| (o.key.clone(), o.value.clone())).collect();
            Member { ep, device, options }
        };
        let eps = loaded.into_iter().map(member).collect();
        let chosen = Chosen { eps, named: !args.ep.is_empty(), _host: host };
        match args.ep_option.iter().find(|o| !chosen.names().any(|name| name == o.ep)) {
            Some(o) => {
                let all = names(chosen.names(), 12);
                let message = format!("--ep-option {}.{}: no EP '{}' takes part, there are {all}", o.ep, o.key, o.ep);
                Err(Error::usage(codes::EP_LEFT_OUT, message))
            }
            None => Ok(chosen),
        }
    }

    /// Names in order of preference.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.eps.iter().map(|m| m.ep.name())
    }

    /// The device of an EP.
    pub fn device(&self, ep: &str) -> Option<&str> {
        self.eps.iter().find(|m| m.ep.name() == ep).map(|m| m.device.name.as_str())
    }

    /// An error unless an EP of that name takes part.
    pub fn require(&self, name: &str) -> Result<()> {
        if self.names().any(|n| n == name) {
            return Ok(());
        }
        let message =
            format!("--require-ep {name}: no EP of that name takes part, there are {}", names(self.names(), 12));
        Err(Error::usage(codes::EP_LEFT_OUT, message).try_this("Correct the name, or add the EP with --ep."))
    }

    /// What each EP does by a report.
    pub fn documents(&self, report: &Report) -> Vec<EpDocument> {
        let one = |m: &Member| EpDocument {
            name: m.ep.name().to_owned(),
            version: m.ep.manifest().version.to_string(),
            device: m.device.name.clone(),
            nodes: report.nodes.iter().filter(|n| n.ep.as_deref() == Some(m.ep.name())).count(),
            parts: report.parts.iter().filter(|p| p.ep == m.ep.name()).count(),
        };
        self.eps.iter().map(one).collect()
    }

    /// Opens a model for running. An EP that does not start is left out, unless it was asked for by name or option.
    pub fn open(&self, model: &Path, args: &SessionArgs) -> Result<Session> {
        self.without_failing(args, |builder| builder.build(model))
    }

    /// Where the nodes of a model would run: of a session that was built and let go, or, where some node has no place, by
    /// the first answers of all EPs.
    pub fn place(&self, model: &Path, args: &SessionArgs) -> Result<Report> {
        match self.open(model, args) {
            Err(e) if e.code == UNPLACED.name() => self.without_failing(args, |builder| builder.survey(model)),
            session => session.map(|s| s.report().clone()),
        }
    }

    fn without_failing<T>(
        &self,
        args: &SessionArgs,
        build: impl Fn(SessionBuilder) -> ortolan::Result<T>,
    ) -> Result<T> {
        let options = options(args)?;
        let mut left: Vec<&Member> = self.eps.iter().collect();
        loop {
            let eps = left.iter().map(|m| m.session_ep());
            let error = match build(Session::builder().eps(eps).options(options.clone())) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let failed = left.iter().position(|m| error.is(EP_NEW_FAILED) && error.ep() == Some(m.ep.name()));
            match failed {
                Some(at) if left[at].options.is_empty() && !self.named && left.len() > 1 => {
                    tracing::warn!("an EP takes no part: {error}");
                    left.remove(at);
                }
                // What an EP says to its options is about the arguments.
                Some(at) if !left[at].options.is_empty() => {
                    return Err(Error { status: Status::Usage, ..Error::from(error) });
                }
                _ => return Err(error.into()),
            }
        }
    }
}

fn options(args: &SessionArgs) -> Result<SessionOptions> {
    for (i, (name, size)) in args.dim.iter().enumerate() {
        if let Some((_, other)) = args.dim[..i].iter().find(|(n, s)| n == name && s != size) {
            return Err(Error::usage(codes::ARGUMENT, format!("--dim {name} is given as {other} and as {size}")));
        }
    }
    Ok(SessionOptions { threads: args.threads, dims: args.dim.clone(), ..SessionOptions::default() })
}

type Usable = Vec<(Arc<LoadedEp>, DeviceInfo)>;

/// The EPs that were asked for by name; one that cannot be used is an error.
fn named(host: &PluginHost, requests: &[String]) -> Result<Usable> {
    let mut all: Usable = Vec::new();
    for request in requests {
        let ep = host.load(request)?;
        if all.iter().any(|(other, _)| other.name() == ep.name()) {
            return Err(Error::usage(codes::ARGUMENT, format!("--ep {}: the EP is given twice", ep.name())));
        }
        let device = first_device(&ep)?;
        all.push((ep, device));
    }
    Ok(all)
}

/// All EPs that load and have a device, in the host's order. What the others lack is a log line, and the error if none is left.
fn usable(host: &PluginHost, found: &Found) -> Result<Usable> {
    let mut all: Usable = Vec::new();
    let mut failed: Vec<Error> = found.refused.iter().map(|r| Error::from(r.error.clone())).collect();
    for name in found.names() {
        let loaded = host.load(name).map_err(Error::from).and_then(|ep| Ok((first_device(&ep)?, ep)));
        match loaded {
            Ok((device, ep)) => all.push((ep, device)),
            Err(e) => {
                tracing::warn!("the EP {name} takes no part: {} [{}]", e.message, e.code);
                failed.push(e);
            }
        }
    }
    all.sort_by_key(|(ep, device)| stands_in(ep, device));
    if all.is_empty() { Err(nothing(found, &failed)) } else { Ok(all) }
}

/// Whether an EP for other devices found none and offers the CPU in their place, as drivers that emulate a GPU do.
fn stands_in(ep: &LoadedEp, device: &DeviceInfo) -> bool {
    device.is_cpu() && ep.manifest().device_kinds.iter().any(|kind| kind != "cpu")
}

fn first_device(ep: &LoadedEp) -> Result<DeviceInfo> {
    let list = ep.usable_devices()?;
    let device = list.devices.first().cloned();
    device.ok_or_else(|| {
        Error::new(Status::Plugin, ortolan::host::codes::NO_DEVICE, format!("{} has no device", ep.name()))
    })
}

/// No EP can be used: a clear no if there is none, a plugin's failure if some were found.
fn nothing(found: &Found, failed: &[Error]) -> Error {
    let status = if failed.is_empty() { Status::No } else { Status::Plugin };
    let places: Vec<String> = found.places.iter().map(|p| p.path.display().to_string()).collect();
    let mut message = "no execution provider can be used, and without one no model runs".to_owned();
    for e in failed {
        message += &format!("\n  {} [{}]", e.message, e.code);
    }
    message += &format!("\n  searched: {}", places.join(", "));
    Error::new(status, NO_EPS, message).try_this(
        "Put an EP's library beside the program, or point to it with --ep-path or ORTOLAN_EP_PATH; `ortolan doctor` says more.",
    )
}

/// A model that is ready to run.
pub struct Opened {
    /// The session.
    pub session: Session,
    /// Its EPs.
    pub eps: Chosen,
    /// Its inputs, with the sizes that `--dim` gives.
    pub inputs: Vec<Port>,
    /// What building the session took; finding and loading the EPs is not in it.
    pub load: Duration,
}

impl Opened {
    /// Chooses EPs and builds the session.
    pub fn open(args: &FeedArgs) -> Result<Opened> {
        is_file(&args.model)?;
        let eps = Chosen::of(&args.session)?;
        let start = Instant::now();
        let session = eps.open(&args.model, &args.session)?;
        let load = start.elapsed();
        let inputs = session.inputs().iter().map(Port::from).collect();
        Ok(Opened { session, eps, inputs, load })
    }

    /// Runs once.
    pub fn run(&self, feed: &Feed, options: &RunOptions) -> Result<ortolan::Outputs> {
        Ok(self.session.run_with(feed.iter().map(|(name, value)| (name.as_str(), value)), options)?)
    }
}

/// Names and values of a run's outputs, in the model's order.
pub fn owned(outputs: ortolan::Outputs) -> Vec<(String, Value)> {
    let names: Vec<String> = outputs.iter().map(|(name, _)| name.to_owned()).collect();
    names.into_iter().zip(outputs.into_values()).collect()
}

/// The model's labels for classes, if its metadata has some.
pub fn labels(model: &Path) -> Vec<String> {
    let metadata = || {
        let model = ortolan_graph::proto::decode(&Arc::new(Map::open(model, true).ok()?)).ok()?;
        Some(model.metadata_props.into_iter().map(|p| (p.key, p.value)).collect::<Vec<_>>())
    };
    metadata().map_or_else(Vec::new, |metadata| show::labels(&metadata))
}
