//! The number of waiting requests that become a new batch.

use std::collections::VecDeque;

use crate::stages::Stages;

/// The arrivals of which the rate is taken.
const ARRIVALS: usize = 32;

/// Batches are large enough for this much more than arrives, in percent: else those that wait would become more with every fluctuation.
const SPARE_PERCENT: u64 = 10;

/// How often requests arrive, which decides how many of them a batch takes.
#[derive(Debug, Default)]
pub(super) struct BatchSize {
    /// The last arrivals, in nanoseconds.
    arrivals: VecDeque<u64>,
}

impl BatchSize {
    /// Notes a request that arrives at `now_ns`.
    pub(super) fn arrive(&mut self, now_ns: u64) {
        if self.arrivals.len() == ARRIVALS {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(now_ns);
    }

    /// The members of a batch that is made at `now_ns` of `waiting` requests, at most `room`, where `workers` make batches in turn: all of them, or
    /// half if that ends them sooner on average: those left wait for the next worker, until which a batch's time passes, divided by the number of
    /// workers. Where larger batches serve more requests a second, a batch is no smaller than keeps up with the arrivals.
    pub(super) fn of(
        &self,
        [waiting, room, workers]: [u32; 3],
        stages: &Stages,
        now_ns: u64,
    ) -> u32 {
        let all = waiting.min(room);
        let half = if workers > 1 { waiting.div_ceil(2).min(all) } else { all };
        let time = |size| stages.remaining_ns(0, size);
        let Some(all_ns) = time(all).filter(|_| half < all) else { return all };
        let times = (1..=all).filter_map(|size| Some((size, time(size)?)));
        let size = half.max(self.keeps_up(times, workers, now_ns));
        let left = u64::from(all - size);
        let with_wait = |ns: u64| ns + ns * left / (u64::from(all) * u64::from(workers));
        if time(size).is_some_and(|ns| with_wait(ns) < all_ns) { size } else { all }
    }

    /// The smallest size, of those with the nanoseconds that a batch takes, with which `workers` serve what arrives; where none does, the
    /// one that serves the most. 1 as long as the rate is not known.
    fn keeps_up(&self, times: impl Iterator<Item = (u32, u64)>, workers: u32, now_ns: u64) -> u32 {
        let first_ns = self.arrivals.front().filter(|_| self.arrivals.len() == ARRIVALS);
        let Some(&first_ns) = first_ns else { return 1 };
        let of_arrivals = ARRIVALS as f64 / (now_ns - first_ns) as f64;
        let wanted = of_arrivals * (100 + SPARE_PERCENT) as f64 / 100.0;
        let (mut best, mut most) = (1, 0.0);
        for (size, ns) in times {
            let served = f64::from(workers * size) / ns as f64;
            // A smaller difference may come of the measurement.
            if served > 1.01 * most {
                (best, most) = (size, served);
            }
            if served >= wanted {
                break;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One stage, by the times of batches.
    fn stages(times: &[(u32, u64)]) -> Stages {
        Stages::new(Vec::new(), vec![times.to_vec()])
    }

    /// After as many arrivals as count, one every `between_ns`.
    fn size(times: &[(u32, u64)], sizes: [u32; 3], between_ns: u64) -> u32 {
        let mut of = BatchSize::default();
        let arrivals = (0..2 * ARRIVALS as u64).map(|arrival| arrival * between_ns);
        arrivals.for_each(|at_ns| of.arrive(at_ns));
        of.of(sizes, &stages(times), 2 * ARRIVALS as u64 * between_ns)
    }

    const LINEAR: [(u32, u64); 2] = [(1, 100), (64, 6_400)];
    const FLAT: [(u32, u64); 2] = [(1, 100), (64, 100)];
    /// 100 ns, and 100 for each request, up to 8.
    const MIXED: [(u32, u64); 3] = [(1, 200), (8, 900), (64, 7_200)];

    #[test]
    fn half_are_taken_where_time_is_in_proportion() {
        for between_ns in [1, 100, 10_000] {
            assert_eq!(size(&LINEAR, [8, 64, 2], between_ns), 4);
            assert_eq!(size(&LINEAR, [9, 64, 4], between_ns), 5);
            assert_eq!(size(&LINEAR, [1, 64, 2], between_ns), 1);
            assert_eq!(size(&LINEAR, [100, 8, 2], between_ns), 8, "no more than there is room for");
            assert_eq!(size(&LINEAR, [8, 64, 1], between_ns), 8, "there is no other worker");
        }
    }

    #[test]
    fn all_are_taken_where_a_batch_takes_as_long_as_one() {
        assert_eq!(size(&FLAT, [8, 64, 2], 10_000), 8);
        assert_eq!(size(&[], [8, 64, 2], 10_000), 8, "nothing is known");
    }

    #[test]
    fn batches_keep_up_with_arrivals() {
        // Two workers serve a request every 100 ns in batches of 1, every 67 in batches of 3, every 63 in batches of 4, every 56 in batches of 8.
        assert_eq!(size(&MIXED, [8, 64, 2], 1_000), 4);
        assert_eq!(size(&MIXED, [4, 64, 2], 1_000), 2);
        assert_eq!(size(&MIXED, [6, 64, 2], 1_000), 3);
        assert_eq!(size(&MIXED, [6, 64, 2], 70), 4);
        assert_eq!(size(&MIXED, [4, 64, 2], 75), 3);
        assert_eq!(size(&MIXED, [16, 64, 2], 10), 8, "larger ones serve no more");
        assert_eq!(size(&MIXED, [24, 64, 2], 10), 12, "nor fewer");
    }

    #[test]
    fn nothing_is_known_of_the_first_arrivals() {
        let mut of = BatchSize::default();
        (0..8).for_each(|_| of.arrive(0));
        assert_eq!(of.of([8, 64, 2], &stages(&MIXED), 0), 4);
    }
}
