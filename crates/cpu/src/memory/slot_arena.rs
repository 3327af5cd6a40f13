//! The memory of one cell type's slots: each slot in use has an allocation of its own, so that what is free is free
//! for everything else.

use std::sync::{Arc, Mutex, PoisonError};

use batchmaker_graph::SlotId;

use super::raw_lines::RawLines;

/// The most bytes of rows that nobody uses and that wait for the next slot.
const SPARE_BYTES: usize = 1 << 20;

/// The rows of the slots of one cell type, all of one length. Each begins with a cache line.
pub(crate) struct SlotArena {
    /// Floats of a row.
    row_len: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// The row of each slot in use, by the slot's index.
    rows: Vec<Option<Row>>,
    /// Rows that no slot uses.
    spare: Vec<RawLines>,
}

struct Row {
    /// That of the slot which uses the row.
    generation: u32,
    lines: RawLines,
}

/// A slot in use, whose row stays until [`free`](Self::free).
pub(crate) struct HeldSlot {
    arena: Arc<SlotArena>,
    slot: SlotId,
}

impl SlotArena {
    /// An arena for rows of `row_len` floats.
    pub(crate) fn new(row_len: usize) -> Arc<Self> {
        Arc::new(Self { row_len, table: Mutex::default() })
    }

    /// The bytes that a slot takes.
    pub(crate) fn slot_bytes(&self) -> usize {
        RawLines::bytes(self.row_len) + size_of::<Option<Row>>()
    }

    /// The address of the slot's row, which is valid until the slot is freed or its index is used under another
    /// generation; and the slot, if it has come into use with this call. A new row holds any numbers.
    pub(crate) fn take(self: &Arc<Self>, slot: SlotId) -> (*mut f32, Option<HeldSlot>) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { rows, spare } = &mut *table;
        let index = slot.index as usize;
        if rows.len() <= index {
            rows.resize_with(index + 1, || None);
        }
        let generation = slot.generation;
        let is_known = rows[index].as_ref().is_some_and(|row| row.generation == generation);
        let row = rows[index].get_or_insert_with(|| {
            let lines = spare.pop().unwrap_or_else(|| RawLines::zeros(self.row_len));
            Row { generation, lines }
        });
        // The slot may have passed from a chain that is over to another before the first is retired.
        row.generation = generation;
        let held = (!is_known).then(|| HeldSlot { arena: self.clone(), slot });
        (row.lines.first(), held)
    }

    fn free(&self, slot: SlotId) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let row = table.rows.get_mut(slot.index as usize);
        let own = row.and_then(|row| row.take_if(|row| row.generation == slot.generation));
        let Some(Row { lines, .. }) = own else { return };
        while let Some(None) = table.rows.last() {
            table.rows.pop();
        }
        if (table.spare.len() + 1) * RawLines::bytes(self.row_len) <= SPARE_BYTES {
            table.spare.push(lines);
        }
    }
}

impl HeldSlot {
    /// Frees the row, unless another chain has the slot by now.
    pub(crate) fn free(self) {
        self.arena.free(self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(index: u32, generation: u32) -> SlotId {
        SlotId { index, generation }
    }

    /// The rows in use, and those that are spare.
    fn rows(arena: &SlotArena) -> (usize, usize) {
        let table = arena.table.lock().unwrap();
        (table.rows.iter().flatten().count(), table.spare.len())
    }

    #[test]
    fn rows_stay_where_they_are_and_apart() {
        let arena = SlotArena::new(17);
        let (early, held) = arena.take(slot(3, 0));
        let (late, _) = arena.take(slot(1000, 0));
        assert!(held.is_some());
        let (again, held) = arena.take(slot(3, 0));
        assert!(held.is_none(), "the slot was in use");
        assert_eq!(again, early);
        assert!(early.addr().abs_diff(late.addr()) >= 128);
        assert_eq!(early.addr() % 64, 0);
    }

    #[test]
    fn the_rows_of_free_slots_are_free() {
        let arena = SlotArena::new(1000);
        let held: Vec<_> = (0..1000).map(|index| arena.take(slot(index, 0)).1.unwrap()).collect();
        assert_eq!(rows(&arena), (1000, 0));
        let (mut kept, mut over) = (Vec::new(), Vec::new());
        for (position, held) in held.into_iter().enumerate() {
            if position % 64 == 1 { kept.push(held) } else { over.push(held) }
        }
        over.into_iter().for_each(HeldSlot::free);
        let spares = SPARE_BYTES / RawLines::bytes(1000);
        assert_eq!(rows(&arena), (16, spares));
        kept.into_iter().for_each(HeldSlot::free);
        assert_eq!(rows(&arena), (0, spares));
        assert_eq!(arena.table.lock().unwrap().rows.len(), 0);
    }

    #[test]
    fn a_slot_that_another_chain_has_is_not_freed_by_the_first() {
        let arena = SlotArena::new(16);
        let (row, first) = arena.take(slot(0, 0));
        let (same, second) = arena.take(slot(0, 1));
        assert_eq!(row, same);
        first.unwrap().free();
        assert_eq!(rows(&arena), (1, 0));
        second.unwrap().free();
        assert_eq!(rows(&arena), (0, 1));
    }
}
