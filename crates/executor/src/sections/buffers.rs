//! The memory of tensors that nobody reads any more, for other tensors of the same run: it need not be cleared again.

/// Buffers that are free.
#[derive(Default)]
pub(super) struct Buffers(Vec<Vec<f32>>);

impl Buffers {
    /// A buffer of `len` elements of any value: the smallest that fits, else a new one.
    pub(super) fn take(&mut self, len: usize) -> Vec<f32> {
        let fitting = self.0.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= len);
        match fitting.min_by_key(|(_, buffer)| buffer.capacity()) {
            Some((at, _)) => {
                let mut buffer = self.0.swap_remove(at);
                buffer.resize(len, 0.0);
                buffer
            }
            None => vec![0.0; len],
        }
    }

    /// Gives a buffer back.
    pub(super) fn give(&mut self, buffer: Vec<f32>) {
        if buffer.capacity() > 0 {
            self.0.push(buffer);
        }
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
}
