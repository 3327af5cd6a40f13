//! A batch of TreeLSTM nodes as rows of a fused kernel. Nothing is gathered: the kernel reads
//! children, and writes nodes, where the request's values lie.

use std::sync::{Arc, OnceLock};

use batchmaker_graph::{Item, Lookup, RequestId, Run, TreeCell, UnknownId};
use batchmaker_kernels::{
    KernelError, PackedTreeInner, PackedTreeLeaf, Packing, Side, TreeChild, TreeInnerParameters,
    TreeInnerRow, TreeLeafParameters, TreeLeafRow, XPart,
};

use super::batch_job::{run_panels, run_shared};
use super::tree_buffers::TreeBuffers;
use crate::memory::request_memory::RequestMemory;
use crate::memory::token_cache::TokenCache;
use crate::threads::thread_group::ThreadGroup;

/// The most bytes of h and c that are cached of a leaf.
const LEAF_BYTES_MAX: usize = 64 << 20;

/// The most bytes of projections that are cached of an inner node's children on one side.
const PROJECTED_BYTES_MAX: usize = 128 << 20;

/// The cost of a unit of an inner node besides products, in multiply-adds that take as long.
const UNIT_MACS: usize = 200;

/// A materialised cell type of a TreeLSTM.
pub(crate) struct TreeNodes {
    packed: Packed,
    hidden_size: usize,
}

enum Packed {
    Leaf {
        cell: PackedTreeLeaf,
        input_size: usize,
        token_input: Option<TokenInput>,
    },
    Inner {
        cell: PackedTreeInner,
        /// The projections of left and of right children that depend on one token id alone; made when the
        /// first one occurs.
        projected: OnceLock<[TokenCache; 2]>,
    },
}

/// The input of a leaf that is a token id.
struct TokenInput {
    lookup: Lookup,
    /// The number of the cell's token id 0 among those of the device.
    first: usize,
    /// The h of each token id, then its c.
    states: TokenCache,
}

impl TokenInput {
    /// Checks that the embedding has the token id of each leaf of an item.
    ///
    /// # Safety
    /// The rows that the leaves read are written, and nobody writes them until this returns.
    unsafe fn check(&self, item: &Item, memory: &RequestMemory) -> Result<(), UnknownId> {
        let run = &memory.graph.runs()[item.run.index()];
        let ids = memory.rows(&run.inputs[0]);
        assert_eq!(ids.row_bytes, size_of::<i64>(), "an id is one I64");
        for node in item.first..run.length.min(item.first + item.count) {
            // SAFETY: the row is one id; the caller promises that it is written.
            self.lookup.row(unsafe { ids.row(node).cast::<i64>().read() })?;
        }
        Ok(())
    }
}

/// The children of a node, and the input ports of their h and c.
const SIDES: [(Side, usize, usize); 2] = [(Side::Left, 0, 1), (Side::Right, 2, 3)];

impl TreeNodes {
    /// Packs the weights of a cell. Its token ids are numbered from `first_token_id` on.
    pub(crate) fn new(
        packing: Packing,
        cell: &TreeCell,
        first_token_id: usize,
    ) -> Result<Self, KernelError> {
        Ok(match cell {
            TreeCell::Leaf { input_size, hidden_size, w, b, lookup } => {
                let (input_size, hidden_size) = (*input_size, *hidden_size);
                let b = b.as_deref();
                let parameters = TreeLeafParameters { input_size, hidden_size, w, b };
                let cell = PackedTreeLeaf::new(packing, parameters)?;
                let token_input = lookup.clone().map(|lookup| TokenInput {
                    states: TokenCache::new(lookup.rows(), 2 * hidden_size, LEAF_BYTES_MAX),
                    lookup,
                    first: first_token_id,
                });
                Self { packed: Packed::Leaf { cell, input_size, token_input }, hidden_size }
            }
            TreeCell::Inner { hidden_size, l, r, b } => {
                let hidden_size = *hidden_size;
                let parameters = TreeInnerParameters { hidden_size, l, r, b: b.as_deref() };
                let cell = PackedTreeInner::new(packing, parameters)?;
                Self { packed: Packed::Inner { cell, projected: OnceLock::new() }, hidden_size }
            }
        })
    }

    /// The number of token ids, if each node depends on one of them alone; otherwise 0.
    pub(crate) fn token_ids(&self) -> usize {
        match &self.packed {
            Packed::Leaf { token_input: Some(token_input), .. } => token_input.lookup.rows(),
            _ => 0,
        }
    }

