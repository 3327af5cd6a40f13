//! The roster of a cell type: the chains that each step of its tasks runs. Their rows stay on the GPU, and a task brings only those that changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use batchmaker_device::Chain;
use batchmaker_graph::{CellTypeId, Join, SlotId};

use super::listed::Listed;
use super::projections::Extent;
use super::quanta::OfRoster;
use super::steps::{Run, TypedCell};
use super::submitter::{Submitter, TaskError};
use super::upload::Upload;
use crate::cells::CudaCell;
use crate::gpu::{Allocation, GpuError};
use crate::kernels::batch::{Batch, Now, Port, Row};
use crate::lock::lock;

/// Rows that there is memory for at first.
const ROWS_MIN: usize = 16;

/// The chains of a roster.
pub(super) struct Roster {
    /// The cell that it is of: another cell may have its type's id later.
    cell: Weak<CudaCell>,
    members: Vec<Member>,
    /// The span of each member, by its position: all of them are looked at for each task.
    spans: Vec<Span>,
    positions: HashMap<SlotId, usize>,
    /// Members that the GPU does not have as they are.
    changed: BTreeSet<usize>,
    /// Their rows and ports on the GPU.
    memory: Option<RosterMemory>,
}

struct Member {
    listed: Listed,
    slot: SlotId,
    row: Row,
    ports: Vec<Port>,
}

/// When a member runs, and when it writes.
struct Span {
    /// [`Row::first`] and [`Row::length`].
    first: u32,
    length: u32,
    /// [`Listed::finishes_each`].
    finishes_each: bool,
    has_sinks: bool,
    /// [`Row::may_end`].
    may_end: bool,
}

impl Span {
    /// Marks the steps, from one at a time on, at which the member writes what it computes, or may end.
    fn mark(&self, time: u32, finishes: &mut [bool]) {
        let node = time.wrapping_sub(self.first);
        // Padding writes nothing.
        let left = self.length.saturating_sub(node) as usize;
        if self.finishes_each {
            finishes.iter_mut().take(left).for_each(|finishes| *finishes = true);
        } else if self.has_sinks
            && let Some(last) = left.checked_sub(1)
            && let Some(finishes) = finishes.get_mut(last)
        {
            *finishes = true;
        }
    }
}

/// `[rows]` and `[rows, ports_of_a_row]`.
struct RosterMemory {
    rows: Allocation,
    ports: Allocation,
    /// What blocks of a launch that runs task after task leave to one another.
    between: Allocation,
    count: usize,
    ports_of_a_row: usize,
}

impl Roster {
    fn new(cell: &Arc<CudaCell>) -> Self {
        Self {
            cell: Arc::downgrade(cell),
            members: Vec::new(),
            spans: Vec::new(),
            positions: HashMap::new(),
            changed: BTreeSet::new(),
            memory: None,
        }
    }

    fn join(&mut self, member: Member) {
        self.positions.insert(member.slot, self.members.len());
        self.changed.insert(self.members.len());
        self.spans.push(Span {
            first: member.row.first,
            length: member.row.length,
            finishes_each: member.listed.finishes_each(),
            has_sinks: member.row.sinks > 0,
            may_end: member.row.may_end(),
        });
        self.members.push(member);
    }

    fn leave(&mut self, slot: SlotId) {
        // One that found no room is not here.
        let Some(position) = self.positions.remove(&slot) else { return };
        self.members.swap_remove(position);
        self.spans.swap_remove(position);
        self.changed.remove(&self.members.len());
        if let Some(moved) = self.members.get(position) {
            self.positions.insert(moved.slot, position);
            self.changed.insert(position);
        }
    }

    /// The records of the members that changed, with the copies that bring them to their places.
    fn list_changes(&mut self, upload: &mut Upload) {
        let Some(memory) = &self.memory else { return };
        for position in std::mem::take(&mut self.changed) {
            let Member { row, ports, .. } = &self.members[position];
            let first = position * memory.ports_of_a_row;
            let to = memory.rows.at() + (position * size_of::<Row>()) as u64;
            upload.bring(to, &[Row { ports: first as u32, ..*row }]);
            let to = memory.ports.at() + (first * size_of::<Port>()) as u64;
            upload.bring(to, ports);
        }
    }
}

/// The rosters of a worker, by cell type.
#[derive(Default)]
pub(super) struct Rosters(HashMap<CellTypeId, Roster>);

impl Rosters {
    /// The roster of a cell type: an empty one, if its id stood for another cell before.
    pub(super) fn of(&mut self, typed: TypedCell<'_>) -> &mut Roster {
        let is_known =
            |roster: &Roster| std::ptr::eq(roster.cell.as_ptr(), Arc::as_ptr(typed.cell));
        let roster = self.0.entry(typed.id).or_insert_with(|| Roster::new(typed.cell));
        if !is_known(roster) {
            *roster = Roster::new(typed.cell);
        }
        roster
    }
}

impl Submitter {
    /// Takes chains off a roster.
    pub(super) fn leave(&self, roster: &mut Roster, typed: TypedCell<'_>, leaves: &[SlotId]) {
        let slots = self.slots(typed);
        let mut slots = lock(&slots);
        for &slot in leaves {
            roster.leave(slot);
            slots.leave(slot);
        }
    }

