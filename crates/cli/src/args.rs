//! The command line, as clap reads it. Everything after it takes validated configurations.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use batchmaker::{EngineBuilder, Goal, Isa, Policy, Precision, WORKERS_MAX};
use batchmaker_bench::{Qos, Workload};

use clap::{Args, Parser, Subcommand};

use crate::device_args::DeviceArgs;
use crate::measured_policy::MeasuredPolicy;
use crate::quantities::{address, bytes, duration, period};
use crate::scoped::{BatchLimit, OfCell, OfModel, share};

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
    Bench(BenchArgs),
    Profile(ProfileArgs),
}

/// The heading of flags that bound what clients may do.
const CLIENTS: &str = "Limits of clients";

/// The heading of flags for who is served first.
const FAIRNESS: &str = "Who is served first";

fn head_bytes(text: &str) -> Result<u32, String> {
    let size = bytes(text)?;
    let is_allowed = (8 << 10..=16 << 20).contains(&size);
    is_allowed.then_some(size as u32).ok_or_else(|| "expected 8KiB to 16MiB".to_owned())
}

/// Serve models over HTTP (Open Inference Protocol)
///
/// Prints one line that begins with `ready` once every port listens. SIGTERM or Ctrl-C answers what
/// was accepted, then ends; a second one ends at once. Models are read once: to serve changed files, start again
/// (SIGHUP changes nothing).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  batchmaker serve                              the models that come with the project
  batchmaker serve tagger.onnx                  an ONNX file, under the name `tagger`
  batchmaker serve models/ --http 0.0.0.0:8000  a folder of models, for the whole network
  batchmaker serve m.onnx --http 9000 --metrics 9002 --max-memory-bytes 2GiB --session-idle 10m
  batchmaker serve m.onnx --workers 2 --threads-per-worker 1 --max-batch-size 128
  batchmaker serve m.onnx --device cuda:0,1     on two NVIDIA GPUs, a worker each
  batchmaker serve m.onnx --device cuda --gpu-kernels quanta
                                                with recurrent weights in a GPU's registers from task to task")]
pub(crate) struct ServeArgs {
    /// ONNX files, model directories, or folders of them [default: the models that come with the
    /// project]
    #[arg(value_name = "MODEL")]
    pub(crate) models: Vec<PathBuf>,

    /// The address to serve HTTP on: a port of this machine alone, such as 8000, or an address and a port, such as
    /// 0.0.0.0:8000 for the whole network; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000", value_parser = address)]
    pub(crate) http: SocketAddr,

    /// The address to serve Prometheus metrics on, under /metrics; written as for --http
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8002", value_parser = address)]
    pub(crate) metrics: SocketAddr,

    /// The most requests in flight; more are answered with 503
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_requests: u32,

    /// The most requests in flight to one model; more are answered with 503 [default: all where there is one
    /// model, three quarters of --max-requests where there are several]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_requests_per_model: Option<u32>,

    /// The most memory for requests, from their first byte to the last of their replies, for sessions and for
    /// connections, such as 512MiB, 4GB or 4294967296. Requests that do not fit wait a moment, then are answered
    /// with 503; those that never could with 413 [default: half of the memory of the machine or container]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(crate) max_memory_bytes: Option<usize>,

    /// The most sessions (sequences that come in chunks) that hold state; more are answered with 503
    #[arg(long, value_name = "N", default_value_t = 4096)]
    pub(crate) max_sessions: u32,

