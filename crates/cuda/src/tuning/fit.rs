//! The constants of the cost model that follow from times of micro-benchmarks (GRNN, section 7.1.3).
//!
//! Where a GPU is not full, a time grows by a factor: of the warps of a scheduler, of what a thread has at once. Where it is full, the time is in proportion to
//! both together. Each factor and each slope is a regression over logarithms of times, and the point between is the one with the least error.

use crate::mapping::CostModel;

/// The time of some work where each scheduler has `warps` warps, and each thread `each` gate rows or sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) warps: usize,
    pub(super) each: usize,
    pub(super) us: f64,
}

impl Sample {
    /// Gate rows or sums of a scheduler, for one of its lanes.
    fn load(&self) -> f64 {
        (self.warps * self.each) as f64
    }
}

/// Times of micro-benchmarks.
#[derive(Clone, Debug)]
pub(super) struct Times {
    /// Of a multiply-add for each gate row. The first is that of one warp and one gate row.
    pub(super) products: Vec<Sample>,
    /// Of a shuffle of each sum.
    pub(super) shuffles: Vec<Sample>,
    /// Of a byte from the L2 cache, for a multiprocessor.
    pub(super) byte_us: f64,
}

/// The least factor of the time of a shuffle for each sum more: the power that follows from it is finite.
const SUMS_GROWTH_MIN: f64 = 1.001;

/// The least power of that factor.
const POWER_MIN: f64 = 0.01;

/// The constants of a GPU of so many multiprocessors. Its schedulers, and the lanes up to which a reduction takes one more shuffle, are those of the paper's GPU.
pub(super) fn fit(times: &Times, multiprocessors: usize) -> CostModel {
    let alone_us = times.products[0].us;
    let products = fit_products(&times.products);
    let shuffles = fit_shuffles(&times.shuffles);
    CostModel {
        multiprocessors: multiprocessors as f64,
        l2_bytes: alone_us / times.byte_us,
        warps_growth: products.warps_growth,
        part_growth: products.part_growth,
        full: products.full,
        full_factor: products.full_factor,
        shuffle: shuffles.us / alone_us,
        sums_growth: shuffles.growth,
        full_sums: shuffles.full,
        full_sums_power: shuffles.power,
        ..CostModel::TITAN_V
    }
}

struct Products {
    warps_growth: f64,
    part_growth: f64,
    full: f64,
    full_factor: f64,
}

/// Fits equation 12: up to `full` the time is `warps_growth^log2(warps) part_growth^log2(each)` times that of the first sample; above, in proportion.
fn fit_products(samples: &[Sample]) -> Products {
    let first = samples[0].us.ln();
    let fit = |full: f64| {
        let (below, above): (Vec<&Sample>, Vec<_>) =
            samples.iter().partition(|of| of.load() <= full);
        // Those of one warp, or of one gate row: what both give together is their product.
        let growth = |of: fn(&Sample) -> [usize; 2]| {
            let alone = below.iter().filter(|sample| of(sample)[1] == 1);
            slope(alone.map(|sample| ((of(sample)[0] as f64).log2(), sample.us.ln() - first)))
        };
        let warps = growth(|of| [of.warps, of.each])?;
        let part = growth(|of| [of.each, of.warps])?;
        let factor = mean(above.iter().map(|of| of.us.ln() - first - (of.load() / full).ln()))?;
        let error_below = below.iter().map(|of| {
            let expected = warps * (of.warps as f64).log2() + part * (of.each as f64).log2();
            of.us.ln() - first - expected
        });
        let error_above =
            above.iter().map(|of| of.us.ln() - first - factor - (of.load() / full).ln());
        let error: f64 = error_below.chain(error_above).map(|of| of * of).sum();
        let [warps_growth, part_growth, full_factor] = [warps, part, factor].map(f64::exp);
        Some((error, Products { warps_growth, part_growth, full, full_factor }))
    };
    let points = loads(samples).into_iter().filter_map(fit);
    least(points).expect("samples on both sides of a point")
}

struct Shuffles {
    /// Microseconds of a shuffle, as no sum takes part.
    us: f64,
    growth: f64,
    full: f64,
    power: f64,
}

/// Fits equation 14: below `full` sums the time is `us growth^sums`; from there on `us growth^power sums / full`.
fn fit_shuffles(samples: &[Sample]) -> Shuffles {
    let fit = |full: f64| {
        let (below, above): (Vec<&Sample>, Vec<_>) =
            samples.iter().partition(|of| of.load() < full);
        let slope = slope_and_start(below.iter().map(|of| (of.load(), of.us.ln())))?;
        let growth = slope.0.max(SUMS_GROWTH_MIN.ln());
        let start = mean(below.iter().map(|of| of.us.ln() - growth * of.load()))?;
        let of_sum = mean(above.iter().map(|of| of.us.ln() - of.load().ln()))?;
        let error_below = below.iter().map(|of| of.us.ln() - start - growth * of.load());
        let error_above = above.iter().map(|of| of.us.ln() - of_sum - of.load().ln());
        let error: f64 = error_below.chain(error_above).map(|of| of * of).sum();
        // Where shuffles of many sums overlap so much that the line begins below `start`, the point moves to where it meets it.
        let power = ((of_sum + full.ln() - start) / growth).max(POWER_MIN);
        let full = (start + power * growth - of_sum).exp();
        Some((error, Shuffles { us: start.exp(), growth: growth.exp(), full, power }))
    };
    let points = loads(samples).into_iter().filter_map(fit);
    least(points).expect("samples on both sides of a point")
}

