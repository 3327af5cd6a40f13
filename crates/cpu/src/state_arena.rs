//! The state slots of one cell type: memory that grows and never moves.

use std::sync::{Mutex, PoisonError};

/// Slots are allocated in chunks of so many.
const CHUNK_SLOTS: usize = 64;

/// Floats of a cache line, the unit of alignment.
const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "memory, accessed through pointers")] [f32; LINE]);

/// The slots of one recurrent cell type: `[slot]`, each h at even steps and h at odd steps,
/// `[hidden]`, then `[c_len]`, all padded to a line. A step reads one h and writes the other, so
/// threads that compute different units need not wait for each other within a step.
pub(crate) struct StateArena {
    /// Floats of an h.
    h_len: usize,
    /// Floats of a slot.
    slot_len: usize,
    chunks: Mutex<Vec<Chunk>>,
}

/// One allocation of [`CHUNK_SLOTS`] slots, owned through its pointer so that no reference to the
/// whole of it is formed while threads write parts.
struct Chunk {
    first: *mut Line,
    lines: usize,
}

// SAFETY: a chunk owns its memory, and hands out places in it only.
unsafe impl Send for Chunk {}

impl Drop for Chunk {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.first, self.lines);
        // SAFETY: made from a box of that length in `slot`.
        drop(unsafe { Box::from_raw(memory) });
    }
}

/// The state of one chain.
#[derive(Clone, Copy)]
pub(crate) struct StateSlot {
    first: *mut f32,
    h_len: usize,
}

// SAFETY: only a place; what may be done there is said at each access.
unsafe impl Send for StateSlot {}
// SAFETY: as for `Send`.
unsafe impl Sync for StateSlot {}

impl StateArena {
    pub(crate) fn new(hidden_size: usize, c_len: usize) -> Self {
        let h_len = hidden_size.next_multiple_of(LINE);
        let slot_len = 2 * h_len + c_len.next_multiple_of(LINE);
        Self { h_len, slot_len, chunks: Mutex::default() }
    }

    /// The place of slot `index`; allocated if there was none.
    pub(crate) fn slot(&self, index: u32) -> StateSlot {
        let (chunk, within) = (index as usize / CHUNK_SLOTS, index as usize % CHUNK_SLOTS);
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        while chunks.len() <= chunk {
            let lines = CHUNK_SLOTS * self.slot_len / LINE;
            let memory = vec![Line([0.0; LINE]); lines].into_boxed_slice();
            chunks.push(Chunk { first: Box::into_raw(memory).cast(), lines });
        }
        // SAFETY: `within` is a slot of the chunk.
        let first = unsafe { chunks[chunk].first.cast::<f32>().add(within * self.slot_len) };
        StateSlot { first, h_len: self.h_len }
    }
}

impl StateSlot {
    /// h before `step`; the step writes h before `step + 1`.
    pub(crate) fn h(self, step: u32) -> *mut f32 {
        self.first.wrapping_add((step as usize & 1) * self.h_len)
    }

    /// What a step updates in place: the c of an LSTM, or room for its own use.
    pub(crate) fn c(self) -> *mut f32 {
        self.first.wrapping_add(2 * self.h_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_stay_where_they_are_and_apart() {
        let arena = StateArena::new(5, 5);
        let early = arena.slot(3);
        let late = arena.slot(1000);
        assert_eq!(arena.slot(3).h(0), early.h(0));
        assert_eq!(early.h(2), early.h(0));
        let offsets = |slot: StateSlot| {
            [slot.h(1), slot.c(), arena.slot(4).h(0)].map(|part| part as usize - slot.h(0) as usize)
        };
        assert_eq!(offsets(early), [64, 128, 192]);
        assert_ne!(late.c(), early.c());
        assert_eq!(early.h(0) as usize % 64, 0);
    }
}
