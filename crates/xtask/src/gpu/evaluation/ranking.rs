//! Measures a sample of an LSTM's mappings, and those that the cost model ranks first.

use batchmaker_cuda::kernels::persistent::PersistentKernel;
use batchmaker_cuda::mapping::{Cost, CostModel, Limits, Mapping, Problem};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::{Value, json};

use super::jobs::Operator;
use super::statistics::{least, median, rank_correlation};
use super::times::Outcome;
use crate::grnn::{TABLE_2, TABLE_2_PROBLEM};
use crate::predictions::{MappingTime, Prediction};

/// The mappings that the cost model ranks first, of which GRNN takes the fastest (section 7.2).
pub(super) const TOP: usize = 5;

/// Measures the microseconds of a step of a number of rows by a kernel, without the products of x.
pub(super) type StepUs<'a> = dyn FnMut(PersistentKernel, usize) -> Outcome + 'a;

/// A GPU as the cost model sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gpu {
    pub(super) limits: Limits,
    /// The model that ranks.
    pub(super) model: CostModel,
}

impl Gpu {
    /// The model with the paper's constants, which those of a Titan V are, and the multiprocessors of this GPU.
    fn titan_v(&self) -> CostModel {
        let multiprocessors = self.limits.multiprocessors as f64;
        CostModel { multiprocessors, ..CostModel::TITAN_V }
    }
}

/// How a sample is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The most mappings of a size.
    pub(super) count: usize,
    pub(super) seed: u64,
}

/// A measured mapping.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) mapping: Mapping,
    /// The rank of its cost among all that fit, from 1; none of one of Table 2 that does not fit.
    pub(super) rank: Option<usize>,
    pub(super) cost: Cost,
    /// Its cost with the paper's constants.
    titan_v: f64,
    /// Whether it was drawn, whatever its rank.
    is_drawn: bool,
    /// Microseconds of a step, without the products of x.
    step_us: Outcome,
}

/// The measured mappings of a size, in the order of their ranks.
#[derive(Clone, Debug)]
pub(super) struct Ranking {
    pub(super) of: Problem,
    /// All mappings that fit.
    pub(super) count: usize,
    pub(super) measured: Vec<Candidate>,
}

/// Times of a ranking, in microseconds of a step; none where nothing was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    /// The mapping that is ranked first.
    pub(super) top_1: Option<f64>,
    /// The fastest of the first [`TOP`].
    pub(super) top_5: Option<f64>,
    /// The middle of the sample.
    pub(super) median: Option<f64>,
    /// The fastest of all that were measured.
    pub(super) oracle: Option<f64>,
    /// Spearman's correlation of costs and times.
    pub(super) correlation: Option<f64>,
    /// The same with the paper's constants.
    pub(super) titan_v_correlation: Option<f64>,
}

impl Ranking {
    /// Ranks all mappings of an LSTM that fit, and measures the first, a sample, and those of Table 2 if it is of this size.
    pub(super) fn measure(
        (hidden, rows): (usize, usize),
        gpu: Gpu,
        sample: Sample,
        step_us: &mut StepUs<'_>,
    ) -> Self {
        let of = Problem { hidden, gates: 4, rows };
        let kernel = |mapping| {
            let kernel = PersistentKernel::new(&Operator::Lstm.kind(), hidden, mapping);
            kernel.expect("an LSTM of f32 has one")
        };
        let mut all = Mapping::all(of, gpu.limits);
        all.retain(|&mapping| kernel(mapping).fits(rows, gpu.limits));
        let (count, ranked) = (all.len(), gpu.model.rank(of, all));
        let drawn = draw(count, sample);
        let titan_v = gpu.titan_v();
        let mut candidate = |mapping: Mapping, rank: Option<usize>| Candidate {
            mapping,
            rank,
            cost: gpu.model.cost(of, mapping),
            titan_v: titan_v.cost(of, mapping).total(),
            is_drawn: rank.is_some_and(|rank| drawn.contains(&(rank - 1))),
            step_us: step_us(kernel(mapping), rows),
        };
        let is_of_table_2 = |mapping: &Mapping| {
            of == TABLE_2_PROBLEM && TABLE_2.iter().any(|row| row.mapping() == *mapping)
        };
        let mut measured = Vec::new();
        for (at, (mapping, _)) in ranked.iter().enumerate() {
            if at < TOP || drawn.contains(&at) || is_of_table_2(mapping) {
                measured.push(candidate(*mapping, Some(at + 1)));
            }
        }
        if of == TABLE_2_PROBLEM {
            for mapping in TABLE_2.map(|row| row.mapping()) {
                if measured.iter().all(|of| of.mapping != mapping) {
                    measured.push(candidate(mapping, None));
                }
            }
        }
        Self { of, count, measured }
    }

    /// The times that tables show.
    pub(super) fn summary(&self) -> Summary {
        let times = |is_of: &dyn Fn(&Candidate) -> bool| -> Vec<f64> {
            self.measured.iter().filter(|of| is_of(of)).filter_map(|of| of.step_us.time()).collect()
        };
        let first = |count: usize| least(times(&|of| of.rank.is_some_and(|rank| rank <= count)));
        let correlation = |cost: &dyn Fn(&Candidate) -> f64| {
            let pairs = self.measured.iter().filter_map(|of| Some((cost(of), of.step_us.time()?)));
            rank_correlation(&pairs.collect::<Vec<_>>())
        };
        Summary {
            top_1: first(1),
            top_5: first(TOP),
            median: median(times(&|of| of.is_drawn)),
            oracle: least(times(&|_| true)),
            correlation: correlation(&|of| of.cost.total()),
            titan_v_correlation: correlation(&|of| of.titan_v),
        }
    }

