//! Which GPUs hold a row of a request: one computes it, and others copy it when they need it.

use batchmaker_graph::{CellGraph, Rows, ValueIndex};

/// For each row of a request's values, the workers that hold it. None holds a row that nobody has written.
pub(crate) struct RowHolders(Vec<Vec<Held>>);

/// The holders of a row.
#[derive(Clone, Copy, Default)]
struct Held {
    /// A bit for each worker.
    by: u64,
    /// The one that wrote it: others may still be copying it.
    writer: u8,
}

/// Where a worker finds rows that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// In its own memory.
    Own,
    /// In that of another worker.
    Other(usize),
    /// Nowhere: the worker that wrote them is lost.
    Lost,
}

impl RowHolders {
    /// Inputs, which the host holds, are everywhere.
    pub(crate) fn new(graph: &CellGraph) -> Self {
        let unwritten = |rows: u32| vec![Held::default(); rows as usize];
        let mut rows: Vec<_> = graph.values().iter().map(|value| unwritten(value.rows)).collect();
        let everywhere = Held { by: u64::MAX, writer: 0 };
        graph.inputs().iter().for_each(|input| rows[input.index()].fill(everywhere));
        Self(rows)
    }

    /// A worker writes the rows of a node.
    pub(crate) fn write(&mut self, rows: &Rows, node: u32, worker: usize) {
        let first = rows.row(node);
        let held = Held { by: 1 << worker, writer: worker as u8 };
        self.0[rows.value.index()][first..first + rows.span as usize].fill(held);
    }

    /// A worker has copied a row.
    pub(crate) fn copied(&mut self, value: ValueIndex, row: usize, worker: usize) {
        self.0[value.index()][row].by |= 1 << worker;
    }

    /// Where a worker finds a row. What nobody has written is zeros everywhere.
    pub(crate) fn holder(
        &self,
        (value, row): (ValueIndex, usize),
        worker: usize,
        is_lost: impl Fn(usize) -> bool,
    ) -> Holder {
        let Held { by, writer } = self.0[value.index()][row];
        if by == 0 || by >> worker & 1 == 1 {
            return Holder::Own;
        }
        let writer = usize::from(writer);
        if is_lost(writer) { Holder::Lost } else { Holder::Other(writer) }
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{CellGraphBuilder, CellTypeId, ElementType, RowSpec, Sink, SinkTime};

    use super::*;

    #[test]
    fn rows_are_where_they_were_written_and_copied() {
        let row = RowSpec::flat(ElementType::F32, 1);
        let mut graph = CellGraphBuilder::new();
        let (x, y) = (graph.input(row.clone(), 3), graph.value(row, 3));
        let rows = Rows::all(y);
        let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: rows.clone() }];
        graph.rows(CellTypeId(0), 3, vec![Rows::all(x)], sinks);
        let mut holders = RowHolders::new(&graph.finish().unwrap());
        let none = |_| false;
        assert_eq!(holders.holder((x, 2), 5, none), Holder::Own);
        assert_eq!(holders.holder((y, 1), 0, none), Holder::Own, "zeros");
        holders.write(&rows, 1, 1);
        assert_eq!(holders.holder((y, 1), 0, none), Holder::Other(1));
        assert_eq!(holders.holder((y, 1), 0, |worker| worker == 1), Holder::Lost);
        holders.copied(y, 1, 0);
        assert_eq!(holders.holder((y, 1), 0, none), Holder::Own);
        assert_eq!(holders.holder((y, 1), 2, none), Holder::Other(1), "the one that wrote it");
    }
}
