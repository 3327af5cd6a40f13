//! The seeded simulator: the real manager over a simulated device, in virtual time, with
//! checkers that check every event.
//!
//! One seed draws a scenario: the policy, workers, lookahead, cell types with their limits, bounds
//! and costs, models, arrivals, lengths, sessions, cancellations, lost workers, failing and slow
//! tasks, steps that are reported before their task is over, rows that are read as they come. Some have models in stages. Some
//! have clients that send one request after the other for long, so that whoever starves is noticed. A
//! **safety** phase with all of that is followed by a **liveness** phase, in which nothing arrives,
//! nothing goes wrong, and everything must drain within a bounded number of steps. The same seed
//! plays the same run, event for event.
//!
//! # The files
//! - `scenario` draws a scenario from its seed, with `graphs`, `trees`, `stages`, `session_plan` and `rng`.
//! - `simulation` plays it. `observation` is what it sees of the manager, `ledger` keeps the books of
//!   that, and `checkers` hold the rules.
//! - `oracle` evaluates a request alone; `sessions` keeps the clients' side of sessions.
//! - `gpu_shaped` compares policies in virtual time, without faults and checkers; `quanta` plays launches that run task after task.
//! - `trace` and `report` are what is left of a simulation.
//!
//! # The rules
//! - `checkers`: a node once and after its predecessors, the shape of batches, the order of
//!   queues, pinning, slots, sessions, answers, progress.
//! - The device refuses rows and states that are not there yet or not there any more.
//! - The values of a request that succeeds are those that its graph has when evaluated alone; a
//!   chunk of a session goes on from the chunk before.
//! - Rows that are read as they come are there, and are those of the reply.
//! - The manager's own assertions.
//!
//! [`Sabotage`] breaks a rule on purpose, to test that a checker or the device reports it.
//!
//! Not simulated: the engine's threads and the network.

#![forbid(unsafe_code)]

mod arrival;
mod checkers;
pub mod gpu_shaped;
mod graphs;
mod ledger;
mod observation;
mod oracle;
pub mod quanta;
mod report;
mod rng;
mod sabotage;
mod scenario;
mod session_plan;
mod sessions;
mod simulation;
mod stages;
mod trace;
mod trees;

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use report::{Summary, Violation};
pub use sabotage::Sabotage;
use scenario::Scenario;
use simulation::{Broken, Simulation};
use trace::Trace;

/// The number of the last events that a [`Violation`] holds.
const TRACE_LINES: usize = 40;

/// The options of a simulation.
#[derive(Default)]
pub struct Options<'a> {
    /// Gets a line for every event, task and answer.
    pub listener: Option<&'a mut dyn FnMut(&str)>,
    /// The mistake that is made on purpose.
    pub sabotage: Sabotage,
}

/// Runs the simulation that is drawn from `seed`.
///
/// # Errors
/// The first rule that was broken; a panic of the manager counts as one.
pub fn run(seed: u64, options: Options<'_>) -> Result<Summary, Violation> {
    let (is_heard, sabotage) = (options.listener.is_some(), options.sabotage);
    let mut violation = match play(seed, sabotage, options.listener) {
        Ok(summary) => return Ok(summary),
        Err(violation) => violation,
    };
    if !is_heard {
        // Once more for its last lines, which are not kept while all is well.
        let mut tail = VecDeque::new();
        let mut listener = |line: &str| {
            if tail.len() == TRACE_LINES {
                tail.pop_front();
            }
            tail.push_back(line.to_owned());
        };
        let _ = play(seed, sabotage, Some(&mut listener));
        violation.trace = tail.into();
    }
    Err(violation)
}

fn play(
    seed: u64,
    sabotage: Sabotage,
    listener: Option<&mut dyn FnMut(&str)>,
) -> Result<Summary, Violation> {
    let clock_ns = Cell::new(0);
    let played = catch_unwind(AssertUnwindSafe(|| match listener {
        // Two arms, since a listener's lifetime cannot shrink inside an option.
        Some(listener) => {
            let mut listener = |line: &str| listener(line);
            let mut trace = Trace::new(&clock_ns, Some(&mut listener));
            Simulation::new(Scenario::draw(seed), sabotage, &mut trace).run()
        }
        None => {
            let mut trace = Trace::new(&clock_ns, None);
            Simulation::new(Scenario::draw(seed), sabotage, &mut trace).run()
        }
    }));
    let Broken { checker, what } = match played {
        Ok(Ok(summary)) => return Ok(summary),
        Ok(Err(broken)) => broken,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let what = text.unwrap_or("a panic without a text").to_owned();
            Broken { checker: "assertion".to_owned(), what }
        }
    };
    Err(Violation { seed, now_ns: clock_ns.get(), checker, what, trace: Vec::new() })
}