    /// The measured mappings with their predicted costs.
    pub(super) fn predictions(&self) -> Vec<Prediction> {
        let of = |Candidate { mapping, rank, cost, step_us, .. }: &Candidate| Prediction {
            mapping: *mapping,
            rank: *rank,
            cost: *cost,
            step_us: step_us.time(),
        };
        self.measured.iter().map(of).collect()
    }

    /// A line for each reason for which mappings have no time.
    pub(super) fn left_out(&self) -> Vec<String> {
        let reasons = self.measured.iter().filter_map(|of| of.step_us.reason());
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for reason in reasons {
            match counts.iter_mut().find(|of| of.0 == reason) {
                Some(of) => of.1 += 1,
                None => counts.push((reason, 1)),
            }
        }
        let Problem { hidden, rows, .. } = self.of;
        let line = |(reason, count)| {
            format!("{count} mappings of lstm {hidden} x {rows}, left out: {reason}")
        };
        counts.into_iter().map(line).collect()
    }

    /// As JSON: times as [`MappingTime`] reads them, and mappings without times.
    pub(super) fn json(&self) -> Vec<Value> {
        let Problem { hidden, rows, .. } = self.of;
        let of = |candidate: &Candidate| {
            let Candidate { mapping, rank, cost, titan_v, is_drawn, step_us } = candidate;
            let time = MappingTime {
                hidden,
                rows,
                mapping: *mapping,
                step_us: step_us.time().unwrap_or(f64::NAN),
            };
            // What is no number is null.
            let mut of = time.json();
            of["rank"] = json!(rank);
            of["cost"] = json!(cost.total());
            of["cost_titan_v"] = json!(titan_v);
            of["is_drawn"] = json!(is_drawn);
            of["mappings_that_fit"] = json!(self.count);
            if let Some(reason) = step_us.reason() {
                of["left_out"] = json!(reason);
            }
            of
        };
        self.measured.iter().map(of).collect()
    }
}

/// Places of a sample among `count` mappings, each at most once.
fn draw(count: usize, Sample { count: most, seed }: Sample) -> Vec<usize> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut places: Vec<usize> = (0..count).collect();
    for at in 0..most.min(count) {
        let other = rng.random_range(at..count);
        places.swap(at, other);
    }
    places.truncate(most);
    places
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A GPU whose costs are those of the paper's.
    pub(in super::super) fn gpu() -> Gpu {
        Gpu { limits: Limits::of(132), model: CostModel { l2_bytes: 128.0, ..CostModel::TITAN_V } }
    }

    /// A ranking of the size of Table 2, where each kernel takes one microsecond more than the one before.
    pub(in super::super) fn of_table_2() -> Ranking {
        let mut calls = 0.0;
        let sample = Sample { count: 7, seed: 1 };
        Ranking::measure((256, 20), gpu(), sample, &mut |_, rows| {
            assert_eq!(rows, 20);
            calls += 1.0;
            if calls == 3.0 { Outcome::LeftOut("no".to_owned()) } else { Outcome::Time(calls) }
        })
    }

    #[test]
    fn samples_are_drawn_by_their_seed() {
        let sample = |count, most, seed| draw(count, Sample { count: most, seed });
        let mut drawn = sample(1000, 10, 1);
        assert_eq!(drawn, sample(1000, 10, 1));
        assert_ne!(drawn, sample(1000, 10, 2));
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!((drawn.len(), drawn.last() < Some(&1000)), (10, true));
        let mut all = sample(3, 10, 1);
        all.sort_unstable();
        assert_eq!((all, sample(0, 10, 1)), (vec![0, 1, 2], vec![]));
    }

    #[test]
    fn the_first_a_sample_and_those_of_table_2_are_measured() {
        let ranking = of_table_2();
        let ranks: Vec<_> = ranking.measured.iter().filter_map(|of| of.rank).collect();
        assert!(ranks.starts_with(&[1, 2, 3, 4, 5]) && ranks.is_sorted(), "{ranks:?}");
        assert!(ranks.iter().all(|&rank| rank <= ranking.count));
        for row in TABLE_2 {
            assert!(ranking.measured.iter().any(|of| of.mapping == row.mapping()));
        }
        assert_eq!(ranking.measured.iter().filter(|of| of.is_drawn).count(), 7);
        let small = Sample { count: 3, seed: 1 };
        let other = Ranking::measure((64, 1), gpu(), small, &mut |_, _| Outcome::Time(1.0));
        assert!(other.measured.len() <= TOP + 3, "{other:?}");
    }

    #[test]
    fn a_summary_is_of_what_has_a_time() {
        let ranking = of_table_2();
        let summary = ranking.summary();
        assert_eq!(
            (summary.top_1, summary.top_5, summary.oracle),
            (Some(1.0), Some(1.0), Some(1.0))
        );
        // Times rise with ranks; ties of costs may be in any order.
        assert!(summary.correlation.unwrap() > 0.95, "{summary:?}");
        assert!(summary.median > Some(3.0));
        assert_eq!(ranking.left_out(), ["1 mappings of lstm 256 x 20, left out: no"]);
    }

    #[test]
    fn mappings_without_times_are_written_with_their_reason() {
        let json = of_table_2().json();
        assert_eq!((&json[2]["left_out"], &json[2]["step_us"]), (&json!("no"), &Value::Null));
        assert_eq!((&json[3]["step_us"], &json[3]["rank"]), (&json!(4.0), &json!(4)));
    }
}
