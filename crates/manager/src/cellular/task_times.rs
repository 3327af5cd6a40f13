//! The times that tasks of one cell type took of late, and the least that a step takes.

/// The number of tasks of like size that must have been seen before the fastest of them counts: the
/// first ones are slow.
const TASKS_MIN: u32 = 16;

/// The time, in nanoseconds, after which the fastest of a class counts no more if no task of the class has
/// run, nor for four times as long as such a task takes. Tasks may be faster by now, and as long as requests are refused for what they took, none runs.
const FRESH_NS: u64 = 1_000_000_000;

/// Classes of sizes of batches: 1 row, 2, 3 to 4, 5 to 8, …
const CLASSES: usize = 17;

/// The times of one cell type's batches.
#[derive(Debug, Default)]
pub(super) struct TaskTimes {
    /// The moving average of a batch's time, in nanoseconds; none before the first.
    batch_ns: Option<u64>,
    fastest: [Fastest; CLASSES],
}

/// The fastest batch of a class of sizes.
#[derive(Clone, Copy, Debug, Default)]
struct Fastest {
    /// The number of tasks so far, up to [`TASKS_MIN`].
    tasks: u32,
    batch_ns: u64,
    /// When the last of these tasks was complete.
    at_ns: u64,
}

impl Fastest {
    /// Whether a task was complete lately, where it is `now_ns`.
    fn is_fresh(&self, now_ns: u64) -> bool {
        self.tasks > 0 && now_ns - self.at_ns <= FRESH_NS.max(4 * self.batch_ns)
    }
}

impl TaskTimes {
    /// Notes that a task of `batches` batches of `rows` rows each, which is complete at `now_ns`, took
    /// `took_ns` nanoseconds.
    pub(super) fn note(&mut self, now_ns: u64, took_ns: u64, batches: u32, rows: u32) {
        let batch_ns = took_ns / u64::from(batches.max(1));
        self.batch_ns = Some(match self.batch_ns {
            None => batch_ns,
            Some(known) => (3 * known + batch_ns) / 4,
        });
        let class = rows.max(1).next_power_of_two().ilog2() as usize;
        let fastest = &mut self.fastest[class.min(CLASSES - 1)];
        if !fastest.is_fresh(now_ns) {
            *fastest = Fastest { tasks: 0, batch_ns, at_ns: now_ns };
        }
        fastest.batch_ns = fastest.batch_ns.min(batch_ns);
        fastest.tasks = (fastest.tasks + 1).min(TASKS_MIN);
        fastest.at_ns = now_ns;
    }

    /// The time, in nanoseconds, that a task of `batches` batches is likely to take; 0 while unknown.
    pub(super) fn estimate_ns(&self, batches: u32) -> u64 {
        u64::from(batches) * self.batch_ns.unwrap_or(0)
    }

    /// A lower bound on the time of a batch of any size, in nanoseconds, by the tasks of the time before
    /// `now_ns`; 0 while unknown. A batch of `n` rows takes no longer than `n` batches of one row, so each
    /// class bounds the time of one row.
    pub(super) fn least_ns(&self, now_ns: u64) -> u64 {
        let known = self.fastest[..CLASSES - 1].iter().enumerate();
        let known = known.filter(|(_, fastest)| fastest.tasks == TASKS_MIN);
        let known = known.filter(|(_, fastest)| fastest.is_fresh(now_ns));
        known.map(|(class, fastest)| fastest.batch_ns >> class).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_follow_the_recent_times() {
        let mut times = TaskTimes::default();
        assert_eq!(times.estimate_ns(5), 0, "nothing was measured");
        times.note(0, 100, 10, 4);
        assert_eq!(times.estimate_ns(5), 50);
        times.note(0, 50, 1, 4);
        assert_eq!(times.estimate_ns(1), 20);
    }

    #[test]
    fn the_least_time_is_that_of_one_row_at_most() {
        let mut times = TaskTimes::default();
        (0..15).for_each(|_| times.note(0, 640, 1, 64));
        assert_eq!(times.least_ns(0), 0, "too few were measured");
        times.note(0, 1_280, 1, 64);
        assert_eq!(times.least_ns(0), 10, "64 rows are no faster than 64 single ones");
        (0..16).for_each(|took| times.note(0, 100 + took, 1, 1));
        assert_eq!(times.least_ns(0), 100);
    }

    #[test]
    fn the_fastest_is_forgotten_when_no_task_has_run_for_long() {
        let mut times = TaskTimes::default();
        (0..16).for_each(|_| times.note(0, 100, 1, 1));
        (0..16).for_each(|_| times.note(5, 640, 1, 64));
        assert_eq!(times.least_ns(FRESH_NS), 100);
        assert_eq!(times.least_ns(FRESH_NS + 5), 10, "only the batches of 64 rows were later");
        assert_eq!(times.least_ns(FRESH_NS + 6), 0);
        (0..15).for_each(|_| times.note(2 * FRESH_NS, 300, 1, 1));
        assert_eq!(times.least_ns(2 * FRESH_NS), 0, "they are counted anew");
        times.note(2 * FRESH_NS, 300, 1, 1);
        assert_eq!(times.least_ns(2 * FRESH_NS), 300);
    }
}
