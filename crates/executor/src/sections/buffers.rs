//! The memory of tensors that nobody reads any more, for other tensors of the same run: it need not be cleared again.

/// Buffers that are free.
#[derive(Default)]
pub(super) struct Buffers {
    /// Those that are kept to the end of the run.
    kept: Vec<Vec<f32>>,
    /// Those that the next section may take for a tensor of the same size. Else they are freed, as most tensors of their layout are allocated
    /// elsewhere.
    passing: Vec<Vec<f32>>,
}

impl Buffers {
    /// A buffer of `len` elements of any value: one that was passed and has this size, else the smallest that fits, else a new one.
    pub(super) fn take(&mut self, len: usize) -> Vec<f32> {
        let passed = self.passing.iter().position(|buffer| buffer.capacity() == len);
        let fitting = self.kept.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= len);
        let smallest = fitting.min_by_key(|(_, buffer)| buffer.capacity()).map(|(at, _)| at);
        let mut buffer = match (passed, smallest) {
            (Some(at), _) => self.passing.swap_remove(at),
            (None, Some(at)) => self.kept.swap_remove(at),
            (None, None) => {
                self.free_passing();
                return vec![0.0; len];
            }
        };
        buffer.resize(len, 0.0);
        buffer
    }

    /// Gives a buffer back.
    pub(super) fn give(&mut self, buffer: Vec<f32>) {
        if buffer.capacity() > 0 {
            self.kept.push(buffer);
        }
    }

    /// Gives a buffer back for the next section.
    pub(super) fn pass(&mut self, buffer: Vec<f32>) {
        self.passing.push(buffer);
    }

    /// Frees the buffers for the next section.
    pub(super) fn free_passing(&mut self) {
        self.passing.clear();
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
        assert_eq!(again.each_ref().map(Vec::len), [5, 5]);
        assert_eq!(buffers.take(7), [0.0; 7]);
    }

    #[test]
    fn a_passing_buffer_is_freed_where_a_new_one_is_needed() {
        let mut buffers = Buffers::default();
        let passing = vec![1.0; 9];
        let place = passing.as_ptr();
        buffers.pass(passing);
        let again = buffers.take(9);
        assert_eq!((again.as_ptr(), again.len()), (place, 9));
        buffers.pass(again);
        assert_eq!(buffers.take(8), [0.0; 8]);
        assert!(buffers.passing.is_empty());
    }
}
