//! Streams of random numbers: one for each seed and purpose, so that the lengths of a run do not change with its rate.

use rand::SeedableRng;
use rand_pcg::Pcg64;

/// The purpose of random numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    Lengths,
    Arrivals,
    Inputs,
}

/// The stream of `seed` for `purpose`. PCG, whose draws do not change between versions.
pub(crate) fn stream(seed: u64, purpose: Purpose) -> Pcg64 {
    // Part of what a seed means: keep them.
    let apart = match purpose {
        Purpose::Lengths => 0x6c65_6e67_7468_7321,
        Purpose::Arrivals => 0x6172_7269_7661_6c73,
        Purpose::Inputs => 0x696e_7075_7473_2121,
    };
    Pcg64::seed_from_u64(seed ^ apart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    #[test]
    fn seeds_and_purposes_have_streams_of_their_own() {
        let first = |seed, purpose| stream(seed, purpose).next_u64();
        let draws = [
            first(1, Purpose::Lengths),
            first(2, Purpose::Lengths),
            first(1, Purpose::Arrivals),
            first(2, Purpose::Arrivals),
        ];
        for (i, draw) in draws.iter().enumerate() {
            assert!(!draws[..i].contains(draw));
        }
        assert_eq!(draws[0], first(1, Purpose::Lengths));
    }
}
