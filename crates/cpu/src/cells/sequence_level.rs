//! Sequence-level programs over the values of requests: gathers the spans of nodes, has the executor run
//! them, and scatters what comes out.

use std::collections::VecDeque;
use std::sync::Arc;

use batchmaker_executor::{ExecutorError, ExecutorThreads, SequenceBatch, SequenceProgram};
use batchmaker_graph::{Item, RequestId, RowSpec, Rows, TensorData, Work};

use crate::memory::batch_tensor::Gathered;
use crate::memory::request_memory::RequestMemory;

/// A node and the rows that each input and output port has of it.
struct Node<'a> {
    memory: &'a RequestMemory,
    inputs: &'a [Rows],
    outputs: Vec<&'a Rows>,
}

/// The nodes of `items`, in whose memories they are.
fn nodes<'a>(
    program: &SequenceProgram,
    items: &[Item],
    memories: &'a [Arc<RequestMemory>],
) -> Vec<Option<Node<'a>>> {
    let node = |(item, memory): (&Item, &'a Arc<RequestMemory>)| {
        let run = &memory.graph.runs()[item.run.index()];
        assert_eq!(run.length, 1, "a sequence is one node");
        assert_eq!(run.sinks.len(), program.outputs().len(), "one sink for each port");
        // Nodes past the end of a run are padding.
        if item.first > 0 || item.count == 0 {
            return None;
        }
        let by_port = |port| run.sinks.iter().find(|sink| sink.port == port).map(|s| &s.rows);
        let outputs = 0..program.outputs().len();
        let outputs = outputs.map(|port| by_port(port).expect("a sink a port")).collect();
        Some(Node { memory, inputs: &run.inputs, outputs })
    };
    items.iter().zip(memories).map(node).collect()
}

fn batches(program: &SequenceProgram, nodes: &[&Node<'_>]) -> Vec<SequenceBatch> {
    program.batches(nodes.iter().map(|node| {
        let rows = node.inputs.iter().chain(node.outputs.iter().copied());
        rows.map(|rows| rows.span).collect()
    }))
}

/// Divides the nodes of `items` into parts that run as one batch each, those of equal spans together where that is
/// possible, and appends these to `parts`, at least one.
pub(crate) fn divide_sequences(
    program: &SequenceProgram,
    items: Vec<Item>,
    memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
    parts: &mut VecDeque<Work>,
) {
    if items.len() <= 1 {
        return parts.push_back(Work::Rows(items));
    }
    let memories: Vec<_> = items.iter().map(|item| memory_of(item.request)).collect();
    let nodes = nodes(program, &items, &memories);
    let (items, nodes): (Vec<Item>, Vec<&Node<'_>>) =
        items.iter().zip(&nodes).filter_map(|(&item, node)| Some((item, node.as_ref()?))).unzip();
    let batches = batches(program, &nodes);
    if batches.is_empty() {
        return parts.push_back(Work::Rows(Vec::new()));
    }
    let part =
        |batch: SequenceBatch| Work::Rows(batch.nodes.iter().map(|&node| items[node]).collect());
    parts.extend(batches.into_iter().map(part));
}

/// Runs the nodes of `items`, one of the parts that [`divide_sequences`] made.
///
/// # Safety
/// The rows that the nodes read are written, and nobody writes them until this returns. Until then nobody else
/// accesses the rows that they write.
pub(crate) unsafe fn run_sequences(
    program: &SequenceProgram,
    items: &[Item],
    memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
    threads: &ExecutorThreads,
) -> Result<(), ExecutorError> {
    let memories: Vec<_> = items.iter().map(|item| memory_of(item.request)).collect();
    let nodes = nodes(program, items, &memories);
    let nodes: Vec<&Node<'_>> = nodes.iter().flatten().collect();
    for batch in batches(program, &nodes) {
        // SAFETY: the caller vouches for the rows of all nodes.
        unsafe { run_batch(program, &batch, &nodes, threads)? };
    }
    Ok(())
}

/// Runs the nodes that `batch` names, as one batch.
///
/// # Safety
/// The rows that these nodes read are written, and nobody writes them until this returns. Until then nobody
/// else accesses the rows that they write.
unsafe fn run_batch(
    program: &SequenceProgram,
    batch: &SequenceBatch,
    nodes: &[&Node<'_>],
    threads: &ExecutorThreads,
) -> Result<(), ExecutorError> {
    let nodes = || batch.nodes.iter().map(|&node| nodes[node]);
    let gather = |(port, row): (usize, &RowSpec)| -> TensorData {
        let span = batch.spans[port];
        let mut gathered = Gathered::with_capacity(row, batch.nodes.len() * span as usize);
        for node in nodes() {
            let from = node.memory.span(&node.inputs[port]);
            // SAFETY: the caller promises that the rows are written.
            unsafe { gathered.append(&from, 0, span) };
        }
        gathered.finish()
    };
    let inputs = program.inputs().enumerate().map(gather).collect();
    let mut outputs = program.run(batch, inputs, threads)?;
    for (port, output) in outputs.iter_mut().enumerate() {
        for (at, node) in nodes().enumerate() {
            let rows = node.outputs[port];
            let skip = at * rows.span as usize;
            // SAFETY: the caller promises that nobody else accesses the target rows. Nobody reads a row before it is written.
            unsafe { node.memory.write_span((&mut *output, skip), rows) };
        }
    }
    Ok(())
}
