//! Divides a request into subgraphs: one for each run of its cell graph.

use batchmaker_graph::{CellGraph, Run, RunIndex, RunKind, TaskId};

use crate::cellular::request_table::{Arrival, Request};
use crate::cellular::sessions::Kept;
use crate::cellular::subgraph::{Consumer, Place, QueueKey, Subgraph, SubgraphEdge};
use crate::cellular::subgraph_pool::SubgraphPool;
use crate::decisions::Decisions;

/// Adds a request that arrived, with its subgraphs, to the pool. The subgraphs are in no queue yet.
/// `take_kept` takes the slot that the chunk before left for a run's chain.
pub(super) fn partition(
    pool: &mut SubgraphPool,
    arrived: &Arrival,
    mut take_kept: impl FnMut(RunIndex) -> Option<Kept>,
) {
    let Arrival { request: id, model, priority, deadline_ns, ref graph, session, at_ns } = *arrived;
    assert!(!graph.runs().is_empty(), "{id:?} has nothing to run");
    let (arrival, mut subgraphs) = pool.requests.next_arrival(id);
    let tag = pool.fair_places.as_mut().map_or(arrival, |places| places.start(model));
    let is_large = pool.fair_places.as_ref().is_some_and(|places| places.is_large(graph.nodes()));
    let mut rows_before = if is_large { rows_of_other_types(pool, graph) } else { Vec::new() };
    let mut workers = 0;
    for (run, index) in graph.runs().iter().zip(0..) {
        let queue = &mut pool.queues[run.cell_type];
        queue.note_run(run.cell_type, run.kind, run.stop.is_some());
        let model_position = match pool.shares {
            Some(_) => queue.position_of(run.cell_type, model),
            None => 0,
        };
        let run_index = RunIndex(index);
        let rows_before = rows_before.get_mut(run.cell_type.index());
        let rows_before = rows_before.map_or(0, |rows| {
            let of_earlier_runs = *rows;
            *rows = rows.saturating_add(run.length);
            of_earlier_runs
        });
        let (tag_of_run, place_until) = match &pool.fair_places {
            Some(places) if is_large => places.place_of_node(tag, rows_before, 0),
            _ => (tag, u32::MAX),
        };
        let kept = take_kept(run_index);
        let home = kept.and_then(|kept| kept.home);
        workers |= home.map_or(0, |home| 1 << home.0);
        let subgraph = pool.requests.new_subgraph(Subgraph {
            request: id,
            run: run_index,
            cell_type: run.cell_type,
            kind: run.kind,
            length: run.length,
            span: span_of(run),
            reached_end_of_sequence: false,
            is_guarded: run.guard.is_some(),
            precedence: run.precedence.clone(),
            key: QueueKey::new(priority, tag_of_run, arrival, run_index),
            model_position,
            rows_before,
            place_until,
            edges: Vec::new(),
            consumers: Vec::new(),
            consumer_span_max: 0,
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
            let consumer = Consumer::new(subgraph, edge.need, producer.length, run.length);
            // Edges come consumer by consumer, so a repeated one is the last.
            match producer.consumers.last_mut().filter(|last| last.index == subgraph) {
                Some(last) => {
                    last.from = last.from.min(consumer.from);
                    last.until = last.until.max(consumer.until);
                }
                None => producer.consumers.push(consumer),
            }
        }
        if run.edges.len() > 1 {
            // Only where there are many is it noted which are met.
            pool.requests.forget_edges_met(subgraph);
            let free = |edge: &SubgraphEdge| edge.need.available(0, u32::MAX, run.length);
            pool.requests[subgraph].edges.sort_by_key(free);
        }
        subgraphs.push(subgraph);
    }
    for &index in &subgraphs {
        let producer = &mut pool.requests[index];
        if producer.consumers.len() > 1 {
            producer.consumers.sort_by_key(|consumer| consumer.from);
        }
        let spans = producer.consumers.iter().map(|consumer| consumer.until - consumer.from);
        producer.consumer_span_max = spans.max().unwrap_or(0);
    }
    let request = Request {
        generation: id.generation,
        is_live: true,
        model: Some(model),
        priority,
        arrived_ns: at_ns,
        deadline_ns,
        large_tag: is_large.then_some(tag),
        fills_batches: is_large && fills_a_batch(pool, graph),
        session,
        workers,
        unfinished: subgraphs.len(),
        decisions: Decisions::of(graph),
        subgraphs,
        ..Request::default()
    };
    let is_best_on_one_worker = is_best_on_one_worker(pool, graph);
    pool.requests.insert(id, request, is_best_on_one_worker);
}

/// Whether `graph` alone is best computed on one worker at a time: each chain depends on the one before, and a step takes the cores of as many
/// workers as could have a chain each. Nodes that feed each other run on one core a batch, so several workers compute them sooner.
fn is_best_on_one_worker(pool: &SubgraphPool, graph: &CellGraph) -> bool {
    let workers_of = |run: &Run| pool.queues[run.cell_type].config.workers_of_a_row as usize;
    let most = graph.runs().iter().map(workers_of).max().unwrap_or(1);
    if most == 1 {
        return false;
    }
    // For each run, the most chains up to it that depend on each other.
    let mut depths: Vec<usize> = Vec::with_capacity(graph.runs().len());
    let mut chains = 0;
    for run in graph.runs() {
        let producers = run.edges.iter().map(|edge| depths[edge.producer.index()]);
        let mut depth = producers.max().unwrap_or(0);
        match run.kind {
            RunKind::Nodes => return false,
            RunKind::Chain if depth < chains => return false,
            RunKind::Chain => (depth, chains) = (depth + 1, chains + 1),
            RunKind::Rows => {}
        }
        depths.push(depth);
    }
    most >= chains.min(pool.requests.workers().count())
}

/// The number of rows that the one node of `run` reads or writes together; 1 of any other run.
fn span_of(run: &Run) -> u32 {
    if run.kind != RunKind::Rows || run.length != 1 {
        return 1;
    }
    let inputs = run.inputs.iter().map(|rows| rows.span);
    inputs.chain(run.sinks.iter().map(|sink| sink.rows.span)).max().unwrap_or(1)
}

/// Whether, of some cell type, as many nodes of `graph` may be ready at once as a batch has. Of a chain, one is.
fn fills_a_batch(pool: &SubgraphPool, graph: &CellGraph) -> bool {
    let batch_max = |run: &Run| pool.queues[run.cell_type].config.batch_sizes.max;
    let mut ready = vec![0_u32; pool.queues.iter().len()];
    graph.runs().iter().any(|run| {
        let of_run = if run.kind == RunKind::Chain { 1 } else { run.length };
        let of_type = &mut ready[run.cell_type.index()];
        *of_type = of_type.saturating_add(of_run);
        *of_type >= batch_max(run)
    })
}

/// For each cell type, the number of nodes of `graph` that are of other types.
fn rows_of_other_types(pool: &SubgraphPool, graph: &CellGraph) -> Vec<u32> {
    let all = u32::try_from(graph.nodes()).unwrap_or(u32::MAX);
    let mut rows = vec![all; pool.queues.iter().len()];
    for run in graph.runs() {
        let of_others = &mut rows[run.cell_type.index()];
        *of_others = of_others.saturating_sub(run.length);
    }
    rows
}
