//! How a length inside a program grows with the lengths of a request: a rule that is fitted to a few runs.

/// The lengths of a run that were varied, and what was seen with them.
pub(crate) struct Samples<'a> {
    /// The lengths of the first run.
    pub(crate) base: &'a [usize],
    /// For each length, its value in the run that changed it alone.
    pub(crate) changed: &'a [usize],
    /// The lengths of a run that changed all, if one succeeded.
    pub(crate) check: Option<&'a [usize]>,
}

/// The size of a dimension as a function of lengths: an upper bound of it.
#[derive(Clone, Debug)]
pub(crate) enum Growth {
    /// `constant + sum of rate * length`. Windows of a stride are such a rule too, rounded up.
    Linear { constant: f64, rates: Vec<f64> },
    /// `size * product of (length / base) ^ degree`, where no factor is below 1: of steps times steps, or of what no
    /// line goes through.
    Power { size: f64, base: Vec<f64>, degrees: Vec<i32> },
}

/// The highest degree that is looked for.
const DEGREE_MAX: f64 = 4.0;

/// Rates that are left out are zero.
impl PartialEq for Growth {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Linear { constant, rates },
                Self::Linear { constant: other_constant, rates: other_rates },
            ) => {
                let count = rates.len().max(other_rates.len());
                let rate = |rates: &[f64], at: usize| rates.get(at).copied().unwrap_or(0.0);
                constant == other_constant
                    && (0..count).all(|at| rate(rates, at) == rate(other_rates, at))
            }
            (
                Self::Power { size, base, degrees },
                Self::Power { size: other_size, base: other_base, degrees: other_degrees },
            ) => (size, base, degrees) == (other_size, other_base, other_degrees),
            _ => false,
        }
    }
}

impl Growth {
    /// Whether the dimension was 1 at all lengths.
    pub(crate) fn is_one(&self) -> bool {
        match self {
            Self::Linear { constant, rates } => *constant == 1.0 && rates.iter().all(|&r| r == 0.0),
            Self::Power { .. } => false,
        }
    }

    /// Whether the dimension was the same at all lengths.
    pub(crate) fn is_fixed(&self) -> bool {
        match self {
            Self::Linear { rates, .. } => rates.iter().all(|&rate| rate == 0.0),
            Self::Power { .. } => false,
        }
    }

    /// Fits a rule to the size that a dimension had in the first run, in the runs that changed one length each, and
    /// in the run that changed all.
    pub(crate) fn fit(
        samples: &Samples<'_>,
        base: usize,
        changed: &[usize],
        check: Option<usize>,
    ) -> Self {
        let size = base as f64;
        if changed.iter().chain(&check).all(|&other| other == base) {
            return Self::Linear { constant: size, rates: vec![0.0; samples.base.len()] };
        }
        let step = |at: usize| samples.changed[at] as f64 - samples.base[at] as f64;
        let slopes: Vec<f64> =
            changed.iter().enumerate().map(|(at, &n)| (n as f64 - size) / step(at)).collect();
        let from_base = |lengths: &[usize]| -> f64 {
            let lengths = lengths.iter().zip(samples.base).zip(&slopes);
            lengths.map(|((&n, &base), slope)| slope * (n as f64 - base as f64)).sum()
        };
        let is_linear = samples.check.zip(check).is_some_and(|(lengths, seen)| {
            (size + from_base(lengths) - seen as f64).abs() < 1.0 + 1e-6
        });
        if is_linear {
            let is_whole = |slope: f64| slope.fract() == 0.0;
            let rounding = if slopes.iter().copied().all(is_whole) { 0.0 } else { 1.0 };
            let origin = vec![0; samples.base.len()];
            // A slope between whole numbers was seen rounded: it may be steeper by one over the step.
            let rate = |(at, &slope): (usize, &f64)| match is_whole(slope) {
                true => slope.max(0.0),
                false => (slope + 1.0 / step(at).abs()).max(0.0),
            };
            let rates = slopes.iter().enumerate().map(rate).collect();
            return Self::Linear { constant: size + from_base(&origin) + rounding, rates };
        }
        let degree = |(at, &n): (usize, &usize)| {
            let lengths = (samples.changed[at] as f64 / samples.base[at] as f64).ln();
            let sizes = (n.max(1) as f64 / size.max(1.0)).ln();
            (sizes / lengths - 0.25).ceil().clamp(0.0, DEGREE_MAX) as i32
        };
        let degrees: Vec<i32> = changed.iter().enumerate().map(degree).collect();
        // Where only the run that changed all differs, each length may be the reason.
        let degrees =
            if degrees.iter().all(|&n| n == 0) { vec![1; degrees.len()] } else { degrees };
        let size = changed.iter().chain(&check).fold(size, |most, &n| most.max(n as f64));
        let base = samples.base.iter().map(|&n| n as f64).collect();
        Self::Power { size, base, degrees }
    }