    /// The time that a session may be idle before it ends and its state is dropped: seconds, or a duration such as
    /// 90s, 5m or 1h
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = period)]
    pub(crate) session_idle: Duration,

    /// The largest request body, after decompression, such as 64MiB or 100MB
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = bytes)]
    pub(crate) max_body_bytes: usize,

    /// The time limit of requests that set no `timeout`: seconds, or a duration such as 500ms; 0: none
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = duration)]
    pub(crate) timeout: Duration,

    /// The time that a request waits for memory before it is answered with 503: seconds, or a duration such as 200ms
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = duration)]
    pub(crate) memory_wait: Duration,

    /// The most connections to the port for requests. Where there are as many, the one that has been idle for longest
    /// makes room; where none is idle, a few more can ask for the server's health [default: the limit of open files
    /// less 128, what a quarter of the memory holds, and 8192 at most]
    #[arg(long, value_name = "N", help_heading = CLIENTS, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections: Option<u32>,

    /// The most connections from one address; requests on others are answered with 429 [default: any number]
    #[arg(long, value_name = "N", help_heading = CLIENTS, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_connections_per_client: Option<u32>,

    /// The most requests at a time of one HTTP/2 connection
    #[arg(long, value_name = "N", help_heading = CLIENTS, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) max_streams: u32,

    /// The largest head of a request, from 8KiB to 16MiB; a quarter of it with HTTP/2
    #[arg(long, value_name = "BYTES", help_heading = CLIENTS, default_value = "16KiB", value_parser = head_bytes)]
    pub(crate) max_head_bytes: u32,

    /// The time that a body may take in all: seconds, or a duration such as 10m
    #[arg(long, value_name = "SECONDS", help_heading = CLIENTS, default_value = "300", value_parser = period)]
    pub(crate) body_time: Duration,

    /// The time that a client may take nothing of its reply before its connection is closed
    #[arg(long, value_name = "SECONDS", help_heading = CLIENTS, default_value = "30", value_parser = period)]
    pub(crate) reply_timeout: Duration,

    /// The least rate at which bodies must come and replies must be taken, in bytes a second; 0: any
    #[arg(long, value_name = "N", help_heading = CLIENTS, default_value_t = 1024)]
    pub(crate) min_rate: u64,

    /// The policy by which requests share batches, of all models or of one; repeatable: cellular; staged, for models without recurrence;
    /// or padded, merged, zero or delay to compare with (see bench --help) [default: cellular]
    #[arg(long, value_name = "POLICY|MODEL=POLICY")]
    pub(crate) policy: Vec<OfModel<Policy>>,

    /// The weight of a model, as MODEL=N; repeatable. Models that have work share the workers' time in proportion to
    /// their weights [default: 1 each]
    #[arg(long = "share", value_name = "MODEL=N", help_heading = FAIRNESS, value_parser = share)]
    pub(crate) shares: Vec<(String, u32)>,

    /// The age from which on a request goes first, whatever the priorities of others; 0: priorities are strict
    #[arg(long, value_name = "SECONDS", help_heading = FAIRNESS, default_value = "10", value_parser = duration)]
    pub(crate) priority_aging: Duration,

    /// How long cells without a full batch may be passed over by cells with one; 0: for ever [default: 0.01 where
    /// there are several models, else 0; 0.002 at most while a large request that fills batches is in flight]
    #[arg(long, value_name = "SECONDS", help_heading = FAIRNESS, value_parser = duration)]
    pub(crate) patience: Option<Duration>,

    /// The number of cells from which on a request is large, so that smaller ones pass it; 0: order of arrival
    #[arg(long, value_name = "N", help_heading = FAIRNESS, default_value_t = 256)]
    pub(crate) large_rows: u32,

    /// The rules of the BatchMaker paper alone: the oldest request decides between models, priorities are strict, and
    /// requests are served in order of arrival
    #[arg(long, help_heading = FAIRNESS, conflicts_with_all = ["shares", "priority_aging", "patience", "large_rows"])]
    pub(crate) paper_rules: bool,

    /// Profile models that have no profile, while nobody asks for anything; kept beside each model, and
    /// taken at once
    #[arg(long)]
    pub(crate) calibrate: bool,

    /// How long a worker's device may have work and report nothing before /v2/health/live answers 503; 20 times its
    /// longest silence so far if that is longer
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = period)]
    pub(crate) hung_after: Duration,

    /// After SIGTERM, how long to take requests as before while the server says that it is not ready, so that load
    /// balancers can notice: seconds, or a duration such as 5s
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = duration)]
    pub(crate) drain_delay: Duration,

    /// After --drain-delay, how long to wait for accepted requests before they are broken off: seconds, or a duration
    /// such as 500ms or 2m
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = duration)]
    pub(crate) grace: Duration,

    /// Log which parameters of requests are ignored, because they have no meaning here
    #[arg(long)]
    pub(crate) log_details: bool,

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
    pub(crate) device: DeviceArgs,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,

    #[command(flatten)]
    pub(crate) cells: CellArgs,
}

