//! The memory of tensors that nobody reads any more, for other tensors of the same run and of later ones.
//!
//! A buffer from the system is cleared, and costs a fault for each of its pages when it is first written: for large tensors that takes
//! longer than many an operator.

use std::ops::{Deref, DerefMut};

/// The least elements of a buffer that outlives its run: the allocator keeps smaller ones itself.
const KEPT_LEN_MIN: usize = 16 << 10;

/// The most elements of all buffers that outlive a run: 64 MiB, as many as a batch of several nodes may take.
const KEPT_LEN_MAX: usize = 16 << 20;

/// The runs that a buffer outlives without being taken.
const KEPT_RUNS: u64 = 16;

/// Elements of a tensor: the first of a buffer, which may be longer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    all: Vec<f32>,
    len: usize,
}

impl From<Vec<f32>> for Buffer {
    fn from(all: Vec<f32>) -> Self {
        Self { len: all.len(), all }
    }
}

impl From<Buffer> for Vec<f32> {
    fn from(Buffer { mut all, len }: Buffer) -> Self {
        if len < all.len() / 2 {
            // It may live on for long.
            return all[..len].to_vec();
        }
        all.truncate(len);
        all
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.all[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.all[..self.len]
    }
}

/// Buffers that are free.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Vec<Free>,
    /// The runs that have ended.
    runs: u64,
}

#[derive(Debug)]
struct Free {
    /// All of it has been written.
    all: Vec<f32>,
    /// The number of the run that gave it back.
    given: u64,
}

impl Buffers {
    /// A buffer of `len` elements of any value: the smallest that fits, else a new one.
    pub(crate) fn take(&mut self, len: usize) -> Buffer {
        let fitting = self.free.iter().enumerate().filter(|(_, free)| free.all.len() >= len);
        let all = match fitting.min_by_key(|(_, free)| free.all.len()) {
            Some((at, _)) => self.free.swap_remove(at).all,
            None => vec![0.0; len],
        };
        Buffer { all, len }
    }

    /// Gives a buffer back.
    pub(crate) fn give(&mut self, Buffer { all, .. }: Buffer) {
        if !all.is_empty() {
            self.free.push(Free { all, given: self.runs });
        }
    }

    /// Frees the buffers that the next run is not to find: small ones, those that no run took lately, and what is too much, the oldest
    /// first.
    pub(crate) fn end_run(&mut self) {
        let runs = self.runs;
        self.runs += 1;
        self.free.sort_by_key(|free| std::cmp::Reverse(free.given));
        let mut kept = 0;
        self.free.retain(|Free { all, given }| {
            let len = all.len();
            let fits = len >= KEPT_LEN_MIN && kept + len <= KEPT_LEN_MAX;
            let is_kept = fits && given + KEPT_RUNS > runs;
            kept += if is_kept { len } else { 0 };
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_buffer_that_fits_is_used_again() {
        let mut buffers = Buffers::default();
        let [large, small] = [100, 10].map(|len| buffers.take(len));
        let places = [&large, &small].map(|buffer| buffer.as_ptr());
        buffers.give(large);
        buffers.give(small);
        let again = [buffers.take(5), buffers.take(5)];
        assert_eq!(again.each_ref().map(|buffer| buffer.as_ptr()), [places[1], places[0]]);
        assert_eq!(again.each_ref().map(|buffer| buffer.len()), [5, 5]);
        assert_eq!(buffers.take(7)[..], [0.0; 7]);
        let [large, _] = again;
        buffers.give(large);
        assert_eq!(buffers.take(8).len(), 8);
    }

    /// The lengths of the buffers that are free.
    fn free(buffers: &Buffers) -> Vec<usize> {
        buffers.free.iter().map(|free| free.all.len()).collect()
    }

    #[test]
    fn large_buffers_outlive_runs_that_take_them() {
        let mut buffers = Buffers::default();
        buffers.give(vec![1.0; KEPT_LEN_MIN].into());
        buffers.give(vec![1.0; KEPT_LEN_MIN - 1].into());
        buffers.end_run();
        assert_eq!(free(&buffers), [KEPT_LEN_MIN]);
        for _ in 0..2 * KEPT_RUNS {
            let buffer = buffers.take(10);
            buffers.give(buffer);
            buffers.end_run();
        }
        assert_eq!(free(&buffers), [KEPT_LEN_MIN]);
        for _ in 0..KEPT_RUNS {
            assert_eq!(free(&buffers), [KEPT_LEN_MIN]);
            buffers.end_run();
        }
        assert!(free(&buffers).is_empty());
    }

    #[test]
    fn no_more_memory_than_a_bound_outlives_a_run() {
        let mut buffers = Buffers::default();
        buffers.give(vec![0.0; KEPT_LEN_MAX / 2].into());
        buffers.end_run();
        buffers.give(vec![0.0; KEPT_LEN_MAX + 1].into());
        buffers.give(vec![0.0; KEPT_LEN_MAX / 2 + 1].into());
        buffers.end_run();
        assert_eq!(free(&buffers), [KEPT_LEN_MAX / 2 + 1], "the latest first");
    }
}
