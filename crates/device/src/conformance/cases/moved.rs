//! Two workers: chains that go on from the state that another worker left, and work on both at once.

use batchmaker_graph::{Cell, Item, Join, RequestId, RunIndex, SlotId, TensorData, Work, WorkerId};

use crate::conformance::case::{Case, Check};
use crate::conformance::cases::chains::{CELL, chains};
use crate::conformance::cases::sessions::{alone, check_chunks, chunked};
use crate::conformance::cells::ChainCell;
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::{Chain, Request, Sinks};
use crate::conformance::harness::Harness;
use crate::conformance::subject::Subject;

pub(super) fn cases() -> Vec<Case> {
    let of_cell = |cell: ChainCell| {
        let case = |what: &str, body: fn(&dyn Subject, &Cell) -> Check| {
            let name = format!("two workers/{}: {what}", cell.name);
            let case = Case::new(name, move |subject| body(subject, &cell.cell())).with_workers(2);
            if cell.has_programs { case.with_programs() } else { case }
        };
        [
            case("a chain moves there and back", there_and_back),
            case("a session moves between chunks", session),
            case("both run at once", at_once),
        ]
    };
    ChainCell::all().into_iter().flat_map(of_cell).collect()
}

fn join(request: RequestId, slot: SlotId, step: u32, moved_from: Option<WorkerId>) -> Join {
    Join { request, run: RunIndex(0), slot, step, moved_from }
}

fn roster(leaves: Vec<SlotId>, joins: Vec<Join>, steps: u32) -> Work {
    Work::Roster { leaves, joins, steps }
}

/// One chain moves to the second worker's roster, back as an item, there as an item, and back to the
/// first roster; another stays. The memories of both workers then hold rows of the first chain.
fn there_and_back(subject: &dyn Subject, cell: &Cell) -> Check {
    const LENGTH: u32 = 10;
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let requests = [1, 2].map(|seed| Chain::new(cell, CELL, LENGTH, seed).request(cell));
    let mut whole = Vec::new();
    for request in &requests {
        whole.push(alone(&mut harness, request)?);
    }
    let leaves = harness.leave(0, CELL);
    let ids = harness.admit_all(&requests)?;
    let slots = [(); 2].map(|()| harness.take_slot(CELL));
    let from = [harness.moved_from(0), harness.moved_from(1)];
    let item = |step, moved_from| {
        let (request, slot) = (ids[0], Some(slots[0]));
        let run = RunIndex(0);
        Work::Rows(vec![Item { request, run, first: step, count: 1, slot, moved_from }])
    };
    let joins = vec![join(ids[0], slots[0], 0, None), join(ids[1], slots[1], 0, None)];
    let tasks = [
        (0, roster(leaves, joins, 3)),
        (0, roster(vec![slots[0]], Vec::new(), 2)),
        (1, roster(Vec::new(), vec![join(ids[0], slots[0], 3, from[0])], 2)),
        (0, item(5, from[1])),
        (0, item(6, None)),
        (1, item(7, from[0])),
        (0, roster(Vec::new(), vec![join(ids[0], slots[0], 8, from[1])], 2)),
        (0, roster(vec![slots[0]], Vec::new(), 3)),
    ];
    for (worker, work) in tasks {
        harness.workers[worker].run([(CELL, work)])?;
    }
    for (at, id) in ids.into_iter().enumerate() {
        let outputs = harness.finish(at, id)?;
        same_bits(&format!("chain {at}"), &outputs, &whole[at])?;
    }
    Ok(())
}

/// Chunks of a session run on either worker in turn.
fn session(subject: &dyn Subject, cell: &Cell) -> Check {
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let (whole, chunks) = chunked(cell, 5);
    let whole = alone(&mut harness, &whole)?;
    let slot = harness.take_slot(CELL);
    let mut leaves = [harness.leave(0, CELL), Vec::new()];
    let mut outputs = Vec::new();
    let mut before = 0;
    for (worker, chunk) in [0, 1, 1, 0, 1].into_iter().zip(&chunks) {
        let id = harness.admit(chunk)?;
        let length = chunk.graph.runs()[0].length;
        let moved_from = (worker != before).then(|| harness.moved_from(before)).flatten();
        let leaving = std::mem::replace(&mut leaves[worker], vec![slot]);
        let work = roster(leaving, vec![join(id, slot, 0, moved_from)], length);
        harness.workers[worker].run([(CELL, work)])?;
        outputs.push(harness.finish(worker, id)?);
        before = worker;
    }
    check_chunks(cell, &outputs, &whole)
}

/// Both workers run chains of their own at the same time.
fn at_once(subject: &dyn Subject, cell: &Cell) -> Check {
    const TURNS: usize = 4;
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let requests: Vec<Request> =
        chains(cell, Sinks::First).iter().map(|chain| chain.request(cell)).collect();
    let mut expected: Vec<Vec<TensorData>> = Vec::new();
    for request in &requests {
        expected.push(alone(&mut harness, request)?);
    }
    let mut leaves = [harness.leave(0, CELL), Vec::new()];
    let ids: Vec<Vec<Vec<RequestId>>> = (0..2)
        .map(|_| (0..TURNS).map(|_| harness.admit_all(&requests)).collect::<Check<_>>())
        .collect::<Check<_>>()?;
    let slots: Vec<Vec<SlotId>> =
        (0..2).map(|_| requests.iter().map(|_| harness.take_slot(CELL)).collect()).collect();
    let steps = requests.iter().map(|request| request.graph.runs()[0].length).max();
    let steps = steps.ok_or("no chains")?;
    std::thread::scope(|scope| -> Check {
        let workers = harness.workers.iter_mut().zip(&mut leaves).zip(ids.iter().zip(&slots));
        let mut threads = Vec::new();
        for ((worker, leaves), (ids, slots)) in workers {
            threads.push(scope.spawn(move || -> Check {
                for ids in ids {
                    let joins = ids.iter().zip(slots);
                    let joins = joins.map(|(&id, &slot)| join(id, slot, 0, None)).collect();
                    let leaving = std::mem::replace(leaves, slots.clone());
                    // Shorter chains run padding.
                    let rest = roster(Vec::new(), Vec::new(), steps - 2);
                    worker.run([(CELL, roster(leaving, joins, 2)), (CELL, rest)])?;
                }
                Ok(())
            }));
        }
        for thread in threads {
            thread.join().map_err(|_| "a worker panicked")??;
        }
        Ok(())
    })?;
    for ids in ids.iter().flatten() {
        for (at, &id) in ids.iter().enumerate() {
            same_bits(&format!("chain {at}"), &harness.finish(0, id)?, &expected[at])?;
        }
    }
    Ok(())
}