/// Measure latency and throughput under a load
///
/// Requests arrive as a Poisson process, whatever becomes of those before (open loop), and latency
/// counts from when a request should have been sent. Several policies take turns on the same
/// requests. Without --url the engine runs in this process, and the report says where time went.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("load").required(true))]
#[command(after_help = "\
Workloads (lengths of sequences):
  europarl       of English sentences, as a log-normal: 1 to 330, mean 24
  europarl:MAX   the same, those over MAX drawn again
  fixed:LEN      all alike; of a model of trees, the complete tree of LEN leaves
  file:PATH      of the lines of a file, in words; of a model of trees, a labelled tree a line,
                 as (3 (2 not) (3 (3 very) (2 bad)))
  pairs:SOURCE:TARGET  of the lines of one file, in words; a decoder runs as many steps as the
                 same line of the other has words

Policies:
  cellular              requests join and leave the batch at every step
  padded[:WIDTH][:own]  buckets of WIDTH lengths (10), padded to the bucket's bound or,
                        with :own, to the batch's own longest
  merged[:GRAPHS]       batches of up to GRAPHS requests (64), merged level by level
  staged[:OPTION…]      of a model without recurrence: batches go through the stages that `profile`
                        cut it into, between which requests are added to them or they are split. What
                        is not given follows from the profile: input, operator or load for the policy,
                        batch=N the most requests of a batch, active=N of all batches (no bound),
                        pairs=N the batches that a stage may run ahead (2), pipelines=N the batches
                        that a stage may run at a time (one for each worker), window=TIME to wait for
                        others, stretch=TIME after which nobody is added to a batch (0: nobody is),
                        split=PERCENT by which halves must be faster than a whole, or split=never
  zero[:batch=N]        of a model without recurrence: those that wait, up to N (64), share a batch from
                        its start to its end
  delay:window=TIME[:batch=N]  the same, but the first of a batch waits that long for others
  zero:padded[:batch=N], delay:padded:window=TIME[:batch=N]
                        such batches are padded to their longest request and run as one request of many
                        sequences, as behind a framework's batcher

Examples:
  batchmaker bench lstm.onnx --saturate
  batchmaker bench lstm.onnx --rate 400 --requests 12000 --policy cellular --policy padded:10
  batchmaker bench lstm.onnx --sweep 100,200,300,400 --policy cellular --policy padded --plot l.svg
  batchmaker bench ocr.onnx --replay requests.jsonl --saturate --in-flight 8
  batchmaker bench tree --workload file:trees.txt --saturate --policy cellular --policy merged
  batchmaker bench bert.onnx --saturate --policy cellular --policy staged:batch=8:stretch=20ms
  batchmaker bench unet.onnx --shares 0.25,0.6,0.9 --policy zero --policy staged
  batchmaker bench unet.onnx --peak --policy zero --policy delay:window=5ms --policy delay:window=20ms
  batchmaker bench bert.onnx --replay sentences.jsonl --saturate --policy zero:batch=8 --policy zero:padded:batch=8
  batchmaker bench unet.onnx --stepping 10:20s,60:20s,10:20s --policy zero --policy staged --write-latencies l.jsonl
  batchmaker bench unet.onnx --saturate --in-flight 1     a closed loop: one client, who waits for each reply
  batchmaker bench langid --rate 1000 --url http://127.0.0.1:8000 --json")]
pub(crate) struct BenchArgs {
    /// An ONNX file, a model directory, or the name of a model that comes with the project; with
    /// --url, the name that it is served under
    pub(crate) model: PathBuf,