    /// Runs the nodes of `items` as one batch, on a device whose cells have `token_ids` token ids in all. If a
    /// cell computed a token id that the embedding lacks, no node runs.
    ///
    /// # Safety
    /// The rows that the nodes read are written, and nobody writes them until this returns. Until then nobody
    /// else accesses the rows that the nodes write. No node is in one batch with a child of it.
    pub(crate) unsafe fn run(
        &self,
        items: &[Item],
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        token_ids: usize,
        buffers: &mut TreeBuffers,
        group: &mut ThreadGroup,
    ) -> Result<(), UnknownId> {
        if let Packed::Leaf { token_input: Some(token_input), .. } = &self.packed {
            // All of them first: caches know the token ids of rows from when these are listed.
            for item in items {
                // SAFETY: the caller promises that the rows that nodes read are written.
                unsafe { token_input.check(item, &memory_of(item.request)) }?;
            }
        }
        for item in items {
            let memory = memory_of(item.request);
            // SAFETY: the caller promises that the rows that nodes read are written; their token ids were
            // checked.
            unsafe { self.list(item, &memory, token_ids, buffers) };
            buffers.memories.push(memory);
        }
        match &self.packed {
            Packed::Leaf { cell, input_size, token_input } => {
                let leaves = &buffers.leaves[..];
                let macs = leaves.len() * 3 * self.hidden_size * input_size;
                run_shared(group, macs, &|member| {
                    run_panels(member, macs, (cell.panels(), cell.panels_a_call()), |panels| {
                        // SAFETY: the caller vouches for the rows; items have different panels.
                        unsafe { cell.step(leaves, panels) }
                    });
                });
                if let Some(token_input) = token_input {
                    // SAFETY: the leaves were just written, and their rows are this batch's own.
                    unsafe { self.cache_leaves(buffers, &token_input.states) };
                }
            }
            Packed::Inner { cell, projected } => {
                // SAFETY: the caller vouches for the rows; projections were claimed for this batch.
                unsafe { self.run_inner(cell, buffers, group) };
                for (claims, projected) in
                    buffers.claims.iter_mut().zip(projected.get().into_iter().flatten())
                {
                    claims.drain(..).for_each(|claim| projected.publish(claim));
                }
            }
        }
        for (from, to) in buffers.copies.drain(..) {
            // SAFETY: both are rows of h or c, `[hidden]`, and different; the caller vouches for them.
            unsafe { std::ptr::copy_nonoverlapping(from, to, self.hidden_size) };
        }
        buffers.clear();
        Ok(())
    }

    /// Projects the children that are listed for it, then runs the nodes.
    ///
    /// # Safety
    /// The children and nodes in `buffers` are listed for this cell: what they point to is readable and writable
    /// as [`PackedTreeInner::project`] and [`PackedTreeInner::step`] ask for. Until this returns nobody else
    /// accesses what they write, and nobody writes what they read.
    unsafe fn run_inner(
        &self,
        cell: &PackedTreeInner,
        buffers: &TreeBuffers,
        group: &mut ThreadGroup,
    ) {
        let (nodes, to_project) = (&buffers.inner[..], &buffers.to_project);
        let child_macs = 5 * self.hidden_size * self.hidden_size;
        let is_given = |child: &TreeChild| usize::from(child.h_part == XPart::Given);
        let given: usize = nodes.iter().map(|node| is_given(&node.l) + is_given(&node.r)).sum();
        let step_macs = given * child_macs + nodes.len() * self.hidden_size * UNIT_MACS;
        let projected: usize = to_project.iter().map(Vec::len).sum();
        run_shared(group, step_macs + projected * child_macs, &|member| {
            for ((side, ..), rows) in SIDES.into_iter().zip(to_project) {
                if rows.is_empty() {
                    continue;
                }
                run_panels(
                    member,
                    rows.len() * child_macs,
                    (cell.panels(), cell.panels_a_call()),
                    |panels| {
                        // SAFETY: the rows were claimed for this batch; items have different panels.
                        unsafe { cell.project(side, rows, panels) }
                    },
                );
            }
            run_panels(member, step_macs, (cell.panels(), cell.panels_a_call()), |panels| {
                // SAFETY: the caller vouches for the rows; children were projected in the phases before,
                // and items have different panels.
                unsafe { cell.step(nodes, panels) }
            });
        });
    }

    /// Caches h and c of leaves.
    ///
    /// # Safety
    /// The leaves in `buffers` are written, `[hidden]` each, and nobody writes them until this returns.
    unsafe fn cache_leaves(&self, buffers: &TreeBuffers, states: &TokenCache) {
        for (&id, row) in buffers.ids.iter().zip(&buffers.leaves) {
            let Some(claim) = id.and_then(|id| states.claim(id)) else { continue };
            // SAFETY: the leaf's h and c are written; a row of the cache is h and c, and claimed here.
            unsafe {
                std::ptr::copy_nonoverlapping(row.h, claim.row(), self.hidden_size);
                let c = claim.row().add(self.hidden_size);
                std::ptr::copy_nonoverlapping(row.c, c, self.hidden_size);
            }
            states.publish(claim);
        }
    }

