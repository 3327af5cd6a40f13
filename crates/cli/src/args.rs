//! The command line, as clap reads it. Everything after it takes validated configurations.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use batchmaker_cpu::Isa;
use clap::{Args, Parser, Subcommand};

/// Serves recurrent neural networks with cellular batching: requests join and leave the running
/// batch at every step.
#[derive(Debug, Parser)]
#[command(name = "batchmaker", version, arg_required_else_help = true, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(ServeArgs),
    Run(RunArgs),
    Inspect(InspectArgs),
}

/// Serve models over HTTP (Open Inference Protocol)
///
/// Prints one line that begins with `ready` once every port listens. SIGTERM or Ctrl-C answers what
/// was accepted, then ends; a second one ends at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  batchmaker serve                              the models that come with the project
  batchmaker serve tagger.onnx                  an ONNX file, under the name `tagger`
  batchmaker serve models/ --http 0.0.0.0:8000  a folder of models, for the whole network
  batchmaker serve m.onnx --workers 2 --threads-per-worker 1 --max-batch-size 128")]
pub(crate) struct ServeArgs {
    /// ONNX files, model directories, or folders of them [default: the models that come with the
    /// project]
    #[arg(value_name = "MODEL")]
    pub(crate) models: Vec<PathBuf>,

    /// Where to serve HTTP; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub(crate) http: SocketAddr,

    /// Where to serve Prometheus metrics, on /metrics
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8002")]
    pub(crate) metrics: SocketAddr,

    /// The most requests in flight; more are answered with 503
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_requests: u32,

    /// The most memory for the values of requests in flight; more are answered with 503
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 30)]
    pub(crate) max_memory_bytes: usize,

    /// The largest request body, after decompression
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    pub(crate) max_body_bytes: usize,

    /// After SIGTERM, how long to wait for what was accepted
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) grace: u64,

    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

/// Run a model offline over a file
///
/// Reads a request a line and writes a reply a line, in the same order: JSON bodies as over HTTP, or
/// plain text where the model takes text. A line that fails gives `{"error": …}` in its place,
/// and exit status 1 at the end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  echo 'Alle Menschen sind frei' | batchmaker run langid
  batchmaker run tagger.onnx --input requests.jsonl --output replies.jsonl")]
pub(crate) struct RunArgs {
    /// An ONNX file, a model directory, or the name of a model that comes with the project
    pub(crate) model: PathBuf,

    /// Requests, one a line; - is standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(crate) input: PathBuf,

    /// Replies, one a line; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(crate) output: PathBuf,

    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

/// Show how a model is cut into cells, or everything that keeps it from being served
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  batchmaker inspect langid
  batchmaker inspect tagger.onnx --json")]
pub(crate) struct InspectArgs {
    /// An ONNX file, a model directory, or the name of a model that comes with the project
    pub(crate) model: PathBuf,

    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) batch: BatchArgs,
}

/// What `serve` and `run` compute with.
#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// Workers; each runs batches of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) workers: u16,

    /// Threads of each worker [default: the cores, shared out]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads_per_worker: Option<u16>,

    #[command(flatten)]
    pub(crate) batch: BatchArgs,

    /// The most batches that a worker is given at once (MaxTasksToSubmit)
    #[arg(long, value_name = "N", default_value_t = batchmaker_manager::Config::MAX_TASKS_TO_SUBMIT, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_tasks_to_submit: u32,

    /// Instruction set, for bug reports: avx512, avx2 or scalar [default: the best there is]
    #[arg(long)]
    pub(crate) isa: Option<Isa>,
}

/// Batch limits.
#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    /// The most rows in a batch, of all cells or of one; repeatable
    #[arg(long, value_name = "N|CELL=N")]
    pub(crate) max_batch_size: Vec<BatchLimit>,
}

/// `N` or `CELL=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchLimit {
    pub(crate) cell: Option<String>,
    pub(crate) limit: u32,
}

impl FromStr for BatchLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (cell, number) = match text.rsplit_once('=') {
            Some((cell, number)) => (Some(cell.to_owned()), number),
            None => (None, text),
        };
        let limit = number.parse().ok().filter(|&limit| limit > 0);
        let limit = limit.ok_or_else(|| format!("'{number}' is not a number of rows from 1 up"))?;
        Ok(Self { cell, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn batch_limits() {
        let limit = |text: &str| text.parse::<BatchLimit>();
        assert_eq!(limit("8"), Ok(BatchLimit { cell: None, limit: 8 }));
        let cell = Some("a=b".to_owned());
        assert_eq!(limit("a=b=8"), Ok(BatchLimit { cell, limit: 8 }));
        assert!(limit("0").is_err() && limit("x=").is_err());
    }
}
