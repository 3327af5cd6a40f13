//! `cargo xtask emulate`: what is checked of CUDA where there is no GPU.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::batchmaker::output;
use crate::cargo::cargo;
use crate::venv::Venv;

/// The crate of the kernels.
const FOLDER: &str = "crates/cuda";

/// Runs the tests that compile kernels for the emulator: those of itself, of the driver that runs kernels there, and of BatchMaker's kernels. Then
/// compiles these with NVIDIA's compiler, which a Python package holds.
pub(crate) fn run() -> anyhow::Result<()> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned());
    let missing = || {
        format!(
            "the emulator compiles kernels with {compiler}, which does not start: install g++, or name another GCC in CXX"
        )
    };
    let version = Command::new(&compiler).arg("--version").output().with_context(missing)?;
    ensure!(version.status.success(), missing());
    for package in ["cuda-emulator", "cuda-emulated-driver", "cuda"] {
        let test = format!("test --package batchmaker-{package} --features compiled-kernels");
        eprintln!("> cargo {test}");
        cargo(&test.split(' ').map(str::to_owned).collect::<Vec<_>>(), &[])?;
    }
    eprintln!("> python {FOLDER}/registers.py");
    let venv = Venv::make(Path::new("target/emulate/venv"))?;
    venv.require(&Path::new(FOLDER).join("requirements.txt"))?;
    eprint!("{}", output(&mut venv.script(&Path::new(FOLDER).join("registers.py")))?);
    Ok(())
}
