//! What CI checks.

use crate::cargo::cargo;

/// Each with the variables that it is run with.
const STEPS: [(&str, &[(&str, &str)]); 4] = [
    ("fmt --all --check", &[]),
    ("clippy --workspace --all-targets -- -D warnings", &[]),
    ("test --workspace", &[]),
    ("doc --workspace --no-deps", &[("RUSTDOCFLAGS", "-Dwarnings")]),
];

/// Runs the steps in order, up to the first that fails.
pub(crate) fn run() -> anyhow::Result<()> {
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
