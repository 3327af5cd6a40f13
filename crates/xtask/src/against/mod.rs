//! `cargo xtask against`: compares the working tree with an earlier commit. `bits` compares their
//! replies, `turns` their speed.

mod binaries;
mod bits;
mod catalogue;
mod difference;
mod findings;
mod folder;
mod http;
mod loads;
mod manager_bench;
mod provenance;
mod ratios;
mod requests;
mod turns;

use clap::Subcommand;

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask against bits main~5                    every model, precision and instruction set
  cargo xtask against bits main~5 --models lstm.onnx --models models/g2p
  cargo xtask against turns main~5                   15 turns of every load; about 45 minutes
  cargo xtask against turns main~5 --only lstm-256 --turns 3 --seconds 2    a first look

The commit is built in a worktree of its own under target/against, once.";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    comparison: Comparison,
}

#[derive(Debug, Subcommand)]
enum Comparison {
    /// Compares the replies of both over a fixed set of requests
    #[command(after_help = bits::EXAMPLES)]
    Bits(bits::Arguments),
    /// Measures both in turns
    #[command(after_help = turns::EXAMPLES)]
    Turns(turns::Arguments),
}

/// Builds both, and compares them.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.comparison {
        Comparison::Bits(arguments) => bits::run(arguments),
        Comparison::Turns(arguments) => turns::run(arguments),
    }
}
