//! A batch of chains whose steps are composite programs: their states lie in slots, and are gathered, with
//! the step's inputs, into one tensor for each port.

use std::sync::{Arc, Weak};

use batchmaker_device as device;
use batchmaker_device::{Origin, Roster, StatePlace};
use batchmaker_executor::ExecutorThreads;
use batchmaker_graph::{
    Cell, CompositeCell, EndOfSequence, Item, Join, RequestId, RowSpec, SinkTime, SlotId, Stop,
    TensorData,
};
use batchmaker_kernels::Packing;

use super::composite_program::{CompositeError, CompositeProgram};
use super::initial_state::write_initial_state;
use crate::config::CpuConfig;
use crate::memory::batch_tensor::{Gathered, scatter};
use crate::memory::raw_lines::LINE;
use crate::memory::request_memory::RequestMemory;
use crate::memory::row_pointers::RowPointers;
use crate::memory::slot_arena::SlotArena;
use crate::threads::thread_group::ThreadGroup;

/// A materialised composite cell type with states.
pub(crate) struct CompositeChains {
    program: CompositeProgram,
    inputs: Vec<RowSpec>,
    states: Vec<State>,
    slots: Arc<SlotArena>,
}

/// A state, and where it lies in a slot.
struct State {
    row: RowSpec,
    /// Floats from the slot's first to the state's.
    offset: usize,
}

/// A standing batch.
#[derive(Default)]
pub(crate) struct CompositeRoster(Roster<Chain>);

/// A chain in a batch. Its rows stay where they are until its request is retired; after that it may still be on a roster,
/// but no step of it runs.
struct Chain {
    course: device::Chain,
    slot: *mut f32,
    /// The rows of each input port.
    inputs: Vec<RowPointers>,
    /// Each sink: its time, the output port, and the rows that it writes.
    sinks: Vec<(SinkTime, usize, RowPointers)>,
    memory: Weak<RequestMemory>,
}

// SAFETY: the slot is an address; only unsafe code, which vouches for each access, does anything with it.
unsafe impl Send for Chain {}

impl AsRef<device::Chain> for Chain {
    fn as_ref(&self) -> &device::Chain {
        &self.course
    }
}

/// The threads that steps run on, and the list of the chains that end.
pub(crate) struct CompositeResources<'a> {
    pub(crate) threads: &'a ExecutorThreads,
    pub(crate) group: &'a mut ThreadGroup,
    /// Receives the chains that reach their end of sequence.
    pub(crate) ends: &'a mut Vec<EndOfSequence>,
}

impl State {
    fn bytes(&self) -> usize {
        self.row.elements() * self.row.element.bytes()
    }

    /// Returns the address of the state in a chain's slot.
    fn of(&self, chain: &Chain) -> RowPointers {
        self.at(chain.slot)
    }

    /// Returns the address of the state in a slot.
    fn at(&self, slot: *mut f32) -> RowPointers {
        RowPointers::one(slot.wrapping_add(self.offset).cast(), self.bytes())
    }
}

impl CompositeChains {
    /// Whether its programs need a large stack to run.
    pub(crate) fn is_deep(&self) -> bool {
        self.program.is_deep()
    }

    pub(crate) fn new(
        packing: Packing,
        cell: &Cell,
        composite: &CompositeCell,
        config: &CpuConfig,
    ) -> Result<Self, CompositeError> {
        let mut floats = 0;
        let states = cell.states.iter().map(|row| {
            let state = State { row: row.clone(), offset: floats };
            floats += state.bytes().div_ceil(size_of::<f32>()).next_multiple_of(LINE);
            state
        });
        let states = states.collect();
        let program = CompositeProgram::new(packing, composite, config)?;
        Ok(Self { program, inputs: cell.inputs.clone(), states, slots: SlotArena::new(floats) })
    }

