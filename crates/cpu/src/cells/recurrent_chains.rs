//! A batch of chains as rows of a fused kernel: rosters, states, outputs, and the choice of how to
//! run them.

use std::sync::Arc;

use batchmaker_device as device;
use batchmaker_device::{Origin, Roster, StatePlace};
use batchmaker_graph::{
    CellGraph, Item, Join, RecurrentCell, RecurrentKind, RequestId, RnnActivation, SinkTime,
    SlotId, TensorData, ValueIndex,
};
use batchmaker_kernels as kernels;
use batchmaker_kernels::{
    GruParameters, KernelError, LstmParameters, PackedGru, PackedLstm, PackedRnn, Packing,
    ProjectionRow, Recurrence, Reset, RnnParameters, StepRow, XPart,
};

use crate::cells::batch_job::{Job, WORTH_THREADS, project_rows};
use crate::cells::embedding::Embedding;
use crate::device::CpuConfig;
use crate::memory::projected_blocks::{ProjectedSteps, Projections};
use crate::memory::projection_cache::Claim;
use crate::memory::request_memory::{RequestMemory, RowPointers};
use crate::memory::state_arena::{StateArena, StateSlot};
use crate::strategies::plan::{LivePlan, SeenPlan};
use crate::strategies::tuner::{Split, Tuner, Way};
use crate::threads::thread_group::ThreadGroup;

/// Multiply-adds of a step that are not worth trying to do in one thread where there are more.
const WORTH_ALL_THREADS: usize = 4_000_000;

/// Steps whose rows are written down together.
const STEPS_AT_ONCE_MAX: u32 = 64;

/// New words that are projected together before a batch goes on.
const NEW_WORDS_MAX: usize = 64;

/// Whether inputs are projected ahead of the steps that need them. Changes no bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectionAhead {
    /// Where measurement says that it is faster, for each cell type and size of batch.
    #[default]
    Measured,
    /// Wherever inputs are known.
    Always,
    /// Never.
    Never,
}

/// A materialised recurrent cell type.
pub(crate) struct Chains {
    cell: Box<dyn Recurrence>,
    states: usize,
    embedding: Option<Embedding>,
    slots: StateArena,
    ahead: ProjectionAhead,
    plan: Arc<LivePlan>,
}

/// A chain in a batch.
pub(crate) struct Chain {
    course: device::Chain,
    slot: StateSlot,
    x: RowPointers,
    /// Whether x came with the request, so that all of it is there.
    is_x_known: bool,
    /// The step from which on no word was looked at.
    words_met: u32,
    projected: Option<ProjectedSteps>,
    /// Where h goes after every step, if anywhere.
    y: Option<RowPointers>,
    /// Every other sink: when, from which port, where to.
    other_sinks: Vec<(SinkTime, usize, RowPointers)>,
    /// Keeps the rows where they are.
    _memory: Arc<RequestMemory>,
}

/// The standing batch of a worker, and what it knows of running it.
pub(crate) struct RosterChains {
    roster: Roster<Chain>,
    /// Room for `[step, chain]`.
    rows: Vec<StepRow>,
    /// Room for rows to project.
    to_project: Vec<ProjectionRow>,
    /// Steps that `to_project` is for.
    steps_to_project: usize,
    /// Room for new words.
    claims: Vec<Claim>,
    projections: Projections,
    tuner: Tuner,
    plan: SeenPlan,
}

impl AsRef<device::Chain> for Chain {
    fn as_ref(&self) -> &device::Chain {
        &self.course
    }
}

impl Chain {
    /// The first step whose input may not be written, where those of `known` steps are.
    fn known_end(&self, known: u32) -> u32 {
        let end = if self.is_x_known { u32::MAX } else { self.course.step() + known };
        end.min(self.course.length())
    }

    /// How many steps until a projection ends that is worth going on with another.
    fn steps_projected(&self) -> Option<u32> {
        let (step, end) = (self.course.step(), self.projected.as_ref()?.steps().end);
        (step < end && end < self.course.length()).then(|| end - step)
    }

