//! The evaluation of the GRNN paper (section 8) on a GPU: its Tables 1 to 3 and Figures 11 to 15.
//!
//! | file | idea |
//! |---|---|
//! | `jobs.rs`, `times.rs` | what is run, and its times |
//! | `own_times.rs`, `peers.rs` | runs jobs on this project's device, and on other systems by the scripts in `peers/` |
//! | `latencies.rs`, `throughput.rs`, `models.rs` | Table 1 with Figures 11 and 12; Figure 13; Figure 15 |
//! | `ranking.rs`, `accuracy.rs` | measures mappings; Table 2 and Figure 14 |
//! | `barriers.rs` | Table 3 |
//! | `peak.rs`, `statistics.rs` | the peak throughput; means and correlations |
//! | `record.rs`, `figure.rs` | the files that are written |
//!
//! What takes a GPU is passed to these as functions: all else is tested without one.

mod accuracy;
mod barriers;
mod figure;
mod jobs;
mod latencies;
mod models;
mod own_times;
mod peak;
mod peers;
mod ranking;
mod record;
mod statistics;
mod throughput;
mod times;

use std::path::PathBuf;

use anyhow::bail;
use batchmaker_cuda::mapping::CostModel;
use batchmaker_cuda::{Compile, CudaConfig, CudaDevice, KernelTimer, nvrtc};
use batchmaker_device::Device;
use serde_json::json;

use barriers::Barriers;
use jobs::Operator;
use peers::{PYTORCH, Python};
use ranking::{Gpu, Ranking, Sample, StepUs};
use record::Record;
use times::{Outcome, Times};

use crate::grnn::{STEPS, TABLE_1};
use crate::markdown::number;
use crate::predictions;

/// What the evaluation does.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Evaluate these alone; repeatable
    #[arg(long, value_name = "PART", value_enum)]
    evaluate: Vec<Evaluated>,
    /// The most mappings that are drawn for each size of Figure 14, each of which takes a compilation
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    mappings: usize,
    /// The seed by which they are drawn
    #[arg(long, default_value_t = 1)]
    mapping_seed: u64,
    /// The most seconds of each other system; FlashRNN compiles for minutes, and goes on from there at the next call
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    peer_seconds: u32,
    /// The JSON file that receives the evaluation's figures; its plots lie beside it
    #[arg(long, value_name = "FILE", default_value = "target/gpu/evaluation.json")]
    output: PathBuf,
}

impl Options {
    fn wants(&self, part: Evaluated) -> bool {
        self.evaluate.is_empty() || self.evaluate.contains(&part)
    }
}

/// A part of the evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Evaluated {
    /// Table 1 and Figures 11, 12, 13 and 15, beside other systems
    Latencies,
    /// Table 2 and Figure 14
    Mappings,
    /// Table 3
    Barriers,
}

/// Runs the evaluation on the first GPU of a configuration, prints its tables, writes its files, and returns a summary.
pub(super) fn run(config: &CudaConfig, python: &str, options: &Options) -> anyhow::Result<String> {
    let config = CudaConfig {
        fills_memory: false,
        bytes_max: None,
        persistent: Some(nvrtc as Compile),
        quantum: None,
        ..config.clone()
    };
    let description = CudaDevice::new(config.clone())?.capabilities().processor;
    let mut record = Record::create(&options.output)?;
    record.set("gpu", json!(*description))?;
    record.set("steps", json!(STEPS))?;
    println!("{description}\n");

    let (mut summary, mut failures) = (Vec::new(), Vec::new());
    if options.wants(Evaluated::Latencies) {
        let python = Python { program: python, gpu: config.gpus[0], seconds: options.peer_seconds };
        let times = latencies(&config, python, &description, &mut record)?;
        let ratio = latencies::speedup_over(&times, PYTORCH, Operator::Lstm);
        summary.push(format!("LSTM {} times as fast as PyTorch's", number(ratio)));
        if times.own_failures() > 0 {
            failures.push(format!("{} jobs have no time", times.own_failures()));
        }
    }
    if options.wants(Evaluated::Mappings) || options.wants(Evaluated::Barriers) {
        match kernels(&config, options, &mut record) {
            Ok(of_kernels) => summary.extend(of_kernels),
            Err(error) => failures.push(format!("single kernels: {error:#}")),
        }
    }
    summary.push(format!("figures in {}", options.output.display()));
    match failures.is_empty() {
        true => Ok(summary.join("; ")),
        false => bail!("{}; {}", failures.join("; "), summary.join("; ")),
    }
}

/// Table 1 and Figures 11, 12, 13 and 15.
fn latencies(
    config: &CudaConfig,
    python: Python<'_>,
    description: &str,
    record: &mut Record,
) -> anyhow::Result<Times> {
    let (jobs, mut times) = (jobs::all(), Times::default());
    eprintln!("  {}", times::OWN);
    own_times::measure(config, &jobs, &mut times);
    record.set("times", times.json())?;
    let scripts = record.folder().join("peers");
    let systems = peers::measure(python, &scripts, &jobs, &mut times)?;
    let peak = peak::measure(description, python.gpu);
    record.set("times", times.json())?;
    record.set("systems", json!(systems))?;
    let of_peak = |peak: &peak::Peak| json!({ "flops": peak.flops, "source": peak.source });
    record.set("peak", peak.as_ref().map_or(json!(null), of_peak))?;

    println!("{}\n", systems.join("\n"));
    print!("Table 1. {}{}", latencies::table_1(&times), latencies::comparison(&times));
    let mut figures = latencies::figures_11_and_12(&times);
    match &peak {
        Some(peak) => {
            print!("Figure 13. {}", throughput::figure_13_table(&times, peak));
            figures.push(throughput::figure_13(&times, peak));
        }
        None => println!("Figure 13 is left out: the peak of {description} is not known\n"),
    }
    print!("Figure 15. {}", models::figure_15_tables(&times));
    figures.extend(models::figure_15(&times));
    times.left_out().iter().for_each(|line| println!("{line}"));
    record.draw(figures)?;
    Ok(times)
}

