//! The choice of the execution strategy that is the fastest here and now, by measurement.
//!
//! Strategies differ in how threads divide a step and in whether inputs are projected before it; all give
//! the same bits. For each size of batch the tuner tries every strategy that is open, keeps to the
//! fastest, and looks at the others again from time to time, since what else the machine does
//! changes.

use super::execution_strategy::ExecutionStrategy;
#[cfg(test)]
use super::execution_strategy::Split;

/// The number of times that every strategy is tried before it is judged.
const TRIALS: u32 = 3;

/// `(period, ratio)`: every `period` choices, a strategy that costs at most `ratio` times as much as the
/// fastest is tried again, one after the other. What else the machine does changes which of those that are
/// close is the fastest, and now and then more than that.
const LOOK_AGAIN: [(u32, f32); 2] = [(150, 4.0), (25, 1.3)];

/// One of this many choices goes to a strategy that was not tried, where a strategy is planned.
const TRY_OTHERS: u32 = 20;

/// The costs of the strategies, by size of batch.
#[derive(Debug, Default)]
pub(crate) struct Tuner {
    classes: Vec<Class>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Class {
    /// Nanoseconds a step.
    costs: [f32; ExecutionStrategy::ALL.len()],
    trials: [u32; ExecutionStrategy::ALL.len()],
    projecting: ProjectingCost,
    choices: u32,
}

/// The recent cost of projections. Many rows together cost less each than a few, so the cost of a row is
/// all time over all rows.
#[derive(Debug, Default, Clone, Copy)]
struct ProjectingCost {
    ns: f32,
    rows: f32,
}

impl ProjectingCost {
    /// Nanoseconds a row; 0 before the first measurement.
    fn row_ns(self) -> f32 {
        self.ns / self.rows.max(1.0)
    }

    fn add(&mut self, ns: f32, rows: f32) {
        // The thread may have lost its core meanwhile.
        let ns = if self.rows > 0.0 { ns.min(4.0 * self.row_ns() * rows) } else { ns };
        let kept = 1.0 - 1.0 / RECENT_PROJECTIONS;
        (self.ns, self.rows) = (kept * self.ns + ns, kept * self.rows + rows);
    }
}

/// The number of projections over which the cost is averaged, about.
const RECENT_PROJECTIONS: f32 = 16.0;

impl Tuner {
    /// The strategy for a batch of `size` rows, among those for which `open` is true. Where one is `planned`,
    /// the others are not tried at first, but now and then.
    pub(crate) fn choose(
        &mut self,
        size: usize,
        planned: Option<ExecutionStrategy>,
        open: impl Fn(ExecutionStrategy) -> bool,
    ) -> ExecutionStrategy {
        let class = self.class(size);
        class.choices = class.choices.wrapping_add(1);
        let planned = planned.filter(|&strategy| open(strategy));
        let is_untried = |strategy: ExecutionStrategy| class.trials[strategy.index()] < TRIALS;
        let untried = ExecutionStrategy::ALL
            .into_iter()
            .find(|&strategy| open(strategy) && is_untried(strategy));
        match (planned, untried) {
            (Some(planned), Some(_)) if is_untried(planned) => return planned,
            (Some(_), Some(untried)) if class.choices.is_multiple_of(TRY_OTHERS) => return untried,
            (None, Some(untried)) => return untried,
            _ => {}
        }
        // A strategy that was not tried has no cost to compare.
        let strategies = || {
            ExecutionStrategy::ALL
                .into_iter()
                .filter(|&strategy| open(strategy) && !is_untried(strategy))
        };
        let cost = |strategy: ExecutionStrategy| {
            let row_ns = if strategy.pre_projection { class.projecting.row_ns() } else { 0.0 };
            class.costs[strategy.index()] + size as f32 * row_ns
        };
        let fastest = strategies().min_by(|&a, &b| cost(a).total_cmp(&cost(b)));
        let mut strategy = fastest.expect("one thread can always do it all");
        let look = LOOK_AGAIN.into_iter().find(|look| class.choices.is_multiple_of(look.0));
        if let Some((period, ratio)) = look {
            let bound = ratio * cost(strategy);
            let hopeful = || strategies().filter(|&strategy| cost(strategy) <= bound);
            let turn = (class.choices / period) as usize % hopeful().count().max(1);
            strategy = hopeful().nth(turn).unwrap_or(strategy);
        }
        strategy
    }

    /// Records that projecting `rows` rows before the steps of a batch of `size` rows took `ns` nanoseconds.
    pub(crate) fn record_projection(&mut self, size: usize, rows: usize, ns: f32) {
        self.class(size).projecting.add(ns, rows as f32);
    }

    /// Records that a step of `size` rows took `ns` nanoseconds, without projections.
    pub(crate) fn record(&mut self, size: usize, strategy: ExecutionStrategy, ns: f32) {
        let class = self.class(size);
        let (cost, trials) =
            (&mut class.costs[strategy.index()], &mut class.trials[strategy.index()]);
        *cost = match *trials {
            0 => ns,
            // The first runs of a strategy find everything cold.
            1..TRIALS => ns.min(*cost),
            _ => towards(*cost, ns),
        };
        *trials = trials.saturating_add(1);
    }

