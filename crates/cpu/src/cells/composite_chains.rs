//! A batch of chains whose steps are programs: their states lie in slots, and are gathered, with
//! the step's inputs, into one tensor a port.

use std::sync::Arc;

use batchmaker_device as device;
use batchmaker_device::{Origin, Roster, StatePlace};
use batchmaker_executor::ExecutorThread;
use batchmaker_graph::{
    Cell, CompositeCell, EndOfSequence, Item, Join, RequestId, RowSpec, SinkTime, SlotId, Stop,
    TensorData,
};
use batchmaker_kernels::Packing;

use crate::cells::composite_program::{StagedError, StagedProgram};
use crate::cells::recurrent_chains::ProjectionAhead;
use crate::memory::request_memory::{Gathered, RequestMemory, RowPointers, scatter};
use crate::memory::row_arena::{LINE, RowArena};
use crate::threads::thread_group::ThreadGroup;

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
    offset: usize,
}

/// A standing batch.
#[derive(Default)]
pub(crate) struct StagedRoster(Roster<Chain>);

/// A chain in a batch.
struct Chain {
    course: device::Chain,
    slot: *mut f32,
    /// By input port.
    inputs: Vec<RowPointers>,
    /// When, from which port, where to.
    sinks: Vec<(SinkTime, usize, RowPointers)>,
    /// Keeps the rows where they are.
    memory: Arc<RequestMemory>,
}

// SAFETY: only a place; what may be done there is said at each access.
unsafe impl Send for Chain {}

impl AsRef<device::Chain> for Chain {
    fn as_ref(&self) -> &device::Chain {
        &self.course
    }
}

/// What steps run on.
pub(crate) struct Steps<'a> {
    pub(crate) thread: &'a ExecutorThread,
    pub(crate) group: &'a mut ThreadGroup,
    /// Where chains that reach their end of sequence are listed.
    pub(crate) ends: &'a mut Vec<EndOfSequence>,
}

impl State {
    fn bytes(&self) -> usize {
        self.row.elements() * self.row.element.bytes()
    }

    /// Where the state lies in a chain's slot.
    fn of(&self, chain: &Chain) -> RowPointers {
        self.at(chain.slot)
    }

    /// Where the state lies in a slot.
    fn at(&self, slot: *mut f32) -> RowPointers {
        RowPointers::one(slot.wrapping_add(self.offset).cast(), self.bytes())
    }
}

impl StagedChains {
    pub(crate) fn new(
        packing: Packing,
        cell: &Cell,
        staged: &CompositeCell,
        ahead: ProjectionAhead,
    ) -> Result<Self, StagedError> {
        let mut floats = 0;
        let states = cell.states.iter().map(|row| {
            let state = State { row: row.clone(), offset: floats };
            floats += state.bytes().div_ceil(size_of::<f32>()).next_multiple_of(LINE);
            state
        });
        let states = states.collect();
        let program = StagedProgram::new(packing, staged, ahead)?;
        Ok(Self { program, inputs: cell.inputs.clone(), states, slots: RowArena::new(floats) })
    }

