//! `cargo xtask operators`: recurrent operators on the CPU device beside those of ONNX Runtime and
//! PyTorch (`bench/peers/operators.py`), in turns, and beside the machine's limits.

use std::path::Path;

use anyhow::{Context, ensure};

use crate::cargo::cargo;
use crate::peers::systems::Kit;

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask operators                                   LSTM and GRU, hidden 64 to 2048, batch 1 to 512
  cargo xtask operators --hidden 256 --batch 1,64         a first look
  cargo xtask operators --kinds lstm --layers 3 --hidden 128 --steps 100 --batch 1,2,5,10,20
                                                          CharRNN of the GRNN paper, section 8.5
  cargo xtask operators --kinds lstm --layers 2 --hidden 256 --steps 20 --batch 1,2,5,10,20
                                                          its text classification

Nothing else should run meanwhile. Needs Python 3.11 or later with venv; installs the rest into
target/peers.";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// lstm, gru (reset after the product, as PyTorch has it) and gru0 (before; ONNX Runtime only)
    #[arg(long, default_value = "lstm,gru")]
    kinds: String,
    /// Hidden and input sizes
    #[arg(long, default_value = "64,128,256,512,1024,2048")]
    hidden: String,
    /// Sequences in a batch
    #[arg(long, default_value = "1,2,4,8,16,32,64,128,256,512")]
    batch: String,
    /// Layers, one above the other
    #[arg(long, default_value_t = 1)]
    layers: u32,
    /// Steps, all given at once; fewer where a run would take seconds
    #[arg(long, default_value_t = 24)]
    steps: u32,
    /// Threads of each system
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// Turns of each system, whose medians count
    #[arg(long, default_value_t = 7)]
    repeats: u32,
    /// The file that receives the figures, a JSON object a size
    #[arg(long, default_value = "target/peers/operators.jsonl")]
    runs: String,
}

/// Builds, installs and measures.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let build = ["build", "--release", "-p", "batchmaker-cpu", "--example", "operators"];
    cargo(&build.map(str::to_owned), &[])?;
    let kit = Kit::install(Path::new("target/peers"))?;
    let mut command = kit.script("operators.py");
    command.arg("target/release/examples/operators");
    let texts = [
        ("--kinds", &arguments.kinds),
        ("--hidden", &arguments.hidden),
        ("--batch", &arguments.batch),
        ("--json", &arguments.runs),
    ];
    let numbers = [
        ("--layers", arguments.layers),
        ("--steps", arguments.steps),
        ("--threads", arguments.threads),
        ("--repeats", arguments.repeats),
    ];
    for (name, value) in texts {
        command.args([name, value]);
    }
    for (name, value) in numbers {
        command.args([name, &value.to_string()]);
    }
    // Its lines are shown as they come.
    let status = command.status().context("Python does not start")?;
    ensure!(status.success(), "operators.py failed: {status}");
    Ok(())
}
