//! The parts that several cells share: the lookup of an id in a table, and the logistic function.

use batchmaker_graph::{Lookup, UnknownId};

use crate::reference::row::Row;

/// The input row that a cell computes on, from its input port's row: the row of the table `lookup` for
/// the id in `row`, or `row` itself where the cell has no table.
///
/// # Errors
/// If the table has no row of the id.
pub fn input(lookup: Option<&Lookup>, row: &Row) -> Result<Vec<f64>, UnknownId> {
    match lookup {
        None => Ok(row.floats().to_vec()),
        Some(lookup) => {
            let x = lookup.row(row.ints()[0])?;
            Ok(x.iter().map(|&x| f64::from(x)).collect())
        }
    }
}

/// The logistic function.
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