    /// The lengths of sequences
    #[arg(long, value_name = "WORKLOAD", default_value = "europarl")]
    pub(crate) workload: Workload,

    /// The requests of this file, again and again, instead of drawn ones: a line each, as `run` takes them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workload", "url", "write_trace"])]
    pub(crate) replay: Option<PathBuf>,

    /// Requests a second
    #[arg(long, value_name = "RATE", group = "load", value_parser = rate)]
    pub(crate) rate: Option<f64>,

    /// Keep requests waiting at all times (4 times the largest batch limit in flight)
    #[arg(long, group = "load")]
    pub(crate) saturate: bool,

    /// Several rates, one after the other
    #[arg(long, value_name = "RATE,…", group = "load", value_delimiter = ',', value_parser = rate)]
    pub(crate) sweep: Vec<f64>,

    /// The highest rate of each policy at which --qos is kept, by search: which window of `delay` is best, say
    #[arg(long, group = "load", conflicts_with_all = ["plot", "plot_times", "kernel_rate", "write_trace"])]
    pub(crate) peak: bool,

    /// Rates that are these shares of the first policy's peak, which is searched first
    #[arg(long, value_name = "SHARE,…", group = "load", value_delimiter = ',', value_parser = rate, conflicts_with = "write_trace")]
    pub(crate) shares: Vec<f64>,

    /// One run at several rates, each for a time: 20:10s,80:10s,20:10s
    #[arg(long, value_name = "RATE:TIME,…", group = "load", value_delimiter = ',', value_parser = step)]
    pub(crate) stepping: Vec<(f64, Duration)>,

    /// The quality of service that a peak keeps: p50, p90 or p99 of latencies within milliseconds
    #[arg(long, value_name = "QOS", default_value = "p99:200ms")]
    pub(crate) qos: Qos,

    /// The time that each policy and rate is measured, unless --requests says otherwise: seconds, or a duration such
    /// as 500ms or 2m
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = period)]
    pub(crate) seconds: Duration,

    /// Requests of each policy and rate [default: as many as --seconds take]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) requests: Option<u32>,

    /// The policy by which requests share batches; repeatable [default: cellular]
    #[arg(long, value_name = "POLICY")]
    pub(crate) policy: Vec<MeasuredPolicy>,

    /// In how many turns policies are measured [default: 3 of several policies, and with
    /// --kernel-rate]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) turns: Option<u16>,

    /// The seed of lengths, arrivals and inputs
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Send the requests to this server
    #[arg(long, value_name = "URL", conflicts_with_all = [
        "policy", "workers", "threads_per_worker", "max_batch_size", "precision",
        "profile", "goal", "max_tasks_to_submit", "device", "isa",
    ])]
    pub(crate) url: Option<String>,

    /// The number of requests that --saturate keeps in flight [default: 4 times the largest batch limit;
    /// with --url 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) in_flight: Option<u32>,

    /// A JSON object a policy and rate, each on a line, instead of the table
    #[arg(long)]
    pub(crate) json: bool,

    /// Also measure each cell alone, between the turns, and tell how much of the compute threads'
    /// time went into cells at that rate
    #[arg(long, conflicts_with = "url")]
    pub(crate) kernel_rate: bool,

    /// Draw latency against throughput, as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,

    /// Write the latency of each request, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) write_latencies: Option<PathBuf>,

    /// Draw the distributions of queue and compute time, as SVG
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sweep", "url"])]
    pub(crate) plot_times: Option<PathBuf>,

    /// Write the requests' lengths and arrival times instead, as JSON lines
    #[arg(long, value_name = "FILE", conflicts_with = "sweep")]
    pub(crate) write_trace: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) machine: MachineArgs,
}

