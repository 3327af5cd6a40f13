//! Positions of requests and ids of cell types are used again.

use batchmaker_graph::{
    Cell, CellTypeId, Item, Join, RequestId, RunIndex, SlotId, TensorData, Work,
};

use crate::conformance::case::{Case, Check, ensure};
use crate::conformance::cases::chains::CELL;
use crate::conformance::cells::ChainCell;
use crate::conformance::graphs::Chain;
use crate::conformance::harness::{Harness, cell_type};
use crate::conformance::schedule::{Entry, Form, Schedule};
use crate::conformance::subject::Subject;
use crate::contract::{Read, StatePlace};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("lifetimes/a request's position is used again", positions),
        Case::new("lifetimes/a type taken twice and given back once", taken_twice),
        Case::new("lifetimes/a type's id stands for another cell", another_cell),
        Case::new("lifetimes/a type is taken while others are used", taken_while_used),
        Case::new("lifetimes/many slots", many_slots),
        Case::new("lifetimes/rows that nobody has written are zeros", unwritten),
    ]
}

/// Runs a chain on `worker`, as the request `id`, and checks it against the reference.
fn run(
    harness: &mut Harness,
    worker: usize,
    id: RequestId,
    cell_type: CellTypeId,
    (length, seed): (u32, u32),
) -> Check<Vec<TensorData>> {
    let cell = harness.cells[cell_type.index()].clone();
    let request = Chain::new(&cell, cell_type, length, seed).request(&cell);
    harness.admit_as(id, &request.graph, request.inputs.clone())?;
    let entry = Entry { request: id, run: RunIndex(0), length, at: 0 };
    harness.play(worker, cell_type, &[entry], Schedule::of(Form::Roster))?;
    let outputs = harness.finish(worker, id)?;
    harness.check(&request, &outputs)?;
    Ok(outputs)
}

/// A request has the position of one that was retired while its chain was still on a roster.
fn positions(subject: &dyn Subject) -> Check {
    let mut harness = Harness::new(subject, vec![ChainCell::all()[0].cell()])?;
    for generation in 0..6 {
        let id = RequestId { index: 2, generation };
        let worker = harness.worker_of(generation as usize);
        run(&mut harness, worker, id, CELL, (7 - generation, generation))?;
    }
    Ok(())
}

fn taken_twice(subject: &dyn Subject) -> Check {
    let cell = ChainCell::all()[0].cell();
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    harness.materialize(CELL, &cell)?;
    for generation in 0..3 {
        let id = RequestId { index: 0, generation };
        run(&mut harness, 0, id, CELL, (5, generation))?;
        if generation == 0 {
            harness.device.release(CELL);
        }
    }
    Ok(())
}

/// The cell under an id changes, with other sizes and other states, while the chains of the cell before
/// never left their rosters.
fn another_cell(subject: &dyn Subject) -> Check {
    let cells: Vec<Cell> = ChainCell::all()
        .iter()
        .filter(|cell| !cell.has_programs || subject.runs_programs())
        .map(ChainCell::cell)
        .collect();
    let stays = ChainCell::all()[1].cell();
    let mut harness = Harness::new(subject, vec![cells[0].clone(), stays])?;
    let mut generation = 0;
    for cell in &cells {
        if generation > 0 {
            harness.device.release(CELL);
            harness.rosters.retain(|&(_, cell_type), _| cell_type != CELL);
            harness.materialize(CELL, cell)?;
            harness.cells[0] = cell.clone();
        }
        for worker in 0..harness.workers.len() {
            for cell_type in [CELL, CellTypeId(1)] {
                let id = RequestId { index: 1, generation };
                run(&mut harness, worker, id, cell_type, (5, generation))?;
                generation += 1;
            }
        }
    }
    Ok(())
}

