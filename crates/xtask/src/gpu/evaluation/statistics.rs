//! Statistics of times.

/// The middle of some numbers, or the mean of the two in the middle; none of no numbers.
pub(super) fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    let half = numbers.len() / 2;
    match numbers.len() {
        0 => None,
        len if len % 2 == 1 => Some(numbers[half]),
        _ => Some((numbers[half - 1] + numbers[half]) / 2.0),
    }
}

/// The least of some numbers.
pub(super) fn least(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    numbers.into_iter().reduce(f64::min)
}

/// The mean of some numbers; none of no numbers.
pub(super) fn mean(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let numbers: Vec<f64> = numbers.into_iter().collect();
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// The geometric mean of some ratios; none of no ratios.
pub(super) fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    mean(ratios.into_iter().map(f64::ln)).map(f64::exp)
}

/// Spearman's correlation of pairs: 1 where both have the same order, -1 where the orders are opposite. None of fewer than three pairs, or where all of a side
/// are equal.
pub(super) fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let [a, b] = [ranks(pairs.iter().map(|pair| pair.0)), ranks(pairs.iter().map(|pair| pair.1))];
    let middle = (pairs.len() + 1) as f64 / 2.0;
    let product = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - middle) * (b - middle)).sum()
    };
    let spread = (product(&a, &a) * product(&b, &b)).sqrt();
    (spread > 0.0).then(|| product(&a, &b) / spread)
}

/// The rank of each number, from 1; equal ones share the mean of their ranks.
fn ranks(numbers: impl Iterator<Item = f64>) -> Vec<f64> {
    let numbers: Vec<f64> = numbers.collect();
    let rank = |of: &f64| {
        let below = numbers.iter().filter(|number| *number < of).count();
        let equal = numbers.iter().filter(|number| *number == of).count();
        below as f64 + (equal + 1) as f64 / 2.0
    };
    numbers.iter().map(rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_means() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(
            (median(vec![]), least([]), mean([]), geometric_mean([])),
            (None, None, None, None)
        );
        assert_eq!(least([3.0, 1.0, 2.0]), Some(1.0));
        assert!((geometric_mean([2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
    }

    #[test]
    fn correlation_is_of_orders() {
        let correlation = |b: [f64; 4]| {
            let pairs: Vec<_> = [1.0, 2.0, 3.0, 4.0].into_iter().zip(b).collect();
            rank_correlation(&pairs)
        };
        assert_eq!(correlation([10.0, 20.0, 30.0, 1e6]), Some(1.0));
        assert_eq!(correlation([4.0, 3.0, 2.0, 1.0]), Some(-1.0));
        assert_eq!(correlation([1.0, 1.0, 1.0, 1.0]), None);
        // Ranks 1, 2.5, 2.5, 4: by hand, 4.5 / sqrt(5 * 4.5).
        let tied = correlation([1.0, 2.0, 2.0, 3.0]).unwrap();
        assert!((tied - 4.5 / (5.0_f64 * 4.5).sqrt()).abs() < 1e-12);
        assert_eq!(rank_correlation(&[(1.0, 1.0), (2.0, 2.0)]), None);
    }
}
