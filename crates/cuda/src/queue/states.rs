//! States in slots, brought to where a batch finds them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use batchmaker_device::{Chain, Origin};
use batchmaker_graph::{Rows, SlotId, WorkerId};

use super::listed::Listed;
use super::steps::TypedCell;
use super::submitter::{Submitter, TaskError};
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
    ) -> Result<(), TaskError> {
        let slot = chain.slot;
        let moved = match chain.origin() {
            Origin::Elsewhere(from) => self.state_elsewhere(typed, from, slot),
            Origin::Initial | Origin::Slot => None,
        };
        let stepwise = typed.stepwise;
        let slots = self.slots(typed);
        let mut slots = lock(&slots);
        match chain.origin() {
            Origin::Initial => {
                let initial = &listed.of().initial;
                for ((rows, state), place) in
                    initial.iter().zip(&stepwise.states).zip(&stepwise.state_places)
                {
                    let bytes = state.bytes().unwrap_or(0);
                    if let Some(rows) = rows {
                        let row = rows.row(0);
                        let row = row..row + 1;
                        self.need_range(&listed.memory, listed.base, rows.value, row)?;
                    }
                    let address =
                        |rows: &Rows| listed.memory.row(listed.base, rows.value, rows.row(0));
                    let from = rows.as_ref().map(address);
                    self.start(slots.address(slot, 0) + *place as u64, from, bytes);
                }
                slots.set_half(slot, 0);
            }
            Origin::Elsewhere(_) => {
                let (to, bytes) = (slots.address(slot, 0), stepwise.half_bytes);
                let is_moved = match moved {
                    Some((worker, state, ended)) => {
                        self.copy_from_worker(worker, to, state, bytes)?
                            && self.copy_from_worker(worker, slots.ended_of(slot), ended, 4)?
                    }
                    None => false,
                };
                if !is_moved {
                    return Err(TaskError::Lost);
                }
                self.worker.states_moved.fetch_add(1, Ordering::Relaxed);
                slots.set_half(slot, 0);
                self.bring_last_rows(listed)?;
            }
            Origin::Slot => {}
        }
        if chain.step() == 0 {
            self.start(slots.ended_of(slot), None, 4);
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
        // A task that had no memory for the slot has left no state.
        let state = slots.has(slot).then(|| slots.address(slot, slots.half(slot)))?;
        Some((worker.number, state, slots.ended_of(slot)))
    }

    /// Makes room for some slots of a cell type. All slots may move: their addresses are known once all that a task uses were reached.
    pub(super) fn reach<'a>(
        &mut self,
        all: &'a Mutex<Slots>,
        slots: impl IntoIterator<Item = SlotId>,
    ) -> Result<MutexGuard<'a, Slots>, GpuError> {
        let mut all = lock(all);
        for slot in slots {
            if !all.has(slot) {
                self.end_quantum()?;
            }
            all.reach(slot, &self.worker.pool, &self.worker.stream)?;
        }
        Ok(all)
    }
}
