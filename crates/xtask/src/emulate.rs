//! `cargo xtask emulate`: what is checked of CUDA where there is no GPU.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::cargo::cargo;

/// Runs the tests that compile kernels for the emulator: those of itself, of the driver that runs kernels there, and of BatchMaker's kernels.
pub(crate) fn run() -> anyhow::Result<()> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned());
    let missing = || {
        format!(
            "the emulator compiles kernels with {compiler}, which does not start: install g++, or name another GCC in CXX"
        )
    };
    let output = Command::new(&compiler).arg("--version").output().with_context(missing)?;
    ensure!(output.status.success(), missing());
    for package in ["cuda-emulator", "cuda-emulated-driver", "cuda"] {
        let test = format!("test --package batchmaker-{package} --features compiled-kernels");
        eprintln!("> cargo {test}");
        cargo(&test.split(' ').map(str::to_owned).collect::<Vec<_>>(), &[])?;
    }
    Ok(())
}
