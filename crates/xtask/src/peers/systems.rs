//! The systems that are compared, their configurations, and one run of one of them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use crate::batchmaker::{batchmaker, output, succeed};
use crate::venv::Venv;

const SCRIPTS: &str = "bench/peers";

/// Batches that wait at a saturated peer. Buckets share them, and rarely fill one with fewer.
const SATURATED_DEPTH: u32 = 16;

/// More than a peer answers in a second.
const SATURATED_REQUESTS_PER_S: f64 = 20_000.0;

/// Trees that a saturated peer goes through, over and over again.
const SATURATED_TREES: &str = "8000";

/// A system in one configuration.
#[derive(Clone, Debug)]
pub(crate) enum System {
    BatchMaker {
        policy: &'static str,
        workers: usize,
        threads_per_worker: usize,
        /// Values of `--max-batch-size`.
        limits: &'static [&'static str],
    },
    /// Trees: closed batches, merged.
    TreePeer {
        executor: &'static str,
        workers: usize,
        threads: usize,
        limit: u32,
    },
    Peer {
        executor: &'static str,
        workers: usize,
        threads: usize,
        limit: u32,
        width: u32,
    },
}

/// The models that systems are compared on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Sequences { bidirectional: bool },
    Trees,
    Pairs,
}

/// A load that systems are measured under.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) workload: String,
    /// None: saturated.
    pub(crate) rate_rps: Option<f64>,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    /// Steps of the workload's requests.
    pub(crate) mean_steps: f64,
    /// The precision of BatchMaker's weights: f32, bf16 or int8. Peers have f32.
    pub(crate) precision: String,
}

/// The results of one run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// When saturated, steps a second over the mean steps of a request: a short run of graph batching may get
    /// only short sequences, since its buckets take turns.
    pub(crate) throughput_rps: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) is_sustained: bool,
    /// The whole report.
    pub(crate) report: Value,
}

/// For each system the configurations to try: one worker on all cores and a worker a core, with a
/// small and a large batch limit (trees: with batches of 64, as in the paper's section 7.5; pairs:
/// 256, and 512 for the encoder); of graph batching also the paper's widths (section 7.2;
/// bidirectional 10 and 40).
pub(crate) fn candidates(subject: Subject) -> Vec<Vec<System>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut splits = vec![(1, cores)];
    if cores > 1 {
        splits.push((cores, 1));
    }
    let own = |policy, limits: &[&'static [&'static str]]| -> Vec<System> {
        let of = |&(workers, threads_per_worker)| {
            limits.iter().map(move |limits| System::BatchMaker {
                policy,
                workers,
                threads_per_worker,
                limits,
            })
        };
        splits.iter().flat_map(of).collect()
    };
    // Widths for one worker, and for a worker a core.
    let bucketed = |executor, widths: &[u32], widths_of_many: &[u32]| {
        let of = |workers, threads, width| {
            [64, 256].map(|limit| System::Peer { executor, workers, threads, limit, width })
        };
        let mut all: Vec<System> = widths.iter().flat_map(|&width| of(1, cores, width)).collect();
        if cores > 1 {
            all.extend(widths_of_many.iter().flat_map(|&width| of(cores, 1, width)));
        }
        all
    };
    if subject == Subject::Pairs {
        const WIDE: &[&str] = &["encoder=512", "decoder=256"];
        const EVEN: &[&str] = &["encoder=256", "decoder=256"];
        return vec![
            own("cellular", &[WIDE]),
            own("cellular", &[EVEN]),
            own("padded", &[EVEN]),
            bucketed("onnxruntime", &[10, 40], &[10]),
        ];
    }
    if subject == Subject::Trees {
        let own = |policy| own(policy, &[&["64"]]);
        let peer = |executor, splits: &[(usize, usize)]| {
            let of =
                |&(workers, threads)| System::TreePeer { executor, workers, threads, limit: 64 };
            splits.iter().map(of).collect()
        };
        return vec![
            own("cellular"),
            own("merged"),
            peer("pytorch", &splits),
            peer("dynet", &[(cores, 1)]),
        ];
    }
    let own = own("cellular", &[&["64"], &["256"]]);
    if subject == (Subject::Sequences { bidirectional: true }) {
        return vec![own, bucketed("onnxruntime", &[10, 40], &[10, 40])];
    }
    let peer = |executor| bucketed(executor, &[1, 10, 40], &[10]);
    vec![own, peer("onnxruntime"), peer("pytorch")]
}

