//! `cargo xtask gpu`: what takes a GPU to check, in a few minutes, with a short table last.
//!
//! The program itself needs neither Rust nor the sources: it can be built elsewhere and brought to the machine with the GPU.

mod evaluation;
mod own;
mod sanitizer;
mod suite;
mod timings;

use anyhow::{Context, bail};
use batchmaker_cuda::{Compile, CudaConfig, CudaDevice, Quantum, nvrtc};
use batchmaker_device::Device;

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask gpu                                      all but the evaluation, on the first GPU
  cargo xtask gpu --only suite --cases chains/lstm     some cases of the conformance suite
  target/release/batchmaker-xtask gpu --python ~/venv/bin/python
                                                       where there is no Rust: with a PyTorch of one's own
  cargo xtask gpu --persistent --only suite --only timings
                                                       with kernels that are made for each recurrent cell
  cargo xtask gpu --persistent --quanta --only suite --only timings
                                                       with launches of such kernels that run task after task
  cargo xtask gpu --only evaluation --python ~/venv/bin/python
                                                       GRNN's Tables 1 to 3 and Figures 11 to 15, beside PyTorch, cuDNN and FlashRNN
  cargo xtask gpu --only evaluation --evaluate mappings --mappings 100
                                                       Table 2 and Figure 14 alone, with more mappings of each size

Parts:
  preflight   the driver, the GPU, its memory, the compiled kernels
  suite       the conformance suite: every kernel beside its equations in f64, in memory that is not a number where
              nothing was written
  sanitizer   a few cases under compute-sanitizer's tools, if it is installed
  timings     steps of LSTM and GRU beside PyTorch's on cuDNN, if Python has PyTorch
  evaluation  the evaluation of the GRNN paper; it takes minutes, and runs only where it is asked for. It makes a kernel for
              each cell, whether --persistent is given or not. Systems that Python does not have are left out";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The number of the GPU
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Run these parts alone; repeatable
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Run the cases of the suite whose names contain this
    #[arg(long, value_name = "TEXT", default_value = "")]
    cases: String,
    /// A Python that has PyTorch, for the timings beside it
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: String,
    /// Make a kernel for each recurrent cell, whose weights stay on the chip for all steps of a task; takes NVIDIA's compiler library, libnvrtc.so
    #[arg(long)]
    persistent: bool,
    /// Have a launch of such a kernel run task after task, where the cell has one that can
    #[arg(long, requires = "persistent")]
    quanta: bool,
    #[command(flatten)]
    evaluation: evaluation::Options,
    /// Take each piece of memory from the driver, with any contents, for tools that watch accesses
    #[arg(long, hide = true)]
    watched: bool,
}

/// A part of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Preflight,
    Suite,
    Sanitizer,
    Timings,
    Evaluation,
}

/// A line of the last table.
struct Line {
    what: &'static str,
    result: String,
    is_right: bool,
}

impl Line {
    fn new(what: &'static str, result: anyhow::Result<String>) -> Self {
        let is_right = result.is_ok();
        Self { what, result: result.unwrap_or_else(|error| format!("FAILED: {error:#}")), is_right }
    }
}

/// Runs the parts, and prints a table of their results.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let is_wanted = |part| match arguments.only.is_empty() {
        true => part != Part::Evaluation,
        false => arguments.only.contains(&part),
    };
    let config = CudaConfig {
        gpus: vec![arguments.gpu],
        fills_memory: !arguments.watched,
        block_bytes: if arguments.watched { 0 } else { CudaConfig::default().block_bytes },
        bytes_max: Some(1 << 24),
        persistent: arguments.persistent.then_some(nvrtc as Compile),
        quantum: arguments.quanta.then(Quantum::default),
        ..CudaConfig::default()
    };
    let mut lines = vec![Line::new("preflight", preflight(&config))];
    let mut add = |part, what, run: &dyn Fn() -> anyhow::Result<String>| {
        if is_wanted(part) && lines.iter().all(|line| line.is_right) {
            eprintln!("> {what}");
            lines.push(Line::new(what, run()));
        }
    };
    add(Part::Suite, "suite", &|| suite::run(&config, &arguments.cases));
    add(Part::Sanitizer, "sanitizer", &|| sanitizer::run(arguments.gpu));
    add(Part::Timings, "timings", &|| timings::run(&config, &arguments.python));
    let python = &arguments.python;
    add(Part::Evaluation, "evaluation", &|| {
        evaluation::run(&config, python, &arguments.evaluation)
    });
    println!("\n| part | result |\n|---|---|");
    for Line { what, result, .. } in &lines {
        println!("| {what} | {result} |");
    }
    match lines.iter().all(|line| line.is_right) {
        true => Ok(()),
        false => bail!("a part failed"),
    }
}

/// What the machine has.
fn preflight(config: &CudaConfig) -> anyhow::Result<String> {
    let gpus = CudaDevice::gpus()?;
    let device = CudaDevice::new(config.clone())?;
    let usage = device.usage();
    let usage = usage.first().context("the device has no worker")?;
    let [taken, all] =
        [usage.memory_bytes, usage.memory_bytes_max].map(|bytes| bytes as f64 / f64::from(1 << 30));
    let of = device.capabilities().processor;
    Ok(format!("{gpus} GPUs; {of}; {taken:.1} of {all:.1} GiB of memory taken"))
}