/// Tables 2 and 3 and Figure 14, as far as they are wanted; returns a summary.
fn kernels(
    config: &CudaConfig,
    options: &Options,
    record: &mut Record,
) -> anyhow::Result<Vec<String>> {
    let timer = KernelTimer::new(config)?;
    let limits = timer.limits().in_registers();
    let (model, source) = match timer.fit() {
        Ok(model) => (model, "constants of this GPU's micro-benchmarks".to_owned()),
        Err(error) => {
            let multiprocessors = limits.multiprocessors as f64;
            let model = CostModel { multiprocessors, ..CostModel::TITAN_V };
            (model, format!("the paper's constants, as those of this GPU are left out: {error}"))
        }
    };
    println!("Costs have {source}: {model:?}\n");
    let of_model = json!({ "source": source, "constants": format!("{model:?}") });
    record.set("cost_model", of_model)?;
    let gpu = Gpu { limits, model };
    let mut step_us = |kernel, rows| match timer.step_us(kernel, rows, STEPS) {
        Ok(Some(us)) => Outcome::Time(us),
        Ok(None) => Outcome::LeftOut("the GPU cannot run the kernel".to_owned()),
        Err(error) => Outcome::LeftOut(error.to_string()),
    };
    let mut summary = Vec::new();
    if options.wants(Evaluated::Mappings) {
        summary.push(mappings(gpu, &source, options, record, &mut step_us)?);
    }
    if options.wants(Evaluated::Barriers) {
        summary.push(barriers(gpu, record, &mut step_us)?);
    }
    Ok(summary)
}

/// Hidden sizes and batches of the paper's tables.
fn sizes() -> [(usize, usize); TABLE_1.len()] {
    TABLE_1.map(|row| (row.hidden, row.batch))
}

/// Table 2 and Figure 14. `source` says which constants the costs have.
fn mappings(
    gpu: Gpu,
    source: &str,
    options: &Options,
    record: &mut Record,
    step_us: &mut StepUs<'_>,
) -> anyhow::Result<String> {
    let mut rankings = Vec::new();
    for (seed, size) in (options.mapping_seed..).zip(sizes()) {
        eprintln!("  mappings of {} x {}", size.0, size.1);
        let sample = Sample { count: options.mappings, seed };
        rankings.push(Ranking::measure(size, gpu, sample, step_us));
        let all = rankings.iter().flat_map(Ranking::json).collect();
        record.set(predictions::KEY, all)?;
    }
    print!("{}", accuracy::tables(&rankings, source));
    rankings.iter().flat_map(Ranking::left_out).for_each(|line| println!("{line}"));
    record.draw(accuracy::figures(&rankings))?;
    let [top_1, top_5] = accuracy::means_over_oracle(&rankings);
    Ok(format!("top-1 {} and top-5 {} of the fastest mapping", number(top_1), number(top_5)))
}

/// Table 3.
fn barriers(gpu: Gpu, record: &mut Record, step_us: &mut StepUs<'_>) -> anyhow::Result<String> {
    let mut all = Vec::new();
    for size in sizes() {
        eprintln!("  barriers of {} x {}", size.0, size.1);
        all.push(Barriers::measure(size, gpu, step_us));
        record.set("barriers", all.iter().map(Barriers::json).collect())?;
    }
    print!("{}", barriers::table_3(&all));
    let faster = all.iter().filter(|of| of.one_is_faster()).count();
    Ok(format!("one barrier is faster in {faster} of {} sizes", all.len()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::ranking::tests::gpu;
    use super::*;

    /// A record in a folder that is removed in the end.
    fn with_record(name: &str, test: impl FnOnce(&mut Record, &Path)) {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let path = folder.join("evaluation.json");
        let mut record = Record::create(&path).unwrap();
        test(&mut record, &path);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    fn read(path: &Path) -> Value {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn without_a_gpu_and_python_all_latencies_are_left_out() {
        with_record("latencies", |record, path| {
            let config = CudaConfig { gpus: vec![1 << 20], ..CudaConfig::default() };
            let python = Python { program: "no-such-python", gpu: 1 << 20, seconds: 1 };
            let times = latencies(&config, python, "no GPU", record).unwrap();
            assert_eq!(times.own_failures(), jobs::all().len());
            let written = read(path);
            let written = written["times"].as_array().unwrap();
            assert_eq!(written.len(), times.all.len());
            assert!(written.iter().all(|of| of["left_out"].is_string()));
        });
    }

    #[test]
    fn mappings_and_barriers_are_written_and_read() {
        with_record("mappings", |record, path| {
            let options = Options {
                evaluate: Vec::new(),
                mappings: 2,
                mapping_seed: 1,
                peer_seconds: 1,
                output: path.to_owned(),
            };
            let mut calls = 0.0;
            let mut step_us = |_, _| {
                calls += 1.0;
                Outcome::Time(calls)
            };
            mappings(gpu(), "no constants", &options, record, &mut step_us).unwrap();
            barriers(gpu(), record, &mut step_us).unwrap();
            let times = predictions::MappingTime::read(path).unwrap();
            assert!(times.len() >= 9 * ranking::TOP && f64::from(times.len() as u32) <= calls);
            assert_eq!(read(path)["barriers"].as_array().unwrap().len(), 9);
            for name in ["figure-14", "table-2", "predictions"] {
                assert!(path.with_file_name(name).with_extension("svg").exists(), "{name}");
            }
        });
    }
}
