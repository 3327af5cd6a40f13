//! The state slots of one cell type.

use std::sync::Arc;

use batchmaker_graph::SlotId;

use super::raw_lines::LINE;
use super::slot_arena::{HeldSlot, SlotArena};

/// The slots of one recurrent cell type: `[slot]`, each h at even steps and h at odd steps,
/// `[hidden]`, then `[c_len]`, all padded to a line. A step reads one h and writes the other, so
/// threads that compute different units need not wait for each other within a step.
pub(crate) struct StateArena {
    /// Floats of an h, in whole lines.
    h_len: usize,
    slots: Arc<SlotArena>,
}

/// The state of one chain.
#[derive(Clone, Copy)]
pub(crate) struct StateSlot {
    first: *mut f32,
    h_len: usize,
}

// SAFETY: a slot is an address. Nothing can be done with it but in unsafe code, which vouches for each access.
unsafe impl Send for StateSlot {}
// SAFETY: an address can be read from several threads.
unsafe impl Sync for StateSlot {}

impl StateArena {
    /// An arena for states of `hidden_size` floats h and `c_len` floats c.
    pub(crate) fn new(hidden_size: usize, c_len: usize) -> Self {
        let h_len = hidden_size.next_multiple_of(LINE);
        Self { h_len, slots: SlotArena::new(2 * h_len + c_len) }
    }

    /// The state in a slot: see [`SlotArena::take`].
    pub(crate) fn take(&self, slot: SlotId) -> (StateSlot, Option<HeldSlot>) {
        let (first, held) = self.slots.take(slot);
        (StateSlot { first, h_len: self.h_len }, held)
    }

    /// See [`SlotArena::slot_bytes`].
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slots.slot_bytes()
    }
}

impl StateSlot {
    /// The address of h before `step`; the step writes h before `step + 1`.
    pub(crate) fn h(self, step: u32) -> *mut f32 {
        self.first.wrapping_add((step as usize & 1) * self.h_len)
    }

    /// The part that a step updates in place: the c of an LSTM, or a scratch buffer of the step.
    pub(crate) fn c(self) -> *mut f32 {
        self.first.wrapping_add(2 * self.h_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_slots_are_apart() {
        let arena = StateArena::new(5, 5);
        let slot = arena.take(SlotId { index: 3, generation: 0 }).0;
        assert_eq!(slot.h(2), slot.h(0));
        let parts = [slot.h(1), slot.c()];
        assert_eq!(parts.map(|part| part as usize - slot.h(0) as usize), [64, 128]);
        assert!(arena.slot_bytes() >= 192);
    }
}
