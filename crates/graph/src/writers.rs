//! The runs that write the rows of a value, and what their readers have to wait for.

use std::collections::{BTreeMap, BTreeSet};

use crate::cell_graph::{Edge, Need, SinkTime};
use crate::ids::RunIndex;
use crate::rows::{RowOrder, Rows};

/// The runs that write one value, by row, so that a reader waits for the writers of its own rows only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writers {
    writers: Vec<Writer>,
    /// For each row, the position in `writers` and the writer's node; empty while there is no writer.
    by_row: Vec<Option<(u32, u32)>>,
    /// Rows that were read before any run writes them: they hold zeros, and no later run may write them.
    read_unwritten: BTreeSet<usize>,
}

/// A run that writes rows of a value.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) run: RunIndex,
    pub(crate) time: SinkTime,
    pub(crate) rows: Rows,
    /// The nodes of the run.
    pub(crate) length: u32,
    /// Whether the run has a stop, so that its end is not known.
    pub(crate) is_open: bool,
}

impl Writers {
    /// Whether no run writes the value.
    pub(crate) fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// The run that writes a row, and the number of its first nodes after which it is written.
    pub(crate) fn writer_of(&self, row: usize) -> Option<(RunIndex, u32)> {
        let (writer, node) = self.by_row.get(row).copied().flatten()?;
        let writer = &self.writers[writer as usize];
        let nodes = match writer.time {
            SinkTime::Every => node + 1,
            SinkTime::Last => writer.length,
        };
        Some((writer.run, nodes))
    }

    /// Adds a writer of the rows of its first `written` nodes, in a value of `rows` rows.
    ///
    /// # Errors
    /// Another run writes one of the rows, or an earlier run reads one.
    pub(crate) fn add(&mut self, writer: Writer, written: u32, rows: usize) -> Result<(), String> {
        self.by_row.resize(rows, None);
        let position = self.writers.len() as u32;
        let span = writer.rows.span as usize;
        let value = writer.rows.value;
        for node in 0..written {
            let first = writer.rows.row(node);
            for row in first..first + span {
                if self.by_row[row].replace((position, node)).is_some() {
                    return Err(format!("row {row} of {value} is written twice"));
                }
                if self.read_unwritten.contains(&row) {
                    return Err(format!(
                        "row {row} of {value} is read before the run that writes it"
                    ));
                }
            }
        }
        self.writers.push(writer);
        Ok(())
    }

    /// Adds the edges of `run`, whose `length` nodes read `rows`. Rows that it writes itself are no edges.
    ///
    /// # Errors
    /// A row is written by a run whose end is not known.
    pub(crate) fn add_edges(
        &mut self,
        run: RunIndex,
        rows: &Rows,
        length: u32,
        edges: &mut Edges,
    ) -> Result<(), String> {
        if rows.span > 1 {
            return self.add_edges_of_span(rows, edges);
        }
        let mut last = None;
        let is_one = matches!(rows.order, RowOrder::Strided { stride: 0, .. });
        let is_listed = matches!(rows.order, RowOrder::Listed(_));
        let read = if is_one { 1 } else { length };
        for row in (0..read).map(|node| rows.row(node)) {
            let Some((writer, node)) = self.by_row.get(row).copied().flatten() else {
                self.read_unwritten.insert(row);
                continue;
            };
            if !is_listed && last == Some(writer) {
                continue;
            }
            last = Some(writer);
            let writer = &self.writers[writer as usize];
            if writer.run == run {
                continue;
            }
            check_end(writer)?;
            edges.add(Edge { producer: writer.run, need: need(rows, length, writer, node) });
        }
        Ok(())
    }

    /// Adds the edges of a node that reads all rows of a span.
    fn add_edges_of_span(&mut self, rows: &Rows, edges: &mut Edges) -> Result<(), String> {
        let mut last = None;
        let first = rows.row(0);
        for row in first..first + rows.span as usize {
            let Some((writer, node)) = self.by_row.get(row).copied().flatten() else {
                self.read_unwritten.insert(row);
                continue;
            };
            let writer = &self.writers[writer as usize];
            check_end(writer)?;
            let nodes = match writer.time {
                SinkTime::Every => node + 1,
                SinkTime::Last => writer.length,
            };
            let edge = Edge { producer: writer.run, need: Need::First { nodes } };
            if last != Some(edge) {
                edges.add(edge);
                last = Some(edge);
            }
        }
        Ok(())
    }
}

fn check_end(writer: &Writer) -> Result<(), String> {
    match writer.is_open {
        false => Ok(()),
        true => Err(format!("a run reads what {} writes, whose end is not known", writer.run)),
    }
}

/// The edges of a run that is added.
#[derive(Default)]
pub(crate) struct Edges {
    edges: Vec<Edge>,
    /// The positions of the edges of each producer.
    by_producer: BTreeMap<RunIndex, Vec<usize>>,
}

impl Edges {
    /// Adds an edge. Of two that wait for the first nodes of one producer, the one that waits for more is kept.
    fn add(&mut self, edge: Edge) {
        let known = self.by_producer.entry(edge.producer).or_default();
        if let Need::First { nodes } = edge.need {
            for &position in &*known {
                if let Need::First { nodes: known } = &mut self.edges[position].need {
                    *known = nodes.max(*known);
                    return;
                }
            }
        }
        if !known.iter().any(|&position| self.edges[position] == edge) {
            known.push(self.edges.len());
            self.edges.push(edge);
        }
    }

    /// The edges in the order in which they were added.
    pub(crate) fn finish(self) -> Vec<Edge> {
        self.edges
    }
}

/// The need of the reader of `rows` by `length` nodes, where node `node` of `writer` writes one of them.
fn need(rows: &Rows, length: u32, writer: &Writer, node: u32) -> Need {
    let whole = Need::First { nodes: writer.length };
    if writer.time == SinkTime::Last {
        return whole;
    }
    match (&rows.order, &writer.rows.order) {
        (RowOrder::Listed(_), _) => Need::First { nodes: node + 1 },
        (RowOrder::Strided { stride, .. }, _) if *stride == 0 || length == 1 => {
            Need::First { nodes: node + 1 }
        }
        (
            RowOrder::Strided { first, stride },
            RowOrder::Strided { first: written_first, stride: written_stride },
        ) if stride == written_stride => {
            let apart = i64::from(*first) - i64::from(*written_first);
            Need::Lockstep { offset: apart / i64::from(*stride) }
        }
        _ => whole,
    }
}