    fn class(&mut self, size: usize) -> &mut Class {
        let index = class_of(size);
        if self.classes.len() <= index {
            self.classes.resize(index + 1, Class::default());
        }
        &mut self.classes[index]
    }
}

/// The cost `known` moved towards `measured`: quickly down, slowly up, since a measurement may be disturbed in
/// one direction only.
fn towards(known: f32, measured: f32) -> f32 {
    match measured - known {
        less if less <= 0.0 => known + 0.5 * less,
        more => known + 0.1 * more.min(known),
    }
}

/// The class of a size; sizes of a class are judged together. Up to 32 each has its own, then there are 16
/// classes an octave.
fn class_of(size: usize) -> usize {
    let octave = (size / 16).checked_ilog2().unwrap_or(0);
    (octave as usize) * 16 + (size >> octave)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_in_order_and_few() {
        let classes: Vec<_> = (1..=1024).map(class_of).collect();
        assert!(classes.is_sorted());
        assert_eq!((class_of(1), class_of(16), class_of(17), class_of(31)), (1, 16, 17, 31));
        assert_eq!((class_of(32), class_of(33), class_of(34), class_of(63)), (32, 32, 33, 47));
        assert!(class_of(1024) < 120);
    }

    #[test]
    fn all_strategies_are_tried_then_the_fastest_is_kept() {
        let mut tuner = Tuner::default();
        let cost = |strategy: ExecutionStrategy| 100.0 + 10.0 * strategy.index() as f32;
        let mut chosen = [0; ExecutionStrategy::ALL.len()];
        for _ in 0..1000 {
            let strategy = tuner.choose(8, None, |strategy| strategy.split != Split::Rows);
            chosen[strategy.index()] += 1;
            tuner.record(8, strategy, cost(strategy));
        }
        assert_eq!(chosen[4..], [0, 0], "closed strategies");
        assert!(chosen[0] > 950 && chosen[1..4].iter().all(|&n| n >= TRIALS), "{chosen:?}");
    }

    #[test]
    fn a_planned_strategy_is_kept_to_unless_another_is_faster() {
        let planned = ExecutionStrategy { split: Split::Units, pre_projection: true };
        for (is_right, most) in [(true, planned), (false, ExecutionStrategy::ALL[0])] {
            let mut tuner = Tuner::default();
            let cost = |strategy: ExecutionStrategy| if strategy == most { 50.0 } else { 100.0 };
            let mut chosen = [0; ExecutionStrategy::ALL.len()];
            for turn in 0..2000 {
                let strategy =
                    tuner.choose(8, Some(planned), |strategy| strategy.split != Split::Rows);
                assert!(turn >= 10 || strategy == planned, "at first");
                chosen[strategy.index()] += 1;
                tuner.record(8, strategy, cost(strategy));
            }
            assert!(chosen[most.index()] > 1500, "{is_right} {chosen:?}");
        }
    }

    #[test]
    fn the_price_of_projecting_counts() {
        let mut tuner = Tuner::default();
        let cost = |strategy: ExecutionStrategy| if strategy.pre_projection { 50.0 } else { 80.0 };
        let mut choose = |row_ns: f32| {
            for _ in 0..2 * TRIALS {
                let strategy = tuner.choose(4, None, |strategy| strategy.split == Split::None);
                tuner.record(4, strategy, cost(strategy));
                tuner.record_projection(4, 24, 24.0 * row_ns);
            }
            tuner.choose(4, None, |strategy| strategy.split == Split::None).pre_projection
        };
        assert!(!choose(10.0), "4 rows for 40 ns gain nothing");
        assert!(choose(5.0), "4 rows for 20 ns gain 10");
    }

    #[test]
    fn a_few_costly_rows_among_many_count_little() {
        let mut projecting = ProjectingCost::default();
        for _ in 0..100 {
            projecting.add(300.0, 60.0);
            projecting.add(20.0, 1.0);
        }
        assert!((5.0..5.5).contains(&projecting.row_ns()), "{projecting:?}");
        projecting.add(1e9, 60.0);
        assert!(projecting.row_ns() < 10.0, "{projecting:?}");
    }

    #[test]
    fn a_strategy_that_became_slow_is_left() {
        let mut tuner = Tuner::default();
        let open =
            |strategy: ExecutionStrategy| !strategy.pre_projection && strategy.split != Split::Rows;
        let mut last = ExecutionStrategy::ALL[0];
        for turn in 0..2000 {
            last = tuner.choose(8, None, open);
            let slow = turn > 500 && last.split == Split::None;
            tuner.record(8, last, if slow { 300.0 } else { 100.0 + last.index() as f32 });
        }
        assert_eq!(last.split, Split::Units);
    }
}
