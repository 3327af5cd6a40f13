//! The bytes that the nodes of a request take while they run: for devices to use.

use std::collections::BTreeMap;

use batchmaker_graph::{CellGraph, CellTypeId, Run};

/// Returns the bytes that the node of a graph which takes most of them takes beyond `standing`, the bytes that a worker
/// may always take ([`Capabilities::working_bytes`](crate::Capabilities::working_bytes)).
///
/// `node_bytes` gives the bytes of one node of a cell type from the rows that its ports have of it: the input ports, then
/// the output ports that are written, in their order. It is not asked again for the cell type until these change.
pub fn working_bytes(
    graph: &CellGraph,
    standing: u64,
    mut node_bytes: impl FnMut(CellTypeId, &[u32]) -> u64,
) -> u64 {
    let mut last: BTreeMap<CellTypeId, Vec<u32>> = BTreeMap::new();
    let mut spans = Vec::new();
    let mut most = 0;
    for run in graph.runs() {
        list_spans(run, &mut spans);
        if last.get(&run.cell_type) == Some(&spans) {
            continue;
        }
        most = node_bytes(run.cell_type, &spans).max(most);
        last.entry(run.cell_type).or_default().clone_from(&spans);
    }
    most.saturating_sub(standing)
}

/// Lists the rows that each port has of a node of `run`.
fn list_spans(run: &Run, spans: &mut Vec<u32>) {
    spans.clear();
    spans.extend(run.inputs.iter().map(|rows| rows.span));
    let is_sorted = run.sinks.is_sorted_by_key(|sink| sink.port);
    if is_sorted {
        return spans.extend(run.sinks.iter().map(|sink| sink.rows.span));
    }
    let mut sinks: Vec<_> = run.sinks.iter().map(|sink| (sink.port, sink.rows.span)).collect();
    sinks.sort_unstable();
    spans.extend(sinks.iter().map(|&(_, span)| span));
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{CellGraphBuilder, ElementType, RowSpec, Rows, Sink, SinkTime};

    use super::*;

    #[test]
    fn the_largest_node_counts_and_equal_ones_are_asked_for_once() {
        let row = RowSpec::flat(ElementType::F32, 1);
        let mut graph = CellGraphBuilder::new();
        let (x, y) = (graph.input(row.clone(), 1000), graph.value(row, 1000));
        let mut first = 0;
        for span in [7, 7, 7, 5, 5, 7] {
            let sinks = [(1, first + 1), (0, first)].map(|(port, row)| Sink {
                port,
                time: SinkTime::Every,
                rows: Rows::spanning(y, row, 1 + port as u32),
            });
            graph.rows(CellTypeId(3), 1, vec![Rows::spanning(x, 0, span)], sinks.into());
            first += 3;
        }
        let graph = graph.finish().unwrap();
        let mut asked = Vec::new();
        let bytes = working_bytes(&graph, 100, |cell_type, spans| {
            asked.push((cell_type, spans.to_vec()));
            u64::from(spans[0]) * 100
        });
        let spans = |steps| (CellTypeId(3), vec![steps, 1, 2]);
        assert_eq!((bytes, asked), (600, vec![spans(7), spans(5), spans(7)]));
        assert_eq!(working_bytes(&graph, u64::MAX, |_, _| 100), 0);
    }
}
