//! The manager's benchmark: one run of its program, and the medians that it prints.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::batchmaker::output;

/// The package that has the benchmark.
pub(crate) const PACKAGE: &str = "batchmaker-manager";

/// Runs the benchmark, each function for up to `seconds`. Gives `(function and argument, median in ns)`.
pub(crate) fn run(program: &Path, seconds: f64) -> anyhow::Result<Vec<(String, f64)>> {
    let mut command = Command::new(program);
    command.args(["--bench", "--max-time", &seconds.to_string()]);
    let printed = output(&mut command)?;
    let medians = medians(&printed);
    ensure!(!medians.is_empty(), "{command:?} printed no medians:\n{printed}");
    Ok(medians)
}

/// Reads the table that divan prints: a function a line, or its arguments on lines below.
fn medians(printed: &str) -> Vec<(String, f64)> {
    let mut function = String::new();
    let mut medians = Vec::new();
    for line in printed.lines() {
        let mut columns = line.rsplitn(6, '│');
        let (Some(median), Some(head)) = (columns.nth(3), columns.nth(1)) else { continue };
        let name = head.trim_start_matches([' ', '│', '├', '╰', '─']);
        let name = name.split("  ").next().unwrap_or_default().trim();
        if head.starts_with(['├', '╰']) {
            function = name.to_owned();
        }
        // Throughputs stand below times, and groups have neither.
        let Ok(median_ns) = nanoseconds(median.trim()) else { continue };
        let of = if function == name { name.to_owned() } else { format!("{function} {name}") };
        medians.push((of, median_ns));
    }
    medians
}

fn nanoseconds(text: &str) -> anyhow::Result<f64> {
    let (number, unit) = text.split_once(' ').context("a number and a unit")?;
    let scale = match unit {
        "ps" => 1e-3,
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        unit => anyhow::bail!("'{unit}' is no unit of time"),
    };
    Ok(scale * number.parse::<f64>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_functions_and_arguments() {
        let printed = "\
Timer precision: 29 ns
null_device    fastest       │ slowest       │ median        │ mean          │ samples │ iters
├─ arrival                   │               │               │               │         │
│  ├─ 64       10.51 µs      │ 61.51 µs      │ 12.39 µs      │ 12.96 µs      │ 100     │ 100
│  │           6.084 Mitem/s │ 1.04 Mitem/s  │ 5.162 Mitem/s │ 4.934 Mitem/s │         │
│  ╰─ 512      99.94 µs      │ 181.6 µs      │ 112.5 µs      │ 116 µs        │ 100     │ 100
│              5.122 Mitem/s │ 2.818 Mitem/s │ 4.549 Mitem/s │ 4.413 Mitem/s │         │
├─ plain       1.5 ms        │ 2 ms          │ 1.75 ms       │ 1.8 ms        │ 100     │ 100
╰─ node                      │               │               │               │         │
   ╰─ 256      154.8 ns      │ 221.3 ns      │ 175.1 ns      │ 179.9 ns      │ 100     │ 100000
               2.066 Gitem/s │ 1.445 Gitem/s │ 1.827 Gitem/s │ 1.777 Gitem/s │         │
";
        let wanted = [
            ("arrival 64", 12_390.0),
            ("arrival 512", 112_500.0),
            ("plain", 1.75e6),
            ("node 256", 175.1),
        ];
        assert_eq!(medians(printed), wanted.map(|(name, ns)| (name.to_owned(), ns)));
    }
}
