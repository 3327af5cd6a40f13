//! A batch of chains as rows of the fused kernel: rosters, states, outputs.

use std::sync::Arc;

use batchmaker_graph::{Join, Lookup, LstmCell, RequestId, RunIndex, SinkTime, SlotId};
use batchmaker_kernels::{Isa, KernelError, LstmParameters, LstmRow, PackedLstm};

use crate::request_memory::{RequestMemory, RowPointers};
use crate::state_arena::{StateArena, StateSlot};
use crate::thread_group::{Barrier, ThreadGroup};

/// Multiply-adds of a step that are worth a second thread; below, waking it costs more
/// than it brings.
const STEP_WORTH_THREADS: usize = 200_000;

/// Steps whose rows are written down together.
const STEPS_AT_ONCE_MAX: u32 = 64;

/// A materialised LSTM cell type.
pub(crate) struct LstmChains {
    weights: PackedLstm,
    lookup: Option<Lookup>,
    slots: StateArena,
}

/// A chain in a batch.
pub(crate) struct Chain {
    slot_id: SlotId,
    slot: StateSlot,
    /// The step to run next.
    step: u32,
    length: u32,
    x: RowPointers,
    /// Where h goes after every step, if anywhere.
    y: Option<RowPointers>,
    /// Every other sink: when, from which port, where to.
    other_sinks: Vec<(SinkTime, usize, RowPointers)>,
    /// Keeps the rows where they are.
    _memory: Arc<RequestMemory>,
}

/// The standing batch of a worker, and room for its kernel rows.
#[derive(Default)]
pub(crate) struct RosterChains {
    chains: Vec<Chain>,
    /// `[step, chain]`.
    rows: Vec<LstmRow>,
}

impl LstmChains {
    pub(crate) fn new(isa: Isa, cell: &LstmCell) -> Result<Self, KernelError> {
        let weights = PackedLstm::new(
            isa,
            LstmParameters {
                input_size: cell.input_size,
                hidden_size: cell.hidden_size,
                w: &cell.w,
                r: &cell.r,
                b: cell.b.as_deref(),
            },
        )?;
        if let Some(lookup) = &cell.lookup {
            assert_eq!(lookup.width, cell.input_size, "an embedding is the cell's x");
        }
        let slots = StateArena::new(cell.hidden_size);
        Ok(Self { weights, lookup: cell.lookup.clone(), slots })
    }

    /// A chain of `run`, about to run `step` with its state in `slot`.
    fn chain(&self, memory: Arc<RequestMemory>, run: RunIndex, slot: SlotId, step: u32) -> Chain {
        let graph = memory.graph.clone();
        let run = &graph.runs()[run.index()];
        let row_bytes = 4 * self.weights.hidden_size();
        let (mut y, mut other_sinks) = (None, Vec::new());
        for sink in &run.sinks {
            let rows = memory.rows(sink.rows);
            assert_eq!(rows.row_bytes, row_bytes, "a state's row is its size");
            if sink.time == SinkTime::Every && sink.port == 0 && y.is_none() {
                y = Some(rows);
            } else {
                other_sinks.push((sink.time, sink.port, rows));
            }
        }
        let x = memory.rows(run.inputs[0]);
        let x_bytes = if self.lookup.is_some() { 8 } else { 4 * self.weights.input_size() };
        assert_eq!(x.row_bytes, x_bytes, "an input's row is its size");
        let chain = Chain {
            slot_id: slot,
            slot: self.slots.slot(slot.index),
            step,
            length: run.length,
            x,
            y,
            other_sinks,
            _memory: memory.clone(),
        };
        if step == 0 {
            for (state, initial) in [chain.slot.h(0), chain.slot.c()].into_iter().zip(&run.initial)
            {
                let initial = initial.map(|rows| memory.rows(rows));
                // SAFETY: the slot is the chain's own from its first step on, and the row of the
                // initial state was written before the chain could join.
                unsafe {
                    match initial {
                        Some(rows) => {
                            assert_eq!(rows.row_bytes, row_bytes, "a state's row is its size");
                            std::ptr::copy_nonoverlapping(rows.row(0), state.cast(), row_bytes);
                        }
                        None => std::ptr::write_bytes(state.cast::<u8>(), 0, row_bytes),
                    }
                }
            }
        }
        chain
    }

    /// The kernel's row for a chain's step. Past the chain's end it is padding: the last input
    /// again, into the chain's own state, which nobody reads any more.
    fn row(&self, chain: &Chain, step: u32) -> LstmRow {
        let node = step.min(chain.length - 1);
        let x = chain.x.row(node);
        let x = match &self.lookup {
            None => x.cast::<f32>().cast_const(),
            Some(lookup) => {
                // SAFETY: the row is one id, written before the step could run.
                let id = unsafe { x.cast::<i64>().read() };
                let id = usize::try_from(id).ok().filter(|&id| id < lookup.rows());
                let id = id.expect("ids are checked where requests come in");
                lookup.table[id * lookup.width..].as_ptr()
            }
        };
        let y = chain.y.filter(|_| step == node);
        let y = y.map_or(std::ptr::null_mut(), |y| y.row(node).cast());
        let (h_in, h_out) = (chain.slot.h(step), chain.slot.h(step + 1));
        LstmRow { x, h_in, h_out, c: chain.slot.c(), y }
    }

