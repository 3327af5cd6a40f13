//! A closed batch of cell graphs, level by level: which runs go together, and how long each
//! must be padded.

use std::collections::BTreeMap;
use std::ops::Range;

use batchmaker_graph::{CellGraph, CellTypeId, Item, RequestId, RunIndex, RunKind};

use crate::config::{PadTo, Padding};

/// Runs of one cell type that do not depend on each other, of all members of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) cell_type: CellTypeId,
    pub(super) kind: RunKind,
    pub(super) runs: Vec<(RequestId, RunIndex)>,
    /// The number of nodes of each run, padding included.
    pub(super) length: u32,
    /// The number of nodes of each run, without padding.
    pub(super) lengths: Vec<u32>,
    /// For each run of nodes that feed each other, the nodes that may run together, in their order.
    pub(super) waves: Vec<Vec<Range<u32>>>,
}

/// A request's length in nodes: that of its longest chain, or of its longest run if it has none.
pub(super) fn length_of(graph: &CellGraph) -> u32 {
    let chains = graph.runs().iter().filter(|run| run.kind == RunKind::Chain);
    let longest = chains.map(|run| run.length).max();
    longest.or(graph.runs().iter().map(|run| run.length).max()).expect("a graph has a run")
}

/// The number of chains of the graph by depth and cell type; of runs, if it has no chains.
pub(super) fn widths(graph: &CellGraph) -> BTreeMap<(u32, CellTypeId), u32> {
    let mut widths = BTreeMap::new();
    let has_chains = graph.chains() > 0;
    for (depth, run) in depths(graph).into_iter().zip(graph.runs()) {
        if run.kind == RunKind::Chain || !has_chains {
            *widths.entry((depth, run.cell_type)).or_default() += 1;
        }
    }
    widths
}

/// The levels of `members`, producers before consumers.
pub(super) fn levels<'a>(
    members: impl Iterator<Item = (RequestId, &'a CellGraph)>,
    padding: Padding,
) -> Vec<Level> {
    type Key = (u32, CellTypeId, bool);
    let mut levels: BTreeMap<Key, Level> = BTreeMap::new();
    // A run that is as long as its request runs to the bucket's bound.
    let mut bounds: BTreeMap<Key, u32> = BTreeMap::new();
    for (request, graph) in members {
        let request_length = length_of(graph);
        let bound = (padding.bucket(request_length) + 1).saturating_mul(padding.width);
        for ((depth, run), index) in depths(graph).into_iter().zip(graph.runs()).zip(0..) {
            let is_nodes = run.kind == RunKind::Nodes;
            let key = (depth, run.cell_type, is_nodes);
            let level = levels.entry(key).or_insert_with(|| Level {
                cell_type: run.cell_type,
                kind: run.kind,
                runs: Vec::new(),
                length: 0,
                lengths: Vec::new(),
                waves: Vec::new(),
            });
            assert_eq!(level.kind, run.kind, "{} is a chain and row by row", run.cell_type);
            level.runs.push((request, RunIndex(index)));
            level.lengths.push(run.length);
            level.length = level.length.max(run.length);
            if is_nodes {
                level.waves.push(run.waves().collect());
            }
            if run.length == request_length {
                bounds.insert(key, bound);
            }
        }
    }
    for (key, level) in &mut levels {
        // One row in every member is a row of the request, not of a step.
        let is_over_time =
            level.kind == RunKind::Chain || (level.kind == RunKind::Rows && level.length > 1);
        if let (PadTo::Bucket, true, Some(&bound)) = (padding.to, is_over_time, bounds.get(key)) {
            level.length = level.length.max(bound);
        }
    }
    levels.into_values().collect()
}

/// For each run, the number of runs on the longest path to it.
fn depths(graph: &CellGraph) -> Vec<u32> {
    let mut depths: Vec<u32> = Vec::with_capacity(graph.runs().len());
    for run in graph.runs() {
        let before = run.edges.iter().map(|edge| depths[edge.producer.index()] + 1);
        depths.push(before.max().unwrap_or(0));
    }
    depths
}

/// Rows of a level that run together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RowBatch {
    pub(super) items: Vec<Item>,
    /// Rows, padding included.
    pub(super) rows: u32,
    pub(super) padding: u64,
    /// The requests with more than padding in it.
    pub(super) holders: Vec<RequestId>,
}

