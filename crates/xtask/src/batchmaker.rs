//! Calls of the release build of `batchmaker`, and the median of their figures.

use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::cargo::cargo;

/// Builds the release build.
pub(crate) fn build() -> anyhow::Result<()> {
    cargo(&["build", "--release"].map(str::to_owned), &[])
}

/// A call of the release build, which the caller gives its arguments.
pub(crate) fn batchmaker() -> Command {
    Command::new("target/release/batchmaker")
}

/// Runs a command and gives its output; its errors go to the terminal.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = format!("{command:?}");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        bail!("{shown} failed: {}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs a command whose output is of no use; its errors go to the terminal.
pub(crate) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    output(command).map(drop)
}

/// The median of the values; 0 if there are none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0].into_iter()), 2.5);
        assert_eq!(median([].into_iter()), 0.0);
    }
}
