//! The last report of a worker that is lost is its loss, and others go on.

use batchmaker_graph::{Join, RequestId, RunIndex, SlotId, TensorData, Work, WorkerId};

use crate::conformance::case::{Case, Check, Outcome, ensure};
use crate::conformance::cases::chains::CELL;
use crate::conformance::cases::sessions::alone;
use crate::conformance::cells::ChainCell;
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::Chain;
use crate::conformance::harness::Harness;
use crate::conformance::subject::{LoseWorker, Subject};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::skippable("losses/the other worker goes on", lost).with_workers(2),
        Case::skippable("losses/a state that is lost with its worker", lost_state).with_workers(2),
    ]
}

fn skipped() -> Outcome {
    Outcome::Skipped("no worker can be lost".to_owned())
}

/// Two equal requests of one chain, which has run alone on the first worker.
struct Scene {
    harness: Harness,
    lose: LoseWorker,
    whole: Vec<TensorData>,
    /// What leaves the first worker's roster with its next task.
    leaves: Vec<SlotId>,
    ids: [RequestId; 2],
    slots: [SlotId; 2],
}

impl Scene {
    /// None where no worker can be lost.
    fn new(subject: &dyn Subject) -> Check<Option<Self>> {
        let cell = ChainCell::all()[0].cell();
        let mut harness = Harness::new(subject, vec![cell.clone()])?;
        let Some(lose) = harness.lose.take() else { return Ok(None) };
        let request = Chain::new(&cell, CELL, 8, 1).request(&cell);
        let whole = alone(&mut harness, &request)?;
        let leaves = harness.leave(0, CELL);
        let ids = [harness.admit(&request)?, harness.admit(&request)?];
        let slots = [(); 2].map(|()| harness.take_slot(CELL));
        Ok(Some(Self { harness, lose, whole, leaves, ids, slots }))
    }
}

fn lost(subject: &dyn Subject) -> Check<Outcome> {
    let Some(scene) = Scene::new(subject)? else { return Ok(skipped()) };
    let Scene { mut harness, lose, whole, leaves, ids, slots } = scene;
    let mut leaves = [leaves, Vec::new()];
    for at in 0..2 {
        let join =
            Join { request: ids[at], run: RunIndex(0), slot: slots[at], step: 0, moved_from: None };
        let leaves = std::mem::take(&mut leaves[at]);
        let first = Work::Roster { leaves, joins: vec![join], steps: 4 };
        let second = Work::Roster { leaves: Vec::new(), joins: Vec::new(), steps: 4 };
        harness.workers[at].submit([(CELL, first), (CELL, second)])?;
    }
    lose(WorkerId(0));
    // Nothing of the others may be in flight any more.
    let third = Work::Roster { leaves: vec![slots[0]], joins: Vec::new(), steps: 1 };
    harness.workers[0].submit([(CELL, third)])?;
    let reason = harness.workers[0].wait_for_loss()?;
    ensure!(!reason.is_empty(), "a worker is lost for no reason");
    harness.device.retire(ids[0]);
    let done = harness.workers[1].drain()?;
    ensure!(done.len() == 2 && done.iter().all(|done| done.result.is_ok()), "{done:?}");
    same_bits("the other's chain", &harness.finish(1, ids[1])?, &whole)?;
    let late = harness.workers[0].next()?;
    ensure!(late.is_none(), "{late:?} after the loss");
    Ok(Outcome::Passed)
}

/// A chain waits on the first worker, which is lost. Where memory is not shared, the task that takes its state over may fail, and the request is
/// of no use; the worker that was to run it goes on with others.
fn lost_state(subject: &dyn Subject) -> Check<Outcome> {
    let Some(scene) = Scene::new(subject)? else { return Ok(skipped()) };
    let Scene { mut harness, lose, whole, leaves, ids, slots } = scene;
    let join = |at: usize, step, moved_from| {
        vec![Join { request: ids[at], run: RunIndex(0), slot: slots[at], step, moved_from }]
    };
    let roster = |leaves, joins, steps| Work::Roster { leaves, joins, steps };
    harness.workers[0].run([(CELL, roster(leaves, join(0, 0, None), 4))])?;
    let moved_from = harness.moved_from(0);
    lose(WorkerId(0));
    let works = [
        roster(Vec::new(), join(0, 4, moved_from), 4),
        roster(vec![slots[0]], join(1, 0, None), 8),
    ];
    harness.workers[1].submit(works.map(|work| (CELL, work)))?;
    let done = harness.workers[1].drain()?;
    ensure!(done.len() == 2, "{done:?}");
    ensure!(done[1].result.is_ok(), "the task behind it: {:?}", done[1]);
    same_bits("the chain of the other request", &harness.finish(1, ids[1])?, &whole)?;
    let reason = harness.workers[0].wait_for_loss()?;
    ensure!(!reason.is_empty(), "a worker is lost for no reason");
    harness.device.retire(ids[0]);
    Ok(Outcome::Passed)
}