impl Level {
    /// Cuts a row-wise level into batches of at most `limit` rows; those of a later list need all of
    /// the lists before.
    pub(super) fn row_batches(&self, limit: u32) -> Vec<Vec<RowBatch>> {
        let item = |&(request, run): &(RequestId, RunIndex), first| Item {
            request,
            run,
            first,
            count: 0,
            slot: None,
            moved_from: None,
        };
        if self.kind == RunKind::Nodes {
            let waves = self.waves.iter().map(Vec::len).max().unwrap_or(0);
            let wave = |number: usize| {
                let mut batches = Vec::new();
                for (run, waves) in self.runs.iter().zip(&self.waves) {
                    let Some(nodes) = waves.get(number) else { continue };
                    let count = nodes.len() as u32;
                    RowBatch::cut(&mut batches, limit, item(run, nodes.start), count, u32::MAX);
                }
                batches
            };
            return (0..waves).map(wave).collect();
        }
        let mut batches = Vec::new();
        for (run, &length) in self.runs.iter().zip(&self.lengths) {
            RowBatch::cut(&mut batches, limit, item(run, 0), self.length, length);
        }
        vec![batches]
    }
}

impl RowBatch {
    /// Adds `rows` rows from that of `item` on, of which those from `length` on are padding, to the
    /// last batch, and to new ones where it is full.
    pub(super) fn cut(batches: &mut Vec<Self>, limit: u32, item: Item, rows: u32, length: u32) {
        let (mut first, end) = (item.first, item.first + rows);
        while first < end {
            if batches.last().is_none_or(|batch| batch.rows == limit) {
                batches.push(Self::default());
            }
            let batch = batches.last_mut().expect("one was just pushed");
            let count = (limit - batch.rows).min(end - first);
            let nodes = length.saturating_sub(first).min(count);
            batch.items.push(Item { first, count, ..item });
            batch.rows += count;
            batch.padding += u64::from(count - nodes);
            if nodes > 0 {
                batch.holders.push(item.request);
            }
            first += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{CellGraphBuilder, ElementType, RowSpec, Rows, Sink, SinkTime};

    use super::*;

    /// A chain of `length`, rows over all its steps, and a head on the last.
    fn graph(length: u32) -> CellGraph {
        let row = || RowSpec::new(ElementType::F32, [1]);
        let mut graph = CellGraphBuilder::new();
        let [x, y, z, head] = [length, length, length, 1].map(|rows| graph.value(row(), rows));
        let every = |value| vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::all(value) }];
        graph.chain(CellTypeId(0), length, vec![Rows::all(x)], vec![None], every(y));
        graph.rows(CellTypeId(1), length, vec![Rows::all(y)], every(z));
        graph.rows(CellTypeId(2), 1, vec![Rows::one(y, length - 1)], every(head));
        graph.finish().unwrap()
    }

    fn lengths(of: &[u32], to: PadTo) -> Vec<(u32, u32)> {
        let graphs: Vec<CellGraph> = of.iter().map(|&length| graph(length)).collect();
        let request = |index| RequestId { index, generation: 0 };
        let members = (0..).zip(&graphs).map(|(index, graph)| (request(index), graph));
        let levels = levels(members, Padding { width: 10, to });
        levels.iter().map(|level| (level.cell_type.0, level.length)).collect()
    }

    #[test]
    fn steps_are_padded_and_heads_are_not() {
        assert_eq!(lengths(&[3, 7, 1], PadTo::Longest), [(0, 7), (1, 7), (2, 1)]);
        assert_eq!(lengths(&[3, 7, 1], PadTo::Bucket), [(0, 10), (1, 10), (2, 1)]);
        assert_eq!(lengths(&[11, 20], PadTo::Bucket), [(0, 20), (1, 20), (2, 1)]);
    }

    #[test]
    fn rows_are_cut_at_the_limit() {
        let runs = (0..2).map(|index| (RequestId { index, generation: 0 }, RunIndex(1)));
        let level = Level {
            cell_type: CellTypeId(0),
            kind: RunKind::Rows,
            runs: runs.collect(),
            length: 5,
            lengths: vec![5, 2],
            waves: Vec::new(),
        };
        let batches = level.row_batches(4).remove(0);
        let summary: Vec<_> = batches
            .iter()
            .map(|batch| {
                let items = batch.items.iter().map(|item| (item.first, item.count));
                (items.collect::<Vec<_>>(), batch.rows, batch.padding)
            })
            .collect();
        assert_eq!(
            summary,
            [(vec![(0, 4)], 4, 0), (vec![(4, 1), (0, 3)], 4, 1), (vec![(3, 2)], 2, 2)]
        );
    }
}