    /// Whether the projection of the next step lies ready.
    fn is_projected(&self) -> bool {
        let steps = self.projected.as_ref().map(ProjectedSteps::steps);
        steps.is_some_and(|steps| steps.contains(&self.course.input_node(self.course.step())))
    }
}

impl Chains {
    pub(crate) fn new(
        packing: Packing,
        cell: &RecurrentCell,
        config: &CpuConfig,
        plan: Arc<LivePlan>,
    ) -> Result<Self, KernelError> {
        let ahead = config.projection_ahead;
        let packed = pack(packing, cell)?;
        let is_projected = ahead != ProjectionAhead::Never;
        let embedding =
            cell.lookup.clone().map(|lookup| Embedding::new(&*packed, lookup, is_projected));
        let slots = StateArena::new(packed.hidden_size(), packed.c_len());
        Ok(Self { cell: packed, states: cell.kind.states(), embedding, slots, ahead, plan })
    }

    /// An empty roster.
    pub(crate) fn roster(&self) -> RosterChains {
        RosterChains {
            roster: Roster::default(),
            rows: Vec::new(),
            to_project: Vec::new(),
            steps_to_project: 0,
            claims: Vec::new(),
            projections: Projections::new(self.cell.projected_len()),
            tuner: Tuner::default(),
            plan: SeenPlan::default(),
        }
    }

