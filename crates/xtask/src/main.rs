//! The project's automations: `cargo xtask --help`.

#![forbid(unsafe_code)]

mod against;
mod arrows;
mod batchmaker;
mod cargo;
mod check;
mod dvabatch;
mod emulate;
mod figures_file;
mod gpu;
mod grnn;
mod mappings;
mod markdown;
mod operators;
mod peers;
mod plot;
mod predictions;
mod quanta;
mod server;
mod sim;
mod venv;
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Automations of the BatchMaker workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    automation: Automation,
}

#[derive(Debug, Subcommand)]
enum Automation {
    /// Checks everything that CI checks of Rust; stops at the first failure
    Check,
    /// Checks that crates, folders and files use one another in the order that ARCHITECTURE.md states
    #[command(after_help = arrows::EXAMPLES)]
    Arrows(arrows::Arguments),
    /// Runs the manager through simulated workloads and faults, one for each seed
    #[command(after_help = sim::EXAMPLES)]
    Sim(sim::Arguments),
    /// Compares batches in stages with others in virtual time, on a device shaped like a GPU
    Dvabatch(dvabatch::Arguments),
    /// Plays launches that run task after task of a recurrent cell in virtual time, on a device with a GPU's costs
    #[command(after_help = quanta::EXAMPLES)]
    Quanta(quanta::Arguments),
    /// Checks what can be checked of CUDA without a GPU; takes g++ and Python, and installs NVIDIA's compiler
    Emulate,
    /// Checks and measures the CUDA device on a GPU
    #[command(after_help = gpu::EXAMPLES)]
    Gpu(gpu::Arguments),
    /// Ranks the mappings of a persistent kernel by GRNN's cost model
    #[command(after_help = mappings::EXAMPLES)]
    Mappings(mappings::Arguments),
    /// Compares this tree with a commit before it: the bits of replies, and speed
    #[command(after_help = against::EXAMPLES)]
    Against(against::Arguments),
    /// Measures BatchMaker beside ONNX Runtime and PyTorch
    #[command(after_help = peers::EXAMPLES)]
    Peers(peers::Arguments),
    /// Measures recurrent operators beside those of ONNX Runtime and PyTorch
    #[command(after_help = operators::EXAMPLES)]
    Operators(operators::Arguments),
    /// Measures a server over HTTP beside the engine alone
    #[command(after_help = wire::EXAMPLES)]
    Wire(wire::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().automation {
        Automation::Check => check::run(),
        Automation::Arrows(arguments) => arrows::run(&arguments),
        Automation::Sim(arguments) => sim::run(&arguments),
        Automation::Dvabatch(arguments) => dvabatch::run(&arguments),
        Automation::Quanta(arguments) => quanta::run(&arguments),
        Automation::Emulate => emulate::run(),
        Automation::Gpu(arguments) => gpu::run(&arguments),
        Automation::Mappings(arguments) => mappings::run(&arguments),
        Automation::Against(arguments) => against::run(&arguments),
        Automation::Peers(arguments) => peers::run(&arguments),
        Automation::Operators(arguments) => operators::run(&arguments),
        Automation::Wire(arguments) => wire::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
