//! `cargo xtask sim`: many seeds on all cores, or one to look at.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::bail;
use batchmaker_sim::{Options, Summary, Violation};
use indicatif::{ProgressBar, ProgressStyle};

use crate::cargo::cargo;

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask sim --seeds 1000               seeds 0 to 999
  cargo xtask sim --seeds 1000 --from 5000   seeds 5000 to 5999
  cargo xtask sim --seed 1234 --trace        one seed, each event on a line";

/// Set in the optimised process that does the work.
const INNER: &str = "BATCHMAKER_XTASK_SIM";

/// Assertions and overflow checks stay on where it runs fast.
const PROFILE: [(&str, &str); 3] = [
    (INNER, "1"),
    ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The number of seeds to run
    #[arg(long, default_value_t = 1000, conflicts_with = "seed")]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    from: u64,
    /// Run this seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// Print every event, task and answer of the seed
    #[arg(long, requires = "seed")]
    trace: bool,
}

/// Runs the simulations, in a process that is built with optimisation.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if std::env::var_os(INNER).is_none() {
        let inner = ["run", "--quiet", "--release", "--package", env!("CARGO_PKG_NAME"), "--"];
        let own = std::env::args().skip(1);
        let all: Vec<String> = inner.into_iter().map(str::to_owned).chain(own).collect();
        return cargo(&all, &PROFILE);
    }
    match arguments.seed {
        Some(seed) => one(seed, arguments.trace),
        None => many(arguments.from, arguments.seeds),
    }
}

fn one(seed: u64, is_traced: bool) -> anyhow::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout());
    // A reader who has seen enough closes the pipe; the run goes on to its verdict.
    let mut print = |line: &str| drop(writeln!(out, "{line}"));
    let listener: Option<&mut dyn FnMut(&str)> = if is_traced { Some(&mut print) } else { None };
    let result = batchmaker_sim::run(seed, Options { listener, ..Options::default() });
    out.flush().ok();
    match result {
        Ok(summary) => println!("{summary}"),
        Err(violation) => bail!("{violation}"),
    }
    Ok(())
}

fn many(from: u64, seeds: u64) -> anyhow::Result<()> {
    let start = Instant::now();
    let style = "{elapsed} {wide_bar} {pos} of {len} seeds";
    let bar = ProgressBar::new(seeds).with_style(ProgressStyle::with_template(style)?);
    let next = AtomicU64::new(from);
    let is_broken = AtomicBool::new(false);
    let total = Mutex::new(Summary::default());
    let violations: Mutex<Vec<Violation>> = Mutex::default();
    let work = || {
        while !is_broken.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + seeds {
                return;
            }
            match batchmaker_sim::run(seed, Options::default()) {
                Ok(summary) => *total.lock().expect("no thread panics") += summary,
                Err(violation) => {
                    is_broken.store(true, Ordering::Relaxed);
                    violations.lock().expect("no thread panics").push(violation);
                }
            }
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let violations = violations.into_inner().expect("no thread panics");
    println!("{}", total.into_inner().expect("no thread panics"));
    println!("wall time      {:.1} s", start.elapsed().as_secs_f64());
    // The lowest seed: seeds before it were started before it, and have all ended.
    if let Some(violation) = violations.into_iter().min_by_key(|violation| violation.seed) {
        bail!("{violation}");
    }
    Ok(())
}