    /// A chain of the request in `memory`, with its first state in its slot.
    fn chain(&self, memory: Arc<RequestMemory>, course: device::Chain) -> Chain {
        let graph = memory.graph.clone();
        let run = &graph.runs()[course.run.index()];
        let row_bytes = 4 * self.cell.hidden_size();
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
        let x_bytes = if self.embedding.is_some() { 8 } else { 4 * self.cell.input_size() };
        assert_eq!(x.row_bytes, x_bytes, "an input's row is its size");
        let chain = Chain {
            slot: self.slots.slot(course.slot.index),
            x,
            is_x_known: is_brought(&graph, run.inputs[0].value),
            words_met: course.step(),
            projected: None,
            y,
            other_sinks,
            course,
            _memory: memory.clone(),
        };
        if chain.course.origin() == Origin::Initial {
            for (port, initial) in run.initial.iter().enumerate() {
                let state = self.state(&chain, port);
                let initial = initial.as_ref().map(|rows| memory.rows(rows));
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

    /// The state of a port before the chain's next step: h, then c.
    fn state(&self, chain: &Chain, port: usize) -> *mut f32 {
        self.state_in(chain.slot, chain.course.step(), port)
    }

    /// The state of a port in a slot before a step: h, then c.
    fn state_in(&self, slot: StateSlot, step: u32, port: usize) -> *mut f32 {
        assert!(port < self.states, "state {port} of {}", self.states);
        if port == 0 { slot.h(step) } else { slot.c() }
    }

    /// Elements of each state.
    fn hidden(&self) -> usize {
        self.cell.hidden_size()
    }

    /// The input of a chain's step, which is written, but for what was projected ahead.
    fn x(&self, chain: &Chain, step: u32) -> (*const f32, XPart) {
        match &self.embedding {
            None => (chain.x.row(step).cast::<f32>().cast_const(), XPart::Given),
            Some(embedding) => embedding.x(word(chain, step)),
        }
    }

    /// The kernel's row for a chain's step. Past the chain's end it is padding: the last input
    /// again, into the chain's own state, which nobody reads any more: chunks of sessions are not
    /// padded.
    fn row(&self, chain: &Chain, step: u32) -> StepRow {
        let node = chain.course.input_node(step);
        let ahead = chain.projected.as_ref().filter(|ahead| ahead.steps().contains(&node));
        let (x, x_part) = match (self.x(chain, node), ahead.and_then(|ahead| ahead.row(node))) {
            ((_, XPart::Given), Some(projected)) => (projected, XPart::Projected),
            (x, _) => x,
        };
        let y = chain.y.filter(|_| !chain.course.is_padding(step));
        let y = y.map_or(std::ptr::null_mut(), |y| y.row(node).cast());
        let (h_in, h_out) = (chain.slot.h(step), chain.slot.h(step + 1));
        StepRow { x, x_part, h_in, h_out, c: chain.slot.c(), y }
    }

    /// Whether all inputs are projected since the cell was materialised.
    fn is_table_projected(&self) -> bool {
        self.embedding.as_ref().is_some_and(Embedding::is_whole)
    }

    /// Runs `steps` steps of `batch`.
    ///
    /// # Safety
    /// The rows that the chains read are written, and nobody else accesses those that they write.
    unsafe fn run(&self, batch: &mut RosterChains, steps: u32, group: &mut ThreadGroup) {
        if batch.roster.chains.is_empty() {
            return;
        }
        // Sinks after every step, but for the kernel's own, want each step's end.
        let is_every = |chain: &Chain| chain.other_sinks.iter().any(|s| s.0 == SinkTime::Every);
        let chains = || batch.roster.chains.iter();
        let steps_max = if chains().any(is_every) { 1 } else { STEPS_AT_ONCE_MAX };
        let mut left = steps;
        while left > 0 {
            // A chain that is padded from some step on ends there first, for its last state.
            let to_end = |chain: &Chain| chain.course.steps_to_end();
            let first_end = batch.roster.chains.iter().filter_map(to_end).min().unwrap_or(left);
            let at_once = left.min(steps_max).min(first_end);
            self.meet_words(batch, left, group);
            // SAFETY: the caller's promise.
            left -= unsafe { self.run_at_once(batch, at_once, left, group) };
        }
    }

    /// Runs some of `steps` steps, of which no chain has an end before the last, and returns how
    /// many. Inputs of `known` steps are written.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn run_at_once(
        &self,
        batch: &mut RosterChains,
        steps: u32,
        known: u32,
        group: &mut ThreadGroup,
    ) -> u32 {
        let size = batch.roster.chains.len();
        let way = self.way(batch, group.threads());
        self.project_ahead(batch, way.ahead, known);
        let steps = match way.ahead {
            true => {
                let chains = batch.roster.chains.iter();
                chains.filter_map(Chain::steps_projected).fold(steps, u32::min)
            }
            false => steps,
        };

        batch.rows.clear();
        let (mut given, mut projected) = (false, false);
        for ahead in 0..steps {
            for chain in &batch.roster.chains {
                let row = self.row(chain, chain.course.step() + ahead);
                match row.x_part {
                    XPart::Given => given = true,
                    XPart::Projected => projected = true,
                }
                batch.rows.push(row);
            }
        }

        let job = Job {
            cell: &*self.cell,
            to_project: &batch.to_project,
            rows: &batch.rows,
            size,
            split: way.split,
        };
        // SAFETY: the caller vouches for rows of values; slots and their parts are the chains'
        // own, and so are blocks of projections.
        let times = unsafe { job.run(group) };

        if !batch.to_project.is_empty() {
            batch.tuner.record_projection(size, batch.steps_to_project, times.projecting_ns);
        }
        let remembers = self.embedding.as_ref().is_some_and(Embedding::remembers);
        let is_as_meant = match way.ahead || self.is_table_projected() {
            true => !given,
            // Words that are known come projected either way.
            false => remembers || !projected,
        };
        if is_as_meant {
            batch.tuner.record(size, way, times.stepping_ns / steps as f32);
        }
        for chain in &mut batch.roster.chains {
            chain.course.advance(steps);
        }
        for chain in &batch.roster.chains {
            // SAFETY: the caller's promise.
            unsafe { self.write_sinks(chain) };
        }
        steps
    }

    /// How to run the batch as it is.
    fn way(&self, batch: &mut RosterChains, threads: usize) -> Way {
        let size = batch.roster.chains.len();
        let planned = self.planned(batch, threads);
        let (macs, x_macs) = (size * self.cell.step_macs(), self.cell.projection_macs());
        let is_ahead_open = |ahead: bool| match self.ahead {
            _ if x_macs == 0 || self.is_table_projected() => !ahead,
            ProjectionAhead::Never => !ahead,
            ProjectionAhead::Always => ahead,
            // Where only some fit, nothing would be learned of either way.
            ProjectionAhead::Measured => !ahead || batch.projections.fit(size),
        };
        let is_split_open = |split: Split| match split {
            Split::None if threads == 1 => true,
            _ if threads == 1 => false,
            Split::Rows if size < threads => false,
            _ if planned.is_some_and(|way| way.split == split) => true,
            Split::None => macs < WORTH_ALL_THREADS,
            Split::Units | Split::Rows => macs >= WORTH_THREADS,
        };
        let is_open = |way: Way| is_split_open(way.split) && is_ahead_open(way.ahead);
        batch.tuner.choose(size, planned, is_open)
    }

    /// The way that was found to be the best for such a batch. With a new plan, tilings change, and what
    /// was measured before is forgotten.
    fn planned(&self, batch: &mut RosterChains, threads: usize) -> Option<Way> {
        if self.plan.refresh(&mut batch.plan) {
            self.cell.set_tilings(&batch.plan.plan.tilings(threads));
            batch.tuner = Tuner::default();
        }
        batch.plan.plan.way(batch.roster.chains.len())
    }

    /// Projects words that nobody has met yet, of the steps whose inputs are written: `known` of
    /// each chain, if not all.
    fn meet_words(&self, batch: &mut RosterChains, known: u32, group: &mut ThreadGroup) {
        let Some(embedding) = self.embedding.as_ref().filter(|table| table.remembers()) else {
            return;
        };
        batch.to_project.clear();
        for chain in &mut batch.roster.chains {
            let end = chain.known_end(known);
            while chain.words_met < end && batch.claims.len() < NEW_WORDS_MAX {
                if let Some((row, claim)) = embedding.meet(word(chain, chain.words_met)) {
                    batch.to_project.push(row);
                    batch.claims.push(claim);
                }
                chain.words_met += 1;
            }
        }
        if batch.claims.is_empty() {
            return;
        }
        // SAFETY: inputs are rows of the table, and the other rows were claimed for this.
        unsafe { project_rows(&*self.cell, &batch.to_project, group) };
        embedding.publish(batch.claims.drain(..));
    }

    /// Lists the rows to project: the next known steps of chains that have none projected.
    fn project_ahead(&self, batch: &mut RosterChains, ahead: bool, known: u32) {
        batch.to_project.clear();
        batch.steps_to_project = 0;
        for chain in &mut batch.roster.chains {
            if chain.is_projected() {
                continue;
            }
            if let Some(done) = chain.projected.take() {
                batch.projections.give_back(done);
            }
            let end = chain.known_end(known);
            if !ahead || chain.course.step() >= end {
                continue;
            }
            let is_given = |step| self.x(chain, step).1 == XPart::Given;
            chain.projected = batch.projections.take(chain.course.step()..end, is_given);
            let mut projected = chain.projected.take();
            if let Some(projected) = &mut projected {
                for step in projected.steps() {
                    let (x, XPart::Given) = self.x(chain, step) else { continue };
                    let Some(projected) = projected.row_mut(step) else { continue };
                    batch.to_project.push(ProjectionRow { x, projected });
                }
                batch.steps_to_project += projected.steps().len();
            }
            chain.projected = projected;
        }
    }

    /// Writes a chain's states where they are wanted after the step before its next one.
    ///
    /// # Safety
    /// As for `run`.
    unsafe fn write_sinks(&self, chain: &Chain) {
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
            unsafe { std::ptr::copy(from, to, self.cell.hidden_size()) };
        }
    }

    /// A row of each state in a slot: h, then c.
    ///
    /// # Safety
    /// No task in flight uses the slot.
    pub(crate) unsafe fn read_state(&self, place: StatePlace) -> Vec<TensorData> {
        let row = |port| {
            let state = self.state_in(self.slots.slot(place.slot.index), place.step, port);
            // SAFETY: a state is `[hidden]`; the caller vouches for the slot.
            TensorData::F32(unsafe { std::slice::from_raw_parts(state, self.hidden()) }.to_vec())
        };
        (0..self.states).map(row).collect()
    }

    /// Sets the states in a slot: a row `[hidden]` for each, h, then c.
    ///
    /// # Safety
    /// No task in flight uses the slot.
    pub(crate) unsafe fn write_state(&self, place: StatePlace, states: Vec<TensorData>) {
        assert_eq!(states.len(), self.states, "a row for each state");
        for (port, row) in states.into_iter().enumerate() {
            let TensorData::F32(row) = row else { panic!("a state is F32") };
            assert_eq!(row.len(), self.hidden(), "a state's row is its size");
            let state = self.state_in(self.slots.slot(place.slot.index), place.step, port);
            // SAFETY: both are `[hidden]`; the caller vouches for the slot.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), state, row.len()) };
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
        let RosterChains { roster: list, projections, .. } = &mut *roster;
        let left = list.leave(leaves, |chain| {
            if let Some(projected) = chain.projected.take() {
                projections.give_back(projected);
            }
        });
        left.expect("the manager knows who is on a roster");
        for join in joins {
            let memory = memory_of(join.request);
            let course = device::Chain::joining(&memory.graph, join, false);
            list.chains.push(self.chain(memory, course));
        }
        // SAFETY: the caller's promise.
        unsafe { self.run(roster, steps, group) };
    }

    /// Runs one step of each of `items`, a batch of its own, in the empty roster `batch`.
    ///
    /// # Safety
    /// As for `run`.
    pub(crate) unsafe fn run_items(
        &self,
        batch: &mut RosterChains,
        items: &[Item],
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        group: &mut ThreadGroup,
    ) {
        let chain = |item: &Item| {
            let memory = memory_of(item.request);
            let course = device::Chain::of_item(&memory.graph, item, false);
            self.chain(memory, course)
        };
        batch.roster.chains.extend(items.iter().map(chain));
        // SAFETY: the caller's promise.
        unsafe { self.run(batch, 1, group) };
        for chain in batch.roster.chains.drain(..) {
            if let Some(projected) = chain.projected {
                batch.projections.give_back(projected);
            }
        }
    }
}

/// Packs the weights of a recurrent cell.
pub(crate) fn pack(
    packing: Packing,
    cell: &RecurrentCell,
) -> Result<Box<dyn Recurrence>, KernelError> {
    let RecurrentCell { input_size, hidden_size, .. } = *cell;
    let (w, r, b) = (&*cell.w, &*cell.r, cell.b.as_deref());
    Ok(match &cell.kind {
        RecurrentKind::Lstm { p } => {
            let p = p.as_deref();
            let parameters = LstmParameters { input_size, hidden_size, w, r, b, p };
            Box::new(PackedLstm::new(packing, parameters)?)
        }
        RecurrentKind::Gru { linear_before_reset } => {
            let reset = match linear_before_reset {
                false => Reset::BeforeProduct,
                true => Reset::AfterProduct,
            };
            let parameters = GruParameters { input_size, hidden_size, w, r, b, reset };
            Box::new(PackedGru::new(packing, parameters)?)
        }
        RecurrentKind::Rnn { activation } => {
            let activation = match activation {
                RnnActivation::Tanh => kernels::RnnActivation::Tanh,
                RnnActivation::Relu => kernels::RnnActivation::Relu,
            };
            let parameters = RnnParameters { input_size, hidden_size, w, r, b, activation };
            Box::new(PackedRnn::new(packing, parameters)?)
        }
    })
}

/// Whether all of a value comes with the request.
fn is_brought(graph: &CellGraph, value: ValueIndex) -> bool {
    let mut sinks = graph.runs().iter().flat_map(|run| &run.sinks);
    graph.inputs().contains(&value) && !sinks.any(|sink| sink.rows.value == value)
}

/// The id that is a chain's input at a step, which is written.
fn word(chain: &Chain, step: u32) -> i64 {
    // SAFETY: the row is one id, written before the step could run.
    unsafe { chain.x.row(step).cast::<i64>().read() }
}
