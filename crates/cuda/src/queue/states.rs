//! States in slots, brought to where a batch finds them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use batchmaker_device::{Chain, Origin};
use batchmaker_graph::{Rows, SlotId, WorkerId};

use super::listed::Listed;
use super::steps::TypedCell;
use super::submitter::{Submitter, TaskError};
use super::upload::Upload;
use crate::gpu::GpuError;
use crate::lock::lock;
use crate::memory::Slots;

impl Submitter {
    /// The slots of a cell type on this GPU.
    pub(super) fn slots(&self, typed: TypedCell<'_>) -> Arc<Mutex<Slots>> {
        self.worker.slots(typed.id, typed.stepwise.half_bytes)
    }

    /// Brings the state of a chain that joins a batch to its slot, which was reached.
    pub(super) fn bring_state(
        &mut self,
        typed: TypedCell<'_>,
        listed: &Listed,
        chain: &Chain,
        upload: &mut Upload,
    ) -> Result<(), TaskError> {
        let slot = chain.slot;
        let moved = match chain.origin() {
            Origin::Elsewhere(from) => Some(self.state_elsewhere(typed, from, slot)),
            Origin::Initial | Origin::Slot => None,
        };
        let stepwise = typed.stepwise;
        let slots = self.slots(typed);
        let mut slots = lock(&slots);
        match (chain.origin(), moved.flatten()) {
            (Origin::Initial, _) => {
                let initial = &listed.of().initial;
                for ((rows, state), place) in
                    initial.iter().zip(&stepwise.states).zip(&stepwise.state_places)
                {
                    let bytes = state.bytes().unwrap_or(0);
                    if let Some(rows) = rows {
                        let row = rows.row(0);
                        let row = row..row + 1;
                        self.bring_range(&listed.memory, listed.base, rows.value, row)?;
                    }
                    let address =
                        |rows: &Rows| listed.memory.row(listed.base, rows.value, rows.row(0));
                    let from = rows.as_ref().map(address);
                    upload.copy(slots.address(slot, 0) + *place as u64, from, bytes);
                }
                slots.set_half(slot, 0);
            }
            (_, Some((worker, state, ended))) => {
                let to = slots.address(slot, 0);
                self.copy_from_worker(worker, to, state, stepwise.half_bytes)?;
                self.copy_from_worker(worker, slots.ended_of(slot), ended, 4)?;
                slots.set_half(slot, 0);
                self.bring_last_rows(listed)?;
                self.worker.states_moved.fetch_add(1, Ordering::Relaxed);
            }
            (_, None) => {}
        }
        if chain.step() == 0 {
            upload.copy(slots.ended_of(slot), None, 4);
        }
        Ok(())
    }

    /// The addresses of a slot's state and of its word in the memory of another worker; none where that is lost.
    fn state_elsewhere(
        &self,
        typed: TypedCell<'_>,
        from: WorkerId,
        slot: SlotId,
    ) -> Option<(usize, u64, u64)> {
        let worker = &self.state.workers[from.index()];
        if worker.lost().is_some() {
            return None;
        }
        let slots = worker.slots(typed.id, typed.stepwise.half_bytes);
        let slots = lock(&slots);
        let state = slots.address(slot, slots.half(slot));
        Some((worker.number, state, slots.ended_of(slot)))
    }

    /// Makes room for some slots of a cell type. All slots may move: their addresses are known once all that a task uses were reached.
    pub(super) fn reach<'a>(
        &self,
        all: &'a Mutex<Slots>,
        slots: impl IntoIterator<Item = SlotId>,
    ) -> Result<MutexGuard<'a, Slots>, GpuError> {
        let mut all = lock(all);
        for slot in slots {
            all.reach(slot, &self.worker.pool, &self.worker.stream)?;
        }
        Ok(all)
    }
}
