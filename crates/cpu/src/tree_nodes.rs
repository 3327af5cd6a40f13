//! A batch of TreeLSTM nodes as rows of a fused kernel. Nothing is gathered: the kernel reads
//! children, and writes nodes, where the request's values lie.

use std::ops::Range;
use std::sync::Arc;

use batchmaker_graph::{Item, Lookup, RequestId, SinkTime, TreeCell};
use batchmaker_kernels::{
    Isa, KernelError, Lines, PackedTreeInner, PackedTreeLeaf, TreeInnerParameters, TreeInnerRow,
    TreeLeafParameters, TreeLeafRow,
};

use crate::batch_job::{WORTH_THREADS, items};
use crate::leaf_cache::LeafCache;
use crate::request_memory::{RequestMemory, RowPointers};
use crate::stages::{Member, part};
use crate::thread_group::ThreadGroup;

/// A materialised cell type of a TreeLSTM.
pub(crate) struct TreeNodes {
    packed: Packed,
    hidden_size: usize,
    /// Multiply-adds of a node.
    macs: usize,
}

enum Packed {
    Leaf { cell: PackedTreeLeaf, input_size: usize, lookup: Option<Lookup> },
    Inner(PackedTreeInner),
}

/// Room that a queue keeps for its batches.
#[derive(Default)]
pub(crate) struct TreeRoom {
    /// Keep the rows where they are.
    memories: Vec<Arc<RequestMemory>>,
    leaves: Vec<TreeLeafRow>,
    inner: Vec<TreeInnerRow>,
    /// Of one item: port, when, where to.
    sinks: Vec<(usize, SinkTime, RowPointers)>,
    /// Rows that are wanted in a second place: from, to.
    copies: Vec<(*const f32, *mut f32)>,
    /// For outputs that go nowhere, `[hidden]`.
    unread: Option<Lines>,
    /// Of each of `leaves`, the id to remember it under, if all of it is written somewhere.
    ids: Vec<Option<usize>>,
}

// SAFETY: the places in it are forgotten when `TreeNodes::run` ends.
unsafe impl Send for TreeRoom {}

impl TreeRoom {
    /// Whether an output goes nowhere.
    fn is_unread(&self, row: *mut f32) -> bool {
        let unread = self.unread.as_ref().map(|lines| lines.as_slice().as_ptr());
        unread == Some(row.cast_const())
    }

    /// Where an output of `node` goes first; where else is noted in `copies`.
    fn output(&mut self, port: usize, node: u32, length: u32, hidden_size: usize) -> *mut f32 {
        let mut first = None;
        for &(_, time, rows) in self.sinks.iter().filter(|sink| sink.0 == port) {
            let row = match time {
                SinkTime::Every => rows.row(node),
                SinkTime::Last if node + 1 == length => rows.row(0),
                SinkTime::Last => continue,
            };
            match first {
                None => first = Some(row.cast()),
                Some(first) => self.copies.push((first, row.cast())),
            }
        }
        first.unwrap_or_else(|| {
            let unread = self.unread.take().filter(|lines| lines.as_slice().len() >= hidden_size);
            let unread = unread.unwrap_or_else(|| Lines::zeros(hidden_size));
            self.unread.insert(unread).as_mut_slice().as_mut_ptr()
        })
    }
}

impl TreeNodes {
    pub(crate) fn new(isa: Isa, cell: &TreeCell) -> Result<Self, KernelError> {
        Ok(match cell {
            TreeCell::Leaf { input_size, hidden_size, w, b, lookup } => {
                let (input_size, hidden_size) = (*input_size, *hidden_size);
                let b = b.as_deref();
                let parameters = TreeLeafParameters { input_size, hidden_size, w, b };
                let cell = PackedTreeLeaf::new(isa, parameters)?;
                let packed = Packed::Leaf { cell, input_size, lookup: lookup.clone() };
                Self { packed, hidden_size, macs: 3 * hidden_size * input_size }
            }
            TreeCell::Inner { hidden_size, l, r, b } => {
                let hidden_size = *hidden_size;
                let parameters = TreeInnerParameters { hidden_size, l, r, b: b.as_deref() };
                let packed = Packed::Inner(PackedTreeInner::new(isa, parameters)?);
                Self { packed, hidden_size, macs: 10 * hidden_size * hidden_size }
            }
        })
    }

    /// What a queue remembers of its leaves; none where they are no function of an id.
    pub(crate) fn cache(&self) -> Option<LeafCache> {
        match &self.packed {
            Packed::Leaf { lookup: Some(lookup), .. } => {
                Some(LeafCache::new(lookup.rows(), self.hidden_size))
            }
            _ => None,
        }
    }

