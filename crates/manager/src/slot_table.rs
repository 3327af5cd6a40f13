//! Places for the state of chains, with generations.

use batchmaker_graph::SlotId;

/// The slots of one cell type. The table grows with the number in use. The slot that was freed last is used
/// first, under its next generation.
#[derive(Debug, Default)]
pub(crate) struct SlotTable {
    generations: Vec<u32>,
    free: Vec<u32>,
    /// The most slots that may be in use; none: any number.
    max: Option<u32>,
}

impl SlotTable {
    /// A table of which up to `max` slots may be in use.
    pub(crate) fn with_max(max: Option<u32>) -> Self {
        Self { max, ..Self::default() }
    }

    /// The most slots that may be in use; none: any number.
    pub(crate) fn max(&self) -> Option<u32> {
        self.max
    }

    /// The number of slots that may be acquired before one is released.
    pub(crate) fn left(&self) -> usize {
        self.max.map_or(usize::MAX, |max| max as usize - self.in_use())
    }

    /// Takes a free slot.
    ///
    /// # Panics
    /// If as many are in use as there may be.
    #[inline]
    pub(crate) fn acquire(&mut self) -> SlotId {
        match self.free.pop() {
            Some(index) => SlotId { index, generation: self.generations[index as usize] },
            None => self.add(),
        }
    }

    #[cold]
    fn add(&mut self) -> SlotId {
        assert!(self.left() > 0, "all {} slots are in use", self.in_use());
        self.generations.push(0);
        SlotId { index: self.generations.len() as u32 - 1, generation: 0 }
    }

    /// Frees `slot`, whose index is used again under the next generation.
    ///
    /// # Panics
    /// If `slot` is not in use: freed twice, or of another generation.
    #[inline]
    pub(crate) fn release(&mut self, slot: SlotId) {
        let generation = &mut self.generations[slot.index as usize];
        assert_eq!(*generation, slot.generation, "{slot:?} was freed before");
        *generation = generation.wrapping_add(1);
        self.free.push(slot.index);
    }

    /// The number of slots in use.
    pub(crate) fn in_use(&self) -> usize {
        self.generations.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_used_again_under_the_next_generation() {
        let mut slots = SlotTable::default();
        let (a, b) = (slots.acquire(), slots.acquire());
        slots.release(a);
        let again = slots.acquire();
        assert_eq!((again.index, again.generation), (a.index, a.generation + 1));
        assert_ne!(again, b);
        assert_eq!(slots.in_use(), 2);
    }

    #[test]
    fn a_bound_counts_slots_in_use() {
        let mut slots = SlotTable::with_max(Some(2));
        let (a, _) = (slots.acquire(), slots.acquire());
        assert_eq!(slots.left(), 0);
        slots.release(a);
        assert_eq!((slots.left(), slots.acquire().index), (1, a.index));
    }

    #[test]
    #[should_panic(expected = "all 1 slots are in use")]
    fn more_than_the_bound_is_found() {
        let mut slots = SlotTable::with_max(Some(1));
        slots.acquire();
        slots.acquire();
    }

    #[test]
    #[should_panic(expected = "was freed before")]
    fn freeing_a_slot_twice_is_found() {
        let mut slots = SlotTable::default();
        let slot = slots.acquire();
        slots.release(slot);
        slots.release(slot);
    }
}
