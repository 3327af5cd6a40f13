//! States that are read out of a slot and written into another, where the chain goes on.

use batchmaker_graph::{Cell, Join, RequestId, RunIndex, SlotId, TensorData, Work};

use crate::conformance::case::{Case, Check, ensure};
use crate::conformance::cases::chains::CELL;
use crate::conformance::cases::sessions::{alone, check_chunks, chunked, outputs_of};
use crate::conformance::cells::ChainCell;
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::Chain;
use crate::conformance::harness::Harness;
use crate::conformance::subject::Subject;
use crate::contract::{Completion, Read, StatePlace};

pub(super) fn cases() -> Vec<Case> {
    let of_cell = |cell: ChainCell| {
        let case = |what: &str, body: fn(&dyn Subject, &Cell) -> Check| {
            let name = format!("states/{}: {what}", cell.name);
            let case = Case::new(name, move |subject| body(subject, &cell.cell()));
            if cell.has_programs { case.with_programs() } else { case }
        };
        [
            case("a chain goes on in another slot", another_slot),
            case("a session goes on in another slot", another_slot_of_a_session),
        ]
    };
    let mut cases: Vec<Case> = ChainCell::all().into_iter().flat_map(of_cell).collect();
    cases.push(Case::new("states/while other tasks are in flight", beside_tasks));
    cases
}

const LENGTH: u32 = 9;

fn join(request: RequestId, slot: SlotId, step: u32) -> Join {
    Join { request, run: RunIndex(0), slot, step, moved_from: None }
}

fn roster(leaves: Vec<SlotId>, joins: Vec<Join>, steps: u32) -> Work {
    Work::Roster { leaves, joins, steps }
}

fn place(slot: SlotId, step: u32) -> StatePlace {
    StatePlace { cell_type: CELL, slot, step }
}

/// Checks that states are the rows that the whole chain put out after the node before `step`.
fn check_states(cell: &Cell, states: &[TensorData], whole: &[TensorData], step: u32) -> Check {
    ensure!(states.len() == cell.states.len(), "{} states", states.len());
    for (port, (state, row)) in states.iter().zip(&cell.states).enumerate() {
        let (count, first) = (row.elements(), (step as usize - 1) * row.elements());
        let expected = whole[outputs_of(port)[0]].slice(first..first + count);
        let what = format!("state {port} before step {step}");
        same_bits(&what, std::slice::from_ref(state), &[expected])?;
    }
    Ok(())
}

/// After each of some steps, the state is copied to another slot, of the last worker, where a request
/// that has run nothing goes on with it. The first chain goes on too.
fn another_slot(subject: &dyn Subject, cell: &Cell) -> Check {
    let request = Chain::new(cell, CELL, LENGTH, 3).request(cell);
    let whole = alone(&mut Harness::new(subject, vec![cell.clone()])?, &request)?;
    for step in 1..5 {
        let mut harness = Harness::new(subject, vec![cell.clone()])?;
        let last = harness.workers.len() - 1;
        let [first, second] = [harness.admit(&request)?, harness.admit(&request)?];
        let slots = [(); 2].map(|()| harness.take_slot(CELL));
        let begin = roster(Vec::new(), vec![join(first, slots[0], 0)], step);
        harness.workers[0].run([(CELL, begin)])?;
        let states = harness.workers[0].read(Read::State(place(slots[0], step)))?;
        check_states(cell, &states, &whole, step)?;

        harness.workers[last].write_state(place(slots[1], step), states.clone());
        let again = harness.workers[last].read(Read::State(place(slots[1], step)))?;
        same_bits("a state that was just written", &again, &states)?;
        // On its own worker, the first chain leaves, and comes back after the other.
        let leaves = if last == 0 { vec![slots[0]] } else { Vec::new() };
        let go_on = roster(leaves, vec![join(second, slots[1], step)], LENGTH - step);
        harness.workers[last].run([(CELL, go_on)])?;
        let outputs = harness.finish(last, second)?;
        for (port, row) in cell.outputs.iter().enumerate() {
            let [every, end] = outputs_of(port);
            let rows = step as usize * row.elements()..LENGTH as usize * row.elements();
            let after =
                |outputs: &[TensorData]| [outputs[every].slice(rows.clone()), outputs[end].clone()];
            let what = format!("port {port} in the other slot, from step {step} on");
            same_bits(&what, &after(&outputs), &after(&whole))?;
        }
        let leaves = vec![if last == 0 { slots[1] } else { slots[0] }];
        let go_on = roster(leaves, vec![join(first, slots[0], step)], LENGTH - step);
        harness.workers[0].run([(CELL, go_on)])?;
        same_bits("the chain whose state was read", &harness.finish(0, first)?, &whole)?;
    }
    Ok(())
}

