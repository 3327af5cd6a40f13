//! Simulates the buffers of a run: rten returns the buffer of a value to a pool when nobody reads the value any more,
//! and keeps the pool until the run ends.

/// Buffers below this size do not go through the pool.
const POOLED_MIN: u64 = 128;

/// The buffers of a run.
#[derive(Default)]
pub(crate) struct BufferPool {
    /// Sizes of the buffers that nobody uses, in bytes.
    free: Vec<u64>,
    /// Bytes of all buffers that were allocated.
    allocated: u64,
    /// The most bytes that were in use or kept at a time.
    peak: u64,
}

impl BufferPool {
    /// Takes the smallest buffer that has `bytes` bytes, or allocates one. Gives its size.
    pub(crate) fn take(&mut self, bytes: u64) -> u64 {
        if bytes < POOLED_MIN {
            return 0;
        }
        let fitting = self.free.iter().enumerate().filter(|(_, size)| **size >= bytes);
        if let Some((at, _)) = fitting.min_by_key(|(_, size)| **size) {
            return self.free.swap_remove(at);
        }
        self.allocated = self.allocated.saturating_add(bytes);
        self.peak = self.peak.max(self.allocated);
        bytes
    }

    /// Gives a buffer back, to be used again.
    pub(crate) fn give(&mut self, bytes: u64) {
        if bytes >= POOLED_MIN {
            self.free.push(bytes);
        }
    }

    /// Bytes of all buffers that were allocated.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Counts `bytes` bytes that are allocated and not given back.
    pub(crate) fn keep(&mut self, bytes: u64) {
        self.allocated = self.allocated.saturating_add(bytes);
        self.peak = self.peak.max(self.allocated);
    }

    /// Counts `bytes` bytes that are allocated and freed while an operator runs, outside the pool.
    pub(crate) fn pass(&mut self, bytes: u64) {
        self.peak = self.peak.max(self.allocated.saturating_add(bytes));
    }

    /// The most bytes that were allocated at a time.
    pub(crate) fn peak(&self) -> u64 {
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_buffer_that_fits_is_used_again() {
        let mut pool = BufferPool::default();
        let [a, b] = [1000, 2000].map(|bytes| pool.take(bytes));
        pool.give(b);
        pool.give(a);
        assert_eq!((pool.take(500), pool.take(500), pool.peak()), (1000, 2000, 3000));
        assert_eq!((pool.take(2500), pool.take(100), pool.peak()), (2500, 0, 5500));
        pool.pass(100);
        assert_eq!(pool.peak(), 5600);
        assert_eq!((pool.take(u64::MAX), pool.peak()), (u64::MAX, u64::MAX));
    }
}
