//! A batch of chains as rows of a fused kernel: rosters, states, outputs, and the choice of how to
//! run them.

use std::sync::Arc;

use batchmaker_device as device;
use batchmaker_device::{Origin, Roster, StatePlace};
use batchmaker_graph::{
    Item, Join, RecurrentCell, RequestId, SinkTime, SlotId, TensorData, UnknownId,
};
use batchmaker_kernels::{KernelError, Packing, StepRow, XPart};

use super::batch_job::{Job, WORTH_THREADS};
use super::chain_inputs::{ChainInputs, InputBuffers};
use super::initial_state::write_initial_state;
use super::packing::pack;
use super::recurrent_chain::RecurrentChain;
use crate::config::CpuConfig;
use crate::memory::request_memory::RequestMemory;
use crate::memory::state_arena::{StateArena, StateSlot};
use crate::strategies::execution_strategy::{ExecutionStrategy, InputProjection, Split};
use crate::strategies::plan::{LivePlan, SeenPlan};
use crate::strategies::tuner::Tuner;
use crate::threads::thread_group::ThreadGroup;

/// Multiply-adds of a step above which running it on one thread is not tried.
const WORTH_ALL_THREADS: usize = 4_000_000;

/// Bytes of weights that a step multiplies for each core of other workers, which are idle, that it is worth: some microseconds.
const WORTH_A_GUEST: usize = 400_000;

/// The most rows of a batch that guests share: their items are short, and so is the time until they leave.
const ROWS_WITH_GUESTS_MAX: usize = 8;

/// The most steps whose rows are listed together.
const STEPS_AT_ONCE_MAX: u32 = 64;

/// A materialised recurrent cell type.
pub(crate) struct RecurrentChains {
    inputs: ChainInputs,
    /// The number of states: h, then c.
    states: usize,
    slots: StateArena,
    projection: InputProjection,
    plan: Arc<LivePlan>,
}

/// The standing batch of a worker, and what the worker has learned of running it.
pub(crate) struct RecurrentRoster {
    roster: Roster<RecurrentChain>,
    /// Scratch buffer for `[step, chain]`.
    rows: Vec<StepRow>,
    inputs: InputBuffers,
    /// By the number of threads, the worker's own and guests, less 1.
    tuners: Vec<Tuner>,
    plan: SeenPlan,
}

impl RecurrentChains {
    pub(crate) fn new(
        packing: Packing,
        cell: &RecurrentCell,
        config: &CpuConfig,
        plan: Arc<LivePlan>,
    ) -> Result<Self, KernelError> {
        let projection = config.input_projection;
        let packed = pack(packing, cell)?;
        let slots = StateArena::new(packed.hidden_size(), packed.c_len());
        let is_projected = projection != InputProjection::Never;
        let inputs = ChainInputs::new(packed, cell.lookup.clone(), is_projected);
        Ok(Self { inputs, states: cell.kind.states(), slots, projection, plan })
    }

    /// An empty roster.
    pub(crate) fn roster(&self) -> RecurrentRoster {
        RecurrentRoster {
            roster: Roster::default(),
            rows: Vec::new(),
            inputs: self.inputs.buffers(),
            tuners: Vec::new(),
            plan: SeenPlan::default(),
        }
    }

    /// The most threads that a step of `rows` rows is worth, while all other workers are idle.
    pub(crate) fn worth(&self, rows: usize) -> usize {
        if rows > ROWS_WITH_GUESTS_MAX {
            return 1;
        }
        let cell = self.inputs.cell();
        let all_macs = cell.step_macs() + cell.projection_macs();
        1 + rows * (cell.bytes() * cell.step_macs() / all_macs) / WORTH_A_GUEST
    }

