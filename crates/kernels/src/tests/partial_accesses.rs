//! Loads and stores of a part of a vector touch no other memory, and pad with zeros.

use crate::simd::operations::{Simd, SimdOp};
use crate::simd::vector_unit::VectorUnit;

/// Copies through `load_partial` and `store_partial` at every length.
struct CopyPartial<'a> {
    from: &'a [f32],
    to: &'a mut [f32],
}

impl SimdOp for CopyPartial<'_> {
    fn run<S: Simd>(self, simd: S) {
        assert!(self.from.len() <= S::LANES && self.from.len() == self.to.len());
        // SAFETY: both slices have `from.len()` elements, which is at most `LANES`.
        unsafe {
            let vector = simd.load_partial(self.from.as_ptr(), self.from.len());
            simd.store_partial(self.to.as_mut_ptr(), vector, self.to.len());
        }
    }
}

#[test]
fn partial_accesses_touch_only_their_elements() {
    for unit in VectorUnit::all_for_tests() {
        for count in 0..=unit.lanes() {
            // Allocations of the exact size, so that Miri sees an access beyond them.
            let from: Box<[f32]> = (0..count).map(|i| i as f32 + 1.0).collect();
            let mut to = vec![-7.0; count + 1];
            unit.vectorize(CopyPartial { from: &from, to: &mut to[..count] });
            assert_eq!(to[..count], from[..], "{unit:?} {count}");
            assert_eq!(to[count], -7.0, "{unit:?} {count}");
        }
    }
}

/// The lanes that a partial load leaves out are zero, or a number that is given.
struct LoadPadded<'a> {
    from: &'a [f32],
    rest: Option<f32>,
    to: &'a mut Vec<f32>,
}

impl SimdOp for LoadPadded<'_> {
    fn run<S: Simd>(self, simd: S) {
        assert!(self.from.len() <= S::LANES);
        self.to.resize(S::LANES, -7.0);
        // SAFETY: `from.len()` elements are readable, at most `LANES`; `to` has `LANES`.
        unsafe {
            let vector = match self.rest {
                None => simd.load_partial(self.from.as_ptr(), self.from.len()),
                Some(rest) => simd.load_partial_or(self.from.as_ptr(), self.from.len(), rest),
            };
            simd.store(self.to.as_mut_ptr(), vector);
        }
    }
}

#[test]
fn partial_loads_pad() {
    for unit in VectorUnit::all_for_tests() {
        for (count, rest) in
            (0..=unit.lanes()).flat_map(|count| [(count, None), (count, Some(-2.0))])
        {
            let from: Box<[f32]> = vec![3.0; count].into();
            let mut to = Vec::new();
            unit.vectorize(LoadPadded { from: &from, rest, to: &mut to });
            assert_eq!(to[..count], from[..], "{unit:?} {count}");
            let padding = rest.unwrap_or(0.0).to_bits();
            assert!(to[count..].iter().all(|&v| v.to_bits() == padding), "{unit:?} {count}");
        }
    }
}
