//! Which GPUs hold a row of a request: one computes it, and others copy it when they need it.

use batchmaker_graph::{CellGraph, Rows, ValueIndex};

/// For each row of a request's values, the workers that hold it: a bit for each. None holds a row that nobody has written.
pub(crate) struct RowHolders(Vec<Vec<u64>>);

/// Where a worker finds rows that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// In its own memory.
    Own,
    /// In that of another worker.
    Other(usize),
    /// Nowhere: all that held them are lost.
    Lost,
}

impl RowHolders {
    /// Inputs, which the host holds, are everywhere.
    pub(crate) fn new(graph: &CellGraph) -> Self {
        let mut rows: Vec<Vec<u64>> =
            graph.values().iter().map(|value| vec![0; value.rows as usize]).collect();
        graph.inputs().iter().for_each(|input| rows[input.index()].fill(u64::MAX));
        Self(rows)
    }

    /// A worker writes the rows of a node.
    pub(crate) fn write(&mut self, rows: &Rows, node: u32, worker: usize) {
        let first = rows.row(node);
        self.0[rows.value.index()][first..first + rows.span as usize].fill(1 << worker);
    }

    /// A worker has copied a row.
    pub(crate) fn copied(&mut self, value: ValueIndex, row: usize, worker: usize) {
        self.0[value.index()][row] |= 1 << worker;
    }

    /// Where a worker finds a row. What nobody has written is zeros everywhere.
    pub(crate) fn holder(
        &self,
        (value, row): (ValueIndex, usize),
        worker: usize,
        is_lost: impl Fn(usize) -> bool,
    ) -> Holder {
        let held = self.0[value.index()][row];
        if held == 0 || held >> worker & 1 == 1 {
            return Holder::Own;
        }
        let others = (0..64).filter(|&other| held >> other & 1 == 1);
        others.into_iter().find(|&other| !is_lost(other)).map_or(Holder::Lost, Holder::Other)
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
        assert_eq!(holders.holder((y, 1), 2, |worker| worker == 0), Holder::Other(1));
    }
}
