//! The states that a chain begins with.

use batchmaker_graph::Rows;

use crate::memory::request_memory::RequestMemory;

/// Writes a state before the first step of a chain to its slot: the row of the request in `memory`, or zeros
/// where `initial` is none.
///
/// # Safety
/// `bytes` bytes at `state` are writable, and nobody else accesses them meanwhile. The row is written, and
/// nobody writes it meanwhile.
pub(super) unsafe fn write_initial_state(
    initial: Option<&Rows>,
    memory: &RequestMemory,
    state: *mut u8,
    bytes: usize,
) {
    let Some(rows) = initial.map(|rows| memory.rows(rows)) else {
        // SAFETY: the caller vouches for the state.
        return unsafe { std::ptr::write_bytes(state, 0, bytes) };
    };
    assert_eq!(rows.row_bytes, bytes, "a state's row is its size");
    // SAFETY: the caller vouches for the row and the state; slots lie in no request's memory.
    unsafe { std::ptr::copy_nonoverlapping(rows.row(0), state, bytes) };
}
