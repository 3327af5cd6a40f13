//! The figures of a comparison: kept as JSON lines, shown as a table of medians and ratios.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use super::systems::{Run, System};
use crate::batchmaker::median;
use crate::figures_file;

/// The file that runs are written to as they come.
pub(crate) struct Results {
    file: File,
}

impl Results {
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        Ok(Self { file: figures_file::create(path)? })
    }

    pub(crate) fn keep(&mut self, run: Run) -> anyhow::Result<Run> {
        writeln!(self.file, "{}", run.report)?;
        Ok(run)
    }
}

/// A system's runs under one load.
#[derive(Debug)]
pub(crate) struct Row {
    name: String,
    pub(crate) is_peer: bool,
    pub(crate) runs: Vec<Run>,
}

impl Row {
    pub(crate) fn new(system: &System) -> Self {
        let is_peer = !matches!(system, System::BatchMaker { .. });
        Self { name: system.to_string(), is_peer, runs: Vec::new() }
    }

    /// The median of its runs.
    pub(crate) fn throughput_rps(&self) -> f64 {
        self.median(|run| run.throughput_rps)
    }

    fn median(&self, of: impl Fn(&Run) -> f64) -> f64 {
        median(self.runs.iter().map(of))
    }

    fn spread(&self, of: impl Fn(&Run) -> f64) -> (f64, f64) {
        let values = self.runs.iter().map(of);
        values
            .fold((f64::INFINITY, 0.0), |(least, most), value| (least.min(value), most.max(value)))
    }
}

/// A table of medians and spreads, and the ratios of the first row to each other row.
pub(crate) fn table(title: &str, rows: &[Row]) -> String {
    let mut text = format!("{title}\n");
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "{:width$}  {:>9} {:>19} {:>9} {:>9} {:>9} {:>19}",
        "", "req/s", "least to most", "p50 ms", "p90 ms", "p99 ms", "p90 least to most"
    );
    for row in rows {
        let (least_rps, most_rps) = row.spread(|run| run.throughput_rps);
        let (least_ms, most_ms) = row.spread(|run| run.p90_ms);
        let is_sustained = row.runs.iter().all(|run| run.is_sustained);
        let _ = writeln!(
            text,
            "{:width$}  {:>9.0} {:>19} {:>9.2} {:>9.2} {:>9.2} {:>19}{}",
            row.name,
            row.throughput_rps(),
            format!("{least_rps:.0} to {most_rps:.0}"),
            row.median(|run| run.p50_ms),
            row.median(|run| run.p90_ms),
            row.median(|run| run.p99_ms),
            format!("{least_ms:.2} to {most_ms:.2}"),
            if is_sustained { "" } else { "  not sustained" },
        );
    }
    let Some((first, others)) = rows.split_first() else { return text };
    for other in others {
        let ratio = |of: fn(&Run) -> f64| first.median(of) / other.median(of);
        let _ = writeln!(
            text,
            "{} / {}: throughput {:.2}, p50 {:.2}, p90 {:.2}, p99 {:.2}",
            first.name,
            other.name,
            ratio(|run| run.throughput_rps),
            ratio(|run| run.p50_ms),
            ratio(|run| run.p90_ms),
            ratio(|run| run.p99_ms),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, throughputs_rps: &[f64]) -> Row {
        let run = |&throughput_rps: &f64| Run {
            throughput_rps,
            p50_ms: 1.0,
            p90_ms: 1000.0 / throughput_rps,
            p99_ms: 3.0,
            is_sustained: throughput_rps > 150.0,
            report: serde_json::Value::Null,
        };
        let runs = throughputs_rps.iter().map(run).collect();
        Row { name: name.to_owned(), is_peer: true, runs }
    }

    #[test]
    fn medians_and_ratios() {
        let text = table("t", &[row("a", &[400.0, 200.0, 300.0]), row("bb", &[100.0, 200.0])]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[2].starts_with("a         300          200 to 400      1.00      3.33"));
        assert!(lines[3].ends_with("not sustained"), "{text}");
        assert_eq!(lines[4], "a / bb: throughput 2.00, p50 1.00, p90 0.44, p99 1.00");
    }
}