    /// Puts chains on a roster, and runs steps of all that are on it.
    pub(super) fn run_roster(
        &mut self,
        roster: &mut Roster,
        typed: TypedCell<'_>,
        joins: &[Join],
        steps: u32,
    ) -> Result<(), TaskError> {
        let slots = self.slots(typed);
        drop(self.reach(&slots, joins.iter().map(|join| join.slot))?);
        let mut result = Ok(());
        for join in joins {
            match self.join(typed, join) {
                Ok(member) => roster.join(member),
                Err(error @ TaskError::Gpu(_)) => return Err(error),
                // The others go on without it.
                Err(error) => result = Err(error),
            }
        }
        let ran = self.run_members(roster, typed, steps);
        if ran.is_err() {
            self.end_quantum()?;
            // Some changes may not have come to the GPU: the next task brings all rows.
            roster.memory = None;
        }
        ran.and(result)
    }

    fn join(&mut self, typed: TypedCell<'_>, join: &Join) -> Result<Member, TaskError> {
        let listed = self.list(join.request, join.run)?;
        let chain = Chain::joining(&listed.memory.graph, join, false);
        self.bring_state(typed, &listed, &chain)?;
        let slots = self.slots(typed);
        let mut slots = lock(&slots);
        let (time, half) = (slots.time(), slots.join(join.slot));
        let row = Row { slot: join.slot.index, half, ..listed.row(join.step, time) };
        let ports = listed.ports();
        Ok(Member { listed, slot: join.slot, row, ports })
    }

    fn run_members(
        &mut self,
        roster: &mut Roster,
        typed: TypedCell<'_>,
        steps: u32,
    ) -> Result<(), TaskError> {
        if roster.members.is_empty() {
            return Ok(());
        }
        self.make_room(roster, typed)?;
        let slots = self.slots(typed);
        let time = lock(&slots).time();
        let mut finishes = vec![false; steps as usize];
        roster.spans.iter().for_each(|span| span.mark(time, &mut finishes));
        let may_end = roster.spans.iter().filter(|span| span.may_end).count();
        // A member's memory is not looked at where there is one GPU.
        let all = if self.state.workers.len() > 1 { &roster.members[..] } else { &[] };
        for member in all {
            let node = time.wrapping_sub(member.row.first);
            self.bring_inputs(&member.listed, node..node + steps)?;
            self.note_writes(&member.listed, node..node + steps);
        }
        let mut upload = self.upload();
        roster.list_changes(&mut upload);
        if let Some(quantum) = typed.stepwise.quantum() {
            let mut slots = lock(&slots);
            let memory = roster.memory.as_ref().expect("room was made");
            let of_roster = OfRoster {
                rows: memory.rows.at(),
                ports: memory.ports.at(),
                between: memory.between.at(),
                rows_max: memory.count,
                rows_now: roster.members.len(),
                time,
                steps,
            };
            self.push(typed, quantum, &slots, of_roster, upload)?;
            slots.advance(steps);
            return Ok(());
        }
        let mut slots = lock(&slots);
        // Tasks whose launches have the same arguments are graphs.
        let repeats = self.graphs.are_kept() && typed.stepwise.repeats();
        let rows_now = roster.members.len();
        let rows = if repeats { rows_now.next_power_of_two().max(ROWS_MIN) } else { rows_now };
        let extent = self.extent(rows_now, steps as usize, may_end > 0);
        let (frame, repeats) = match self.frame(typed, Extent { rows, ..extent }, Some(&slots)) {
            // There may be memory for as many rows as there are.
            Err(error) if error.is_out_of_memory() && repeats => {
                (self.frame(typed, extent, Some(&slots))?, false)
            }
            frame => (frame?, repeats),
        };
        let rows = if repeats { rows } else { rows_now };
        let outputs = upload.keep(&frame.outputs(typed));
        let now = upload.keep(&[Now { count: rows_now as i32, time }]);
        let at = self.bring(upload)?;
        self.ends_expected += may_end;
        let memory = roster.memory.as_ref().expect("room was made");
        let batch = Batch {
            rows: memory.rows.at(),
            ports: memory.ports.at(),
            ended: slots.ended(),
            now: if repeats { at + now } else { 0 },
            count: rows as i32,
            time: if repeats { 0 } else { time },
        };
        slots.advance(steps);
        let (frame, finishes) = (&frame, &finishes[..]);
        self.run_batch(&Run { typed, frame, batch, outputs: at + outputs, finishes, repeats })
    }

    /// Has memory for the members of a roster. In new memory all are new.
    fn make_room(&mut self, roster: &mut Roster, typed: TypedCell<'_>) -> Result<(), GpuError> {
        let count = roster.members.len();
        let ports = roster.members.iter().map(|member| member.ports.len()).max().unwrap_or(0);
        let known = roster.memory.as_ref().map_or((0, 0), |of| (of.count, of.ports_of_a_row));
        if count <= known.0 && ports <= known.1 {
            return Ok(());
        }
        // A launch that runs task after task uses the memory that there is.
        self.end_quantum()?;
        let count = count.next_power_of_two().max(known.0).max(ROWS_MIN);
        let ports_of_a_row = ports.max(known.1);
        let rows = self.worker.pool.allocate(count * size_of::<Row>())?;
        let ports = self.worker.pool.allocate(count * ports_of_a_row * size_of::<Port>())?;
        let of_quantum = typed.stepwise.quantum();
        let between = of_quantum.map_or(0, |(_, of)| of.kernel.persistent().between_bytes(count));
        let between = self.worker.pool.allocate(between)?;
        roster.memory = Some(RosterMemory { rows, ports, between, count, ports_of_a_row });
        roster.changed = (0..roster.members.len()).collect();
        Ok(())
    }
}
