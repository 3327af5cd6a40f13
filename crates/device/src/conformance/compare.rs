//! Comparisons: closeness to the reference, and equal bits.

use batchmaker_graph::TensorData;

use crate::conformance::case::{Check, ensure};
use crate::reference::Row;

/// The tolerance of floats: `|a - b| <= TOLERANCE * max(1, |b|)`, where `b` is the reference.
pub(super) const TOLERANCE: f64 = 1e-5;

/// Checks elements against the reference: floats within a tolerance, integers exactly.
pub(super) fn close(what: &str, actual: &TensorData, expected: &Row, tolerance: f64) -> Check {
    let actual = Row::of(actual, 0..actual.len());
    match (&actual, expected) {
        (Row::Float(actual), Row::Float(expected)) => {
            let (there, wanted) = (actual.len(), expected.len());
            ensure!(there == wanted, "{what} has {there} elements, not {wanted}");
            for (at, (&a, &b)) in actual.iter().zip(expected).enumerate() {
                let is_close = (a - b).abs() <= tolerance * b.abs().max(1.0);
                ensure!(is_close, "{what}, element {at}: {a} is not {b}");
            }
        }
        (Row::Int(actual), Row::Int(expected)) => {
            ensure!(actual == expected, "{what}: {actual:?} is not {expected:?}");
        }
        _ => return Err(format!("{what}: of another type than it should be")),
    }
    Ok(())
}

/// Checks that two lists of tensors have the same bits.
pub(super) fn same_bits(what: &str, actual: &[TensorData], expected: &[TensorData]) -> Check {
    let (there, wanted) = (actual.len(), expected.len());
    ensure!(there == wanted, "{what}: {there} tensors, not {wanted}");
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        ensure!(are_same(actual, expected), "{what}: tensor {at}: {actual:?} is not {expected:?}");
    }
    Ok(())
}

fn are_same(a: &TensorData, b: &TensorData) -> bool {
    match (a, b) {
        (TensorData::F32(a), TensorData::F32(b)) => {
            let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            bits(a) == bits(b)
        }
        _ => a == b,
    }
}
