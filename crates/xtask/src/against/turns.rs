//! `cargo xtask against turns`: the speed of two builds, in turns. A turn measures both, one right after
//! the other, and the first of them is another one each time: what slows the machine down slows both,
//! and what counts is the median of the turns' ratios.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use serde_json::json;

use super::binaries::{Builds, Which};
use super::loads::{Data, Load, Maker, Side, goals};
use super::ratios::{Better, Pair, Summary};
use crate::figures_file;

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask against turns main~5                           all loads; about an hour
  cargo xtask against turns main~5 --trees sst/train.txt --pairs train.en:train.de
  cargo xtask against turns main~5 --only lstm-256 --only cnn --turns 5 --seconds 3
  cargo xtask against turns main~5 --skip silero --skip manager
  cargo xtask against turns main~5 --only cnn --wanted cnn=1.6    one that is to become faster

Loads, in process unless it says otherwise:
  langid, lstm-64, lstm-256, lstm-1024, trees-150, trees-1024, pairs, silero    saturated
  http-langid, http-lstm-256, http-silero                                       saturated over HTTP
  transformer, cnn                  one request in flight; cnn over HTTP
  half-load-256, half-load-1024     p90 of LSTMs at half of what the base takes
  manager                           the manager's benchmark

Nothing else should run meanwhile. Exit status 1 if the median of any load's ratios is below what
is wanted. Needs Python 3.11 or later with venv; installs the rest into target/against.";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,
    /// The number of turns, each of which measures both builds
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    turns: u16,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    seconds: f64,
    /// Measure this load alone; repeatable
    #[arg(long, value_name = "LOAD")]
    only: Vec<String>,
    /// Leave this load out; repeatable
    #[arg(long, value_name = "LOAD")]
    skip: Vec<String>,
    /// The least median ratio of a load, instead of the 0.98 or 0.9 that the table shows; repeatable
    #[arg(long, value_name = "LOAD=RATIO", value_parser = goal)]
    wanted: Vec<(String, f64)>,
    #[command(flatten)]
    data: Data,
    /// The file that receives the figures, a JSON object a load and turn
    #[arg(long, default_value = "target/against/turns.jsonl")]
    runs: PathBuf,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| "expected seconds, from 0.1 to 600".to_owned())
}

fn goal(text: &str) -> Result<(String, f64), String> {
    let parsed = text.split_once('=').and_then(|(load, ratio)| {
        let ratio = ratio.parse().ok().filter(|ratio: &f64| ratio.is_finite() && *ratio > 0.0)?;
        Some((load.to_owned(), ratio))
    });
    parsed.ok_or_else(|| "expected LOAD=RATIO, as cnn=1.6".to_owned())
}

/// The turns of a load, or of one function of a benchmark.
#[derive(Debug)]
struct Row {
    name: String,
    wanted: f64,
    unit: &'static str,
    better: Better,
    pairs: Vec<Pair>,
}

impl Row {
    fn passes(&self) -> bool {
        !self.pairs.is_empty() && Summary::of(&self.pairs, self.better).ratio >= self.wanted
    }
}

/// Builds, measures and prints.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let goals = goals(&arguments.only, &arguments.skip, &arguments.wanted)?;
    let mut runs = figures_file::create(&arguments.runs)?;
    let builds = arguments.which.build()?;
    let maker = Maker::new(&builds, &arguments.data, arguments.seconds)?;
    let loads = goals.into_iter().map(|(name, wanted)| {
        eprintln!("preparing {name}");
        maker.load(name, wanted).with_context(|| format!("load {name}"))
    });
    let loads: Vec<Load> = loads.collect::<anyhow::Result<_>>()?;
    let mut rows: Vec<Row> = Vec::new();
    for turn in 0..u64::from(arguments.turns) {
        for load in &loads {
            for (name, pair) in measure(load, &builds, turn, arguments.seconds)? {
                let &Load { wanted, unit, better, .. } = load;
                let row = rows.iter().position(|row| row.name == name).unwrap_or(rows.len());
                if row == rows.len() {
                    let (name, pairs) = (name.clone(), Vec::new());
                    rows.push(Row { name, wanted, unit, better, pairs });
                }
                if pair.base <= 0.0 {
                    eprintln!("turn {}: {name}: the base answered nothing in time", turn + 1);
                    continue;
                }
                let line = json!({
                    "load": name, "turn": turn, "base": pair.base, "now": pair.now,
                    "ratio": pair.ratio(better),
                });
                writeln!(runs, "{line}")?;
                eprintln!(
                    "turn {} of {}: {name}: base {}, now {} {}, ratio {:.3}",
                    turn + 1,
                    arguments.turns,
                    shown(pair.base),
                    shown(pair.now),
                    unit,
                    pair.ratio(better),
                );
                rows[row].pairs.push(pair);
            }
        }
    }
    print!("{}", table(&rows));
    println!("every turn: {}", arguments.runs.display());
    match rows.iter().filter(|row| !row.passes()).count() {
        0 => Ok(()),
        count => bail!("{count} of {} are below what is wanted", rows.len()),
    }
}