    /// Runs the nodes of `items` as one batch.
    ///
    /// # Safety
    /// The rows that the nodes read are written, and nobody else accesses those that they write.
    pub(crate) unsafe fn run(
        &self,
        items: &[Item],
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        room: &mut TreeRoom,
        mut cache: Option<&mut LeafCache>,
        group: &mut ThreadGroup,
    ) {
        for item in items {
            let memory = memory_of(item.request);
            // SAFETY: the caller's promise.
            unsafe { self.list(item, &memory, room, cache.as_deref()) };
            room.memories.push(memory);
        }
        let (leaves, inner) = (&room.leaves[..], &room.inner[..]);
        match &self.packed {
            Packed::Leaf { cell, .. } => {
                self.share(group, leaves.len(), cell.panels(), |panels| {
                    // SAFETY: the caller's promise; members have different panels.
                    unsafe { cell.step(leaves, panels) }
                });
            }
            Packed::Inner(cell) => {
                self.share(group, inner.len(), cell.panels(), |panels| {
                    // SAFETY: as above; a child is never in one batch with its parent.
                    unsafe { cell.step(inner, panels) }
                });
            }
        }
        for (&id, row) in room.ids.iter().zip(&room.leaves) {
            let (Some(cache), Some(id)) = (&mut cache, id) else { continue };
            // SAFETY: the rows were just written, and are this batch's own.
            let [h, c] = [row.h, row.c]
                .map(|row| unsafe { std::slice::from_raw_parts(row, self.hidden_size) });
            cache.insert(id, h, c);
        }
        room.ids.clear();
        for (from, to) in room.copies.drain(..) {
            // SAFETY: both are rows of h or c, `[hidden]`, and different.
            unsafe { std::ptr::copy_nonoverlapping(from, to, self.hidden_size) };
        }
        room.leaves.clear();
        room.inner.clear();
        room.memories.clear();
    }

    /// Divides the panels of `rows` nodes among the threads.
    fn share(
        &self,
        group: &mut ThreadGroup,
        rows: usize,
        panels: usize,
        step: impl Fn(Range<usize>) + Sync,
    ) {
        let macs = rows * self.macs;
        let job = |member: &mut Member<'_>| {
            let items = items(macs, panels, member.members());
            member.share(items, |item| step(part(panels, item, items)));
        };
        match macs >= WORTH_THREADS {
            true => group.run(&job),
            false => group.run_alone(&job),
        }
    }

    /// Lists the nodes of an item. Padding past the end of its run is left out.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn list(
        &self,
        item: &Item,
        memory: &RequestMemory,
        room: &mut TreeRoom,
        cache: Option<&LeafCache>,
    ) {
        let run = &memory.graph.runs()[item.run.index()];
        let input = |port: usize, row_bytes: usize| {
            let rows = memory.rows(&run.inputs[port]);
            assert_eq!(rows.row_bytes, row_bytes, "an input's row is its size");
            rows
        };
        let state_bytes = 4 * self.hidden_size;
        room.sinks.clear();
        for sink in &run.sinks {
            let rows = memory.rows(&sink.rows);
            assert_eq!(rows.row_bytes, state_bytes, "a state's row is its size");
            room.sinks.push((sink.port, sink.time, rows));
        }
        let output =
            |port, node, room: &mut TreeRoom| room.output(port, node, run.length, self.hidden_size);
        let nodes = item.first..run.length.min(item.first + item.count);
        match &self.packed {
            Packed::Leaf { input_size, lookup, .. } => {
                let x = input(0, if lookup.is_some() { 8 } else { 4 * input_size });
                for node in nodes {
                    let x = x.row(node);
                    let (h, c) = (output(0, node, room), output(1, node, room));
                    let Some(lookup) = lookup else {
                        let x = x.cast::<f32>().cast_const();
                        room.leaves.push(TreeLeafRow { x, h, c });
                        continue;
                    };
                    // SAFETY: the row is one id, written before the node could run.
                    let id = unsafe { x.cast::<i64>().read() };
                    let x = lookup.row(id).as_ptr();
                    if let Some(known) = cache.and_then(|cache| cache.get(id as usize)) {
                        for (from, to) in known.into_iter().zip([h, c]) {
                            // SAFETY: both are `[hidden]`; the caller vouches for the target.
                            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
                        }
                        continue;
                    }
                    let is_whole = !room.is_unread(h) && !room.is_unread(c);
                    room.ids.push(is_whole.then_some(id as usize));
                    room.leaves.push(TreeLeafRow { x, h, c });
                }
            }
            Packed::Inner(_) => {
                let children = [0, 1, 2, 3].map(|port| input(port, state_bytes));
                for node in nodes {
                    let [h_l, c_l, h_r, c_r] =
                        children.map(|rows| rows.row(node).cast::<f32>().cast_const());
                    let (h, c) = (output(0, node, room), output(1, node, room));
                    room.inner.push(TreeInnerRow { h_l, c_l, h_r, c_r, h, c });
                }
            }
        }
    }
}