impl std::fmt::Display for System {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BatchMaker { policy, workers, threads_per_worker, limits } => {
                let policy =
                    if *policy == "cellular" { String::new() } else { format!("{policy}, ") };
                let limits = limits.join(" ");
                write!(f, "batchmaker {policy}{workers}x{threads_per_worker}, limit {limits}")
            }
            Self::TreePeer { executor, workers, threads, limit } => {
                write!(f, "{executor} {workers}x{threads}, {limit} trees")
            }
            Self::Peer { executor, workers, threads, limit, width } => {
                write!(f, "{executor} {workers}x{threads}, limit {limit}, width {width}")
            }
        }
    }
}

/// The peers' virtual environment, and where models and traces go.
pub(crate) struct Kit {
    folder: PathBuf,
    venv: Venv,
}

impl Kit {
    /// Makes the virtual environment unless it is there as its requirements say.
    pub(crate) fn install(folder: &Path) -> anyhow::Result<Self> {
        let kit = Self::with_venv(folder, Venv::make(&folder.join("venv"))?);
        kit.require("requirements.txt")?;
        Ok(kit)
    }

    /// A kit with a virtual environment that has the requirements of the scripts to be run.
    pub(crate) fn with_venv(folder: &Path, venv: Venv) -> Self {
        Self { folder: folder.to_owned(), venv }
    }

    /// Installs what a file of `bench/peers` asks for, unless it is there.
    pub(crate) fn require(&self, requirements: &str) -> anyhow::Result<()> {
        self.venv.require(&Path::new(SCRIPTS).join(requirements))
    }

    /// A script of `bench/peers`, to be given arguments.
    pub(crate) fn script(&self, name: &str) -> Command {
        self.venv.script(&Path::new(SCRIPTS).join(name))
    }

    /// An LSTM of this hidden and input size. Without `layers`, it has one layer, or two if it is bidirectional.
    pub(crate) fn model(
        &self,
        hidden: u32,
        layers: Option<u32>,
        bidirectional: bool,
    ) -> anyhow::Result<PathBuf> {
        let usual = if bidirectional { 2 } else { 1 };
        let layers = layers.unwrap_or(usual);
        let size = hidden.to_string();
        let shape = if layers == usual { size.clone() } else { format!("{layers}x{hidden}") };
        let kind = if bidirectional { "bilstm" } else { "lstm" };
        let path = self.folder.join(format!("{kind}-{shape}.onnx"));
        let mut make = self.script("make_lstm.py");
        make.args(["--hidden", &size, "--layers", &layers.to_string(), "--seed", "1"]);
        if bidirectional {
            make.arg("--bidirectional");
        }
        succeed(make.arg("--out").arg(&path))?;
        Ok(path)
    }

