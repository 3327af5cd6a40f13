//! `cargo xtask check`: everything that CI checks of Rust.

use crate::arrows;
use crate::cargo::cargo;

/// The calls of cargo, each with its environment variables.
const STEPS: [(&str, &[(&str, &str)]); 5] = [
    ("fmt --all --check", &[]),
    // With the tests that `cargo xtask emulate` runs.
    (
        "clippy --workspace --all-targets --features \
         batchmaker-cuda/compiled-kernels,batchmaker-cuda-emulator/compiled-kernels,\
         batchmaker-cuda-emulated-driver/compiled-kernels \
         -- -D warnings",
        &[],
    ),
    ("test --workspace", &[]),
    // A crate outside the workspace, as a user of the library has it.
    ("run --quiet --manifest-path tests/library/Cargo.toml --target-dir target", &[]),
    ("doc --workspace --no-deps", &[("RUSTDOCFLAGS", "-Dwarnings")]),
];

/// Checks arrows, which takes no compilation, then runs the calls of cargo in order, up to the first that fails.
pub(crate) fn run() -> anyhow::Result<()> {
    eprintln!("> cargo xtask arrows");
    arrows::run(&arrows::Arguments::default())?;
    for (step, variables) in STEPS {
        let set: String =
            variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        eprintln!("> {set}cargo {step}");
        let arguments: Vec<String> = step.split(' ').map(str::to_owned).collect();
        cargo(&arguments, variables)?;
    }
    eprintln!("all checks passed");
    Ok(())
}
