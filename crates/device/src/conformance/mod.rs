//! The suite that every device passes: a list of [`cases`], each of which makes a device anew, drives it
//! as a manager would, and compares what it computes with the [reference](crate::reference).
//!
//! A device's own test implements [`Subject`] and calls [`run_all`]. What a device cannot do by its
//! nature is skipped, and the summary says so: the device's test names the skips that it expects.
//!
//! | file | idea |
//! |---|---|
//! | `subject.rs` | the device under test, and what it says of itself |
//! | `harness.rs` | a device with cells and workers, and the requests on it |
//! | `checked_worker.rs` | a worker that checks each report of its queue |
//! | `schedule.rs` | chains as tasks, in either form: joins, leaves, slots used again, padding |
//! | `oracle.rs` | a whole cell graph by the reference |
//! | `compare.rs` | closeness, and equal bits |
//! | `numbers.rs`, `cells.rs`, `graphs.rs` | weights and inputs, cells, requests |
//! | `programs.rs`, `onnx.rs` | programs with known results, written as ONNX files |
//! | `cases/` | the cases, a file for each rule |

mod cases;
mod cells;
mod checked_worker;
mod compare;
mod graphs;
mod harness;
mod numbers;
mod onnx;
mod oracle;
mod programs;
mod schedule;
mod subject;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use cases::cases;
pub use programs::{SuiteProgram, run_program};
pub use subject::{Instance, LoseWorker, Subject};

/// What a check gives, or what is wrong.
type Check<T = ()> = Result<T, String>;

/// Returns an error from a check unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
use ensure;

/// How a case went that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device does as it should.
    Passed,
    /// The device cannot do what the case is about, and need not.
    Skipped(String),
}

type Body = Box<dyn Fn(&dyn Subject) -> Check<Outcome> + Send + Sync>;

/// A rule, or a few that belong together, for some cells.
pub struct Case {
    name: String,
    body: Body,
}

impl Case {
    /// A case that every device can do.
    fn new(
        name: impl Into<String>,
        body: impl Fn(&dyn Subject) -> Check + Send + Sync + 'static,
    ) -> Self {
        Self::skippable(name, move |subject| body(subject).map(|()| Outcome::Passed))
    }

    /// A case that may find that the device need not pass it.
    fn skippable(
        name: impl Into<String>,
        body: impl Fn(&dyn Subject) -> Check<Outcome> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), body: Box::new(body) }
    }

    /// The same case, for devices that run programs.
    fn with_programs(self) -> Self {
        let Self { name, body } = self;
        let body: Body = Box::new(move |subject| match subject.runs_programs() {
            true => body(subject),
            false => Ok(Outcome::Skipped("runs no programs".to_owned())),
        });
        Self { name, body }
    }

    /// The same case, for devices with as many workers.
    fn with_workers(self, workers: usize) -> Self {
        let Self { name, body } = self;
        let body: Body = Box::new(move |subject| match subject.workers() >= workers {
            true => body(subject),
            false => Ok(Outcome::Skipped(format!("fewer than {workers} workers"))),
        });
        Self { name, body }
    }

    /// The group that it belongs to, a slash, and what it looks at.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs it. A panic of the device counts as its failure.
    ///
    /// # Errors
    /// What the device does wrong.
    pub fn run(&self, subject: &dyn Subject) -> Result<Outcome, String> {
        catch_unwind(AssertUnwindSafe(|| (self.body)(subject))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panicked: {}", text.unwrap_or("no message")))
        })
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({})", self.name)
    }
}

/// How the cases went that did not fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of cases that passed.
    pub passed: usize,
    /// The names of the others.
    pub skipped: Vec<String>,
}

/// Runs all cases and prints a line for each.
///
/// # Panics
/// If one fails, after the last one, with all failures.
pub fn run_all(subject: &dyn Subject) -> Summary {
    run(subject, cases())
}

/// Runs some cases as [`run_all`] does.
///
/// # Panics
/// As there.
pub fn run(subject: &dyn Subject, cases: Vec<Case>) -> Summary {
    let mut summary = Summary::default();
    let mut failures = Vec::new();
    for case in cases {
        let outcome = case.run(subject);
        let name = case.name();
        match outcome {
            Ok(Outcome::Passed) => {
                println!("{}: {name}: passed", subject.name());
                summary.passed += 1;
            }
            Ok(Outcome::Skipped(reason)) => {
                println!("{}: {name}: skipped: {reason}", subject.name());
                summary.skipped.push(case.name);
            }
            Err(reason) => {
                println!("{}: {name}: FAILED: {reason}", subject.name());
                failures.push(format!("{name}: {reason}"));
            }
        }
    }
    let count = failures.len();
    assert!(count == 0, "{}: {count} cases fail:\n{}", subject.name(), failures.join("\n"));
    summary
}
