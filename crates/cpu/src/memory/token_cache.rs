//! A cache of rows that depend on one token id alone: projections of embedded inputs, and the states of a
//! tree's leaves with their projections.
//!
//! Each row is computed once, at the first batch that has its token id, and has the same bits ever after.
//! Rows are kept in the order in which their ids come until the space is used up, so the frequent ones are
//! among them.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::row_arena::RowArena;

/// A row for each token id, written once, by the first who claims it.
pub(crate) struct TokenCache {
    row_len: usize,
    /// For each token id null, [`CLAIMED`], or the address of its row. A row is not written any more once its
    /// address is here.
    places: Box<[AtomicPtr<f32>]>,
    arena: RowArena,
    /// The number of rows given out.
    rows: AtomicUsize,
    rows_max: usize,
}

/// The mark of a row that is being written; it is the address of no float.
const CLAIMED: *mut f32 = ptr::without_provenance_mut(1);

/// The right to write the row of a token id.
#[must_use = "the row stays unknown unless it is published"]
pub(crate) struct Claim {
    token_id: usize,
    row: *mut f32,
}

// SAFETY: a claim is the address of a row that nobody else accesses. Whoever writes there vouches for it.
unsafe impl Send for Claim {}

impl Claim {
    /// The address of the row, `[row_len]`. Nobody else accesses it before it is published.
    pub(crate) fn row(&self) -> *mut f32 {
        self.row
    }
}

impl TokenCache {
    /// A cache for `token_ids` token ids with rows of `row_len` floats; as many are kept as fit `bytes` bytes.
    pub(crate) fn new(token_ids: usize, row_len: usize, bytes: usize) -> Self {
        let rows_max = bytes / (size_of::<f32>() * row_len.max(1));
        let places = (0..token_ids).map(|_| AtomicPtr::default()).collect();
        Self { row_len, places, arena: RowArena::new(row_len), rows: AtomicUsize::new(0), rows_max }
    }

    /// The row of `token_id`, if it is known. Rows of ids beyond those that the cache was made for never are.
    pub(crate) fn lookup(&self, token_id: usize) -> Option<&[f32]> {
        let place = self.places.get(token_id)?.load(Ordering::Acquire);
        if place.is_null() || place == CLAIMED {
            return None;
        }
        // SAFETY: the address is that of a row of the arena, `row_len` floats, which was published after it was
        // written and is not written again.
        Some(unsafe { std::slice::from_raw_parts(place, self.row_len) })
    }

    /// A claim to the row of `token_id`, unless it was claimed before, or the space is used up.
    pub(crate) fn claim(&self, token_id: usize) -> Option<Claim> {
        let place = self.places.get(token_id)?;
        let is_used_up = || self.rows.load(Ordering::Relaxed) >= self.rows_max;
        if is_used_up() || !place.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let (is_new, is_not) = (Ordering::Relaxed, Ordering::Relaxed);
        place.compare_exchange(ptr::null_mut(), CLAIMED, is_new, is_not).ok()?;
        let index = self.rows.fetch_add(1, Ordering::Relaxed);
        if index >= self.rows_max {
            return None;
        }
        Some(Claim { token_id, row: self.arena.row(index) })
    }

    /// Makes a row known that was written since it was claimed here.
    pub(crate) fn publish(&self, claim: Claim) {
        self.places[claim.token_id].store(claim.row, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compute(rows: &TokenCache, token_id: usize) -> bool {
        let Some(claim) = rows.claim(token_id) else { return false };
        for at in 0..rows.row_len {
            // SAFETY: the row is ours until it is published.
            unsafe { claim.row().add(at).write((token_id + at) as f32) };
        }
        assert!(
            rows.claim(token_id).is_none() && rows.lookup(token_id).is_none(),
            "{token_id} is claimed"
        );
        rows.publish(claim);
        true
    }

    #[test]
    fn rows_are_kept_until_the_space_is_used_up() {
        let rows = TokenCache::new(200, 3, 130 * 12);
        for token_id in (0..200).rev() {
            assert!(rows.lookup(token_id).is_none());
            assert_eq!(compute(&rows, token_id), token_id >= 70, "{token_id}");
        }
        for token_id in 0..200 {
            let expected = [0, 1, 2].map(|at| (token_id + at) as f32);
            assert_eq!(rows.lookup(token_id), (token_id >= 70).then_some(&expected[..]));
        }
    }

    #[test]
    fn threads_write_each_row_once() {
        let token_ids = if cfg!(miri) { 20 } else { 2000 };
        let rows = TokenCache::new(token_ids, 5, usize::MAX);
        let computed: usize = std::thread::scope(|scope| {
            let thread = || (0..token_ids).filter(|&token_id| compute(&rows, token_id)).count();
            let threads = [(); 3].map(|()| scope.spawn(thread));
            threads.map(|thread| thread.join().expect("a thread ends")).iter().sum()
        });
        assert_eq!(computed, token_ids);
        for token_id in 0..token_ids {
            assert_eq!(rows.lookup(token_id).map(|row| row[4]), Some((token_id + 4) as f32));
        }
    }
}