/// The state that each chunk leaves is copied to another slot, where the next chunk begins.
fn another_slot_of_a_session(subject: &dyn Subject, cell: &Cell) -> Check {
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let (whole, chunks) = chunked(cell, 5);
    let whole = alone(&mut harness, &whole)?;
    let mut leaves = harness.leave(0, CELL);
    let mut slot = harness.take_slot(CELL);
    let mut outputs = Vec::new();
    for chunk in &chunks {
        let id = harness.admit(chunk)?;
        let length = chunk.graph.runs()[0].length;
        let leaving = std::mem::replace(&mut leaves, vec![slot]);
        let work = roster(leaving, vec![join(id, slot, 0)], length);
        harness.workers[0].run([(CELL, work)])?;
        outputs.push(harness.finish(0, id)?);
        let states = harness.workers[0].read(Read::State(place(slot, 0)))?;
        slot = harness.take_slot(CELL);
        harness.workers[0].write_state(place(slot, 0), states);
    }
    check_chunks(cell, &outputs, &whole)
}

/// States are read and written between tasks of other slots, before any of these is over.
fn beside_tasks(subject: &dyn Subject) -> Check {
    let cell = ChainCell::all()[0].cell();
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let requests = [1, 2].map(|seed| Chain::new(&cell, CELL, LENGTH, seed).request(&cell));
    let mut whole = Vec::new();
    for request in &requests {
        whole.push(alone(&mut harness, request)?);
    }
    let leaves = harness.leave(0, CELL);
    let ids = harness.admit_all(&requests)?;
    let slots = [(); 3].map(|()| harness.take_slot(CELL));
    let worker = &mut harness.workers[0];
    worker.run([(CELL, roster(leaves, vec![join(ids[0], slots[0], 0)], 3))])?;
    let beside = |at| roster(vec![slots[at]], vec![join(ids[1], slots[1], 0)], 4);
    worker.submit([(CELL, beside(0))])?;
    worker.ask(Read::State(place(slots[0], 3)));
    let (mut states, mut tasks) = (None, 0);
    while let Some(report) = worker.next()? {
        match report {
            Completion::Values { data, .. } => states = Some(data.map_err(|e| e.to_string())?),
            Completion::Task(_) => tasks += 1,
            _ => {}
        }
    }
    ensure!(tasks == 1, "{tasks} tasks are over");
    let states = states.ok_or("no state was read")?;
    check_states(&cell, &states, &whole[0], 3)?;
    // The slot is written after one task was submitted, and used by the next.
    worker.submit([(CELL, roster(Vec::new(), Vec::new(), 1))])?;
    worker.write_state(place(slots[2], 3), states);
    worker.submit([
        (CELL, roster(Vec::new(), vec![join(ids[0], slots[2], 3)], LENGTH - 5)),
        (CELL, roster(vec![slots[1]], Vec::new(), 2)),
    ])?;
    let done = worker.drain()?;
    ensure!(done.iter().all(|done| done.result.is_ok()), "a task failed: {done:?}");
    for (at, id) in ids.into_iter().enumerate() {
        same_bits(&format!("chain {at}"), &harness.finish(0, id)?, &whole[at])?;
    }
    Ok(())
}
