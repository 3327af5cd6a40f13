//! The interface between a virtual device and the computation of its rows.

use std::fmt::Debug;

use batchmaker_graph::{CellTypeId, RowSpec, Stop};

/// Computes rows from rows. The device around it decides where rows and states lie, which workers may
/// read them when, and which are lost.
pub trait Arithmetic {
    /// The contents of a row.
    type Row: Clone + Debug;

    /// The first state of a port where a run has none: zeros.
    fn zero_state(&self, cell_type: CellTypeId, port: usize) -> Self::Row;

    /// The rows that a node writes, by output port, of which there are `spans.len()`: as many of a port
    /// as its span says. `inputs` are the rows of each input port, `states` one row of each state. Of a
    /// cell with states, the first ports are their new values.
    ///
    /// # Errors
    /// Why the node cannot be run: its task fails.
    fn outputs(
        &self,
        cell_type: CellTypeId,
        inputs: &[Vec<Self::Row>],
        states: &[Self::Row],
        spans: &[u32],
    ) -> Result<Vec<Vec<Self::Row>>, String>;

    /// What a node reads of rows of a run that was left out: zeros.
    fn left_out(&self, row: &RowSpec) -> Self::Row;

    /// The truth value in a row that decides.
    fn is_true(&self, row: &Self::Row) -> bool;

    /// Whether an open chain ends with a node of which this is the output that its stop names.
    fn is_end(&self, stop: Stop, output: &Self::Row) -> bool;
}
