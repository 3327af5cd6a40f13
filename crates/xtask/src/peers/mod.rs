//! `cargo xtask peers`: BatchMaker beside graph batching around ONNX Runtime's and PyTorch's LSTM
//! (`bench/peers`), in turns, on the same lengths, arrivals and weights; with `--bidirectional`
//! beside ONNX Runtime's alone; or, with `--trees`, a TreeLSTM beside DyNet and a level batcher in
//! PyTorch; or, with `--pairs`, an encoder-decoder beside padded batches in ONNX Runtime.
//!
//! Every system is tried in several configurations, and goes on with the best of them: the one
//! with the highest throughput when saturated, the one with the lowest p90 at a middle rate in open
//! loop. Rates are shares of the best peer's saturated throughput.

mod results;
pub(crate) mod systems;

use std::path::{Path, PathBuf};

use anyhow::Context;

use results::{Results, Row};
use systems::{Kit, Load, Run, Subject, System, candidates};

use crate::batchmaker::build;

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask peers                                    all of it; about an hour
  cargo xtask peers --hidden 256 --seconds 5 --screening-seconds 3 --repeats 1   a first look
  cargo xtask peers --hidden 1024 --precision bf16     weights in bfloat16 beside peers in f32
  cargo xtask peers --hidden 512 --bidirectional       two bidirectional layers
  cargo xtask peers --hidden 1024 --trees train.txt    trees, a labelled one a line
  cargo xtask peers --hidden 1024 --pairs train.en:train.de --saturated-seconds 60   sentence pairs

Nothing else should run meanwhile. Needs Python 3.11 or later with venv; installs the rest into
target/peers.";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Hidden and input sizes of the LSTMs
    #[arg(long, value_delimiter = ',', default_values_t = [1024, 256])]
    hidden: Vec<u32>,
    /// Layers of the LSTMs, one above the other [default: 1, or 2 with --bidirectional]
    #[arg(
        long,
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["trees", "pairs"]
    )]
    layers: Option<u32>,
    /// Bidirectional LSTMs, beside ONNX Runtime
    #[arg(long, conflicts_with_all = ["trees", "pairs"])]
    bidirectional: bool,
    /// The lengths of sequences: europarl, europarl:MAX or fixed:LEN
    #[arg(long, default_value = "europarl")]
    workload: String,
    /// Trees instead of sequences, of this file: a labelled tree a line, as (3 (2 not) (1 bad))
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    trees: Option<PathBuf>,
    /// Pairs instead of sequences, a sentence a line of both files: what is encoded, and what is as
    /// long as what is decoded
    #[arg(long, value_name = "SOURCE:TARGET", conflicts_with_all = ["workload", "trees"])]
    pairs: Option<String>,
    /// The number of times that each point is measured, each time with other draws
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// The time that a rate is measured
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// The time that saturation is measured
    #[arg(long, default_value_t = 20.0)]
    saturated_seconds: f64,
    /// The time that a configuration is tried
    #[arg(long, default_value_t = 5.0)]
    screening_seconds: f64,
    /// Rates, as shares of the best peer's saturated throughput
    #[arg(long, value_delimiter = ',', default_values_t = [0.5, 0.65, 0.8])]
    shares: Vec<f64>,
    /// Precision of BatchMaker's weights: f32, bf16 or int8; peers have f32
    #[arg(long, default_value = "f32")]
    precision: String,
    /// Seed of the first repeat's lengths, arrivals and inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The file that receives the figures, a JSON object a run
    #[arg(long, default_value = "target/peers/runs.jsonl")]
    runs: PathBuf,
}

impl Arguments {
    fn subject(&self) -> Subject {
        match (&self.trees, &self.pairs) {
            (Some(_), _) => Subject::Trees,
            (None, Some(_)) => Subject::Pairs,
            (None, None) => Subject::Sequences { bidirectional: self.bidirectional },
        }
    }
}

