//! Pieces of memory of a few sizes: what is freed is given out again.

use std::collections::HashMap;

/// Pieces begin at multiples of this number of bytes.
const ALIGNMENT: usize = 256;

/// The places of pieces.
pub(crate) trait Place: Copy {
    /// The place that is `bytes` bytes further on.
    fn behind(self, bytes: usize) -> Self;
}

/// An address of a GPU.
impl Place for u64 {
    fn behind(self, bytes: usize) -> Self {
        self + bytes as u64
    }
}

/// Free pieces, and memory to cut others from.
pub(crate) struct Pieces<P> {
    /// Free pieces by their bytes.
    free: HashMap<usize, Vec<P>>,
    /// The rest of the last block, and its bytes.
    rest: Option<(P, usize)>,
}

impl<P> Default for Pieces<P> {
    fn default() -> Self {
        Self { free: HashMap::new(), rest: None }
    }
}

impl<P: Place> Pieces<P> {
    /// A free piece of `bytes` bytes, a size of [`piece_bytes`]; or one that is cut from the rest, unless it `is_large`.
    pub(crate) fn take(&mut self, bytes: usize, is_large: bool) -> Option<P> {
        if let Some(place) = self.free.get_mut(&bytes).and_then(Vec::pop) {
            return Some(place);
        }
        let (place, left) = self.rest.filter(|&(_, left)| left >= bytes && !is_large)?;
        self.rest = Some((place.behind(bytes), left - bytes));
        Some(place)
    }

    /// The rest of a block, from which pieces are cut from now on if it is more than what they were cut from so far.
    pub(crate) fn add(&mut self, place: P, bytes: usize) {
        if self.rest.is_none_or(|(_, left)| left < bytes) {
            self.rest = Some((place, bytes));
        }
    }

    /// Frees a piece.
    pub(crate) fn free(&mut self, place: P, bytes: usize) {
        self.free.entry(bytes).or_default().push(place);
    }

    /// Takes out the free pieces whose bytes are as `is_one` says.
    pub(crate) fn drain(&mut self, is_one: impl Fn(usize) -> bool) -> Vec<P> {
        let of_size = self.free.iter_mut().filter(|(bytes, _)| is_one(**bytes));
        of_size.flat_map(|(_, free)| free.drain(..)).collect()
    }
}

/// The size of the piece that holds `bytes` bytes: a power of two, or one of three sizes between it and the next.
pub(crate) fn piece_bytes(bytes: usize) -> usize {
    let quarter = (bytes.next_power_of_two() / 8).max(ALIGNMENT);
    bytes.next_multiple_of(quarter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_not_much_larger_than_asked_for() {
        assert_eq!([1, 256, 257, 4096, 4097].map(piece_bytes), [256, 256, 512, 4096, 5120]);
        for bytes in 2048..100_000 {
            let piece = piece_bytes(bytes);
            assert!(piece >= bytes && piece * 4 <= bytes * 5 + 4 * ALIGNMENT, "{bytes}: {piece}");
            assert_eq!(piece % ALIGNMENT, 0);
        }
    }

    #[test]
    fn pieces_are_cut_and_given_out_again() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.take(256, false), None::<u64>);
        pieces.add(1000, 1024);
        pieces.add(9000, 512);
        assert_eq!(
            [256, 512, 512].map(|bytes| pieces.take(bytes, false)),
            [Some(1000), Some(1256), None]
        );
        assert_eq!(pieces.take(256, true), None, "large ones are not cut");
        pieces.free(1256, 512);
        assert_eq!([512, 512].map(|bytes| pieces.take(bytes, true)), [Some(1256), None]);
        pieces.free(1000, 256);
        assert_eq!(pieces.drain(|bytes| bytes == 256), [1000]);
    }
}