    /// The bytes that a slot takes.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slots.slot_bytes()
    }

    /// A chain of the request in `memory`, with its first states in its slot.
    ///
    /// # Safety
    /// The chain's initial states are written, and nobody writes them until this returns. Until then nobody
    /// else accesses its slot.
    unsafe fn chain(&self, memory: Arc<RequestMemory>, course: device::Chain) -> Chain {
        let graph = memory.graph.clone();
        let run = &graph.runs()[course.run.index()];
        let sinks = run.sinks.iter().map(|s| (s.time, s.port, memory.rows(&s.rows)));
        let (slot, held) = self.slots.take(course.slot);
        if let Some(held) = held {
            memory.hold(held);
        }
        let chain = Chain {
            slot,
            inputs: run.inputs.iter().map(|rows| memory.rows(rows)).collect(),
            sinks: sinks.collect(),
            course,
            memory: Arc::downgrade(&memory),
        };
        if chain.course.origin() == Origin::Initial {
            for (state, initial) in self.states.iter().zip(&run.initial) {
                let (to, bytes) = (state.of(&chain).row(0), state.bytes());
                // SAFETY: the caller vouches for the slot and the initial states.
                unsafe { write_initial_state(initial.as_ref(), &memory, to, bytes) };
            }
        }
        chain
    }

    /// Changes the roster, then runs `steps` steps of it.
    ///
    /// # Safety
    /// The initial states and the inputs of these steps are written, and nobody writes them until this
    /// returns. Until then nobody else accesses the chains' slots and the rows that their sinks write.
    pub(crate) unsafe fn run_roster(
        &self,
        roster: &mut CompositeRoster,
        leaves: &[SlotId],
        joins: &[Join],
        steps: u32,
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        resources: &mut CompositeResources<'_>,
    ) -> Result<(), CompositeError> {
        let left = roster.0.leave(leaves, |_| ());
        left.expect("the manager names only chains on the roster");
        let chain = |join: &Join| {
            let memory = memory_of(join.request);
            let course = device::Chain::joining(&memory.graph, join, memory.has_ended(join.run));
            // SAFETY: the caller vouches for the initial states and the slot.
            unsafe { self.chain(memory, course) }
        };
        roster.0.chains.extend(joins.iter().map(chain));
        for done in 0..steps {
            // SAFETY: the caller vouches for inputs, slots and sinks.
            let ran = unsafe { self.step(&mut roster.0.chains, resources) };
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
    /// The initial states and the inputs of these steps are written, and nobody writes them until this
    /// returns. Until then nobody else accesses the chains' slots and the rows that their sinks write.
    pub(crate) unsafe fn run_items(
        &self,
        batch: &mut CompositeRoster,
        items: &[Item],
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        resources: &mut CompositeResources<'_>,
    ) -> Result<(), CompositeError> {
        let chain = |item: &Item| {
            let memory = memory_of(item.request);
            let course = device::Chain::of_item(&memory.graph, item, memory.has_ended(item.run));
            // SAFETY: the caller vouches for the initial states and the slot.
            unsafe { self.chain(memory, course) }
        };
        batch.0.chains.extend(items.iter().map(chain));
        // SAFETY: the caller vouches for inputs, slots and sinks.
        let done = unsafe { self.step(&mut batch.0.chains, resources) };
        batch.0.chains.clear();
        done
    }

    /// A row of each state in a slot.
    ///
    /// # Safety
    /// No task in flight uses the slot, and nobody else accesses it until this returns.
    pub(crate) unsafe fn read_state(&self, place: StatePlace) -> Vec<TensorData> {
        let (slot, _) = self.slots.take(place.slot);
        let state = |state: &State| {
            let mut row = Gathered::with_capacity(&state.row, 1);
            // SAFETY: the caller vouches for the slot.
            unsafe { row.append(&state.at(slot), 0, 1) };
            row.finish()
        };
        self.states.iter().map(state).collect()
    }

    /// Sets the states in a slot: a row for each.
    ///
    /// # Safety
    /// No task in flight uses the slot, and nobody else accesses it until this returns.
    pub(crate) unsafe fn write_state(&self, place: StatePlace, mut states: Vec<TensorData>) {
        assert_eq!(states.len(), self.states.len(), "a row for each state");
        let (slot, _) = self.slots.take(place.slot);
        for (state, row) in self.states.iter().zip(&mut states) {
            assert_eq!(row.element(), state.row.element, "a state's element type");
            // SAFETY: the caller vouches for the slot.
            unsafe { scatter(row, 0, &state.at(slot), 0, 1) };
        }
    }

    /// See [`CompositeProgram::row_bytes`]; 0 if no operation is a program.
    pub(crate) fn row_bytes(&self) -> u64 {
        if self.program.has_programs() { self.program.row_bytes() } else { 0 }
    }

    /// Runs the next step of all chains that have not ended. Past a chain's end that is padding:
    /// its last inputs again, into its own states, which nobody reads any more: chunks of sessions are
    /// not padded.
    ///
    /// # Safety
    /// The initial states and the inputs of these steps are written, and nobody writes them until this
    /// returns. Until then nobody else accesses the chains' slots and the rows that their sinks write.
    unsafe fn step(
        &self,
        chains: &mut [Chain],
        resources: &mut CompositeResources<'_>,
    ) -> Result<(), CompositeError> {
        let running = || chains.iter().filter(|chain| chain.course.is_running());
        let rows = running().count();
        if rows == 0 {
            return Ok(());
        }
        let gather = |spec: &RowSpec, row: &dyn Fn(&Chain) -> (RowPointers, u32)| {
            let mut gathered = Gathered::with_capacity(spec, rows);
            for chain in running() {
                let (from, node) = row(chain);
                // SAFETY: inputs are written, and a slot is its chain's own.
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
        let mut outputs = self.program.run(rows, inputs, resources.threads, resources.group)?;
        let running = chains.iter_mut().filter(|chain| chain.course.is_running());
        for (row, chain) in running.enumerate() {
            // SAFETY: the caller vouches for inputs, slots and sinks.
            resources.ends.extend(unsafe { self.advance(chain, &mut outputs, row) });
        }
        Ok(())
    }

    /// Copies row `row` of a step's outputs to a chain's states and to its sinks, unless the chain reaches its
    /// end of sequence with it.
    ///
    /// # Safety
    /// Until this returns nobody else accesses the chain's slot and the rows that its sinks write.
    unsafe fn advance(
        &self,
        chain: &mut Chain,
        outputs: &mut [TensorData],
        row: usize,
    ) -> Option<EndOfSequence> {
        let is_end = |stop: Stop| match &outputs[stop.port] {
            TensorData::I64(ids) => ids[row] == stop.value,
            other => unreachable!("a stop is an integer, not {}", other.element()),
        };
        if chain.course.stop().is_some_and(is_end) {
            let end = chain.course.end();
            let memory = chain.memory.upgrade().expect("no step runs after its request is retired");
            memory.record_end(end.run);
            return Some(end);
        }
        for (state, output) in self.states.iter().zip(&mut *outputs) {
            // SAFETY: a slot is its chain's own.
            unsafe { scatter(output, row, &state.of(chain), 0, 1) };
        }
        for (time, port, to) in &chain.sinks {
            let node = chain.course.sink_node(*time, chain.course.step());
            let Some(node) = node else { continue };
            // SAFETY: the caller vouches for the rows that sinks write.
            unsafe { scatter(&mut outputs[*port], row, to, node, 1) };
        }
        chain.course.advance(1);
        None
    }
}