/// Builds, installs, measures and prints.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    build()?;
    let kit = Kit::install(Path::new("target/peers"))?;
    if arguments.trees.is_some() {
        kit.require("requirements-trees.txt")?;
    }
    let mut results = Results::create(&arguments.runs)?;
    for &hidden in &arguments.hidden {
        let model = match arguments.subject() {
            Subject::Sequences { bidirectional } => {
                kit.model(hidden, arguments.layers, bidirectional)?
            }
            Subject::Trees => kit.tree_model(hidden)?,
            Subject::Pairs => kit.pair_model(hidden)?,
        };
        measure(arguments, &kit, &model, &mut results)
            .with_context(|| format!("at hidden size {hidden}"))?;
    }
    Ok(())
}

/// Measures all loads of one model.
fn measure(
    arguments: &Arguments,
    kit: &Kit,
    model: &Path,
    results: &mut Results,
) -> anyhow::Result<()> {
    let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let workload = match (&arguments.trees, &arguments.pairs) {
        (Some(file), _) => format!("file:{}", file.display()),
        (None, Some(files)) => format!("pairs:{files}"),
        (None, None) => arguments.workload.clone(),
    };
    let mean_steps = kit.mean_steps(model, &workload)?;
    let load = |rate_rps: Option<f64>, seconds: f64, repeat: u16| Load {
        precision: arguments.precision.clone(),
        mean_steps,
        workload: workload.clone(),
        rate_rps,
        seconds,
        seed: arguments.seed + u64::from(repeat),
    };
    let screening_s = arguments.screening_seconds;

    let saturated = load(None, screening_s, 0);
    let tried = candidates(arguments.subject());
    let best = screen(kit, model, &saturated, tried, results, |run| -run.throughput_rps)?;
    let rows = in_turns(arguments, &best, |system, repeat| {
        let load = load(None, arguments.saturated_seconds, repeat);
        results.keep(kit.run(system, model, &load)?)
    })?;
    println!("{}", results::table(&format!("{name}, {workload}, saturated"), &rows));
    let peers = rows.iter().filter(|row| row.is_peer);
    let peer_rps = peers.map(Row::throughput_rps).fold(0.0, f64::max);

    let middle = arguments.shares.get(arguments.shares.len() / 2).copied().unwrap_or(0.65);
    let tried = load(Some(middle * peer_rps), screening_s, 0);
    let best =
        screen(kit, model, &tried, candidates(arguments.subject()), results, |run| run.p90_ms)?;
    for &share in &arguments.shares {
        let rate = share * peer_rps;
        let rows = in_turns(arguments, &best, |system, repeat| {
            let load = load(Some(rate), arguments.seconds, repeat);
            results.keep(kit.run(system, model, &load)?)
        })?;
        let title = format!(
            "{name}, {workload}, {rate:.0} req/s ({share} of the best peer's saturated throughput)"
        );
        println!("{}", results::table(&title, &rows));
    }
    Ok(())
}

/// Tries all configurations, and gives each system's configuration of the lowest cost.
fn screen(
    kit: &Kit,
    model: &Path,
    load: &Load,
    candidates: Vec<Vec<System>>,
    results: &mut Results,
    cost: impl Fn(&Run) -> f64,
) -> anyhow::Result<Vec<System>> {
    let mut best = Vec::new();
    for configurations in candidates {
        let mut least: Option<(f64, System)> = None;
        for system in configurations {
            let run = results.keep(kit.run(&system, model, load)?)?;
            if least.as_ref().is_none_or(|(least, _)| cost(&run) < *least) {
                least = Some((cost(&run), system));
            }
        }
        best.extend(least.map(|(_, system)| system));
    }
    Ok(best)
}

/// Measures every system as often as asked, the systems in turns.
fn in_turns(
    arguments: &Arguments,
    systems: &[System],
    mut run: impl FnMut(&System, u16) -> anyhow::Result<Run>,
) -> anyhow::Result<Vec<Row>> {
    let mut rows: Vec<Row> = systems.iter().map(Row::new).collect();
    for repeat in 0..arguments.repeats {
        for position in 0..systems.len() {
            // No system is always the first.
            let index = (position + usize::from(repeat)) % systems.len();
            rows[index].runs.push(run(&systems[index], repeat)?);
        }
    }
    Ok(rows)
}