    /// Lists the nodes of an item in `buffers`. Padding past the end of its run is left out. Leaves whose states
    /// are cached are not listed: their states are copied.
    ///
    /// # Panics
    /// If the embedding lacks the token id of a leaf.
    ///
    /// # Safety
    /// The rows that the nodes read are written, and nobody writes them until the batch has run. Until then
    /// nobody else accesses the rows that the nodes write.
    unsafe fn list(
        &self,
        item: &Item,
        memory: &RequestMemory,
        token_ids: usize,
        buffers: &mut TreeBuffers,
    ) {
        let run = &memory.graph.runs()[item.run.index()];
        let input = |port: usize, row_bytes: usize| {
            let rows = memory.rows(&run.inputs[port]);
            assert_eq!(rows.row_bytes, row_bytes, "an input's row is its size");
            rows
        };
        let state_bytes = 4 * self.hidden_size;
        buffers.sinks.clear();
        for sink in &run.sinks {
            let rows = memory.rows(&sink.rows);
            assert_eq!(rows.row_bytes, state_bytes, "a state's row is its size");
            buffers.sinks.push((sink.port, sink.time, rows));
        }
        let outputs = |node, buffers: &mut TreeBuffers| {
            [0, 1].map(|port| buffers.output(port, node, run, self.hidden_size))
        };
        let nodes = item.first..run.length.min(item.first + item.count);
        match &self.packed {
            Packed::Leaf { input_size, token_input: None, .. } => {
                let x = input(0, 4 * input_size);
                for node in nodes {
                    let [h, c] = outputs(node, buffers);
                    let x = x.row(node).cast::<f32>().cast_const();
                    buffers.leaves.push(TreeLeafRow { x, h, c });
                }
            }
            Packed::Leaf { token_input: Some(token_input), .. } => {
                let ids = input(0, 8);
                for node in nodes {
                    let [h, c] = outputs(node, buffers);
                    // SAFETY: the row is one id, written before the node could run.
                    let id = unsafe { ids.row(node).cast::<i64>().read() };
                    let x = token_input.lookup.row(id).expect("ids were checked").as_ptr();
                    let id = id as usize;
                    set_token_id(memory, run, node, token_input.first + id);
                    if let Some(known) = token_input.states.lookup(id) {
                        let known = [(known, h), (&known[self.hidden_size..], c)];
                        for (from, to) in known {
                            let from = from.as_ptr();
                            // SAFETY: both are `[hidden]`; the caller vouches for the target.
                            unsafe { std::ptr::copy_nonoverlapping(from, to, self.hidden_size) };
                        }
                        continue;
                    }
                    let is_whole = !buffers.is_unread(h) && !buffers.is_unread(c);
                    buffers.ids.push(is_whole.then_some(id));
                    buffers.leaves.push(TreeLeafRow { x, h, c });
                }
            }
            Packed::Inner { cell, projected } => {
                let states = [0, 1, 2, 3].map(|port| input(port, state_bytes));
                for node in nodes {
                    let [h, c] = outputs(node, buffers);
                    let [l, r] = SIDES.map(|(side, h, c)| {
                        let [h_of_child, c] =
                            [h, c].map(|port| states[port].row(node).cast::<f32>().cast_const());
                        let given = TreeChild { h: h_of_child, h_part: XPart::Given, c };
                        let Some(token_id) = memory.token_id(&run.inputs[h], node) else {
                            return given;
                        };
                        let projected = projected.get_or_init(|| {
                            let len = cell.projected_len();
                            [(); 2].map(|()| TokenCache::new(token_ids, len, PROJECTED_BYTES_MAX))
                        });
                        match buffers.projection(projected, side, token_id, h_of_child) {
                            Some(h) => TreeChild { h, h_part: XPart::Projected, c },
                            None => given,
                        }
                    });
                    buffers.inner.push(TreeInnerRow { l, r, h, c });
                }
            }
        }
    }
}

/// Records the token id that a leaf's h depends on, for each row that h goes to.
fn set_token_id(memory: &RequestMemory, run: &Run, leaf: u32, token_id: usize) {
    for sink in run.sinks.iter().filter(|sink| sink.port == 0) {
        if let Some(node) = run.sink_node(sink.time, leaf) {
            memory.set_token_id(&sink.rows, node, token_id);
        }
    }
}
