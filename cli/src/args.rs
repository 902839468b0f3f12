//! The command line's words: commands, flags, and how their values are read.
//!
//! Scripts outside this repository call it, so flags keep name and meaning. Nothing here opens a file.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand};

/// Runs ONNX models on execution providers (EPs), which are libraries of their own.
#[derive(Parser, Debug)]
#[command(name = "ortolan", version, arg_required_else_help = true)]
#[command(after_help = "Exit status: 0 done or yes; 1 a clear no; 2 bad usage or input; 3 a plugin failed.\n\
    Results go to standard output, errors to standard error. ORTOLAN_LOG=debug shows decisions,\n\
    ORTOLAN_EP_PATH names folders with EPs.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a model once and show its outputs
    Run(RunArgs),
    /// Measure how long runs of a model take
    Bench(BenchArgs),
    /// Show what a model says of itself; needs no EP
    Inspect(InspectArgs),
    /// Show which EP would run each node, without running any
    Check(CheckArgs),
    /// Run the standard's test cases, or others of their form, and compare with their outputs
    Conformance(ConformanceArgs),
    /// List, describe and verify EPs
    #[command(subcommand)]
    Ep(EpCommand),
    /// Show what was found on this machine, and what was refused and why
    Doctor(DoctorArgs),
    /// Explain a code such as the one at the end of an error
    Explain(ExplainArgs),
}

/// Which EPs to look for, and where.
#[derive(Args, Debug, Clone, Default)]
pub struct SearchArgs {
    /// Look for EPs here first: a library or a folder of libraries
    #[arg(long = "ep-path", value_name = "PATH", help_heading = "Execution providers")]
    pub ep_path: Vec<PathBuf>,
    /// Refuse EPs that belong to another user, rather than warn
    #[arg(long, help_heading = "Execution providers")]
    pub strict: bool,
}

/// Which EPs take part in a session.
#[derive(Args, Debug, Clone, Default)]
pub struct SessionArgs {
    /// Use this EP, in order of preference, optionally in a version such as cpu@^0.1
    ///
    /// Without it all EPs that are found take part, accelerators first.
    #[arg(long = "ep", value_name = "NAME[@REQ]", help_heading = "Execution providers")]
    pub ep: Vec<String>,
    /// Set an option of an EP
    #[arg(long = "ep-option", value_name = "NAME.KEY=VALUE", value_parser = ep_option, help_heading = "Execution providers")]
    pub ep_option: Vec<EpOption>,
    #[command(flatten)]
    pub search: SearchArgs,
    /// Take this size for every input dimension of that name
    #[arg(long = "dim", value_name = "NAME=N", value_parser = dim)]
    pub dim: Vec<(String, i64)>,
    /// Threads that compute [default: the processors that this process may use]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
}