    /// The size at `lengths`.
    pub(crate) fn at(&self, lengths: &[f64]) -> f64 {
        match self {
            Self::Linear { constant, rates } => {
                let grown: f64 =
                    rates.iter().zip(lengths).map(|(rate, length)| rate * length).sum();
                (constant + grown).max(0.0)
            }
            Self::Power { size, base, degrees } => {
                let factors = lengths.iter().zip(base).zip(degrees);
                let factor = |((length, base), &degree): ((&f64, &f64), &i32)| {
                    (length / base.max(1.0)).max(1.0).powi(degree)
                };
                size * factors.map(factor).product::<f64>()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_that_are_left_out_are_zero() {
        let linear = |rates: &[f64]| Growth::Linear { constant: 8.0, rates: rates.to_vec() };
        assert_eq!(linear(&[]), linear(&[0.0, 0.0]));
        assert_eq!(linear(&[1.0]), linear(&[1.0, 0.0]));
        assert_ne!(linear(&[]), linear(&[0.0, 1.0]));
    }

    /// Fits `size` to runs of lengths 64, of which one is 40, or all are 48.
    fn fit(lengths: usize, size: impl Fn(&[usize]) -> usize) -> Growth {
        let (base, changed, check) = (vec![64; lengths], vec![40; lengths], vec![48; lengths]);
        let samples = Samples { base: &base, changed: &changed, check: Some(&check) };
        let one = |at: usize| {
            let mut all = base.clone();
            all[at] = 40;
            size(&all)
        };
        let changed: Vec<usize> = (0..lengths).map(one).collect();
        Growth::fit(&samples, size(&base), &changed, Some(size(&check)))
    }

    #[test]
    fn lines_are_exact() {
        let growth = fit(2, |s| 3 * s[0] + s[1] + 5);
        assert_eq!(growth.at(&[1000.0, 7.0]), 3012.0);
        assert_eq!(fit(1, |_| 12).at(&[1e9]), 12.0);
        assert_eq!(fit(0, |_| 12).at(&[]), 12.0);
    }

    #[test]
    fn windows_of_a_stride_are_bounded() {
        for stride in 2..20 {
            for window in 1..30 {
                let windows = |s: &[usize]| (s[0] - window) / stride + 1;
                let growth = fit(1, windows);
                for steps in [30, 64, 511, 4096, 50_000] {
                    let (seen, bound) = (windows(&[steps]) as f64, growth.at(&[steps as f64]));
                    assert!(seen <= bound, "{stride} {window} {steps}: {seen} of {bound}");
                    let slack = steps as f64 / 12.0 + 3.0;
                    assert!(bound <= seen + slack, "{stride} {window} {steps}: {seen} of {bound}");
                }
            }
        }
    }

    #[test]
    fn products_of_lengths_are_bounded() {
        let growth = fit(1, |s| s[0] * s[0]);
        assert_eq!(growth.at(&[640.0]), 640.0 * 640.0);
        let growth = fit(2, |s| 4 * s[0] * s[1]);
        assert_eq!(growth.at(&[640.0, 128.0]), 4.0 * 640.0 * 128.0);
        assert!(fit(1, |s| (s[0] + 3) * s[0]).at(&[6400.0]) >= 6403.0 * 6400.0);
    }

    #[test]
    fn a_length_that_falls_is_bounded_by_its_value_at_no_steps() {
        let growth = fit(1, |s| 100 - s[0]);
        assert_eq!(growth.at(&[10.0]), 100.0);
    }
}
