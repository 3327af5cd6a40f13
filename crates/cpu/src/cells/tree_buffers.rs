//! The scratch buffers that a queue keeps for batches of TreeLSTM nodes.

use std::sync::Arc;

use batchmaker_graph::{Run, SinkTime};
use batchmaker_kernels::{ProjectionRow, Side, TreeInnerRow, TreeLeafRow};

use crate::memory::raw_lines::RawLines;
use crate::memory::request_memory::RequestMemory;
use crate::memory::row_pointers::RowPointers;
use crate::memory::token_cache::{Claim, TokenCache};

/// The rows of a batch, as they are listed for the kernels. Empty between batches.
#[derive(Default)]
pub(crate) struct TreeBuffers {
    /// Keep the rows where they are.
    pub(crate) memories: Vec<Arc<RequestMemory>>,
    pub(crate) leaves: Vec<TreeLeafRow>,
    pub(crate) inner: Vec<TreeInnerRow>,
    /// The sinks of one item: port, time, and rows.
    pub(crate) sinks: Vec<(usize, SinkTime, RowPointers)>,
    /// Outputs that more than one sink takes: the row that the kernel writes, and another one.
    pub(crate) copies: Vec<(*const f32, *mut f32)>,
    /// A row for outputs that no sink takes, `[hidden]`.
    unread: Option<RawLines>,
    /// For each of `leaves`, the token id to cache its states under, if all of them are written somewhere.
    pub(crate) ids: Vec<Option<usize>>,
    /// The left and the right children to project before the nodes that have them, into rows of the cache.
    pub(crate) to_project: [Vec<ProjectionRow>; 2],
    pub(crate) claims: [Vec<Claim>; 2],
}

// SAFETY: the addresses in it belong to the batch that runs, and are forgotten when `TreeNodes::run` ends.
// Only unsafe code, which vouches for each access, does anything with them.
unsafe impl Send for TreeBuffers {}

impl TreeBuffers {
    /// Whether `row` is the one for outputs that no sink takes.
    pub(crate) fn is_unread(&self, row: *mut f32) -> bool {
        self.unread.as_ref().is_some_and(|unread| unread.first() == row)
    }

    /// The row that the kernel writes output `port` of `node` to, `[hidden]`. Other rows that take the output
    /// are listed in `copies`.
    pub(crate) fn output(
        &mut self,
        port: usize,
        node: u32,
        run: &Run,
        hidden_size: usize,
    ) -> *mut f32 {
        let mut first = None;
        for &(_, time, rows) in self.sinks.iter().filter(|sink| sink.0 == port) {
            let Some(node) = run.sink_node(time, node) else { continue };
            let row = rows.row(node);
            match first {
                None => first = Some(row.cast()),
                Some(first) => self.copies.push((first, row.cast())),
            }
        }
        first.unwrap_or_else(|| {
            let unread = self.unread.take().filter(|unread| unread.len() >= hidden_size);
            let unread = unread.unwrap_or_else(|| RawLines::zeros(hidden_size));
            self.unread.insert(unread).first()
        })
    }

    /// Returns the address of the projection of `h`, a child on `side` that depends on `token_id` alone; none if
    /// it is not cached. The projection may be written only just before the nodes run.
    pub(crate) fn projection(
        &mut self,
        projected: &[TokenCache; 2],
        side: Side,
        token_id: usize,
        h: *const f32,
    ) -> Option<*const f32> {
        let side = side as usize;
        if let Some(known) = projected[side].lookup(token_id) {
            return Some(known.as_ptr());
        }
        let claim = projected[side].claim(token_id)?;
        let row = claim.row();
        self.to_project[side].push(ProjectionRow { x: h, projected: row });
        self.claims[side].push(claim);
        Some(row.cast_const())
    }

    /// Forgets the batch.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.leaves.clear();
        self.inner.clear();
        self.to_project.iter_mut().for_each(Vec::clear);
        self.memories.clear();
    }
}
