//! Sums, and greatest elements, in 16 parts on every instruction set, however long its vectors are.

use crate::packing::lines::LINE_LEN;

/// Parts of a sum: the elements of a vector divide their number.
pub(super) const PARTS: usize = LINE_LEN;

/// Adds the parts in pairs, 8 apart, then 4, 2 and 1.
#[inline(always)]
pub(super) fn total(parts: [f32; PARTS]) -> f32 {
    in_pairs(parts, |a, b| a + b)
}

/// The greatest of the parts.
#[inline(always)]
pub(super) fn greatest(parts: [f32; PARTS]) -> f32 {
    in_pairs(parts, f32::max)
}

#[inline(always)]
fn in_pairs(mut parts: [f32; PARTS], of_pair: impl Fn(f32, f32) -> f32) -> f32 {
    for apart in [8, 4, 2, 1] {
        for part in 0..apart {
            parts[part] = of_pair(parts[part], parts[part + apart]);
        }
    }
    parts[0]
}
