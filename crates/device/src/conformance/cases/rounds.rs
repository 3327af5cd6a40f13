//! Rounds: several tasks, of several cell types, in one `submit`; and rounds before the last one is
//! over.

use batchmaker_graph::{CellTypeId, Join, RunIndex, Work};

use crate::conformance::case::{Case, Check, ensure};
use crate::conformance::cases::row_wise;
use crate::conformance::cells::{ChainCell, TREE_SIZES, arg_max, random_linear, tree};
use crate::conformance::graphs::Chain;
use crate::conformance::harness::Harness;
use crate::conformance::subject::Subject;

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("rounds/tasks of several types end in order", several_types)]
}

fn several_types(subject: &dyn Subject) -> Check {
    let [leaf, _] = tree(true, TREE_SIZES[0]);
    let lstm = ChainCell::all()[0].cell();
    let linear = arg_max(random_linear());
    let mut harness = Harness::new(subject, vec![linear.clone(), lstm.clone(), leaf.clone()])?;
    let [linear_id, lstm_id, leaf_id] = [0, 1, 2].map(CellTypeId);
    let chain = Chain::new(&lstm, lstm_id, 6, 1).request(&lstm);
    let rows = row_wise::request(&linear, linear_id, 5, 2);
    let leaves = row_wise::request(&leaf, leaf_id, 4, 3);
    let requests = [chain, rows, leaves];
    let ids = harness.admit_all(&requests)?;
    let slot = harness.take_slot(lstm_id);
    let join = Join { request: ids[0], run: RunIndex(0), slot, step: 0, moved_from: None };
    let roster = |joins, steps| (lstm_id, Work::Roster { leaves: Vec::new(), joins, steps });
    let item = |at: usize, first, count| Work::Rows(vec![row_wise::item(ids[at], first, count)]);
    let worker = &mut harness.workers[0];
    let mut tasks = worker.submit([
        roster(vec![join], 2),
        (linear_id, item(1, 0, 2)),
        (leaf_id, item(2, 0, 1)),
        roster(Vec::new(), 3),
    ])?;
    tasks.extend(worker.submit([(leaf_id, item(2, 1, 3)), roster(Vec::new(), 1)])?);
    tasks.extend(worker.submit([(linear_id, item(1, 2, 3))])?);
    let done = worker.drain()?;
    let over: Vec<_> = done.iter().map(|done| done.task).collect();
    ensure!(over == tasks, "tasks {tasks:?} end as {over:?}");
    ensure!(done.iter().all(|done| done.result.is_ok()), "a task failed: {done:?}");
    for (id, request) in ids.into_iter().zip(&requests) {
        let outputs = harness.finish(0, id)?;
        harness.check(request, &outputs)?;
    }
    Ok(())
}
