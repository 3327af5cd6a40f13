//! Batches of row-wise cells: gathers the rows of nodes, runs them as one batch, and scatters what comes out.

use std::collections::VecDeque;
use std::sync::Arc;

use batchmaker_graph::{Item, RequestId, RowSpec, SinkTime, TensorData, Work};

use crate::memory::batch_tensor::Gathered;
use crate::memory::request_memory::RequestMemory;

/// Divides the rows of `items` into parts of at most `rows_max` rows, as equal as they can be, which it appends to `parts`.
pub(crate) fn divide_rows(items: Vec<Item>, rows_max: usize, parts: &mut VecDeque<Work>) {
    let rows = items.iter().map(|item| item.count as usize).sum::<usize>();
    let batches = rows.div_ceil(rows_max);
    if batches <= 1 {
        return parts.push_back(Work::Rows(items));
    }
    let (mut items, mut done) = (items.into_iter(), 0);
    let mut rest: Option<Item> = None;
    for batch in 1..=batches {
        let end = batch * rows / batches;
        let mut own = Vec::new();
        while done < end
            && let Some(item) = rest.take().or_else(|| items.next())
        {
            let count = item.count.min((end - done) as u32);
            own.push(Item { count, ..item });
            done += count as usize;
            let (first, left) = (item.first + count, item.count - count);
            rest = (left > 0).then_some(Item { first, count: left, ..item });
        }
        parts.push_back(Work::Rows(own));
    }
}

/// Gathers the rows of `items`, has `run` compute them as one batch, and scatters its outputs. `run` receives
/// the number of rows and a tensor for each port of `inputs`. Padding is rows of zeros.
///
/// # Safety
/// The rows that the nodes of `items` read are written, and nobody writes them until this returns. Until then
/// nobody else accesses the rows that they write.
pub(crate) unsafe fn run_rows<E>(
    run: impl FnOnce(usize, Vec<TensorData>) -> Result<Vec<TensorData>, E>,
    inputs: &[RowSpec],
    items: &[Item],
    memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
) -> Result<(), E> {
    let memories: Vec<_> = items.iter().map(|item| memory_of(item.request)).collect();
    let items = || items.iter().zip(&memories);
    let rows = items().map(|(item, _)| item.count as usize).sum();
    let gather = |(port, spec): (usize, &RowSpec)| {
        let mut gathered = Gathered::with_capacity(spec, rows);
        for (item, memory) in items() {
            let from = memory.rows(&memory.graph.runs()[item.run.index()].inputs[port]);
            let nodes = nodes_of(item, memory);
            // SAFETY: the caller promises that these rows are written.
            unsafe { gathered.append(&from, item.first, nodes) };
            gathered.skip(item.count - nodes);
        }
        gathered.finish()
    };
    let inputs = inputs.iter().enumerate().map(gather).collect();
    let mut outputs = run(rows, inputs)?;
    let mut skip = 0;
    for (item, memory) in items() {
        let run = &memory.graph.runs()[item.run.index()];
        for sink in &run.sinks {
            // The nodes whose rows the sink takes.
            let nodes = item.first..item.first + nodes_of(item, memory);
            let nodes = match sink.time {
                SinkTime::Every => nodes,
                SinkTime::Last => nodes.end.saturating_sub(1).max(nodes.start)..nodes.end,
            };
            let Some(first) = nodes.clone().next().and_then(|node| run.sink_node(sink.time, node))
            else {
                continue;
            };
            let skip = skip + (nodes.start - item.first) as usize;
            let (output, count) = (&mut outputs[sink.port], nodes.len() as u32);
            let is_needed = run.sinks.iter().filter(|other| other.port == sink.port).count() > 1;
            // SAFETY: each row of a run is given out once, and the caller promises that nobody else accesses the row that it writes. Nobody
            // reads a row before it is written.
            unsafe { memory.write((output, skip), &sink.rows, (first, count), is_needed) };
        }
        skip += item.count as usize;
    }
    Ok(())
}

/// The number of an item's rows that are within its run.
fn nodes_of(item: &Item, memory: &RequestMemory) -> u32 {
    let length = memory.graph.runs()[item.run.index()].length;
    length.saturating_sub(item.first).min(item.count)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use batchmaker_graph::{
        CellGraphBuilder, CellTypeId, ElementType, Rows, RunIndex, Sink, Tensor,
    };

    use super::*;

    const REQUEST: RequestId = RequestId { index: 0, generation: 0 };

    /// Rows of several runs, in batches of at most three, with padding.
    #[test]
    fn many_rows_run_in_batches() {
        let row = RowSpec::flat(ElementType::F32, 1);
        let mut graph = CellGraphBuilder::new();
        let (x, y) = (graph.input(row.clone(), 9), graph.value(row.clone(), 9));
        for (first, length) in [(0, 5), (5, 4)] {
            let rows = |value| Rows::strided(value, first, 1);
            let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: rows(y) }];
            graph.rows(CellTypeId(0), length, vec![rows(x)], sinks);
        }
        graph.output(y);
        let inputs = (0..9).map(|n| n as f32).collect();
        let inputs = vec![Tensor::new(vec![9], TensorData::F32(inputs))];
        let graph = Arc::new(graph.finish().unwrap());
        let memory = Arc::new(RequestMemory::new(graph, inputs, |_| false));
        let item = |run, first, count| {
            let (request, run) = (REQUEST, RunIndex(run));
            Item { request, run, first, count, slot: None, moved_from: None }
        };
        let mut sizes = Vec::new();
        let mut run = |rows, inputs: Vec<TensorData>| -> Result<Vec<TensorData>, ()> {
            sizes.push(rows);
            let TensorData::F32(x) = &inputs[0] else { unreachable!("x is F32") };
            assert_eq!(x.len(), rows);
            Ok(vec![TensorData::F32(x.iter().map(|x| x + 100.0).collect())])
        };
        let mut parts = VecDeque::new();
        divide_rows(vec![item(0, 0, 6), item(1, 0, 1), item(1, 1, 3)], 3, &mut parts);
        for part in parts {
            let Work::Rows(items) = part else { unreachable!("parts of rows are rows") };
            // SAFETY: the test alone accesses the rows, and inputs are written.
            unsafe { run_rows(&mut run, slice::from_ref(&row), &items, |_| memory.clone()) }
                .unwrap();
        }
        assert_eq!(sizes, [2, 3, 2, 3]);
        // SAFETY: nothing runs any more.
        let outputs = unsafe { memory.take_outputs() };
        let expected = (0..9).map(|n| n as f32 + 100.0).collect();
        assert_eq!(outputs, [TensorData::F32(expected)]);
    }
}
