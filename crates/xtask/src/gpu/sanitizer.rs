//! A few cases of the suite under NVIDIA's tools, which watch accesses on the GPU.

use std::process::Command;

use anyhow::{Context, bail};

const PROGRAM: &str = "compute-sanitizer";

/// The tools, and the cases that each watches.
const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];
const CASES: [&str; 4] =
    ["chains/lstm: alone", "chains/decoder: alone", "chains/gru, reset before: alone", "trees/"];

/// Runs the cases under each tool.
pub(super) fn run(gpu: usize) -> anyhow::Result<String> {
    if Command::new(PROGRAM).arg("--version").output().is_err() {
        return Ok(format!("left out: there is no {PROGRAM}"));
    }
    let own = std::env::current_exe().context("cannot find the program itself")?;
    for tool in TOOLS {
        for cases in CASES {
            let mut command = Command::new(PROGRAM);
            command.args(["--tool", tool, "--error-exitcode", "1"]).arg(&own);
            command.args(["gpu", "--watched", "--only", "suite", "--cases", cases]);
            command.args(["--gpu", &gpu.to_string()]);
            let output = command.output().with_context(|| format!("{PROGRAM} does not start"))?;
            if !output.status.success() {
                eprint!("{}", String::from_utf8_lossy(&output.stdout));
                bail!("{tool} reports errors in {cases}");
            }
        }
    }
    Ok(format!("nothing reported by {} in {} groups of cases", TOOLS.join(", "), CASES.len()))
}
