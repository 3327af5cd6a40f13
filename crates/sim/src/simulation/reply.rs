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

/// Compares the rows of each output with those that the request has alone. Rows that it has not, since a decision leaves them
/// out, may be anything.
pub(super) fn compare(
    id: RequestId,
    graph: &CellGraph,
    values: &[Vec<Datum<u64>>],
    expected: &[Vec<Datum<u64>>],
) -> Result<(), Broken> {
    for (output, (values, expected)) in values.iter().zip(expected).enumerate() {
        let may_be_any =
            |expected: &Datum<u64>| expected.is_none() && !graph.decisions().is_empty();
        let is_wrong = |(value, expected): (&Datum<u64>, &Datum<u64>)| {
            value != expected && !may_be_any(expected)
        };
        let wrong = values.iter().zip(expected).position(is_wrong);
        if let Some(row) = wrong {
            let (value, expected) = (values[row], expected[row]);
            let what = format!("{id:?} output {output} row {row}: {value:x?}, alone {expected:x?}");
            return Err(broken("values", what));
        }
    }
    Ok(())
}
