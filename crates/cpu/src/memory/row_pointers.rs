//! The addresses of the rows of a run's port in the memory of a request.

use std::ptr::NonNull;

/// The addresses of the rows of a run's port: node `i`'s row lies `i * stride` bytes from the first, or, with a
/// list, `list[i] * stride` bytes.
#[derive(Clone, Copy)]
pub(crate) struct RowPointers {
    pub(super) first: *mut u8,
    pub(super) stride: isize,
    pub(super) list: Option<NonNull<u32>>,
    pub(crate) row_bytes: usize,
}

// SAFETY: these are addresses; nothing can be done with the rows but in unsafe code, which vouches for each
// access. The list is only read, and lives in a graph that any thread may read.
unsafe impl Send for RowPointers {}
// SAFETY: addresses, and a list that nobody writes, can be read from several threads.
unsafe impl Sync for RowPointers {}

impl RowPointers {
    /// One row of `row_bytes` bytes for all nodes.
    pub(crate) fn one(row: *mut u8, row_bytes: usize) -> Self {
        Self { first: row, stride: 0, list: None, row_bytes }
    }

    /// The address of the row of `node`, which is one of the run.
    pub(crate) fn row(&self, node: u32) -> *mut u8 {
        let position = match self.list {
            None => node,
            // SAFETY: a list has an entry for each node of its run, and outlives the pointers.
            Some(list) => unsafe { list.add(node as usize).read() },
        };
        // A builder of graphs checks that the rows of all nodes are within their value.
        self.first.wrapping_offset(self.stride * position as isize)
    }

    /// The address of the row of `node`, if those of the nodes after it follow one another.
    pub(super) fn in_line(&self, node: u32) -> Option<*mut u8> {
        let is_in_line = self.list.is_none() && self.stride == self.row_bytes as isize;
        is_in_line.then(|| self.row(node))
    }
}
