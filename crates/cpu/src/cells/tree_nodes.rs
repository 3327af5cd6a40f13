//! A batch of TreeLSTM nodes as rows of a fused kernel. Nothing is gathered: the kernel reads
//! children, and writes nodes, where the request's values lie.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use batchmaker_graph::{Item, Lookup, RequestId, Run, SinkTime, TreeCell};
use batchmaker_kernels::{
    KernelError, Lines, PackedTreeInner, PackedTreeLeaf, Packing, ProjectionRow, Side, TreeChild,
    TreeInnerParameters, TreeInnerRow, TreeLeafParameters, TreeLeafRow, XPart,
};

use crate::cells::batch_job::{WORTH_THREADS, items};
use crate::memory::projection_cache::{Claim, Remembered};
use crate::memory::request_memory::{RequestMemory, RowPointers};
use crate::threads::phases::{Member, part};
use crate::threads::thread_group::ThreadGroup;

/// Bytes of h and c that a leaf remembers.
const LEAF_BYTES_MAX: usize = 64 << 20;

/// Bytes of projections that an inner node remembers of children on one side.
const PROJECTED_BYTES_MAX: usize = 128 << 20;

/// What a unit of an inner node costs besides products, in multiply-adds that take as long.
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
        of_words: Option<OfWords>,
    },
    Inner {
        cell: PackedTreeInner,
        /// What words project to as left and as right children; there once one was met.
        projected: OnceLock<[Remembered; 2]>,
    },
}

/// A leaf whose input is an id.
struct OfWords {
    lookup: Lookup,
    /// What id 0 is among the words of the device.
    first: usize,
    /// h, then c.
    states: Remembered,
}

/// The children of a node, and the input ports of their h and c.
const SIDES: [(Side, usize, usize); 2] = [(Side::Left, 0, 1), (Side::Right, 2, 3)];

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
    /// Left and right children to project before the nodes that have them, into rows that are
    /// remembered from then on.
    to_project: [Vec<ProjectionRow>; 2],
    claims: [Vec<Claim>; 2],
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

    /// Where the projection of a word's h as a child on `side` lies, or will before the nodes run.
    fn projection(
        &mut self,
        projected: &[Remembered; 2],
        side: Side,
        word: usize,
        h: *const f32,
    ) -> Option<*const f32> {
        let side = side as usize;
        if let Some(known) = projected[side].get(word) {
            return Some(known.as_ptr());
        }
        let claim = projected[side].claim(word)?;
        let row = claim.row();
        self.to_project[side].push(ProjectionRow { x: h, projected: row });
        self.claims[side].push(claim);
        Some(row.cast_const())
    }
}

impl TreeNodes {
    /// `first_word` words are there of other cell types.
    pub(crate) fn new(
        packing: Packing,
        cell: &TreeCell,
        first_word: usize,
    ) -> Result<Self, KernelError> {
        Ok(match cell {
            TreeCell::Leaf { input_size, hidden_size, w, b, lookup } => {
                let (input_size, hidden_size) = (*input_size, *hidden_size);
                let b = b.as_deref();
                let parameters = TreeLeafParameters { input_size, hidden_size, w, b };
                let cell = PackedTreeLeaf::new(packing, parameters)?;
                let of_words = lookup.clone().map(|lookup| OfWords {
                    states: Remembered::new(lookup.rows(), 2 * hidden_size, LEAF_BYTES_MAX),
                    lookup,
                    first: first_word,
                });
                Self { packed: Packed::Leaf { cell, input_size, of_words }, hidden_size }
            }
            TreeCell::Inner { hidden_size, l, r, b } => {
                let hidden_size = *hidden_size;
                let parameters = TreeInnerParameters { hidden_size, l, r, b: b.as_deref() };
                let cell = PackedTreeInner::new(packing, parameters)?;
                Self { packed: Packed::Inner { cell, projected: OnceLock::new() }, hidden_size }
            }
        })
    }

