//! The suite that every device passes: a list of [`cases`], each of which makes a new device, drives it
//! as a manager would, and compares its results with the [reference](crate::reference).
//!
//! A device's own test implements [`Subject`] and calls [`run_all`]. A case that needs an optional
//! ability which the device lacks is skipped, and listed in the [`Summary`]: the device's test names
//! the skips that it expects.
//!
//! | file | idea |
//! |---|---|
//! | `subject.rs` | the device under test, and its optional abilities |
//! | `case.rs` | a rule and the function that checks it |
//! | `harness.rs` | a device with cells and workers, and the requests on it |
//! | `checked_worker.rs` | a worker that checks each report of its queue |
//! | `schedule.rs` | chains as tasks, in either form: joins, leaves, slots used again, padding |
//! | `oracle.rs` | a whole cell graph by the reference |
//! | `compare.rs` | closeness, and equal bits |
//! | `numbers.rs`, `cells.rs`, `graphs.rs` | weights and inputs, cells, requests |
//! | `programs.rs`, `onnx.rs` | programs with known results, written as ONNX files |
//! | `cases/` | the cases, a file for each rule |

mod case;
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

pub use case::{Case, Outcome};
pub use cases::cases;
pub use programs::{SuiteProgram, run_program};
pub use subject::{Instance, LoseWorker, Subject};

/// The outcomes of the cases, none of which failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of cases that passed.
    pub passed: usize,
    /// The names of the cases that were skipped.
    pub skipped: Vec<String>,
}

/// Runs all cases and prints a line for each.
///
/// # Panics
/// If one fails, after the last one, with all failures.
pub fn run_all(subject: &dyn Subject) -> Summary {
    run(subject, cases())
}

/// Runs `cases` and prints a line for each.
///
/// # Panics
/// If one fails, after the last one, with all failures.
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
                summary.skipped.push(name.to_owned());
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
