//! The roster of a cell type: the chains that each step of its tasks runs. Their rows stay on the GPU, and a task brings only those that changed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use batchmaker_device::Chain;
use batchmaker_graph::{CellTypeId, Join, SlotId};

use super::CudaQueue;
use super::steps::Run as StepsRun;
use super::task::{Listed, TaskError};
use super::upload::Upload;
use crate::cells::{CudaCell, Stepwise};
use crate::gpu::{Allocation, GpuError};
use crate::kernels::batch::{Batch, Port, Row};
use crate::worker::lock;

/// Rows that there is memory for at first.
const ROWS_MIN: usize = 16;

/// The chains of a roster.
pub(super) struct Roster {
    /// The cell that it is of: another cell may have its type's id later.
    cell: Weak<CudaCell>,
    members: Vec<Member>,
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

/// `[rows]` and `[rows, ports_of_a_row]`.
struct RosterMemory {
    rows: Allocation,
    ports: Allocation,
    count: usize,
    ports_of_a_row: usize,
}

impl Roster {
    fn new(cell: &Arc<CudaCell>) -> Self {
        Self {
            cell: Arc::downgrade(cell),
            members: Vec::new(),
            positions: HashMap::new(),
            changed: BTreeSet::new(),
            memory: None,
        }
    }

    fn join(&mut self, member: Member) {
        self.positions.insert(member.slot, self.members.len());
        self.changed.insert(self.members.len());
        self.members.push(member);
    }

    fn leave(&mut self, slot: SlotId) {
        // One that found no room is not here.
        let Some(position) = self.positions.remove(&slot) else { return };
        self.members.swap_remove(position);
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
            let row = upload.add(&[Row { ports: first as u32, ..*row }]);
            let to = memory.rows.at() + (position * size_of::<Row>()) as u64;
            upload.copy_records(to, row, size_of::<Row>());
            let of_ports = upload.add(ports);
            let to = memory.ports.at() + (first * size_of::<Port>()) as u64;
            upload.copy_records(to, of_ports, size_of_val(ports.as_slice()));
        }
    }
}

impl CudaQueue {
    /// Takes chains off the roster of a cell type.
    pub(super) fn change_roster(
        &mut self,
        cell_type: CellTypeId,
        cell: &Arc<CudaCell>,
        leaves: &[SlotId],
    ) {
        let known = self.rosters.get(&cell_type);
        if !known.is_some_and(|roster| std::ptr::eq(roster.cell.as_ptr(), Arc::as_ptr(cell))) {
            self.rosters.insert(cell_type, Roster::new(cell));
        }
        let Some(roster) = self.rosters.get_mut(&cell_type) else { return };
        for &slot in leaves {
            roster.leave(slot);
        }
        if let crate::cells::CudaCellBody::Stepwise(stepwise) = &cell.body {
            let slots = self.worker.slots(cell_type, stepwise.half_bytes);
            let mut slots = lock(&slots);
            leaves.iter().for_each(|&slot| slots.leave(slot));
        }
    }

    /// Puts chains on the roster of a cell type, and runs steps of all that are on it.
    pub(super) fn run_roster(
        &mut self,
        cell_type: CellTypeId,
        (cell, stepwise): (&Arc<CudaCell>, &Stepwise),
        joins: &[Join],
        steps: u32,
    ) -> Result<(), TaskError> {
        let slots = self.worker.slots(cell_type, stepwise.half_bytes);
        drop(self.reach(&slots, joins.iter().map(|join| join.slot))?);
        let mut roster = self.rosters.remove(&cell_type).expect("its roster was made");
        let mut upload = Upload::default();
        let mut result = Ok(());
        for join in joins {
            match self.join(cell_type, stepwise, join, &mut upload) {
                Ok(member) => roster.join(member),
                Err(TaskError::Memory) => result = Err(TaskError::Memory),
                Err(error) => return Err(error),
            }
        }
        let ran = self.run_members(cell_type, (cell, stepwise), &mut roster, upload, steps);
        if ran.is_err() {
            // Some changes may not have come to the GPU: the next task brings all rows.
            roster.memory = None;
        }
        self.rosters.insert(cell_type, roster);
        ran.and(result)
    }

    fn join(
        &mut self,
        cell_type: CellTypeId,
        stepwise: &Stepwise,
        join: &Join,
        upload: &mut Upload,
    ) -> Result<Member, TaskError> {
        let listed = self.list(join.request, join.run)?;
        let chain = Chain::joining(&listed.memory.graph, join, false);
        self.bring_state((cell_type, stepwise), &listed, &chain, upload)?;
        let slots = self.worker.slots(cell_type, stepwise.half_bytes);
        let mut slots = lock(&slots);
        let (time, half) = (slots.time(), slots.join(join.slot));
        let row = Row { slot: join.slot.index, half, ..listed.row(join.step, time) };
        let ports = listed.ports();
        Ok(Member { listed, slot: join.slot, row, ports })
    }

    fn run_members(
        &mut self,
        cell_type: CellTypeId,
        (cell, stepwise): (&Arc<CudaCell>, &Stepwise),
        roster: &mut Roster,
        mut upload: Upload,
        steps: u32,
    ) -> Result<(), TaskError> {
        if roster.members.is_empty() {
            return Ok(());
        }
        self.make_room(roster)?;
        let slots = self.worker.slots(cell_type, stepwise.half_bytes);
        let time = lock(&slots).time();
        let node_of = |member: &Member| time.wrapping_sub(member.row.first);
        let mut finishes = vec![false; steps as usize];
        for member in &roster.members {
            let node = node_of(member);
            for (at, finishes) in finishes.iter_mut().enumerate() {
                *finishes |= member.listed.finishes(node + at as u32);
            }
            if member.listed.memory.holders.is_some() {
                self.bring_inputs(&member.listed, node..node + steps)?;
                self.note_writes(&member.listed, node..node + steps);
            }
        }
        roster.list_changes(&mut upload);
        let mut slots = lock(&slots);
        let frame = self.frame(stepwise, roster.members.len(), Some(&slots))?;
        let outputs = upload.add(&frame.outputs(stepwise));
        let at = self.bring(upload)?;
        self.expect_ends(roster.members.iter().map(|member| &member.row));
        let memory = roster.memory.as_ref().expect("room was made");
        let batch = Batch {
            rows: memory.rows.at(),
            ports: memory.ports.at(),
            ended: slots.ended(),
            count: roster.members.len() as i32,
            time,
        };
        slots.advance(steps);
        let (frame, finishes) = (&frame, &finishes[..]);
        self.run_steps(&StepsRun { cell, stepwise, frame, batch, outputs: at + outputs, finishes })
    }

    /// Has memory for the members of a roster. In new memory all are new.
    fn make_room(&mut self, roster: &mut Roster) -> Result<(), GpuError> {
        let count = roster.members.len();
        let ports = roster.members.iter().map(|member| member.ports.len()).max().unwrap_or(0);
        let known = roster.memory.as_ref().map_or((0, 0), |of| (of.count, of.ports_of_a_row));
        if count <= known.0 && ports <= known.1 {
            return Ok(());
        }
        let count = count.next_power_of_two().max(known.0).max(ROWS_MIN);
        let ports_of_a_row = ports.max(known.1);
        let rows = self.worker.pool.allocate(count * size_of::<Row>())?;
        let ports = self.worker.pool.allocate(count * ports_of_a_row * size_of::<Port>())?;
        roster.memory = Some(RosterMemory { rows, ports, count, ports_of_a_row });
        roster.changed = (0..roster.members.len()).collect();
        Ok(())
    }
}