/// The loads of samples, ascending.
fn loads(samples: &[Sample]) -> Vec<f64> {
    let mut loads: Vec<f64> = samples.iter().map(Sample::load).collect();
    loads.sort_unstable_by(f64::total_cmp);
    loads.dedup();
    loads
}

/// What has the least error.
fn least<T>(of: impl Iterator<Item = (f64, T)>) -> Option<T> {
    of.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, best)| best)
}

fn mean(of: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let count = of.clone().count();
    (count > 0).then(|| of.sum::<f64>() / count as f64)
}

/// The slope of the line through the origin that is nearest to some points; none if all are there.
fn slope(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<f64> {
    let squares: f64 = points.clone().map(|(x, _)| x * x).sum();
    (squares > 0.0).then(|| points.map(|(x, y)| x * y).sum::<f64>() / squares)
}

/// The slope and the start of the line that is nearest to some points; none if they have one x.
fn slope_and_start(points: impl Iterator<Item = (f64, f64)> + Clone) -> Option<(f64, f64)> {
    let x = mean(points.clone().map(|of| of.0))?;
    let y = mean(points.clone().map(|of| of.1))?;
    let slope = slope(points.map(|of| (of.0 - x, of.1 - y)))?;
    Some((slope, y - slope * x))
}

#[cfg(test)]
mod tests {
    use super::super::benchmarks::{PRODUCTS, SHUFFLES};
    use super::*;
    use crate::mapping::{Mapping, Problem};

    /// Microseconds of a multiply-add alone, in the tables.
    const ALONE_US: f64 = 0.003;

    /// The times that a model gives: those of its costs, and `noise(n)` times as long for the nth.
    fn times(model: &CostModel, noise: impl Fn(usize) -> f64) -> Times {
        // A tile of one row; a unit of h for each lane, so that a thread has one multiply-add for each gate row.
        let mapping = |warps: usize, each: usize, lanes: usize| {
            let groups = 32 * model.schedulers * warps / lanes;
            let mapping = Mapping { tile_width: groups * each, tile_height: 1, groups, lanes };
            (Problem { hidden: lanes, gates: 1, rows: 1 }, mapping)
        };
        let sample = |(at, (warps, each)): (usize, (usize, usize)),
                      cost: &dyn Fn(usize, usize) -> f64| {
            Sample { warps, each, us: ALONE_US * cost(warps, each) * noise(at) }
        };
        let of_products = |warps, each| {
            let (problem, mapping) = mapping(warps, each, 32);
            model.cost(problem, mapping).products
        };
        // A group of 32 lanes has five shuffles.
        let of_shuffles = |warps, each| {
            let (problem, mapping) = mapping(warps, each, 32);
            model.cost(problem, mapping).reduction / 5.0
        };
        let all = |of: &[(usize, usize)], cost: &dyn Fn(usize, usize) -> f64| {
            of.iter().copied().enumerate().map(|of| sample(of, cost)).collect()
        };
        Times {
            products: all(&PRODUCTS.pairs(), &of_products),
            shuffles: all(&SHUFFLES.pairs(), &of_shuffles),
            byte_us: ALONE_US / model.l2_bytes,
        }
    }

    fn numbers(of: &CostModel) -> [f64; 11] {
        [
            of.multiprocessors,
            of.l2_bytes,
            of.schedulers as f64,
            of.warps_growth,
            of.part_growth,
            of.full,
            of.full_factor,
            of.shuffle,
            of.sums_growth,
            of.full_sums,
            of.full_sums_power,
        ]
    }

    #[test]
    fn the_constants_of_a_model_follow_from_its_times() {
        let other = CostModel {
            l2_bytes: 100.0,
            warps_growth: 1.2,
            part_growth: 1.5,
            full: 4.0,
            full_factor: 3.0,
            shuffle: 5.0,
            sums_growth: 1.08,
            full_sums: 6.0,
            full_sums_power: 5.0,
            ..CostModel::TITAN_V
        };
        for model in [CostModel::TITAN_V, other] {
            let fitted = fit(&times(&model, |_| 1.0), 80);
            for (fitted, right) in numbers(&fitted).into_iter().zip(numbers(&model)) {
                assert!((fitted / right - 1.0).abs() < 0.01, "{fitted}, not {right}");
            }
        }
    }

    #[test]
    fn times_that_are_off_by_a_percent_change_constants_by_few() {
        let noise = |at: usize| 1.0 + ((at * 7919 % 21) as f64 - 10.0) / 1000.0;
        let fitted = fit(&times(&CostModel::TITAN_V, noise), 80);
        // The power is that of a number near 1, so that it varies most.
        let [fitted, right] = [&fitted, &CostModel::TITAN_V].map(numbers);
        for (at, (fitted, right)) in fitted.into_iter().zip(right).enumerate() {
            let most = if at == 10 { 0.25 } else { 0.05 };
            assert!((fitted / right - 1.0).abs() < most, "{at}: {fitted}, not {right}");
        }
    }

    #[test]
    fn constants_are_positive_whatever_the_times() {
        let noise: [fn(usize) -> f64; 3] = [
            |at| 1.0 / (1.0 + at as f64),
            |at| ((at * 7919) % 13 + 1) as f64,
            |at| if at % 2 == 0 { 1e-6 } else { 1e3 },
        ];
        for noise in noise {
            let fitted = fit(&times(&CostModel::TITAN_V, noise), 4);
            let are_right = numbers(&fitted).iter().all(|of| of.is_finite() && *of > 0.0);
            assert!(are_right, "{fitted:?}");
        }
    }
}