    /// How many words the nodes are a function of one of; 0 if they are not.
    pub(crate) fn words(&self) -> usize {
        match &self.packed {
            Packed::Leaf { of_words: Some(of_words), .. } => of_words.lookup.rows(),
            _ => 0,
        }
    }

    /// Runs the nodes of `items` as one batch, on a device with so many words.
    ///
    /// # Safety
    /// The rows that the nodes read are written, and nobody else accesses those that they write.
    pub(crate) unsafe fn run(
        &self,
        items: &[Item],
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        words: usize,
        room: &mut TreeRoom,
        group: &mut ThreadGroup,
    ) {
        for item in items {
            let memory = memory_of(item.request);
            // SAFETY: the caller's promise.
            unsafe { self.list(item, &memory, words, room) };
            room.memories.push(memory);
        }
        match &self.packed {
            Packed::Leaf { cell, input_size, of_words } => {
                let leaves = &room.leaves[..];
                let macs = leaves.len() * 3 * self.hidden_size * input_size;
                run_shared(group, macs, &|member| {
                    share(member, macs, (cell.panels(), cell.panels_a_call()), |panels| {
                        // SAFETY: the caller's promise; members have different panels.
                        unsafe { cell.step(leaves, panels) }
                    });
                });
                if let Some(of_words) = of_words {
                    // SAFETY: the rows were just written, and are this batch's own.
                    unsafe { self.remember_leaves(room, &of_words.states) };
                }
            }
            Packed::Inner { cell, projected } => {
                self.run_inner(cell, room, group);
                for (claims, projected) in
                    room.claims.iter_mut().zip(projected.get().into_iter().flatten())
                {
                    claims.drain(..).for_each(|claim| projected.publish(claim));
                }
            }
        }
        for (from, to) in room.copies.drain(..) {
            // SAFETY: both are rows of h or c, `[hidden]`, and different.
            unsafe { std::ptr::copy_nonoverlapping(from, to, self.hidden_size) };
        }
        room.ids.clear();
        room.leaves.clear();
        room.inner.clear();
        room.to_project.iter_mut().for_each(Vec::clear);
        room.memories.clear();
    }