/// What goes into a run and where its results go.
#[derive(Args, Debug, Clone)]
pub struct FeedArgs {
    /// The model file
    pub model: PathBuf,
    /// Give an input: .npy, .pb, .json, .png or .pgm
    ///
    /// .npy        a numpy array
    /// .pb         a TensorProto
    /// .json       sequences, optionals, maps, texts
    /// .png .pgm   a picture, brought to the input's channels (1 or 3) and size by averaging boxes;
    ///             float inputs get 0 to 1, uint8 inputs 0 to 255
    #[arg(long = "input", value_name = "NAME=FILE", value_parser = assignment, verbatim_doc_comment)]
    pub input: Vec<String>,
    /// Fill the inputs that no --input gives with seeded random numbers; unnamed sizes become 1
    #[arg(long)]
    pub random_inputs: bool,
    /// Seed of --random-inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub session: SessionArgs,
    /// Write each output to a file in this folder: .npy, .pb for types that npy lacks, .json for the rest
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// Stop a run after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    pub timeout: Option<Duration>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// `ortolan run`
#[derive(Args, Debug, Clone)]
pub struct RunArgs {
    #[command(flatten)]
    pub feed: FeedArgs,
    /// Write when each kernel ran, in Chrome's trace format
    #[arg(long, value_name = "FILE.json")]
    pub profile: Option<PathBuf>,
}

/// `ortolan bench`
#[derive(Args, Debug, Clone)]
pub struct BenchArgs {
    #[command(flatten)]
    pub feed: FeedArgs,
    /// Runs before measuring, after the first one
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warmup: u32,
    /// Runs to measure
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Profile more runs: the ten longest nodes on standard error, or a trace of one with --profile=FILE.json
    #[arg(long, value_name = "FILE.json", num_args = 0..=1, require_equals = true)]
    #[allow(clippy::option_option, reason = "clap's form of a flag whose value may be left out")]
    pub profile: Option<Option<PathBuf>>,
}

/// `ortolan inspect`
#[derive(Args, Debug, Clone)]
pub struct InspectArgs {
    /// The model file
    pub model: PathBuf,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// `ortolan check`
#[derive(Args, Debug, Clone)]
pub struct CheckArgs {
    /// The model file, or a folder of them
    pub model: PathBuf,
    #[command(flatten)]
    pub session: SessionArgs,
    /// Say no unless this EP runs every node, or as many as --max-fallback-nodes leaves
    #[arg(long, value_name = "NAME")]
    pub require_ep: Option<String>,
    /// Say no if more nodes than this run on another EP than the first (or the required) one
    #[arg(long, value_name = "N")]
    pub max_fallback_nodes: Option<usize>,
    /// Say no if a run would copy more values than this between memories
    #[arg(long, value_name = "N")]
    pub max_copies: Option<usize>,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// `ortolan ep`
#[derive(Subcommand, Debug)]
pub enum EpCommand {
    /// List the EPs that are found, the places that are searched and what is refused
    List(EpListArgs),
    /// Show an EP's manifest and operators, without running any of its code
    Info(EpInfoArgs),
    /// Make all checks on a library and print each
    Verify(EpVerifyArgs),
}

/// `ortolan ep list`
#[derive(Args, Debug, Clone)]
pub struct EpListArgs {
    #[command(flatten)]
    pub search: SearchArgs,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// `ortolan ep info`
#[derive(Args, Debug, Clone)]
pub struct EpInfoArgs {
    /// The EP, optionally in a version such as cpu@^0.1
    #[arg(value_name = "NAME[@REQ]")]
    pub name: String,
    #[command(flatten)]
    pub search: SearchArgs,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// `ortolan ep verify`
#[derive(Args, Debug, Clone)]
pub struct EpVerifyArgs {
    /// The library
    pub file: PathBuf,
    /// Refuse a library that belongs to another user, rather than warn
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// `ortolan conformance`
#[derive(Args, Debug, Clone)]
pub struct ConformanceArgs {
    /// A folder of cases, each a folder with model.onnx and test_data_set_0, 1 …, or one case
    pub folder: PathBuf,
    /// Run only cases whose names hold this text
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Cases that are set aside: lines of NAME: EVIDENCE, and one of "at least N pass"
    #[arg(long, value_name = "FILE")]
    pub expect: Option<PathBuf>,
    /// Relative difference that is let pass, or two steps of a 16-bit type if that is more
    #[arg(long, value_name = "R", default_value_t = 1e-3)]
    pub rtol: f64,
    /// Absolute difference that is let pass
    #[arg(long, value_name = "A", default_value_t = 1e-5)]
    pub atol: f64,
    #[command(flatten)]
    pub session: SessionArgs,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// `ortolan doctor`
#[derive(Args, Debug, Clone)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub search: SearchArgs,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
}

/// `ortolan explain`
#[derive(Args, Debug, Clone)]
pub struct ExplainArgs {
    /// The code
    pub code: String,
    /// Print one JSON document and nothing else
    #[arg(long, action = ArgAction::SetTrue)]
    pub json: bool,
}

/// One `--ep-option`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpOption {
    /// Name of the EP.
    pub ep: String,
    /// Name of the option.
    pub key: String,
    /// Its value; may be empty.
    pub value: String,
}

/// `NAME=FILE`: checked here, taken apart where the model's input names are known, because names may hold `=`.
fn assignment(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, rest)) if !name.is_empty() && !rest.is_empty() => Ok(text.to_owned()),
        _ => Err("it should be NAME=FILE, such as image=photo.png".into()),
    }
}

/// `NAME=N`; the name may hold `=`, the number can't.
fn dim(text: &str) -> Result<(String, i64), String> {
    let wrong = || "it should be NAME=N with a whole number that is not negative, such as batch=4".to_owned();
    let (name, number) = text.rsplit_once('=').ok_or_else(wrong)?;
    match number.parse::<i64>() {
        Ok(n) if n >= 0 && !name.is_empty() => Ok((name.to_owned(), n)),
        _ => Err(wrong()),
    }
}

/// `NAME.KEY=VALUE`; names of EPs have no dot, the key may.
fn ep_option(text: &str) -> Result<EpOption, String> {
    let parts = text.split_once('.').and_then(|(ep, rest)| Some((ep, rest.split_once('=')?)));
    match parts {
        Some((ep, (key, value))) if !ep.is_empty() && !key.is_empty() => {
            Ok(EpOption { ep: ep.to_owned(), key: key.to_owned(), value: value.to_owned() })
        }
        _ => Err("it should be NAME.KEY=VALUE, such as cpu.isa=avx2".into()),
    }
}

/// Seconds, more than none.
fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "it should be a number of seconds above 0, such as 2.5".to_owned();
    let number: f64 = text.parse().map_err(|_| wrong())?;
    match Duration::try_from_secs_f64(number) {
        Ok(d) if !d.is_zero() => Ok(d),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn values_are_read_to_the_letter() {
        assert_eq!(dim("batch=4"), Ok(("batch".into(), 4)));
        assert_eq!(dim("a=b=0"), Ok(("a=b".into(), 0)));
        for text in ["batch", "batch=", "=3", "batch=-1", "batch=1.5", "batch=99999999999999999999"] {
            assert!(dim(text).is_err(), "{text}");
        }
        let option =
            |ep: &str, key: &str, value: &str| EpOption { ep: ep.into(), key: key.into(), value: value.into() };
        assert_eq!(ep_option("cpu.isa=avx2"), Ok(option("cpu", "isa", "avx2")));
        assert_eq!(ep_option("cpu.a.b=x=y"), Ok(option("cpu", "a.b", "x=y")));
        assert_eq!(ep_option("cpu.a="), Ok(option("cpu", "a", "")));
        for text in ["cpu", "cpu.isa", ".isa=1", "cpu.=1", "isa=1.5"] {
            assert!(ep_option(text).is_err(), "{text}");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "x", "NaN", "inf", "1e300"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        for text in ["a", "=f", "a="] {
            assert!(assignment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn profile_of_bench_may_lack_its_value() {
        let profile = |args: &[&str]| match Cli::try_parse_from(args).unwrap().command {
            Command::Bench(b) => (b.feed.model, b.profile),
            _ => panic!("not bench"),
        };
        assert_eq!(profile(&["ortolan", "bench", "--profile", "m.onnx"]), ("m.onnx".into(), Some(None)));
        assert_eq!(profile(&["ortolan", "bench", "m.onnx", "--profile=p.json"]).1, Some(Some("p.json".into())));
        assert_eq!(profile(&["ortolan", "bench", "m.onnx"]).1, None);
    }
}
