//! Sums in 16 parts on every instruction set, however long its vectors are.

use crate::packing::lines::LINE_LEN;

/// Parts of a sum: the elements of a vector divide their number.
pub(super) const PARTS: usize = LINE_LEN;

/// Adds the parts in pairs, 8 apart, then 4, 2 and 1.
#[inline(always)]
pub(super) fn total(mut parts: [f32; PARTS]) -> f32 {
    for apart in [8, 4, 2, 1] {
        for part in 0..apart {
            parts[part] += parts[part + apart];
        }
    }
    parts[0]
}