    /// Runs `steps` steps of `batch`.
    ///
    /// # Safety
    /// The rows that the chains read are written, and nobody else accesses those that they write.
    unsafe fn run(&self, batch: &mut RosterChains, steps: u32, group: &mut ThreadGroup) {
        // Sinks after every step, but for the kernel's own, want each step's end.
        let is_every = |chain: &Chain| chain.other_sinks.iter().any(|s| s.0 == SinkTime::Every);
        let steps_max = if batch.chains.iter().any(is_every) { 1 } else { STEPS_AT_ONCE_MAX };
        let mut left = steps;
        while left > 0 {
            // A chain that is padded from some step on ends there first, for its last state.
            let to_end = |chain: &Chain| chain.length.checked_sub(chain.step).filter(|&n| n > 0);
            let first_end = batch.chains.iter().filter_map(to_end).min().unwrap_or(left);
            let at_once = left.min(steps_max).min(first_end);
            // SAFETY: the caller's promise.
            unsafe { self.run_at_once(batch, at_once, group) };
            left -= at_once;
        }
    }

    /// # Safety
    /// As for `run`.
    unsafe fn run_at_once(&self, batch: &mut RosterChains, steps: u32, group: &mut ThreadGroup) {
        batch.rows.clear();
        for ahead in 0..steps {
            let rows = batch.chains.iter().map(|chain| self.row(chain, chain.step + ahead));
            batch.rows.extend(rows);
        }
        let rows = batch.rows.as_slice();
        let size = batch.chains.len();
        let weights = &self.weights;
        let step_work =
            size * 4 * weights.hidden_size() * (weights.input_size() + weights.hidden_size());
        let threads = if step_work < STEP_WORTH_THREADS { 1 } else { group.threads() };
        let panels = weights.panels();
        let barrier = Barrier::new(threads);
        let share = |thread: usize| {
            let mine = panels * thread / threads..panels * (thread + 1) / threads;
            for step in rows.chunks(size) {
                // SAFETY: the caller vouches for rows of values; slots and their parts are the
                // chains' own; threads have different panels, and the barrier parts the steps.
                unsafe { weights.step(step, mine.clone()) };
                barrier.wait();
            }
        };
        if threads == 1 {
            share(0)
        } else {
            group.run(&share)
        }
        for chain in &mut batch.chains {
            chain.step += steps;
            let is_last = chain.step == chain.length;
            for &(time, port, rows) in &chain.other_sinks {
                let (state, row) = match time {
                    _ if chain.step > chain.length => continue,
                    SinkTime::Every => (port, chain.step - 1),
                    SinkTime::Last if is_last => (port, 0),
                    SinkTime::Last => continue,
                };
                let state = [chain.slot.h(chain.step), chain.slot.c()][state];
                // SAFETY: the state is of the size that `chain` checked the row to have; the
                // caller vouches for the row.
                unsafe {
                    std::ptr::copy_nonoverlapping(state.cast(), rows.row(row), rows.row_bytes);
                }
            }
        }
    }

    /// Changes the roster, then runs `steps` steps of it.
    ///
    /// # Safety
    /// As for `run`.
    pub(crate) unsafe fn run_roster(
        &self,
        roster: &mut RosterChains,
        leaves: &[SlotId],
        joins: &[Join],
        steps: u32,
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        group: &mut ThreadGroup,
    ) {
        if !leaves.is_empty() {
            roster.chains.retain(|chain| !leaves.contains(&chain.slot_id));
        }
        for join in joins {
            let memory = memory_of(join.request);
            roster.chains.push(self.chain(memory, join.run, join.slot, join.step));
        }
        // SAFETY: the caller's promise.
        unsafe { self.run(roster, steps, group) };
    }

    /// Runs one step of each of `items`, a batch of its own.
    ///
    /// # Safety
    /// As for `run`.
    pub(crate) unsafe fn run_items(
        &self,
        items: &[batchmaker_graph::Item],
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        group: &mut ThreadGroup,
    ) {
        let chain = |item: &batchmaker_graph::Item| {
            let slot = item.slot.expect("an item of a chain has a slot");
            self.chain(memory_of(item.request), item.run, slot, item.first)
        };
        let mut batch =
            RosterChains { chains: items.iter().map(chain).collect(), rows: Vec::new() };
        // SAFETY: the caller's promise.
        unsafe { self.run(&mut batch, 1, group) };
    }
}
