//! Leaves that were computed before.
//!
//! A leaf over an embedding is a function of one id: what came out for a word once is what will come
//! out again, bit for bit. Words are remembered as they come until the room is used up, so the
//! frequent ones are among them.

/// Bytes of rows that a worker remembers of one cell type.
const BYTES_MAX: usize = 64 << 20;

/// Rows that are allocated together.
const CHUNK_ROWS: usize = 64;

/// h and c by id.
pub(crate) struct LeafCache {
    hidden_size: usize,
    /// By id: 0, or the position of its row and 1.
    positions: Vec<u32>,
    /// `[CHUNK_ROWS, 2, hidden]` each.
    chunks: Vec<Box<[f32]>>,
    rows: usize,
    rows_max: usize,
}

impl LeafCache {
    /// For `ids` ids.
    pub(crate) fn new(ids: usize, hidden_size: usize) -> Self {
        let rows_max = BYTES_MAX / (2 * 4 * hidden_size);
        Self { hidden_size, positions: vec![0; ids], chunks: Vec::new(), rows: 0, rows_max }
    }

    /// h and c of `id`, if they are known.
    pub(crate) fn get(&self, id: usize) -> Option<[&[f32]; 2]> {
        let position = self.positions[id].checked_sub(1)? as usize;
        let row_len = 2 * self.hidden_size;
        let row = &self.chunks[position / CHUNK_ROWS][position % CHUNK_ROWS * row_len..][..row_len];
        let (h, c) = row.split_at(self.hidden_size);
        Some([h, c])
    }

    /// Remembers h and c of `id`, if there is room.
    pub(crate) fn insert(&mut self, id: usize, h: &[f32], c: &[f32]) {
        if self.rows == self.rows_max || self.positions[id] != 0 {
            return;
        }
        let row_len = 2 * self.hidden_size;
        if self.rows == self.chunks.len() * CHUNK_ROWS {
            self.chunks.push(vec![0.0; CHUNK_ROWS * row_len].into());
        }
        let chunk = &mut self.chunks[self.rows / CHUNK_ROWS];
        let row = &mut chunk[self.rows % CHUNK_ROWS * row_len..][..row_len];
        row[..self.hidden_size].copy_from_slice(h);
        row[self.hidden_size..].copy_from_slice(c);
        self.rows += 1;
        self.positions[id] = self.rows as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_kept_until_the_room_is_used_up() {
        let mut cache = LeafCache { rows_max: 130, ..LeafCache::new(200, 3) };
        let row = |id: usize| [[id as f32; 3], [id as f32 + 0.5; 3]];
        for id in (0..200).rev() {
            assert!(cache.get(id).is_none());
            let [h, c] = row(id);
            cache.insert(id, &h, &c);
        }
        for id in 0..200 {
            let [h, c] = row(id);
            assert_eq!(cache.get(id), (id >= 70).then_some([&h[..], &c[..]]));
        }
    }
}
