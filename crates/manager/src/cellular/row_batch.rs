//! `FormBatchedTask` of Algorithm 1 for row-wise nodes: the task lists its rows.

use batchmaker_graph::{CellTypeId, Item, TaskId, Work, WorkerId};

use crate::cellular::subgraph_pool::SubgraphPool;
use crate::cellular::workers::InFlightWork;

/// Forms the task `task` of the waiting subgraphs' nodes that are ready for `worker`, in order. Nodes
/// that these make ready in their own subgraphs are for the next batch. Returns the number of rows with
/// the task.
pub(super) fn form(
    pool: &mut SubgraphPool,
    cell_type: CellTypeId,
    worker: WorkerId,
    task: TaskId,
) -> Option<(Work, InFlightWork, u32)> {
    let limit = pool.queues[cell_type].config.batch_sizes.max;
    if pool.queues[cell_type].waiting_nodes(worker) == 0 {
        return None;
    }
    let (mut items, mut in_flight) = (Vec::new(), Vec::new());
    pool.models_of_batch.clear();
    let (mut rows, mut after) = (0, None);
    while rows < limit {
        let next = pool.readiness().next_waiting(cell_type, worker, after);
        let Some((key, index)) = next else { break };
        after = Some(key);
        let count = pool.requests.ready(index, worker).min(limit - rows);
        rows += count;
        pool.note_submission(index, worker);
        let subgraph = &mut pool.requests[index];
        let first = subgraph.submitted;
        subgraph.submitted += count;
        subgraph.pin = Some(worker);
        subgraph.last_task = task;
        in_flight.push((index, subgraph.submitted));
        let (request, run) = (subgraph.request, subgraph.run);
        if pool.is_timed {
            pool.note_model_of_rows(cell_type, request, count);
        }
        items.push(Item { request, run, first, count, slot: None, moved_from: None });
        pool.refresh(index);
    }
    // Only now: a consumer of the same type may not run in one batch with its producer, and a
    // subgraph that goes back in the order may not come twice.
    for (&(index, submitted), item) in in_flight.iter().zip(&items) {
        pool.follow_served_rows(index);
        pool.wake_consumers_between(index, item.first, submitted);
    }
    pool.queues[cell_type].counters.count(1, rows as usize, 0);
    Some((Work::Rows(items), InFlightWork::Rows(in_flight), rows))
}
