//! The distance of replies from others to the same requests.

use std::fmt;

use batchmaker_graph::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// The distance of some replies from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The largest difference of two numbers, over the largest finite magnitude of its tensor, at least
    /// 1; [`f64::MAX`] where one of them is not finite and the other is another.
    pub largest: f64,
    /// The mean of these.
    pub mean: f64,
    /// The share of equal elements among those that are no floating-point numbers (ids, texts); 1 where
    /// there are none. A reply of another length counts as one element that differs.
    pub alike: f64,
}

impl Difference {
    /// Whether no number differs by more than `max_error`, and nothing else differs at all.
    pub fn is_within(&self, max_error: f64) -> bool {
        self.largest <= max_error && self.alike == 1.0
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { largest, mean, alike } = self;
        match *largest < f64::MAX {
            true => write!(
                f,
                "replies differ from f32 by {largest:.1e} at most, {mean:.1e} in the mean; "
            )?,
            false => {
                f.write_str("replies are not finite where those in f32 are, or the other way; ")?
            }
        }
        write!(f, "{:.2} % of ids and texts alike", 100.0 * alike)
    }
}

/// Compares replies, request by request and tensor by tensor.
pub fn difference<'a>(pairs: impl IntoIterator<Item = (&'a Tensor, &'a Tensor)>) -> Difference {
    let (mut largest, mut sum, mut count) = (0.0_f64, 0.0, 0.0);
    let (mut alike, mut discrete) = (0.0, 0.0);
    for (expected, actual) in pairs {
        match (expected.data(), actual.data()) {
            (TensorData::F32(a), TensorData::F32(b)) if expected.shape() == actual.shape() => {
                let finite = a.iter().filter(|value| value.is_finite());
                let scale = finite.fold(1.0_f32, |max, value| max.max(value.abs()));
                for (&a, &b) in a.iter().zip(b) {
                    let difference = apart(a.into(), b.into(), scale.into());
                    largest = largest.max(difference);
                    sum += difference;
                    count += 1.0;
                }
            }
            (TensorData::Bytes(a), TensorData::Bytes(b)) if a.len() == b.len() => {
                for (a, b) in a.iter().zip(b) {
                    // The score of a label is a number like others.
                    let is_alike = match (label_and_score(a), label_and_score(b)) {
                        (Some((label, of_a)), Some((other, of_b))) => {
                            let difference = apart(of_a, of_b, 1.0);
                            largest = largest.max(difference);
                            sum += difference;
                            count += 1.0;
                            label == other
                        }
                        _ => a == b,
                    };
                    discrete += 1.0;
                    alike += f64::from(u8::from(is_alike));
                }
            }
            (TensorData::I64(a), TensorData::I64(b)) if a.len() == b.len() => {
                discrete += a.len() as f64;
                alike += a.iter().zip(b).filter(|(a, b)| a == b).count() as f64;
            }
            (expected, actual) => {
                discrete += 1.0;
                alike += f64::from(u8::from(expected == actual));
            }
        }
    }
    let share = |of: f64, all: f64, none: f64| if all > 0.0 { of / all } else { none };
    let sum = sum.min(f64::MAX);
    Difference { largest, mean: share(sum, count, 0.0), alike: share(alike, discrete, 1.0) }
}

/// The difference of two numbers, over `scale`.
fn apart(a: f64, b: f64, scale: f64) -> f64 {
    match a == b || a.is_nan() && b.is_nan() {
        true => 0.0,
        false if a.is_finite() && b.is_finite() => (a - b).abs() / scale,
        false => f64::MAX,
    }
}

/// The parts of `label:score`.
fn label_and_score(text: &[u8]) -> Option<(&str, f64)> {
    let (label, score) = std::str::from_utf8(text).ok()?.rsplit_once(':')?;
    Some((label, score.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_seen() {
        let floats =
            |values: &[f32]| Tensor::new(vec![values.len()], TensorData::F32(values.into()));
        let largest = |expected: &[f32], actual: &[f32]| {
            difference([(&floats(expected), &floats(actual))]).largest
        };
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        assert_eq!(largest(&[nan, inf, -inf], &[-nan, inf, -inf]), 0.0);
        assert_eq!(largest(&[1.0, 2.0], &[nan, 2.0]), f64::MAX, "whatever comes after");
        assert_eq!(largest(&[inf, 1.0], &[-inf, 1.0]), f64::MAX);
        assert_eq!(largest(&[inf, 1.0], &[inf, 1.5]), 0.5, "infinity is no scale");
        let nans = difference([(&floats(&[1.0; 4]), &floats(&[nan; 4]))]);
        assert!(serde_json::to_string(&nans).unwrap().contains("e+308") && nans.mean.is_finite());
    }

    #[test]
    fn numbers_and_ids() {
        let floats =
            |values: &[f32]| Tensor::new(vec![values.len()], TensorData::F32(values.into()));
        let ids = |values: &[i64]| Tensor::new(vec![values.len()], TensorData::I64(values.into()));
        let expected = [floats(&[1.0, -4.0]), ids(&[1, 2]), ids(&[3])];
        let actual = [floats(&[1.5, -4.0]), ids(&[1, 2]), ids(&[3, 4])];
        let found = difference(expected.iter().zip(&actual));
        assert_eq!(found.largest, 0.125);
        assert_eq!(found.mean, 0.0625);
        assert_eq!(found.alike, 2.0 / 3.0, "two ids alike, and a reply of another length");
        let texts = |values: &[&str]| {
            let bytes = values.iter().map(|text| text.as_bytes().to_vec()).collect();
            Tensor::new(vec![values.len()], TensorData::Bytes(bytes))
        };
        let found = difference([(&texts(&["eng:0.75", "a"]), &texts(&["eng:0.5", "b"]))]);
        assert_eq!(found, Difference { largest: 0.25, mean: 0.25, alike: 0.5 });
        let same = difference(expected.iter().zip(&expected));
        assert_eq!(same, Difference { largest: 0.0, mean: 0.0, alike: 1.0 });
    }
}
