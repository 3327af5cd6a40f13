//! Upper bounds of the bytes that the records of a cell graph take. The builder counts them while the graph grows.

use crate::cell::RowSpec;
use crate::cell_graph::{Edge, Run, Sink, ValueSpec};
use crate::rows::{RowOrder, Rows};
use crate::writers::Writers;

/// The bytes that a run takes beside its ports: its own record, and those of the manager and of a device while it is
/// in flight.
const RUN_BYTES: usize = size_of::<Run>() + 1024;

/// The bytes that a port of a run takes: its rows, and who writes them.
const PORT_BYTES: usize = 2 * size_of::<Sink>() + size_of::<Edge>();

/// The bytes that a value takes beside its rows.
const VALUE_BYTES: usize = size_of::<ValueSpec>() + size_of::<Writers>() + 128;

/// The bytes of a run with `ports` ports, the `rows` that these name, and the runs that it comes after.
pub(crate) fn of_run<'a>(
    ports: usize,
    rows: impl Iterator<Item = &'a Rows>,
    precedence: &[u32],
) -> usize {
    let listed = rows.map(|rows| match &rows.order {
        RowOrder::Strided { .. } => 0,
        RowOrder::Listed(listed) => size_of_val(&listed[..]),
    });
    RUN_BYTES + ports * PORT_BYTES + listed.sum::<usize>() + size_of_val(precedence)
}

/// The bytes of a value beside its rows.
pub(crate) fn of_value(row: &RowSpec) -> usize {
    VALUE_BYTES + size_of_val(&row.shape[..])
}

/// The bytes of the builder's notes of who writes each of `rows` rows.
pub(crate) fn of_writers(rows: usize) -> usize {
    rows * size_of::<Option<(u32, u32)>>()
}