    /// The bytes that a slot takes.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slots.slot_bytes()
    }

    /// A chain of the request in `memory`, with its first state in its slot.
    ///
    /// # Safety
    /// The chain's initial states are written, and nobody writes them until this returns. Until then nobody
    /// else accesses its slot.
    unsafe fn chain(&self, memory: Arc<RequestMemory>, course: device::Chain) -> RecurrentChain {
        let graph = memory.graph.clone();
        let run = &graph.runs()[course.run.index()];
        let row_bytes = 4 * self.inputs.cell().hidden_size();
        let (mut y, mut other_sinks) = (None, Vec::new());
        for sink in &run.sinks {
            let rows = memory.rows(&sink.rows);
            assert_eq!(rows.row_bytes, row_bytes, "a state's row is its size");
            if sink.time == SinkTime::Every && sink.port == 0 && y.is_none() {
                y = Some(rows);
            } else {
                other_sinks.push((sink.time, sink.port, rows));
            }
        }
        let x = memory.rows(&run.inputs[0]);
        assert_eq!(x.row_bytes, self.inputs.row_bytes(), "an input's row is its size");
        let (slot, held) = self.slots.take(course.slot);
        if let Some(held) = held {
            memory.hold(held);
        }
        let chain = RecurrentChain {
            slot,
            x,
            is_x_known: memory.is_brought(run.inputs[0].value),
            ids_claimed: course.step(),
            projected: None,
            y,
            other_sinks,
            course,
        };
        if chain.course.origin() == Origin::Initial {
            for (port, initial) in run.initial.iter().enumerate() {
                let state = self.state(&chain, port).cast();
                // SAFETY: the caller vouches for the slot and the initial states.
                unsafe { write_initial_state(initial.as_ref(), &memory, state, row_bytes) };
            }
        }
        chain
    }

    /// The state of a port before the chain's next step: h, then c.
    fn state(&self, chain: &RecurrentChain, port: usize) -> *mut f32 {
        self.state_in(chain.slot, chain.course.step(), port)
    }

    /// The state of a port in a slot before a step: h, then c.
    fn state_in(&self, slot: StateSlot, step: u32, port: usize) -> *mut f32 {
        assert!(port < self.states, "state {port} of {}", self.states);
        if port == 0 { slot.h(step) } else { slot.c() }
    }

    /// Elements of each state.
    fn hidden(&self) -> usize {
        self.inputs.cell().hidden_size()
    }

    /// The kernel's row for a chain's step. Past the chain's end it is padding: the last input
    /// again, into the chain's own state, which nobody reads any more: chunks of sessions are not
    /// padded.
    ///
    /// # Safety
    /// The input of the step is written.
    unsafe fn row(&self, chain: &RecurrentChain, step: u32) -> StepRow {
        let node = chain.course.input_node(step);
        let block = chain.projected.as_ref().filter(|block| block.steps().contains(&node));
        // SAFETY: the node's input is written.
        let x = unsafe { self.inputs.x(chain, node) };
        let (x, x_part) = match (x, block.and_then(|block| block.row(node))) {
            ((_, XPart::Given), Some(projected)) => (projected.cast_const(), XPart::Projected),
            (x, _) => x,
        };
        let y = chain.y.filter(|_| !chain.course.is_padding(step));
        let y = y.map_or(std::ptr::null_mut(), |y| y.row(node).cast());
        let (h_in, h_out) = (chain.slot.h(step), chain.slot.h(step + 1));
        StepRow { x, x_part, h_in, h_out, c: chain.slot.c(), y }
    }

    /// Runs `steps` steps of `batch`. If a cell computed a token id that the embedding lacks, no step runs.
    ///
    /// # Safety
    /// The inputs of these steps are written, and nobody writes them until this returns. Until then nobody
    /// else accesses the chains' slots and the rows that their sinks write.
    unsafe fn run(
        &self,
        batch: &mut RecurrentRoster,
        steps: u32,
        group: &mut ThreadGroup,
    ) -> Result<(), UnknownId> {
        if batch.roster.chains.is_empty() {
            return Ok(());
        }
        // SAFETY: the inputs of `steps` steps are written, of the rows' size, which `chain` checked.
        let check = |chain: &RecurrentChain| unsafe { self.inputs.check_ids(chain, steps) };
        if let Err(unknown) = batch.roster.chains.iter().try_for_each(check) {
            // The next task goes on behind this one.
            batch.roster.chains.iter_mut().for_each(|chain| chain.skip(steps));
            return Err(unknown);
        }
        // Sinks after every step, but for the kernel's own, want each step's end.
        let is_every =
            |chain: &RecurrentChain| chain.other_sinks.iter().any(|s| s.0 == SinkTime::Every);
        let chains = || batch.roster.chains.iter();
        let steps_max = if chains().any(is_every) { 1 } else { STEPS_AT_ONCE_MAX };
        let mut left = steps;
        while left > 0 {
            // A chain that is padded from some step on ends there first, for its last state.
            let to_end = |chain: &RecurrentChain| chain.course.steps_to_end();
            let first_end = batch.roster.chains.iter().filter_map(to_end).min().unwrap_or(left);
            let at_once = left.min(steps_max).min(first_end);
            let chains = &mut batch.roster.chains;
            // SAFETY: the inputs of the next `left` steps are written, of the rows' size, which `chain`
            // checked.
            unsafe { self.inputs.project_new_ids(&mut batch.inputs, chains, left, group) };
            // SAFETY: the caller vouches for the inputs of `left` steps, slots and sinks.
            left -= unsafe { self.run_at_once(batch, at_once, left, group) };
        }
        Ok(())
    }

    /// Runs some of the next `steps` steps, and returns how many.
    ///
    /// # Safety
    /// `steps` is at least 1 and at most `known`, and no chain ends before the last of these steps. The inputs
    /// of the next `known` steps are written, and nobody writes them until this returns. Until then nobody
    /// else accesses the chains' slots and the rows that their sinks write.
    unsafe fn run_at_once(
        &self,
        batch: &mut RecurrentRoster,
        steps: u32,
        known: u32,
        group: &mut ThreadGroup,
    ) -> u32 {
        let size = batch.roster.chains.len();
        let members = group.members(self.worth(size));
        let threads = members.count();
        let strategy = self.strategy(batch, group.threads(), threads);
        let (inputs, chains) = (&mut batch.inputs, &mut batch.roster.chains);
        // SAFETY: the inputs of `known` steps are written, of the rows' size, which `chain` checked.
        unsafe { self.inputs.list_pre_projection(inputs, chains, strategy.pre_projection, known) };
        let steps = match strategy.pre_projection {
            true => {
                let chains = batch.roster.chains.iter();
                chains.filter_map(RecurrentChain::steps_projected).fold(steps, u32::min)
            }
            false => steps,
        };

        batch.rows.clear();
        let (mut given, mut projected) = (false, false);
        for step in 0..steps {
            for chain in &batch.roster.chains {
                // SAFETY: the inputs of `known` steps are written.
                let row = unsafe { self.row(chain, chain.course.step() + step) };
                match row.x_part {
                    XPart::Given => given = true,
                    XPart::Projected => projected = true,
                }
                batch.rows.push(row);
            }
        }

        let job = Job {
            cell: self.inputs.cell(),
            to_project: &batch.inputs.to_project,
            rows: &batch.rows,
            size,
            split: strategy.split,
        };
        // SAFETY: the caller vouches for rows of values; slots and their parts are the chains'
        // own, and so are blocks of projections.
        let times = unsafe { job.run(group, members) };

        let InputBuffers { to_project, steps_to_project, .. } = &batch.inputs;
        if times.is_complete && !to_project.is_empty() {
            batch.tuners[threads - 1].record_projection(
                size,
                *steps_to_project,
                times.projecting_ns,
            );
        }
        let ran_as_chosen = match strategy.pre_projection || self.inputs.is_table_projected() {
            true => !given,
            // The projections of cached token ids are used in either case.
            false => self.inputs.is_cached() || !projected,
        };
        if times.is_complete && ran_as_chosen {
            let step_ns = times.stepping_ns / steps as f32;
            batch.tuners[threads - 1].record(size, strategy, step_ns);
        }
        for chain in &mut batch.roster.chains {
            chain.course.advance(steps);
        }
        for chain in &batch.roster.chains {
            // SAFETY: the caller vouches for the slots and for the rows that sinks write.
            unsafe { self.write_sinks(chain) };
        }
        steps
    }

    /// The execution strategy for the batch as it is, on `threads` threads of which `own` are the worker's.
    fn strategy(
        &self,
        batch: &mut RecurrentRoster,
        own: usize,
        threads: usize,
    ) -> ExecutionStrategy {
        let size = batch.roster.chains.len();
        // Plans are of workers without guests.
        let planned = self.planned(batch, own).filter(|_| threads == own);
        let cell = self.inputs.cell();
        let (macs, x_macs) = (size * cell.step_macs(), cell.projection_macs());
        let is_projection_open = |pre_projection: bool| match self.projection {
            _ if x_macs == 0 || self.inputs.is_table_projected() => !pre_projection,
            InputProjection::Never => !pre_projection,
            InputProjection::Always => pre_projection,
            // Where the blocks of some chains only fit, the measurement would be of neither strategy.
            InputProjection::Measured => !pre_projection || batch.inputs.blocks.fit(size),
        };
        let is_split_open = |split: Split| match split {
            Split::None if threads == 1 => true,
            // The worker's own threads are there in any case.
            Split::None if threads > own && own > 1 => false,
            _ if threads == 1 => false,
            // A guest may leave, its rows cannot.
            Split::Rows if size < threads || threads > own => false,
            _ if planned.is_some_and(|strategy| strategy.split == split) => true,
            Split::None => macs < WORTH_ALL_THREADS,
            Split::Units | Split::Rows => macs >= WORTH_THREADS,
        };
        let is_open = |strategy: ExecutionStrategy| {
            is_split_open(strategy.split) && is_projection_open(strategy.pre_projection)
        };
        if batch.tuners.len() < threads {
            batch.tuners.resize_with(threads, Tuner::default);
        }
        batch.tuners[threads - 1].choose(size, planned, is_open)
    }

    /// The strategy that the cell's plan has for such a batch. With a new plan, tilings change, and what was
    /// measured before is forgotten.
    fn planned(&self, batch: &mut RecurrentRoster, threads: usize) -> Option<ExecutionStrategy> {
        if self.plan.refresh(&mut batch.plan) {
            self.inputs.cell().set_tilings(&batch.plan.plan.tilings(threads));
            batch.tuners.clear();
        }
        batch.plan.plan.strategy(batch.roster.chains.len())
    }

    /// Writes a chain's states where its sinks want them after the step before its next one.
    ///
    /// # Safety
    /// The chain has run a step. Until this returns nobody else accesses its slot and the rows that its sinks
    /// write.
    unsafe fn write_sinks(&self, chain: &RecurrentChain) {
        let step = chain.course.step() - 1;
        for &(time, port, rows) in &chain.other_sinks {
            let Some(node) = chain.course.sink_node(time, step) else { continue };
            let state = self.state(chain, port).cast();
            // SAFETY: the state is of the size that `chain` checked the row to have; the caller
            // vouches for the row.
            unsafe { std::ptr::copy_nonoverlapping(state, rows.row(node), rows.row_bytes) };
        }
        let kept = chain.course.state_step_after(step);
        if kept != step + 1 {
            let (from, to) = (chain.slot.h(step + 1), chain.slot.h(kept));
            // SAFETY: both are the chain's own, of an h each; they are one, or apart.
            unsafe { std::ptr::copy(from, to, self.inputs.cell().hidden_size()) };
        }
    }

    /// A row of each state in a slot: h, then c.
    ///
    /// # Safety
    /// No task in flight uses the slot, and nobody else accesses it until this returns.
    pub(crate) unsafe fn read_state(&self, place: StatePlace) -> Vec<TensorData> {
        let (slot, _) = self.slots.take(place.slot);
        let row = |port| {
            let state = self.state_in(slot, place.step, port);
            // SAFETY: a state is `[hidden]`; the caller vouches for the slot.
            TensorData::F32(unsafe { std::slice::from_raw_parts(state, self.hidden()) }.to_vec())
        };
        (0..self.states).map(row).collect()
    }

    /// Sets the states in a slot: a row `[hidden]` for each, h, then c.
    ///
    /// # Safety
    /// No task in flight uses the slot, and nobody else accesses it until this returns.
    pub(crate) unsafe fn write_state(&self, place: StatePlace, states: Vec<TensorData>) {
        assert_eq!(states.len(), self.states, "a row for each state");
        let (slot, _) = self.slots.take(place.slot);
        for (port, row) in states.into_iter().enumerate() {
            let TensorData::F32(row) = row else { panic!("a state is F32") };
            assert_eq!(row.len(), self.hidden(), "a state's row is its size");
            let state = self.state_in(slot, place.step, port);
            // SAFETY: both are `[hidden]`; the caller vouches for the slot.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), state, row.len()) };
        }
    }

    /// Changes the roster, then runs `steps` steps of it.
    ///
    /// # Safety
    /// The initial states and the inputs of these steps are written, and nobody writes them until this
    /// returns. Until then nobody else accesses the chains' slots and the rows that their sinks write.
    pub(crate) unsafe fn run_roster(
        &self,
        roster: &mut RecurrentRoster,
        leaves: &[SlotId],
        joins: &[Join],
        steps: u32,
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        group: &mut ThreadGroup,
    ) -> Result<(), UnknownId> {
        let RecurrentRoster { roster: list, inputs, .. } = &mut *roster;
        let left = list.leave(leaves, |chain| {
            if let Some(projected) = chain.projected.take() {
                inputs.blocks.give_back(projected);
            }
        });
        left.expect("the manager names only chains on the roster");
        for join in joins {
            let memory = memory_of(join.request);
            let course = device::Chain::joining(&memory.graph, join, false);
            // SAFETY: the caller vouches for the initial states and the slot.
            list.chains.push(unsafe { self.chain(memory, course) });
        }
        // SAFETY: the caller vouches for inputs, slots and sinks.
        unsafe { self.run(roster, steps, group) }
    }

    /// Runs one step of each of `items`, a batch of its own, in the empty roster `batch`.
    ///
    /// # Safety
    /// The initial states and the inputs of these steps are written, and nobody writes them until this
    /// returns. Until then nobody else accesses the chains' slots and the rows that their sinks write.
    pub(crate) unsafe fn run_items(
        &self,
        batch: &mut RecurrentRoster,
        items: &[Item],
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        group: &mut ThreadGroup,
    ) -> Result<(), UnknownId> {
        let chain = |item: &Item| {
            let memory = memory_of(item.request);
            let course = device::Chain::of_item(&memory.graph, item, false);
            // SAFETY: the caller vouches for the initial states and the slot.
            unsafe { self.chain(memory, course) }
        };
        batch.roster.chains.extend(items.iter().map(chain));
        // SAFETY: the caller vouches for inputs, slots and sinks.
        let ran = unsafe { self.run(batch, 1, group) };
        for chain in batch.roster.chains.drain(..) {
            if let Some(projected) = chain.projected {
                batch.inputs.blocks.give_back(projected);
            }
        }
        ran
    }
}
