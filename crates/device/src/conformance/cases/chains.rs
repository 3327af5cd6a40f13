//! Chains of every cell that has states: joins and leaves at different times, slots used again, initial
//! states, inputs and sinks in all orders; equal bits in both task forms, alone and padded.

use batchmaker_graph::{Cell, CellTypeId, EndOfSequence, RunIndex, TensorData};

use crate::conformance::case::{Case, Check, ensure};
use crate::conformance::cells::ChainCell;
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::{Chain, Order, Request, Sinks};
use crate::conformance::harness::Harness;
use crate::conformance::schedule::{Entry, Form, Schedule};
use crate::conformance::subject::Subject;

pub(super) const CELL: CellTypeId = CellTypeId(0);

/// The number of steps of the longest chain.
const LONGEST: u32 = 12;

pub(super) fn cases() -> Vec<Case> {
    let of_cell = |cell: ChainCell| {
        let case = |what: &str, body: fn(&dyn Subject, &ChainCell) -> Check| {
            let case = Case::new(format!("chains/{}: {what}", cell.name), move |s| body(s, &cell));
            if cell.has_programs { case.with_programs() } else { case }
        };
        [
            case("as the reference", as_the_reference),
            case("both task forms", both_forms),
            case("alone and in batches", alone_and_in_batches),
            case("padding", padding),
        ]
    };
    ChainCell::all().into_iter().flat_map(of_cell).collect()
}

/// Chains of different lengths, with all orders of rows.
pub(super) fn chains(cell: &Cell, sinks: Sinks) -> Vec<Chain> {
    let orders = [Order::Forward, Order::Reversed, Order::Strided, Order::Listed, Order::One];
    let lengths = [4, 1, 7, 3, LONGEST, 5, 2];
    let chain = |(seed, length)| {
        let order = orders[seed as usize % orders.len()];
        Chain { order, sinks, ..Chain::new(cell, CELL, length, seed) }
    };
    (0..).zip(lengths).map(chain).collect()
}

/// Runs chains, which join at different times and are distributed among the workers. Returns the outputs
/// of each, and the ends of sequence that were reported.
pub(super) fn play(
    harness: &mut Harness,
    requests: &[Request],
    schedule: Schedule,
) -> Check<(Vec<Vec<TensorData>>, Vec<EndOfSequence>)> {
    let ids = harness.admit_all(requests)?;
    let joins_at = [0, 1, 1, 3, 3, 6, 8];
    let mut ends = Vec::new();
    for worker in 0..harness.workers.len() {
        let entry = |(index, request): (usize, &Request)| Entry {
            request: ids[index],
            run: RunIndex(0),
            length: request.graph.runs()[0].length,
            at: joins_at[index % joins_at.len()],
        };
        let of_worker = requests.iter().enumerate();
        let of_worker = of_worker.filter(|&(index, _)| harness.worker_of(index) == worker);
        let entries: Vec<Entry> = of_worker.map(entry).collect();
        ends.extend(harness.play(worker, CELL, &entries, schedule)?);
    }
    Ok((harness.finish_all(&ids)?, ends))
}

fn requests(cell: &Cell, sinks: Sinks) -> Vec<Request> {
    chains(cell, sinks).iter().map(|chain| chain.request(cell)).collect()
}

fn as_the_reference(subject: &dyn Subject, cell: &ChainCell) -> Check {
    let cell = cell.cell();
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    for sinks in [Sinks::All, Sinks::First, Sinks::Last] {
        let requests = requests(&cell, sinks);
        let (outputs, ends) = play(&mut harness, &requests, Schedule::of(Form::Roster))?;
        for (at, (request, outputs)) in requests.iter().zip(&outputs).enumerate() {
            let checked = harness.check(request, outputs);
            checked.map_err(|reason| format!("chain {at}, sinks {sinks:?}: {reason}"))?;
        }
        ensure!(ends.is_empty(), "ends of chains that have no end of sequence: {ends:?}");
    }
    Ok(())
}

fn both_forms(subject: &dyn Subject, cell: &ChainCell) -> Check {
    let cell = cell.cell();
    for sinks in [Sinks::All, Sinks::First] {
        let requests = requests(&cell, sinks);
        let play = |form| {
            let mut harness = Harness::new(subject, vec![cell.clone()])?;
            play(&mut harness, &requests, Schedule::of(form))
        };
        let (rosters, rows) = (play(Form::Roster)?.0, play(Form::Rows)?.0);
        for (at, (rows, roster)) in rows.iter().zip(&rosters).enumerate() {
            same_bits(&format!("chain {at} as explicit rows"), rows, roster)?;
        }
    }
    Ok(())
}

fn alone_and_in_batches(subject: &dyn Subject, cell: &ChainCell) -> Check {
    let cell = cell.cell();
    let requests = requests(&cell, Sinks::First);
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let schedule = Schedule::of(Form::Roster);
    let (together, _) = play(&mut harness, &requests, schedule)?;
    for (at, (request, together)) in requests.iter().zip(&together).enumerate() {
        let (alone, _) = play(&mut harness, std::slice::from_ref(request), schedule)?;
        same_bits(&format!("chain {at} alone"), &alone[0], together)?;
    }
    // The same in a batch of several times as many rows.
    let many: Vec<Request> = (0..5).flat_map(|_| requests.clone()).collect();
    let (many, _) = play(&mut harness, &many, schedule)?;
    for (at, outputs) in many.iter().enumerate() {
        same_bits(&format!("chain {at} of many"), outputs, &together[at % together.len()])?;
    }
    Ok(())
}

fn padding(subject: &dyn Subject, cell: &ChainCell) -> Check {
    let cell = cell.cell();
    for sinks in [Sinks::All, Sinks::First] {
        let requests = requests(&cell, sinks);
        let play = |schedule| {
            let mut harness = Harness::new(subject, vec![cell.clone()])?;
            play(&mut harness, &requests, schedule)
        };
        let (expected, _) = play(Schedule::of(Form::Roster))?;
        for form in [Form::Roster, Form::Rows] {
            let padded_to = Some(LONGEST + 3);
            let (padded, ends) = play(Schedule { form, steps: &[5, 1, 6, 2], padded_to })?;
            for (at, (padded, expected)) in padded.iter().zip(&expected).enumerate() {
                same_bits(&format!("chain {at} padded, {form:?}"), padded, expected)?;
            }
            ensure!(ends.is_empty(), "padding ends chains: {ends:?}");
        }
    }
    Ok(())
}