    /// A TreeLSTM of this hidden and input size.
    pub(crate) fn tree_model(&self, hidden: u32) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(format!("tree-{hidden}"));
        let size = hidden.to_string();
        let arguments = ["--hidden", &size, "--seed", "1", "--out"];
        succeed(self.script("make_tree_lstm.py").args(arguments).arg(&path))?;
        Ok(path)
    }

    /// An encoder-decoder of this hidden and input size with a vocabulary of 30,000.
    pub(crate) fn pair_model(&self, hidden: u32) -> anyhow::Result<PathBuf> {
        let path = self.folder.join(format!("pairs-{hidden}"));
        let size = hidden.to_string();
        let arguments = ["--hidden", &size, "--seed", "1", "--out"];
        succeed(self.script("make_encoder_decoder.py").args(arguments).arg(&path))?;
        Ok(path)
    }

    /// The mean number of steps of a workload's requests.
    pub(crate) fn mean_steps(&self, model: &Path, workload: &str) -> anyhow::Result<f64> {
        let trace = self.folder.join("lengths.jsonl");
        let mut write = batchmaker();
        write.arg("bench").arg(model).args(["--saturate", "--requests", "100000"]);
        write.args(["--workload", workload]);
        succeed(write.arg("--write-trace").arg(&trace))?;
        let text = std::fs::read_to_string(&trace)?;
        let mut total = 0.0;
        for line in text.lines() {
            let arrival: Value = serde_json::from_str(line)?;
            let inner = arrival["children"].as_array().map_or(0, Vec::len) as f64;
            let target = arrival["target"].as_f64().unwrap_or(0.0);
            total += arrival["length"].as_f64().context("a length")? + inner + target;
        }
        Ok(total / text.lines().count() as f64)
    }

    /// Runs one configuration.
    pub(crate) fn run(&self, system: &System, model: &Path, load: &Load) -> anyhow::Result<Run> {
        let mut command = match system {
            System::BatchMaker { policy, workers, threads_per_worker, limits } => {
                let mut command = bench(model, load);
                command.args(["--policy", policy]);
                command.args(["--workers", &workers.to_string()]);
                command.args(["--threads-per-worker", &threads_per_worker.to_string()]);
                for limit in *limits {
                    command.args(["--max-batch-size", limit]);
                }
                command.arg("--json");
                command
            }
            System::TreePeer { executor, workers, threads, limit } => {
                let trace = self.folder.join("trace.jsonl");
                let mut write = bench(model, load);
                if load.rate_rps.is_none() {
                    write.args(["--requests", SATURATED_TREES]);
                }
                succeed(write.arg("--write-trace").arg(&trace))?;
                let mut command = self.script("tree_peer.py");
                command.arg("--model").arg(model).arg("--trace").arg(&trace);
                command.args(["--executor", executor, "--threads", &threads.to_string()]);
                command.args(["--workers", &workers.to_string()]);
                command.args(["--max-batch-size", &limit.to_string()]);
                if load.rate_rps.is_none() {
                    command.args(["--saturate", "--seconds", &load.seconds.to_string()]);
                }
                command
            }
            System::Peer { executor, workers, threads, limit, width } => {
                let trace = self.folder.join("trace.jsonl");
                let mut write = bench(model, load);
                if load.rate_rps.is_none() {
                    let requests = (load.seconds * SATURATED_REQUESTS_PER_S).ceil();
                    write.args(["--requests", &requests.to_string()]);
                }
                succeed(write.arg("--write-trace").arg(&trace))?;
                let mut command = self.script("peer.py");
                command.arg("--model").arg(model).arg("--trace").arg(&trace);
                command.args(["--executor", executor, "--threads", &threads.to_string()]);
                command.args(["--workers", &workers.to_string()]);
                command.args(["--max-batch-size", &limit.to_string()]);
                command.args(["--width", &width.to_string(), "--seed", &load.seed.to_string()]);
                if load.rate_rps.is_none() {
                    command.args(["--saturate", "--seconds", &load.seconds.to_string()]);
                    let in_flight = limit * SATURATED_DEPTH;
                    command.args(["--in-flight", &in_flight.to_string()]);
                }
                command
            }
        };
        let printed = output(&mut command)?;
        let line = printed.lines().last().unwrap_or_default();
        let mut report: Value = serde_json::from_str(line)
            .with_context(|| format!("{system} printed no report: {line:?}"))?;
        report["policy"] = Value::from(system.to_string());
        let number = |path: &str| {
            let value = report.pointer(path).and_then(Value::as_f64);
            value.with_context(|| format!("{system}: no {path} in {line}"))
        };
        let run = Run {
            throughput_rps: match load.rate_rps {
                Some(_) => number("/throughput_rps")?,
                None => number("/steps_per_s")? / load.mean_steps,
            },
            p50_ms: number("/latency_ms/p50")?,
            p90_ms: number("/latency_ms/p90")?,
            p99_ms: number("/latency_ms/p99")?,
            is_sustained: report["sustained"].as_bool().unwrap_or(false),
            report,
        };
        eprintln!(
            "{system}: {:.0} req/s, p50 {:.1} ms, p90 {:.1} ms",
            run.throughput_rps, run.p50_ms, run.p90_ms
        );
        Ok(run)
    }
}

/// `batchmaker bench` under a load.
fn bench(model: &Path, load: &Load) -> Command {
    let mut command = batchmaker();
    command.arg("bench").arg(model).args(["--workload", &load.workload]);
    command.args(["--seed", &load.seed.to_string(), "--precision", &load.precision]);
    match load.rate_rps {
        Some(rate) => {
            let requests = (rate * load.seconds).ceil().max(1.0);
            command.args(["--rate", &rate.to_string(), "--requests", &requests.to_string()])
        }
        None => command.args(["--saturate", "--seconds", &load.seconds.to_string()]),
    };
    command
}
