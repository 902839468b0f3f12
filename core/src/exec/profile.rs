//! What a profiled run took: steps of the plan and the kernels that EPs report, as a trace that Perfetto opens.

use std::collections::BTreeSet;
use std::io::{self, Write};

use ortolan_ep_abi::raw::NONE;
use serde_json::json;

use crate::abi::{EVENTS, Kernel};

/// Everything that happened in one run.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// In the order in which they ended.
    pub events: Vec<ProfileEvent>,
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileEvent {
    /// Kernel, or what the host did.
    pub name: String,
    /// The EP, or `host`.
    pub ep: String,
    /// Number of the graph's node, the first if the kernel stands for several; none for what the host did.
    pub node: Option<u32>,
    /// The nodes, for people.
    pub place: String,
    /// Worker, 0 is the caller.
    pub worker: u32,
    /// On the host's clock, in ns.
    pub start_ns: u64,
    /// Duration in ns.
    pub dur_ns: u64,
    /// Floating-point operations, 0 if not counted.
    pub flops: u64,
    /// Bytes read and written, 0 if not counted.
    pub bytes: u64,
}

impl Profile {
    /// Writes the trace-event format of Chrome and Perfetto: one track per worker, times in µs, parts around their kernels.
    pub fn write_trace(&self, mut to: impl Write) -> io::Result<()> {
        let named = |what: &str, tid: u32, name: &str| json!({ "name": what, "ph": "M", "pid": 1, "tid": tid, "args": { "name": name } });
        write!(to, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}", named("process_name", 0, "ortolan"))?;
        let workers: BTreeSet<u32> = self.events.iter().map(|e| e.worker).collect();
        for worker in workers {
            let name = if worker == 0 { "caller".to_owned() } else { format!("worker {worker}") };
            write!(to, ",\n{}", named("thread_name", worker, &name))?;
        }
        let start = self.events.iter().map(|e| e.start_ns).min().unwrap_or(0);
        for e in &self.events {
            let rate = |n: u64| if e.dur_ns == 0 { 0.0 } else { n as f64 / e.dur_ns as f64 };
            let event = json!({
                "name": e.name, "cat": e.ep, "ph": "X", "pid": 1, "tid": e.worker,
                "ts": (e.start_ns - start) as f64 / 1000.0, "dur": e.dur_ns as f64 / 1000.0,
                "args": { "node": e.place, "gflops": rate(e.flops), "gbps": rate(e.bytes) },
            });
            write!(to, ",\n{event}")?;
        }
        to.write_all(b"\n]}\n")
    }
}

/// Collects during a run; numbers become names afterwards.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub events: Vec<Recorded>,
}

#[derive(Debug)]
pub(crate) struct Recorded {
    /// The part whose EP it was; none for the host.
    pub part: Option<u32>,
    pub kernel: Kernel,
}

impl Recorder {
    pub fn kernels(&mut self, part: u32, kernels: impl IntoIterator<Item = Kernel>) {
        let room = EVENTS.saturating_sub(self.events.len());
        self.events.extend(kernels.into_iter().take(room).map(|kernel| Recorded { part: Some(part), kernel }));
    }

    pub fn host(&mut self, name: &str, part: Option<u32>, start_ns: u64, bytes: u64) {
        let dur_ns = crate::abi::now().saturating_sub(start_ns);
        let name = name.to_owned();
        let kernel = Kernel { name, node: NONE, worker: 0, start_ns, dur_ns, flops: 0, bytes };
        self.events.push(Recorded { part, kernel });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_json_with_times_from_zero() {
        let event = |name: &str, start_ns| ProfileEvent {
            name: name.into(),
            ep: "a\"b".into(),
            node: Some(3),
            place: "node 'x' (Add)".into(),
            worker: 1,
            start_ns,
            dur_ns: 500,
            flops: 1000,
            bytes: 0,
        };
        let profile = Profile { events: vec![event("late", 3000), event("early", 1000)] };
        let mut text = Vec::new();
        profile.write_trace(&mut text).unwrap();
        let trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let names = [0, 1].map(|at| (events[at]["ph"].as_str(), events[at]["args"]["name"].as_str()));
        assert_eq!(names, [(Some("M"), Some("ortolan")), (Some("M"), Some("worker 1"))]);
        assert_eq!((events[2]["ts"].as_f64(), events[3]["ts"].as_f64()), (Some(2.0), Some(0.0)));
        assert_eq!((events[2]["tid"].as_u64(), events[2]["args"]["gflops"].as_f64()), (Some(1), Some(2.0)));
        assert_eq!(events[3]["cat"], "a\"b");
        assert_eq!(events.len(), 4);
    }
}