/// Measure a model's cells on this machine, and choose how to run them
///
/// Cells are measured in each precision over sizes of batch. For recurrent cells, a performance model ranks the
/// configurations, and the best few are run. The result goes to a file beside the model, where `serve`, `run` and
/// `bench` find it: how to run batches, how large they may be, and, if --max-error allows one, a faster
/// precision of weights.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  batchmaker profile lstm.onnx                          f32, bf16 and int8, times and errors
  batchmaker profile lstm.onnx --plot lstm.svg          the figure of time over throughput
  batchmaker profile lstm.onnx --max-error 0.01         serve it in the fastest precision within 1 %
  batchmaker profile encoder.onnx --operators           each operator of its programs too
  batchmaker profile langid --requests text.txt         errors on these requests, a line each
  batchmaker serve lstm.onnx --goal p90:20              batches for 90 % of replies within 20 ms")]
pub(crate) struct ProfileArgs {
    /// An ONNX file, a model directory, or the name of a model that comes with the project
    pub(crate) model: PathBuf,

    /// The file to write [default: profile.json beside the model, or here for one that comes with the
    /// project]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// The precisions to measure
    #[arg(long, value_name = "P,…", value_delimiter = ',', default_value = "f32,bf16,int8")]
    pub(crate) precision: Vec<Precision>,

    /// Serve each cell in the fastest precision, as long as all of them together change no number of
    /// these replies by more than this, over the largest of its tensor, and none of their ids and texts
    /// [default: serve in f32]
    #[arg(long, value_name = "E", value_parser = max_error)]
    pub(crate) max_error: Option<f64>,

    /// The goal that the table's last line is for (see serve --help)
    #[arg(long, value_name = "GOAL", default_value_t = Goal::Throughput)]
    pub(crate) goal: Goal,

    /// Steps of each sequence that cells over whole sequences are measured with [default: 64, or as many as a cell takes]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) steps: Option<usize>,

    /// Measure programs operator by operator too, in batches of N rows or sequences: the time of each operator, its
    /// share of the cell's, and how much of that time the machine's arithmetic and memory take at least
    #[arg(
        long, value_name = "N", num_args = 0..=1, default_missing_value = "1",
        value_parser = clap::value_parser!(u32).range(1..=4096),
    )]
    pub(crate) operators: Option<u32>,

    /// Cut a model without recurrence into N stages, for the policy `staged`; 1: not at all [default: as many as take no longer than the
    /// whole, up to 8, if batches would be stretched or split between them; else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) stages: Option<u8>,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,

    /// Requests to measure errors on, a line each as for `run` [default: random ones]
    #[arg(long, value_name = "FILE")]
    pub(crate) requests: Option<PathBuf>,

    /// Lengths of random requests (see bench --help) [default: europarl:60; of trees, 13 leaves or a
    /// few more]
    #[arg(long, value_name = "WORKLOAD")]
    pub(crate) workload: Option<Workload>,

    /// The seed of random requests
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Draw the time of a batch over throughput, as SVG; with several cells, a file for each; and of the stages, NAME-stages.svg
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,

    /// Threads of the worker to measure [default: as for serve]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads_per_worker: Option<u16>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Instruction set, for bug reports: amx, avx512, avx2 or scalar [default: the best there is]
    #[arg(long)]
    pub(crate) isa: Option<Isa>,
}

fn positive(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=1 << 24).contains(number));
    number.ok_or_else(|| "expected a number from 1 to 16777216".to_owned())
}

fn max_error(text: &str) -> Result<f64, String> {
    let error = text.parse().ok().filter(|error: &f64| (0.0..=1.0).contains(error));
    error.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

/// A step of `--stepping`.
fn step(text: &str) -> Result<(f64, Duration), String> {
    let expected = || "expected RATE:TIME, such as 80:10s".to_owned();
    let (of, time) = text.split_once(':').ok_or_else(expected)?;
    Ok((rate(of)?, period(time)?))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "expected requests a second, above 0".to_owned())
}

/// The options of computation that `serve`, `run` and `bench` share.
#[derive(Debug, Args)]
pub(crate) struct MachineArgs {
    /// Workers; each runs batches of its own [default: one a core, or one of all cores where the
    /// weights of a cell that runs step by step exceed 16 MiB, or a model's 24 MiB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(WORKERS_MAX)))]
    pub(crate) workers: Option<u16>,

