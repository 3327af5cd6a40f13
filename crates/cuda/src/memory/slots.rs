//! The states of a cell type on one GPU.
//!
//! A slot has two halves. A step reads the states in one and writes those after it to the other: blocks of a kernel read h of a row while others
//! write it.

use batchmaker_graph::SlotId;

use crate::gpu::{Allocation, GpuError, Pool, Stream};

/// Slots that there is memory for at first.
const SLOTS_MIN: usize = 64;

/// The slots of one cell type.
pub(crate) struct Slots {
    half_bytes: usize,
    memory: Option<Memory>,
    /// Memory of fewer slots, which copies to other GPUs may still read.
    before: Vec<Memory>,
    /// What each slot holds, by its index.
    entries: Vec<Entry>,
    /// The time of the roster's next step.
    time: u32,
}

struct Memory {
    /// `[slots, 2, half_bytes]`
    states: Allocation,
    /// A word for each slot, which is 1 once its chain has reached its end of sequence.
    ended: Allocation,
    slots: usize,
}

/// The half of a slot that holds the states before the next step.
#[derive(Clone, Copy, Default)]
struct Entry {
    generation: u32,
    /// The half; of a chain on the roster, the one at time 0.
    half: u32,
    is_on_roster: bool,
}

impl Slots {
    pub(crate) fn new(half_bytes: usize) -> Self {
        Self { half_bytes, memory: None, before: Vec::new(), entries: Vec::new(), time: 0 }
    }

    /// Has memory for a slot.
    pub(crate) fn reach(
        &mut self,
        slot: SlotId,
        pool: &std::sync::Arc<Pool>,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        let index = slot.index as usize;
        if self.entries.len() <= index {
            self.entries.resize(index + 1, Entry::default());
        }
        let there = self.memory.as_ref().map_or(0, |memory| memory.slots);
        if index < there {
            return Ok(());
        }
        let slots = (index + 1).next_power_of_two().max(SLOTS_MIN);
        let bytes = 2 * self.half_bytes;
        let new = Memory {
            states: pool.allocate(slots * bytes)?,
            ended: pool.allocate(slots * 4)?,
            slots,
        };
        stream.clear(new.ended.at(), slots * 4)?;
        if let Some(old) = self.memory.take() {
            stream.copy(new.states.at(), old.states.at(), old.slots * bytes)?;
            stream.copy(new.ended.at(), old.ended.at(), old.slots * 4)?;
            // Other GPUs may read states from here on.
            stream.synchronize()?;
            self.before.push(old);
        }
        self.memory = Some(new);
        Ok(())
    }

    /// The time of the roster's next step.
    pub(crate) fn time(&self) -> u32 {
        self.time
    }

    /// The roster has run so many steps.
    pub(crate) fn advance(&mut self, steps: u32) {
        self.time = self.time.wrapping_add(steps);
    }

    /// The half that holds the states before a slot's next step.
    pub(crate) fn half(&self, slot: SlotId) -> u32 {
        let entry = self.entries.get(slot.index as usize).copied().unwrap_or_default();
        entry.half_at(self.time)
    }

    /// The states before a slot's next step are in that half, and its chain is on no roster.
    pub(crate) fn set_half(&mut self, slot: SlotId, half: u32) {
        let entry = Entry { generation: slot.generation, half, is_on_roster: false };
        self.entries[slot.index as usize] = entry;
    }

    /// A chain joins the roster. Returns the half of its slot at time 0.
    pub(crate) fn join(&mut self, slot: SlotId) -> u32 {
        let half = (self.half(slot) + self.time) & 1;
        let entry = Entry { generation: slot.generation, half, is_on_roster: true };
        self.entries[slot.index as usize] = entry;
        half
    }

    /// A chain leaves the roster. Its slot may be another's by now.
    pub(crate) fn leave(&mut self, slot: SlotId) {
        let time = self.time;
        // A chain that found no room is not here.
        let Some(entry) = self.entries.get_mut(slot.index as usize) else { return };
        if entry.generation == slot.generation && entry.is_on_roster {
            *entry = Entry { half: entry.half_at(time), is_on_roster: false, ..*entry };
        }
    }

    /// The address of a state in half 0 of slot 0.
    ///
    /// # Panics
    /// If no slot was reached.
    pub(crate) fn base(&self, place: usize) -> u64 {
        self.memory().states.at() + place as u64
    }

    /// Whether there is memory for a slot.
    pub(crate) fn has(&self, slot: SlotId) -> bool {
        self.memory.as_ref().is_some_and(|memory| (slot.index as usize) < memory.slots)
    }

    /// The address of a half of a slot.
    ///
    /// # Panics
    /// If the slot was not reached.
    pub(crate) fn address(&self, slot: SlotId, half: u32) -> u64 {
        let memory = self.memory();
        assert!((slot.index as usize) < memory.slots, "{slot:?} was reached");
        let halves = u64::from(slot.index) * 2 + u64::from(half);
        memory.states.at() + halves * self.half_bytes as u64
    }

    /// The address of the word of slot 0 that says whether its chain has ended.
    pub(crate) fn ended(&self) -> u64 {
        self.memory().ended.at()
    }

    /// The address of a slot's word.
    pub(crate) fn ended_of(&self, slot: SlotId) -> u64 {
        self.ended() + 4 * u64::from(slot.index)
    }

    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("a slot was reached")
    }
}

impl Entry {
    fn half_at(self, time: u32) -> u32 {
        if self.is_on_roster { (self.half + time) & 1 } else { self.half }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_alternate_with_the_steps_of_the_roster() {
        let mut slots = Slots { entries: vec![Entry::default(); 4], ..Slots::new(16) };
        let [first, second] = [0, 2].map(|index| SlotId { index, generation: 3 });
        slots.advance(3);
        slots.set_half(first, 0);
        slots.set_half(second, 1);
        let halves = [first, second].map(|slot| slots.join(slot));
        assert_eq!(halves, [1, 0], "of time 0");
        assert_eq!([first, second].map(|slot| slots.half(slot)), [0, 1]);
        slots.advance(1);
        assert_eq!([first, second].map(|slot| slots.half(slot)), [1, 0]);
        slots.leave(first);
        // Another chain takes the second's slot before the second leaves.
        let third = SlotId { generation: 4, ..second };
        slots.set_half(third, 0);
        slots.leave(second);
        slots.advance(1);
        assert_eq!([first, third].map(|slot| slots.half(slot)), [1, 0]);
    }
}
