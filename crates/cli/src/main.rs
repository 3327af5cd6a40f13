//! The binary `batchmaker`: arguments → validated configuration → the crates below.

#![forbid(unsafe_code)]

mod args;
mod bench;
mod calibrate;
mod device_args;
mod executor;
mod inspect;
mod measured_policy;
mod models;
mod profile;
mod quantities;
mod run;
mod scoped;
mod serve;
mod stages;
mod start;
mod subject;

use std::process::ExitCode;

use batchmaker_server::{flush_log, log};
use clap::Parser;

use args::{Cli, Command};

/// A request is allocated in one thread and freed in another, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(args) => serve::serve(&args),
        Command::Run(args) => run::run(&args),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Profile(args) => profile::profile(&args),
    };
    if let Err(error) = &result {
        log(&format!("{error:#}"));
    }
    flush_log();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
