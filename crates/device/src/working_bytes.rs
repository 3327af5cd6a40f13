//! The bytes that the nodes of a request take while they run: for devices to use.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use batchmaker_graph::{CellGraph, CellTypeId, Run, RunKind};

/// Returns the most bytes that the nodes of a graph take at a time on `workers` workers, each of which runs one of them:
/// those of the largest ones, as many as there are workers. Of each, what it takes beyond `standing` counts, the bytes
/// that a worker may always take ([`Capabilities::working_bytes`](crate::Capabilities::working_bytes)).
///
/// `node_bytes` gives the bytes of one node of a cell type from the rows that its ports have of it: the input ports, then
/// the output ports that are written, in their order. It is not asked again for the cell type until these change.
pub fn working_bytes(
    graph: &CellGraph,
    standing: u64,
    workers: usize,
    mut node_bytes: impl FnMut(CellTypeId, &[u32]) -> u64,
) -> u64 {
    let mut last: BTreeMap<CellTypeId, (Vec<u32>, u64)> = BTreeMap::new();
    let mut spans = Vec::new();
    // The bytes of the largest nodes, the least first.
    let mut largest: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    for run in graph.runs() {
        list_spans(run, &mut spans);
        let bytes = match last.get_mut(&run.cell_type) {
            Some((known, bytes)) if *known == spans => *bytes,
            known => {
                let bytes = node_bytes(run.cell_type, &spans).saturating_sub(standing);
                match known {
                    Some((known, of_known)) => {
                        known.clone_from(&spans);
                        *of_known = bytes;
                    }
                    None => _ = last.insert(run.cell_type, (spans.clone(), bytes)),
                }
                bytes
            }
        };
        // The nodes of a chain run one after the other.
        let nodes = if run.kind == RunKind::Chain { 1 } else { run.length as usize };
        let counted = if bytes > 0 { nodes.min(workers) } else { 0 };
        for _ in 0..counted {
            if largest.len() == workers {
                match largest.peek_mut() {
                    Some(mut least) if least.0 < bytes => *least = Reverse(bytes),
                    _ => break,
                }
            } else {
                largest.push(Reverse(bytes));
            }
        }
    }
    largest.into_iter().fold(0, |sum, Reverse(bytes)| sum.saturating_add(bytes))
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
    fn the_largest_nodes_count_and_equal_ones_are_asked_for_once() {
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
        let bytes = working_bytes(&graph, 100, 1, |cell_type, spans| {
            asked.push((cell_type, spans.to_vec()));
            u64::from(spans[0]) * 100
        });
        let spans = |steps| (CellTypeId(3), vec![steps, 1, 2]);
        assert_eq!((bytes, asked), (600, vec![spans(7), spans(5), spans(7)]));
        assert_eq!(working_bytes(&graph, u64::MAX, 1, |_, _| 100), 0);
        // Four nodes take 600 bytes beyond those that are always there, two take 400.
        for (workers, expected) in [(2, 1200), (5, 2800), (64, 3200)] {
            let bytes = working_bytes(&graph, 100, workers, |_, spans| u64::from(spans[0]) * 100);
            assert_eq!(bytes, expected, "{workers} workers");
        }
    }

    #[test]
    fn nodes_of_a_chain_run_one_after_the_other() {
        let row = RowSpec::flat(ElementType::F32, 1);
        let mut graph = CellGraphBuilder::new();
        let x = graph.input(row, 5);
        graph.chain(CellTypeId(0), 5, vec![Rows::all(x)], vec![None], Vec::new());
        graph.rows(CellTypeId(1), 5, vec![Rows::all(x)], Vec::new());
        let graph = graph.finish().unwrap();
        let of = |cell_type, workers| {
            working_bytes(&graph, 0, workers, |known, _| u64::from(known == CellTypeId(cell_type)))
        };
        assert_eq!([of(0, 1), of(0, 3), of(1, 3), of(1, 64)], [1, 1, 3, 5]);
    }
}