    /// Threads of each worker [default: the cores, shared out]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads_per_worker: Option<u16>,

    #[command(flatten)]
    pub(crate) cells: CellArgs,

    /// A file that `profile` wrote [default: profile.json beside each model, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,

    /// The goal for which a profile chooses batch limits and the submission window:
    /// throughput, latency, p90:MS or p90:MS:STEPS: 90 % of requests of up to STEPS steps (50) within MS
    /// milliseconds
    #[arg(long, value_name = "GOAL", default_value_t = Goal::Throughput)]
    pub(crate) goal: Goal,

    /// The most batches that a worker is given at once (MaxTasksToSubmit)
    #[arg(long, value_name = "N", default_value_t = EngineBuilder::MAX_TASKS_TO_SUBMIT, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_tasks_to_submit: u32,

    #[command(flatten)]
    pub(crate) executor: ExecutorArgs,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Instruction set, for bug reports: amx, avx512, avx2 or scalar [default: the best there is]
    #[arg(long)]
    pub(crate) isa: Option<Isa>,
}

impl Default for MachineArgs {
    fn default() -> Self {
        Self {
            workers: None,
            threads_per_worker: None,
            cells: CellArgs::default(),
            profile: None,
            goal: Goal::default(),
            max_tasks_to_submit: EngineBuilder::MAX_TASKS_TO_SUBMIT,
            isa: None,
            device: DeviceArgs::default(),
            executor: ExecutorArgs::default(),
        }
    }
}

/// The executor of programs.
#[derive(Debug, Default, Args)]
pub(crate) struct ExecutorArgs {
    /// The executor of the parts of models that have no fused kernel: own; onnxruntime, the library of that name in the
    /// Python environment; onnxruntime=PATH, a library such as libonnxruntime.so.1.31.1; or faster[=PATH], for each part
    /// the one of the two that runs it faster when it is loaded. With ONNX Runtime the last bits of a reply depend on what
    /// runs beside it
    #[arg(long, value_name = "NAME[=PATH]", default_value = "own")]
    pub(crate) executor: ExecutorName,

    /// Let ONNX Runtime run each row and each sequence by itself, so that replies do not depend on what runs
    /// beside them
    #[arg(long)]
    pub(crate) executor_alone: bool,
}

/// The executor of programs, as it is named on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExecutorName {
    #[default]
    Own,
    /// ONNX Runtime, of a library if one is named.
    OnnxRuntime(Option<PathBuf>),
    /// For each program, the own one or ONNX Runtime, of a library if one is named.
    Faster(Option<PathBuf>),
}

impl FromStr for ExecutorName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "expected own, onnxruntime, onnxruntime=PATH, faster or faster=PATH";
        let (name, path) = match text.split_once('=') {
            None => (text, None),
            Some((name, path)) => (name, Some(PathBuf::from(path))),
        };
        match name {
            "own" if path.is_none() => Ok(Self::Own),
            _ if path.as_ref().is_some_and(|path| path.as_os_str().is_empty()) => Err(EXPECTED),
            "onnxruntime" => Ok(Self::OnnxRuntime(path)),
            "faster" => Ok(Self::Faster(path)),
            _ => Err(EXPECTED),
        }
    }
}

/// The options with which cells are loaded.
#[derive(Debug, Default, Args)]
pub(crate) struct CellArgs {
    /// The most rows in a batch, of all cells or of one; repeatable
    #[arg(long, value_name = "N|CELL=N")]
    pub(crate) max_batch_size: Vec<OfCell<BatchLimit>>,

    /// The weights of all cells or of one, as far as these multiply with weights: f32, bf16 or int8;
    /// repeatable [default: what the model says, else f32]
    #[arg(long, value_name = "P|CELL=P")]
    pub(crate) precision: Vec<OfCell<Precision>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
