//! A batch of chains whose steps are programs: their states lie in slots, and are gathered, with
//! the step's inputs, into one tensor a port.

use std::sync::Arc;

use batchmaker_executor::ExecutorThread;
use batchmaker_graph::{
    Cell, Item, Join, Piece, RequestId, RowSpec, RunIndex, SinkTime, SlotId, StagedCell, Stop,
    Stopped, TensorData,
};
use batchmaker_kernels::Packing;

use crate::chains::ProjectionAhead;
use crate::request_memory::{Gathered, RequestMemory, RowPointers, scatter};
use crate::row_arena::{LINE, RowArena};
use crate::staged::{StagedError, StagedProgram};
use crate::thread_group::ThreadGroup;

/// A materialised cell type in stages with states.
pub(crate) struct StagedChains {
    program: StagedProgram,
    inputs: Vec<RowSpec>,
    states: Vec<State>,
    slots: RowArena,
}

/// A state, and where it lies in a slot.
struct State {
    row: RowSpec,
    /// Floats from the slot's first.
    at: usize,
}

/// A standing batch.
#[derive(Default)]
pub(crate) struct StagedRoster(Vec<Chain>);

/// A chain in a batch.
struct Chain {
    slot_id: SlotId,
    slot: *mut f32,
    /// The step to run next.
    step: u32,
    length: u32,
    /// By input port.
    inputs: Vec<RowPointers>,
    /// When, from which port, where to.
    sinks: Vec<(SinkTime, usize, RowPointers)>,
    stop: Option<Stop>,
    /// Whether it said stop: nothing of it is computed any more.
    is_stopped: bool,
    request: RequestId,
    run: RunIndex,
    /// Keeps the rows where they are.
    memory: Arc<RequestMemory>,
}

// SAFETY: only a place; what may be done there is said at each access.
unsafe impl Send for Chain {}

/// What steps run on.
pub(crate) struct Runner<'a> {
    pub(crate) thread: &'a ExecutorThread,
    pub(crate) group: &'a mut ThreadGroup,
    /// Where chains that say stop are told of.
    pub(crate) stops: &'a mut Vec<Stopped>,
}

impl State {
    fn bytes(&self) -> usize {
        self.row.elements() * self.row.element.bytes()
    }

    /// Where the state lies in a chain's slot.
    fn of(&self, chain: &Chain) -> RowPointers {
        RowPointers::one(chain.slot.wrapping_add(self.at).cast(), self.bytes())
    }
}

impl StagedChains {
    pub(crate) fn new(
        packing: Packing,
        cell: &Cell,
        staged: &StagedCell,
        ahead: ProjectionAhead,
    ) -> Result<Self, StagedError> {
        let mut floats = 0;
        let states = cell.states.iter().map(|row| {
            let state = State { row: row.clone(), at: floats };
            floats += state.bytes().div_ceil(size_of::<f32>()).next_multiple_of(LINE);
            state
        });
        let states = states.collect();
        let program = StagedProgram::new(packing, staged, ahead)?;
        Ok(Self { program, inputs: cell.inputs.clone(), states, slots: RowArena::new(floats) })
    }

    /// A chain that is about to run `step` with its states in `slot`.
    fn chain(
        &self,
        memory: Arc<RequestMemory>,
        (request, run_index): (RequestId, RunIndex),
        slot: SlotId,
        step: u32,
    ) -> Chain {
        let graph = memory.graph.clone();
        let run = &graph.runs()[run_index.index()];
        let sinks = run.sinks.iter().map(|s| (s.time, s.port, memory.rows(&s.rows)));
        let chain = Chain {
            slot_id: slot,
            slot: self.slots.row(slot.index as usize),
            step,
            length: run.length,
            inputs: run.inputs.iter().map(|rows| memory.rows(rows)).collect(),
            sinks: sinks.collect(),
            stop: run.stop,
            is_stopped: memory.is_stopped(run_index),
            request,
            run: run_index,
            memory: memory.clone(),
        };
        if step == 0 && graph.piece() != Piece::Next {
            for (state, initial) in self.states.iter().zip(&run.initial) {
                let (to, bytes) = (state.of(&chain).row(0), state.bytes());
                let initial = initial.as_ref().map(|rows| memory.rows(rows));
                // SAFETY: the slot is the chain's own from its first step on, and the row of the
                // initial state was written before the chain could join.
                unsafe {
                    match initial {
                        Some(rows) => {
                            assert_eq!(rows.row_bytes, bytes, "a state's row is its size");
                            std::ptr::copy_nonoverlapping(rows.row(0), to, bytes);
                        }
                        None => std::ptr::write_bytes(to, 0, bytes),
                    }
                }
            }
        }
        chain
    }

