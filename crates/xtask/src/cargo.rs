//! Calls of cargo.

use std::process::Command;

use anyhow::{Context, ensure};

/// Runs cargo in the workspace, with variables of the environment set.
pub(crate) fn cargo(arguments: &[String], variables: &[(&str, &str)]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).envs(variables.iter().copied());
    let status = command.status().context("cargo does not start")?;
    ensure!(status.success(), "cargo {} failed", arguments.join(" "));
    Ok(())
}
