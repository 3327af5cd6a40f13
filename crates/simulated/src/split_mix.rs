//! SplitMix64 (Steele, Lea and Flood, 2014): the generator of faults, and the hash of rows.

/// The increment of the generator's state.
pub(crate) const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number that the generator draws in the state `x`: a permutation.
pub(crate) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(INCREMENT);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
