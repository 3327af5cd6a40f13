//! Rows that are hashes: cheap to compute, and wrong wherever anything that they are computed from was.

use batchmaker_graph::{CellTypeId, RowSpec, Stop};

use crate::arithmetic::Arithmetic;
use crate::memory::Datum;
use crate::split_mix::mix;

/// Computes, for each node, a hash of its cell type, its input rows and its states. A wrong or missing
/// dependency, a state of another request or a lost copy ends as a wrong value of the reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hashes;

impl Arithmetic for Hashes {
    type Row = u64;

    fn zero_state(&self, _: CellTypeId, _: usize) -> u64 {
        0
    }

    fn outputs(
        &self,
        cell_type: CellTypeId,
        inputs: &[Vec<u64>],
        states: &[u64],
        spans: &[u32],
    ) -> Result<Vec<Vec<u64>>, String> {
        let known = |&datum: &u64| Some(datum);
        let inputs = inputs.iter().flatten().map(known);
        let digest = node_digest(cell_type, inputs, states.iter().map(known));
        let port = |port| output_of(digest, port).expect("all that it follows from is known");
        Ok(spans.iter().enumerate().map(|(at, &rows)| vec![port(at); rows as usize]).collect())
    }

    fn left_out(&self, _: &RowSpec) -> u64 {
        0
    }

    fn is_true(&self, row: &u64) -> bool {
        is_true(*row)
    }

    fn is_end(&self, stop: Stop, output: &u64) -> bool {
        is_end(stop, Some(*output))
    }
}

/// Output `port` of a node, as [`Hashes`] computes it; none where anything that it is computed from is
/// lost.
pub fn cell_output(
    cell_type: CellTypeId,
    inputs: impl IntoIterator<Item = Datum<u64>>,
    states: impl IntoIterator<Item = Datum<u64>>,
    port: usize,
) -> Datum<u64> {
    output_of(node_digest(cell_type, inputs, states), port)
}

/// The truth value of a row that decides.
pub fn is_true(row: u64) -> bool {
    row % 2 == 1
}

/// Whether an open chain ends with a node of this output: one in eight do, depending on the stop's
/// value.
pub fn is_end(stop: Stop, output: Datum<u64>) -> bool {
    output.is_some_and(|datum| datum % 8 == (stop.value as u64) % 8)
}

/// The hash that all outputs of a node are computed from.
fn node_digest(
    cell_type: CellTypeId,
    inputs: impl IntoIterator<Item = Datum<u64>>,
    states: impl IntoIterator<Item = Datum<u64>>,
) -> Datum<u64> {
    let inputs = inputs.into_iter().try_fold(mix(u64::from(cell_type.0)), digest_with)?;
    states.into_iter().try_fold(mix(inputs), digest_with)
}

fn digest_with(digest: u64, datum: Datum<u64>) -> Datum<u64> {
    datum.map(|datum| mix(digest ^ datum))
}

fn output_of(digest: Datum<u64>, port: usize) -> Datum<u64> {
    digest.map(|digest| mix(digest.wrapping_add(port as u64 + 1)))
}