/// A turn of a load.
fn measure(
    load: &Load,
    builds: &Builds,
    turn: u64,
    seconds: f64,
) -> anyhow::Result<Vec<(String, Pair)>> {
    let of = |side| load.measure(builds, side, turn, seconds);
    // Neither build is always the first.
    let (base, now) = if turn.is_multiple_of(2) {
        let base = of(Side::Base)?;
        (base, of(Side::Now)?)
    } else {
        let now = of(Side::Now)?;
        (of(Side::Base)?, now)
    };
    let pairs = base.iter().filter_map(|(what, base)| {
        let &(_, now) = now.iter().find(|(of, _)| of == what)?;
        let name = format!("{} {what}", load.name).trim().to_owned();
        Some((name, Pair { base: *base, now }))
    });
    let pairs: Vec<(String, Pair)> = pairs.collect();
    ensure!(!pairs.is_empty(), "{}: the two builds have no figure in common", load.name);
    if turn == 0 && (pairs.len() < base.len() || pairs.len() < now.len()) {
        eprintln!("note: {}: figures that one of the builds lacks are left out", load.name);
    }
    Ok(pairs)
}

/// Medians, the median, least and most of the ratios, and whether that is as wanted.
fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:<28} {:>11} {:>11} {:<11} {:>6} {:>15} {:>7}\n",
        "load", "base", "now", "", "ratio", "least to most", "wanted"
    );
    for row in rows {
        let summary = Summary::of(&row.pairs, row.better);
        let _ = writeln!(
            text,
            "{:<28} {:>11} {:>11} {:<11} {:>6.3} {:>15} {:>7.2}  {}",
            row.name,
            shown(summary.base),
            shown(summary.now),
            row.unit,
            summary.ratio,
            format!("{:.3} to {:.3}", summary.least, summary.most),
            row.wanted,
            if row.passes() { "ok" } else { "BELOW" },
        );
    }
    text
}

/// Four digits, or all of a large number.
fn shown(figure: f64) -> String {
    let digits = (3 - figure.abs().max(1e-3).log10().floor() as i32).clamp(0, 6);
    format!("{figure:.*}", digits as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_pass_by_the_median_of_their_ratios() {
        let pairs = |now: [f64; 3]| now.map(|now| Pair { base: 1000.0, now }).to_vec();
        let row = |name: &str, better, now| Row {
            name: name.to_owned(),
            wanted: 0.98,
            unit: "ms",
            better,
            pairs: pairs(now),
        };
        let rows = [
            row("fast", Better::Less, [500.0, 2000.0, 1000.0]),
            row("slow", Better::Less, [1100.0, 1100.0, 900.0]),
        ];
        assert!(rows[0].passes() && !rows[1].passes());
        let text = table(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains(" 1.000  0.500 to 2.000    0.98  ok"), "{text}");
        assert!(lines[2].contains(" 0.909  0.909 to 1.111    0.98  BELOW"), "{text}");
    }

    #[test]
    fn figures_have_four_digits() {
        assert_eq!([123_456.7, 12.345, 0.12345].map(shown), ["123457", "12.35", "0.1235"]);
    }
}
