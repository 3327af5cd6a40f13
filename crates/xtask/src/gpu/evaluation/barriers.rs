//! Table 3: a GRU whose reset gate comes before the product, with one barrier a step and with two.

use batchmaker_cuda::kernels::persistent::PersistentKernel;
use serde_json::{Value, json};

use super::jobs::Operator;
use super::ranking::{Gpu, StepUs, TOP};
use super::times::Outcome;
use crate::grnn::{TABLE_1, TABLE_3};
use crate::markdown::{number, table};
use crate::predictions::sequence_ms;

/// The microseconds of a step of each kind of kernel: the best of the first five mappings, without the products of x.
#[derive(Clone, Debug)]
pub(super) struct Barriers {
    hidden: usize,
    batch: usize,
    one: Outcome,
    two: Outcome,
}

impl Barriers {
    /// Measures both in a size. Mappings are in the order of the costs of the kernel with two barriers, of those that fit each kind.
    pub(super) fn measure(
        (hidden, batch): (usize, usize),
        gpu: Gpu,
        step_us: &mut StepUs<'_>,
    ) -> Self {
        let kind = Operator::GruResetBefore.kind();
        let ranked = PersistentKernel::ranked(&kind, (hidden, batch), gpu.limits, &gpu.model);
        let with_one = ranked.iter().filter_map(|kernel| kernel.with_one_barrier());
        let with_one = with_one.filter(|kernel| kernel.fits(batch, gpu.limits));
        let with_one: Vec<_> = with_one.take(TOP).collect();
        let with_two = &ranked[..ranked.len().min(TOP)];
        let mut best = |kernels: &[PersistentKernel]| {
            let outcomes = kernels.iter().map(|&kernel| step_us(kernel, batch));
            best_of(outcomes.collect())
        };
        Self { hidden, batch, one: best(&with_one), two: best(with_two) }
    }

    /// Whether one barrier takes less time than two.
    pub(super) fn one_is_faster(&self) -> bool {
        let times = self.one.time().zip(self.two.time());
        times.is_some_and(|(one, two)| one < two)
    }

    /// As JSON.
    pub(super) fn json(&self) -> Value {
        let Self { hidden, batch, one, two } = self;
        json!({
            "hidden": hidden,
            "batch": batch,
            "one_barrier_step_us": one.time(),
            "one_barrier_left_out": one.reason(),
            "two_barriers_step_us": two.time(),
            "two_barriers_left_out": two.reason(),
        })
    }
}

/// The least time; where there is none, the first reason.
fn best_of(outcomes: Vec<Outcome>) -> Outcome {
    let first = outcomes.first().cloned();
    let best = outcomes.into_iter().filter(|of| of.time().is_some());
    let best = best.min_by(|a, b| a.time().unwrap_or(0.0).total_cmp(&b.time().unwrap_or(0.0)));
    best.or(first).unwrap_or_else(|| Outcome::LeftOut("no mapping fits".to_owned()))
}

/// Table 3 with the paper's, in milliseconds of 100 steps, and why numbers are missing.
pub(super) fn table_3(all: &[Barriers]) -> String {
    let paper = |of: &Barriers| {
        let place = TABLE_1.iter().position(|row| (row.hidden, row.batch) == (of.hidden, of.batch));
        place.map(|place| TABLE_3[place])
    };
    let rows = all.iter().map(|of| {
        let [one, two] = [&of.one, &of.two].map(|of| of.time().map(sequence_ms));
        let ratio = |one: Option<f64>, two: Option<f64>| Some(two? / one?);
        let [paper_one, paper_two] = [0, 1].map(|at| paper(of).map(|paper| paper[at]));
        let numbers =
            [one, two, ratio(one, two), paper_one, paper_two, ratio(paper_one, paper_two)];
        let sizes = [of.hidden, of.batch].map(|size| size.to_string());
        sizes.into_iter().chain(numbers.map(number)).collect()
    });
    let head = [
        "hidden",
        "batch",
        "one barrier, ms",
        "two",
        "two over one",
        "the paper's one",
        "two",
        "two over one",
    ];
    let text = table(&head, &rows.collect::<Vec<_>>());
    let reasons = all.iter().flat_map(|of| {
        [("one barrier", &of.one), ("two barriers", &of.two)].map(|(name, outcome)| {
            let size = format!("{} x {}", of.hidden, of.batch);
            outcome.reason().map(|reason| format!("{name}, {size}, left out: {reason}\n"))
        })
    });
    let reasons: String = reasons.flatten().collect();
    format!(
        "Table 3: GRU, reset before the product, ms of 100 steps without the products of x:\n\n{text}{reasons}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::ranking::tests::gpu;
    use super::*;

    #[test]
    fn the_best_of_some_is_the_fastest_that_runs() {
        let left_out = |reason: &str| Outcome::LeftOut(reason.to_owned());
        let some = vec![left_out("a"), Outcome::Time(2.0), Outcome::Time(1.0)];
        assert_eq!(best_of(some), Outcome::Time(1.0));
        assert_eq!(best_of(vec![left_out("a"), left_out("b")]), left_out("a"));
        assert_eq!(best_of(vec![]), left_out("no mapping fits"));
    }

    #[test]
    fn both_kinds_of_kernels_are_measured() {
        let mut names = Vec::new();
        let measured = Barriers::measure((64, 10), gpu(), &mut |kernel, rows| {
            assert_eq!(rows, 10);
            names.push(kernel.name());
            Outcome::Time(if kernel.name().contains("once") { 2.0 } else { 3.0 })
        });
        assert_eq!(names.iter().filter(|name| name.contains("before_once_64")).count(), TOP);
        assert_eq!(names.iter().filter(|name| name.contains("before_64")).count(), TOP);
        let text = table_3(std::slice::from_ref(&measured));
        assert!(
            text.contains("\n| 64 | 10 | 0.200 | 0.300 | 1.50 | 0.186 | 0.285 | 1.53 |\n"),
            "{text}"
        );
        assert_eq!(measured.json()["two_barriers_step_us"], 3.0);
        let none = Barriers { one: best_of(vec![]), ..measured };
        assert!(table_3(&[none]).contains("one barrier, 64 x 10, left out: no mapping fits\n"));
    }
}