    /// Changes the roster, then runs `steps` steps of it.
    ///
    /// # Safety
    /// The rows that the chains read are written, and nobody else accesses those that they write.
    pub(crate) unsafe fn run_roster(
        &self,
        roster: &mut StagedRoster,
        leaves: &[SlotId],
        joins: &[Join],
        steps: u32,
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        runner: &mut Runner<'_>,
    ) -> Result<(), ()> {
        roster.0.retain(|chain| !leaves.contains(&chain.slot_id));
        let chain = |join: &Join| {
            let Join { request, run, slot, step, .. } = *join;
            self.chain(memory_of(request), (request, run), slot, step)
        };
        roster.0.extend(joins.iter().map(chain));
        for _ in 0..steps {
            // SAFETY: the caller's promise.
            unsafe { self.step(&mut roster.0, runner) }?;
        }
        Ok(())
    }

    /// Runs one step of each of `items`, a batch of its own, in the empty roster `batch`.
    ///
    /// # Safety
    /// As for [`Self::run_roster`].
    pub(crate) unsafe fn run_items(
        &self,
        batch: &mut StagedRoster,
        items: &[Item],
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        runner: &mut Runner<'_>,
    ) -> Result<(), ()> {
        let chain = |item: &Item| {
            let slot = item.slot.expect("an item of a chain has a slot");
            self.chain(memory_of(item.request), (item.request, item.run), slot, item.first)
        };
        batch.0.extend(items.iter().map(chain));
        // SAFETY: the caller's promise.
        let done = unsafe { self.step(&mut batch.0, runner) };
        batch.0.clear();
        done
    }

    /// Runs the next step of all chains that have not said stop. Past a chain's end that is padding:
    /// its last inputs again, into its own states, which nobody reads any more.
    ///
    /// # Safety
    /// As for [`Self::run_roster`].
    unsafe fn step(&self, chains: &mut [Chain], runner: &mut Runner<'_>) -> Result<(), ()> {
        let running = || chains.iter().filter(|chain| !chain.is_stopped);
        let rows = running().count();
        if rows == 0 {
            return Ok(());
        }
        let gather = |spec: &RowSpec, row: &dyn Fn(&Chain) -> (RowPointers, u32)| {
            let mut gathered = Gathered::with_capacity(spec, rows);
            for chain in running() {
                let (from, node) = row(chain);
                // SAFETY: the caller's promise; a slot is its chain's own.
                unsafe { gathered.append(&from, node, 1) };
            }
            gathered.finish()
        };
        let inputs = self.inputs.iter().enumerate().map(|(port, spec)| {
            gather(spec, &|chain| (chain.inputs[port], chain.step.min(chain.length - 1)))
        });
        let states = self.states.iter().map(|state| gather(&state.row, &|c| (state.of(c), 0)));
        let inputs: Vec<TensorData> = inputs.chain(states).collect();
        let done = self.program.run(rows, inputs, runner.thread, runner.group);
        let mut outputs = done.map_err(|error| {
            eprintln!("batchmaker: a batch of {rows} steps failed: {error}");
        })?;
        let running = chains.iter_mut().filter(|chain| !chain.is_stopped);
        for (row, chain) in running.enumerate() {
            // SAFETY: the caller's promise.
            unsafe { self.advance(chain, &mut outputs, row) };
            if chain.is_stopped {
                let (request, run, nodes) = (chain.request, chain.run, chain.step);
                runner.stops.push(Stopped { request, run, nodes });
            }
        }
        Ok(())
    }

    /// Takes row `row` of a step's outputs to a chain's states and to where they are wanted.
    ///
    /// # Safety
    /// As for [`Self::run_roster`].
    unsafe fn advance(&self, chain: &mut Chain, outputs: &mut [TensorData], row: usize) {
        let node = chain.step;
        chain.step += 1;
        let says_stop = |stop: Stop| match &outputs[stop.port] {
            TensorData::I64(ids) => ids[row] == stop.value,
            other => unreachable!("a stop is an integer, not {}", other.element()),
        };
        if node < chain.length && chain.stop.is_some_and(says_stop) {
            chain.is_stopped = true;
            chain.memory.note_stop(chain.run);
            return;
        }
        for (state, output) in self.states.iter().zip(&mut *outputs) {
            // SAFETY: a slot is its chain's own.
            unsafe { scatter(output, row, &state.of(chain), 0, 1) };
        }
        for (time, port, to) in &chain.sinks {
            let node = match time {
                // Padding.
                _ if node >= chain.length => continue,
                SinkTime::Every => node,
                // Of a chain that may stop at the next node this may be the last.
                SinkTime::Last if node + 1 == chain.length || chain.stop.is_some() => 0,
                SinkTime::Last => continue,
            };
            // SAFETY: the caller's promise.
            unsafe { scatter(&mut outputs[*port], row, to, node, 1) };
        }
    }
}