    /// Projects the children that are to be, then runs the nodes.
    fn run_inner(&self, cell: &PackedTreeInner, room: &TreeRoom, group: &mut ThreadGroup) {
        let (nodes, to_project) = (&room.inner[..], &room.to_project);
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
                share(
                    member,
                    rows.len() * child_macs,
                    (cell.panels(), cell.panels_a_call()),
                    |panels| {
                        // SAFETY: the rows were claimed for this batch; members have different panels.
                        unsafe { cell.project(side, rows, panels) }
                    },
                );
            }
            share(member, step_macs, (cell.panels(), cell.panels_a_call()), |panels| {
                // SAFETY: the promise of `run`; what is to be projected is since the last stage,
                // members have different panels, and a child is never in one batch with its
                // parent.
                unsafe { cell.step(nodes, panels) }
            });
        });
    }

    /// Remembers h and c of leaves.
    ///
    /// # Safety
    /// The room's leaves are written, and nobody else writes them.
    unsafe fn remember_leaves(&self, room: &TreeRoom, states: &Remembered) {
        for (&id, row) in room.ids.iter().zip(&room.leaves) {
            let Some(claim) = id.and_then(|id| states.claim(id)) else { continue };
            // SAFETY: the caller's promise; a row that is remembered is h and c.
            unsafe {
                std::ptr::copy_nonoverlapping(row.h, claim.row(), self.hidden_size);
                let c = claim.row().add(self.hidden_size);
                std::ptr::copy_nonoverlapping(row.c, c, self.hidden_size);
            }
            states.publish(claim);
        }
    }

    /// Lists the nodes of an item. Padding past the end of its run is left out.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn list(&self, item: &Item, memory: &RequestMemory, words: usize, room: &mut TreeRoom) {
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
        let outputs = |node, room: &mut TreeRoom| {
            [0, 1].map(|port| room.output(port, node, run.length, self.hidden_size))
        };
        let nodes = item.first..run.length.min(item.first + item.count);
        match &self.packed {
            Packed::Leaf { input_size, of_words: None, .. } => {
                let x = input(0, 4 * input_size);
                for node in nodes {
                    let [h, c] = outputs(node, room);
                    let x = x.row(node).cast::<f32>().cast_const();
                    room.leaves.push(TreeLeafRow { x, h, c });
                }
            }
            Packed::Leaf { of_words: Some(of_words), .. } => {
                let ids = input(0, 8);
                for node in nodes {
                    let [h, c] = outputs(node, room);
                    // SAFETY: the row is one id, written before the node could run.
                    let id = unsafe { ids.row(node).cast::<i64>().read() };
                    let x = of_words.lookup.row(id).as_ptr();
                    let id = id as usize;
                    note_word(memory, run, node, of_words.first + id);
                    if let Some(known) = of_words.states.get(id) {
                        let known = [(known, h), (&known[self.hidden_size..], c)];
                        for (from, to) in known {
                            let from = from.as_ptr();
                            // SAFETY: both are `[hidden]`; the caller vouches for the target.
                            unsafe { std::ptr::copy_nonoverlapping(from, to, self.hidden_size) };
                        }
                        continue;
                    }
                    let is_whole = !room.is_unread(h) && !room.is_unread(c);
                    room.ids.push(is_whole.then_some(id));
                    room.leaves.push(TreeLeafRow { x, h, c });
                }
            }
            Packed::Inner { cell, projected } => {
                let states = [0, 1, 2, 3].map(|port| input(port, state_bytes));
                for node in nodes {
                    let [h, c] = outputs(node, room);
                    let [l, r] = SIDES.map(|(side, h, c)| {
                        let [h_of_child, c] =
                            [h, c].map(|port| states[port].row(node).cast::<f32>().cast_const());
                        let given = TreeChild { h: h_of_child, h_part: XPart::Given, c };
                        let Some(word) = memory.word(&run.inputs[h], node) else { return given };
                        let projected = projected.get_or_init(|| {
                            let len = cell.projected_len();
                            [(); 2].map(|()| Remembered::new(words, len, PROJECTED_BYTES_MAX))
                        });
                        match room.projection(projected, side, word, h_of_child) {
                            Some(h) => TreeChild { h, h_part: XPart::Projected, c },
                            None => given,
                        }
                    });
                    room.inner.push(TreeInnerRow { l, r, h, c });
                }
            }
        }
    }
}

/// Notes the word that a leaf's h is a function of, wherever that goes.
fn note_word(memory: &RequestMemory, run: &Run, leaf: u32, word: usize) {
    for sink in run.sinks.iter().filter(|sink| sink.port == 0) {
        match sink.time {
            SinkTime::Every => memory.note_word(&sink.rows, leaf, word),
            SinkTime::Last if leaf + 1 == run.length => memory.note_word(&sink.rows, 0, word),
            SinkTime::Last => {}
        }
    }
}

/// Runs a job of so many multiply-adds on as many threads as it is worth.
fn run_shared(group: &mut ThreadGroup, macs: usize, job: &(dyn Fn(&mut Member<'_>) + Sync)) {
    match macs >= WORTH_THREADS {
        true => group.run(job),
        false => group.run_alone(job),
    }
}

/// Divides the panels of a stage of so many multiply-adds among the threads.
fn share(
    member: &mut Member<'_>,
    macs: usize,
    (panels, a_call): (usize, usize),
    step: impl Fn(Range<usize>),
) {
    let items = items(macs, panels, a_call, member.members());
    member.share(items, |item| step(part(panels, item, items)));
}
