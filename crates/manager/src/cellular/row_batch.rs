//! `FormBatchedTask` of Algorithm 1 for row-wise nodes: the task lists its rows.

use batchmaker_graph::{CellTypeId, Item, ModelId, TaskId, Work, WorkerId};

use crate::cellular::subgraph::{QueueKey, SubgraphIndex};
use crate::cellular::subgraph_pool::SubgraphPool;
use crate::cellular::workers::InFlightWork;

/// Forms the task `task` of the waiting subgraphs' nodes that are ready for `worker`, in order; where
/// models share the batch, it is the turn of `model`. Nodes that these make ready in their own subgraphs
/// are for the next batch. Sequences have no more rows in all than fit the time of a round. Returns the
/// number of nodes with the task.
pub(super) fn form(
    pool: &mut SubgraphPool,
    cell_type: CellTypeId,
    worker: WorkerId,
    model: Option<ModelId>,
    task: TaskId,
) -> Option<(Work, InFlightWork, u32)> {
    let limit = pool.queues[cell_type].config.batch_sizes.max;
    if pool.queues[cell_type].waiting_nodes(worker) == 0 {
        return None;
    }
    let (mut items, mut in_flight) = (Vec::new(), Vec::new());
    pool.models_of_batch.clear();
    let seats = pool.seats(cell_type, worker, model, limit);
    let mut dealt = seats.map(|seats| dealt_rows(pool, cell_type, worker, &seats).into_iter());
    let sequence_rows_max = pool.queues[cell_type].sequence_rows.rows_max(limit);
    let (mut rows, mut sequence_rows, mut after) = (0, 0, None);
    while rows < limit {
        let next = match &mut dealt {
            Some(dealt) => dealt.next(),
            None => {
                let next = pool.readiness().next_waiting(cell_type, worker, after);
                next.map(|(key, index)| (key, index, limit - rows))
            }
        };
        let Some((key, index, count_max)) = next else { break };
        after = Some(key);
        let (count, span) =
            (pool.requests.ready(index, worker).min(count_max), pool.requests[index].span);
        if span > 1 {
            if rows > 0 && sequence_rows + u64::from(span) > sequence_rows_max {
                break;
            }
            sequence_rows += u64::from(span);
        }
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
            pool.note_model_of_rows(cell_type, request, count.saturating_mul(span));
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
    pool.sequence_rows_of_batch = sequence_rows;
    Some((Work::Rows(items), InFlightWork::Rows(in_flight), rows))
}

/// The first waiting subgraphs of each model, with the number of their rows, as many as the model has
/// `seats`; in the order of the queue.
#[cold]
fn dealt_rows(
    pool: &SubgraphPool,
    cell_type: CellTypeId,
    worker: WorkerId,
    seats: &[u32],
) -> Vec<(QueueKey, SubgraphIndex, u32)> {
    let mut dealt = Vec::new();
    for (position, &seats) in seats.iter().enumerate() {
        let mut left = seats;
        let mut waiting = pool.readiness().waiting_of(cell_type, worker, position);
        while left > 0
            && let Some((key, index)) = waiting.next()
        {
            let count = pool.requests.ready(index, worker).min(left);
            dealt.push((key, index, count));
            left -= count;
        }
    }
    dealt.sort_unstable();
    dealt
}
