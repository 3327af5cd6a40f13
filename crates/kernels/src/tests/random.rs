//! Numbers and splits from a seed, the same on every machine.

use std::ops::Range;

/// splitmix64
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `-scale..scale`.
    pub(super) fn f32(&mut self, scale: f32) -> f32 {
        ((self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale
    }

    pub(super) fn vec(&mut self, len: usize, scale: f32) -> Vec<f32> {
        (0..len).map(|_| self.f32(scale)).collect()
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for place in (1..items.len()).rev() {
            items.swap(place, self.below(place + 1));
        }
    }

    /// `0..len` in pieces of any lengths, in any order.
    pub(super) fn pieces(&mut self, len: usize) -> Vec<Range<usize>> {
        let (mut pieces, mut start) = (Vec::new(), 0);
        while start < len {
            let end = start + 1 + self.below(len - start);
            pieces.push(start..end);
            start = end;
        }
        self.shuffle(&mut pieces);
        pieces
    }
}

/// Bits, so that comparisons tell zeros apart and NaN from nothing.
pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
