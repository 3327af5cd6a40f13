//! Rows that are a function of one word, computed once and kept.
//!
//! A leaf over an embedding is a function of one id, and so is what it adds to the sums of its
//! parent: what came out for a word once is what will come out again, bit for bit. Words are
//! remembered as they come until the room is used up, so the frequent ones are among them.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::memory::row_arena::RowArena;

/// A row a word, written once, by whoever meets the word first.
pub(crate) struct Remembered {
    row_len: usize,
    /// By word: null, [`CLAIMED`], or where its row lies. Rows that are there are not written any
    /// more.
    places: Box<[AtomicPtr<f32>]>,
    arena: RowArena,
    /// Rows given out.
    rows: AtomicUsize,
    rows_max: usize,
}

/// Somebody is about to write the row: no address of a float.
const CLAIMED: *mut f32 = ptr::without_provenance_mut(1);

/// A row that is to be written.
#[must_use = "the word stays unknown unless its row is published"]
pub(crate) struct Claim {
    word: usize,
    row: *mut f32,
}

// SAFETY: only a place; what may be done there is said where it is written.
unsafe impl Send for Claim {}

impl Claim {
    /// Where the row goes, `[row_len]`. Nobody else accesses it before it is published.
    pub(crate) fn row(&self) -> *mut f32 {
        self.row
    }
}

impl Remembered {
    /// For `words` words with rows of `row_len` floats, of which as many are kept as fit `bytes`.
    pub(crate) fn new(words: usize, row_len: usize, bytes: usize) -> Self {
        let rows_max = bytes / (size_of::<f32>() * row_len.max(1));
        let places = (0..words).map(|_| AtomicPtr::default()).collect();
        Self { row_len, places, arena: RowArena::new(row_len), rows: AtomicUsize::new(0), rows_max }
    }

    /// The row of `word`, if it is known. Words beyond those that it was made for never are.
    pub(crate) fn get(&self, word: usize) -> Option<&[f32]> {
        let place = self.places.get(word)?.load(Ordering::Acquire);
        if place.is_null() || place == CLAIMED {
            return None;
        }
        // SAFETY: a place is a row of the arena, published after it was written.
        Some(unsafe { std::slice::from_raw_parts(place, self.row_len) })
    }

    /// Room for the row of `word`, unless somebody has been given that, or all is used up.
    pub(crate) fn claim(&self, word: usize) -> Option<Claim> {
        let place = self.places.get(word)?;
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
        Some(Claim { word, row: self.arena.row(index) })
    }

    /// Makes a row known that was written since it was claimed here.
    pub(crate) fn publish(&self, claim: Claim) {
        self.places[claim.word].store(claim.row, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remember(rows: &Remembered, word: usize) -> bool {
        let Some(claim) = rows.claim(word) else { return false };
        for at in 0..rows.row_len {
            // SAFETY: the row is ours until it is published.
            unsafe { claim.row().add(at).write((word + at) as f32) };
        }
        assert!(rows.claim(word).is_none() && rows.get(word).is_none(), "{word} is claimed");
        rows.publish(claim);
        true
    }

    #[test]
    fn rows_are_kept_until_the_room_is_used_up() {
        let rows = Remembered::new(200, 3, 130 * 12);
        for word in (0..200).rev() {
            assert!(rows.get(word).is_none());
            assert_eq!(remember(&rows, word), word >= 70, "{word}");
        }
        for word in 0..200 {
            let expected = [0, 1, 2].map(|at| (word + at) as f32);
            assert_eq!(rows.get(word), (word >= 70).then_some(&expected[..]));
        }
    }

    #[test]
    fn threads_write_each_row_once() {
        let words = if cfg!(miri) { 20 } else { 2000 };
        let rows = Remembered::new(words, 5, usize::MAX);
        let remembered: usize = std::thread::scope(|scope| {
            let thread = || (0..words).filter(|&word| remember(&rows, word)).count();
            let threads = [(); 3].map(|()| scope.spawn(thread));
            threads.map(|thread| thread.join().expect("a thread ends")).iter().sum()
        });
        assert_eq!(remembered, words);
        for word in 0..words {
            assert_eq!(rows.get(word).map(|row| row[4]), Some((word + 4) as f32));
        }
    }
}
