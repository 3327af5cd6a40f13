//! `cargo xtask against`: the tree as it is beside a commit before it. `bits` compares the replies of
//! both.

mod binaries;
mod bits;
mod catalogue;
mod difference;
mod findings;
mod http;
mod provenance;
mod requests;

use clap::Subcommand;

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask against bits main~5                    every model, precision and instruction set
  cargo xtask against bits main~5 --models lstm.onnx --models models/g2p

The commit is built in a worktree of its own under target/against, once.";

/// Where the commit's worktree, both binaries, models and figures go.
const FOLDER: &str = "target/against";

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
}

/// Builds both, and compares them.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.comparison {
        Comparison::Bits(arguments) => bits::run(arguments),
    }
}
