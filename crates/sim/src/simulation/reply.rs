//! The reply of a request that succeeded, which must be the one that it has alone.

use batchmaker_graph::{CellGraph, RequestId};
use batchmaker_simulated::Datum;

use crate::oracle::{self, States};
use crate::simulation::broken::{Broken, broken};

/// The rows of each output, and the states after a chunk, of a request whose inputs are drawn from
/// `salt`. `before` are the states that a chunk begins with.
pub(super) fn expected(
    graph: &CellGraph,
    salt: u64,
    before: &States,
) -> (Vec<Vec<Datum<u64>>>, States) {
    oracle::outputs(graph, &oracle::inputs(graph, salt), before)
}

/// Compares the rows of each output with those that the request has alone.
pub(super) fn compare(
    id: RequestId,
    values: &[Vec<Datum<u64>>],
    expected: &[Vec<Datum<u64>>],
) -> Result<(), Broken> {
    for (output, (values, expected)) in values.iter().zip(expected).enumerate() {
        let wrong = values.iter().zip(expected).position(|(value, expected)| value != expected);
        if let Some(row) = wrong {
            let (value, expected) = (values[row], expected[row]);
            let what = format!("{id:?} output {output} row {row}: {value:x?}, alone {expected:x?}");
            return Err(broken("values", what));
        }
    }
    Ok(())
}