/// A chain that runs two nodes, in memory that the values of another request had before.
fn unwritten(subject: &dyn Subject) -> Check {
    const NODES: usize = 2;
    let cell = ChainCell::all()[0].cell();
    let mut harness = Harness::new(subject, vec![cell])?;
    let id = |generation| RequestId { index: 0, generation };
    let all = run(&mut harness, 0, id(0), CELL, (6, 1))?;
    let cell = harness.cells[0].clone();
    let request = Chain::new(&cell, CELL, 6, 1).request(&cell);
    harness.admit_as(id(1), &request.graph, request.inputs.clone())?;
    let slot = harness.take_slot(CELL);
    let join = Join { request: id(1), run: RunIndex(0), slot, step: 0, moved_from: None };
    let leaves = harness.leave(0, CELL);
    let work = Work::Roster { leaves, joins: vec![join], steps: NODES as u32 };
    harness.workers[0].run([(CELL, work)])?;
    let some = harness.finish(0, id(1))?;
    let mut all_written = 0;
    for ((&value, all), some) in request.graph.outputs().iter().zip(&all).zip(&some) {
        let (TensorData::F32(all), TensorData::F32(some)) = (all, some) else {
            return Err("an output is not of numbers".into());
        };
        let rows = request.graph.values()[value.index()].rows as usize;
        let width = all.len() / rows;
        let is_written = |row: &&[f32]| row.iter().any(|&x| x != 0.0);
        let written = some.chunks(width).filter(is_written).count();
        ensure!(written <= NODES, "{written} rows of {rows} are written");
        all_written += written;
        let mut pairs = some.chunks(width).zip(all.chunks(width));
        ensure!(pairs.all(|(row, of_all)| !is_written(&row) || row == of_all), "other rows");
    }
    ensure!(all_written >= NODES, "{all_written} rows are written");
    Ok(())
}

/// On another thread, a type is materialised and released, and requests are admitted and retired, while
/// a chain of another type runs.
fn taken_while_used(subject: &dyn Subject) -> Check {
    let cells = ChainCell::all();
    let mut harness = Harness::new(subject, vec![cells[0].cell()])?;
    let cell = harness.cells[0].clone();
    let request = Chain::new(&cell, CELL, 6, 1).request(&cell);
    let id = harness.admit(&request)?;
    let slot = harness.take_slot(CELL);
    let join = Join { request: id, run: RunIndex(0), slot, step: 0, moved_from: None };
    let work = |joins| {
        let leaves = Vec::new();
        (CELL, Work::Roster { leaves, joins, steps: 3 })
    };
    let (device, other) = (harness.device.clone(), cell_type("other", &cells[5].cell()));
    let brief = request.clone();
    let others = std::thread::spawn(move || -> Check {
        for generation in 0..20 {
            let id = CellTypeId(7);
            device.materialize(id, &other).map_err(|error| error.to_string())?;
            let come = RequestId { index: 1, generation };
            let admitted = device.admit(come, brief.graph.clone(), brief.inputs.clone());
            admitted.map_err(|error| error.to_string())?;
            device.retire(come);
            device.release(id);
        }
        Ok(())
    });
    harness.workers[0].run([work(vec![join]), work(Vec::new())])?;
    others.join().map_err(|_| "the other thread panics")??;
    let outputs = harness.finish(0, id)?;
    harness.check(&request, &outputs)
}

/// Runs more chains at a time than one block of memory may hold.
fn many_slots(subject: &dyn Subject) -> Check {
    let cell = ChainCell::all()[0].cell();
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let count = harness.device.capabilities().slots_max.unwrap_or(300).min(300);
    let request = Chain::new(&cell, CELL, 2, 3).request(&cell);
    let ids: Vec<RequestId> = (0..count).map(|_| harness.admit(&request)).collect::<Check<_>>()?;
    // In small batches, as a device may bound their rows. All chains stay until the end.
    let mut slots = Vec::new();
    for ids in ids.chunks(20) {
        let mut joins = Vec::new();
        for &request in ids {
            let slot = harness.take_slot(CELL);
            let (run, moved_from) = (RunIndex(0), None);
            joins.push(Join { request, run, slot, step: 0, moved_from });
        }
        let items = joins.iter().map(|join| Item {
            request: join.request,
            run: join.run,
            first: 0,
            count: 1,
            slot: Some(join.slot),
            moved_from: None,
        });
        let work = Work::Rows(items.collect());
        harness.workers[0].run([(CELL, work)])?;
        slots.extend(joins.iter().map(|join| join.slot));
    }
    let first = read(&mut harness, slots[0])?;
    for &slot in &slots {
        ensure!(read(&mut harness, slot)? == first, "the state in {slot:?} is another");
    }
    Ok(())
}

fn read(harness: &mut Harness, slot: SlotId) -> Check<Vec<TensorData>> {
    harness.workers[0].read(Read::State(StatePlace { cell_type: CELL, slot, step: 1 }))
}
