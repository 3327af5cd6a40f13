//! Divides a request into subgraphs: one for each run of its cell graph.

use batchmaker_graph::{RunIndex, TaskId};

use crate::cellular::request_table::{Arrival, Request};
use crate::cellular::sessions::Kept;
use crate::cellular::subgraph::{Place, QueueKey, Subgraph, SubgraphEdge};
use crate::cellular::subgraph_pool::SubgraphPool;

/// Adds a request that arrived, with its subgraphs, to the pool. The subgraphs are in no queue yet.
/// `take_kept` takes the slot that the chunk before left for a run's chain.
pub(super) fn partition(
    pool: &mut SubgraphPool,
    arrived: &Arrival,
    mut take_kept: impl FnMut(RunIndex) -> Option<Kept>,
) {
    let Arrival { request: id, model, priority, ref graph, session, at_ns } = *arrived;
    assert!(!graph.runs().is_empty(), "{id:?} has nothing to run");
    let (arrival, mut subgraphs) = pool.requests.next_arrival(id);
    let priority = if priority == 0 { u32::MAX } else { priority };
    let mut workers = 0;
    for (run, index) in graph.runs().iter().zip(0..) {
        pool.queues[run.cell_type].note_run(run.cell_type, run.kind, run.stop.is_some());
        let run_index = RunIndex(index);
        let kept = take_kept(run_index);
        let home = kept.and_then(|kept| kept.home);
        workers |= home.map_or(0, |home| 1 << home.0);
        let subgraph = pool.requests.new_subgraph(Subgraph {
            request: id,
            run: run_index,
            cell_type: run.cell_type,
            kind: run.kind,
            length: run.length,
            reached_end_of_sequence: false,
            precedence: run.precedence.clone(),
            key: QueueKey { priority, arrival, run: run_index },
            edges: Vec::new(),
            consumers: Vec::new(),
            feeds_own_type: false,
            place: Place::Blocked,
            submitted: 0,
            completed: 0,
            stays: Default::default(),
            pin: None,
            last_task: TaskId(0),
            home,
            slot: kept.map(|kept| kept.slot),
        });
        for edge in &run.edges {
            let index = subgraphs[edge.producer.index()];
            let edge = SubgraphEdge { producer: index, need: edge.need };
            pool.requests[subgraph].edges.push(edge);
            let producer = &mut pool.requests[index];
            producer.feeds_own_type |= producer.cell_type == run.cell_type;
            // Edges come consumer by consumer, so a repeated one is the last.
            if producer.consumers.last() != Some(&subgraph) {
                producer.consumers.push(subgraph);
            }
        }
        subgraphs.push(subgraph);
    }
    let request = Request {
        generation: id.generation,
        is_live: true,
        model: Some(model),
        arrived_ns: at_ns,
        session,
        workers,
        unfinished: subgraphs.len(),
        subgraphs,
        ..Request::default()
    };
    pool.requests.insert(id, request);
}
