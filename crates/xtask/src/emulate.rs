//! `cargo xtask emulate`: what is checked of CUDA where there is no GPU.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::batchmaker::output;
use crate::cargo::cargo;
use crate::venv::Venv;

/// The crate of the kernels.
const FOLDER: &str = "crates/cuda";

/// The folder of what is made here.
const MADE: &str = "target/emulate";

/// Compiles BatchMaker's kernels with NVIDIA's compiler, which a Python package holds. Runs the tests that compile kernels for the emulator: those of
/// itself, of the driver that runs kernels there, and of BatchMaker's kernels, whose registers are those of the images. Then compares the table of
/// registers.
pub(crate) fn run() -> anyhow::Result<()> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned());
    let missing = || {
        format!(
            "the emulator compiles kernels with {compiler}, which does not start: install g++, or name another GCC in CXX"
        )
    };
    let version = Command::new(&compiler).arg("--version").output().with_context(missing)?;
    ensure!(version.status.success(), missing());
    let venv = Venv::make(&Path::new(MADE).join("venv"))?;
    venv.require(&Path::new(FOLDER).join("requirements.txt"))?;
    let images = std::path::absolute(Path::new(MADE).join("images"))?;
    let images = images.to_str().context("the path of this folder is no UTF-8")?;
    registers(&venv, &["--images", images])?;
    for package in ["cuda-emulator", "cuda-emulated-driver", "cuda"] {
        // The emulator takes long without optimisation.
        let test =
            format!("test --release --package batchmaker-{package} --features compiled-kernels");
        eprintln!("> cargo {test}");
        let test: Vec<String> = test.split(' ').map(str::to_owned).collect();
        cargo(&test, &[("BATCHMAKER_CUDA_IMAGES", images)])?;
    }
    registers(&venv, &[])
}

/// Runs the script that compiles the kernels.
fn registers(venv: &Venv, arguments: &[&str]) -> anyhow::Result<()> {
    let script = Path::new(FOLDER).join("registers.py");
    eprintln!("> python {} {}", script.display(), arguments.join(" "));
    eprint!("{}", output(venv.script(&script).args(arguments))?);
    Ok(())
}