    /// A chain of the request in `memory`, with its first states in its slot.
    fn chain(&self, memory: Arc<RequestMemory>, course: device::Chain) -> Chain {
        let graph = memory.graph.clone();
        let run = &graph.runs()[course.run.index()];
        let sinks = run.sinks.iter().map(|s| (s.time, s.port, memory.rows(&s.rows)));
        let chain = Chain {
            slot: self.slots.row(course.slot.index as usize),
            inputs: run.inputs.iter().map(|rows| memory.rows(rows)).collect(),
            sinks: sinks.collect(),
            course,
            memory: memory.clone(),
        };
        if chain.course.origin() == Origin::Initial {
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
        hands: &mut Steps<'_>,
    ) -> Result<(), StagedError> {
        let left = roster.0.leave(leaves, |_| ());
        left.expect("the manager knows who is on a roster");
        let chain = |join: &Join| {
            let memory = memory_of(join.request);
            let course = device::Chain::joining(&memory.graph, join, memory.has_ended(join.run));
            self.chain(memory, course)
        };
        roster.0.chains.extend(joins.iter().map(chain));
        for done in 0..steps {
            // SAFETY: the caller's promise.
            let ran = unsafe { self.step(&mut roster.0.chains, hands) };
            if ran.is_err() {
                // The next task goes on behind this one, with states that are undefined.
                let chains = roster.0.chains.iter_mut();
                let running = chains.filter(|chain| chain.course.is_running());
                running.for_each(|chain| chain.course.advance(steps - done));
                return ran;
            }
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
        hands: &mut Steps<'_>,
    ) -> Result<(), StagedError> {
        let chain = |item: &Item| {
            let memory = memory_of(item.request);
            let course = device::Chain::of_item(&memory.graph, item, memory.has_ended(item.run));
            self.chain(memory, course)
        };
        batch.0.chains.extend(items.iter().map(chain));
        // SAFETY: the caller's promise.
        let done = unsafe { self.step(&mut batch.0.chains, hands) };
        batch.0.chains.clear();
        done
    }

    /// A row of each state in a slot.
    ///
    /// # Safety
    /// No task in flight uses the slot.
    pub(crate) unsafe fn read_state(&self, place: StatePlace) -> Vec<TensorData> {
        let slot = self.slots.row(place.slot.index as usize);
        let state = |state: &State| {
            let mut row = Gathered::with_capacity(&state.row, 1);
            // SAFETY: the caller's promise.
            unsafe { row.append(&state.at(slot), 0, 1) };
            row.finish()
        };
        self.states.iter().map(state).collect()
    }

    /// Sets the states in a slot: a row for each.
    ///
    /// # Safety
    /// No task in flight uses the slot.
    pub(crate) unsafe fn write_state(&self, place: StatePlace, mut states: Vec<TensorData>) {
        assert_eq!(states.len(), self.states.len(), "a row for each state");
        let slot = self.slots.row(place.slot.index as usize);
        for (state, row) in self.states.iter().zip(&mut states) {
            assert_eq!(row.element(), state.row.element, "a state's element type");
            // SAFETY: the caller's promise.
            unsafe { scatter(row, 0, &state.at(slot), 0, 1) };
        }
    }

    /// Runs the next step of all chains that have not ended. Past a chain's end that is padding:
    /// its last inputs again, into its own states, which nobody reads any more: chunks of sessions are
    /// not padded.
    ///
    /// # Safety
    /// As for [`Self::run_roster`].
    unsafe fn step(&self, chains: &mut [Chain], hands: &mut Steps<'_>) -> Result<(), StagedError> {
        let running = || chains.iter().filter(|chain| chain.course.is_running());
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
            gather(spec, &|chain| {
                (chain.inputs[port], chain.course.input_node(chain.course.step()))
            })
        });
        let states = self.states.iter().map(|state| gather(&state.row, &|c| (state.of(c), 0)));
        let inputs: Vec<TensorData> = inputs.chain(states).collect();
        let mut outputs = self.program.run(rows, inputs, hands.thread, hands.group)?;
        let running = chains.iter_mut().filter(|chain| chain.course.is_running());
        for (row, chain) in running.enumerate() {
            // SAFETY: the caller's promise.
            hands.ends.extend(unsafe { self.advance(chain, &mut outputs, row) });
        }
        Ok(())
    }

    /// Takes row `row` of a step's outputs to a chain's states and to where they are wanted, unless the
    /// chain ends with it.
    ///
    /// # Safety
    /// As for [`Self::run_roster`].
    unsafe fn advance(
        &self,
        chain: &mut Chain,
        outputs: &mut [TensorData],
        row: usize,
    ) -> Option<EndOfSequence> {
        let says_stop = |stop: Stop| match &outputs[stop.port] {
            TensorData::I64(ids) => ids[row] == stop.value,
            other => unreachable!("a stop is an integer, not {}", other.element()),
        };
        if chain.course.stop().is_some_and(says_stop) {
            let end = chain.course.end();
            chain.memory.note_end(end.run);
            return Some(end);
        }
        for (state, output) in self.states.iter().zip(&mut *outputs) {
            // SAFETY: a slot is its chain's own.
            unsafe { scatter(output, row, &state.of(chain), 0, 1) };
        }
        for (time, port, to) in &chain.sinks {
            let node = chain.course.sink_node(*time, chain.course.step());
            let Some(node) = node else { continue };
            // SAFETY: the caller's promise.
            unsafe { scatter(&mut outputs[*port], row, to, node, 1) };
        }
        chain.course.advance(1);
        None
    }
}
