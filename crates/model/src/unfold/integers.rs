//! Checks of the integers of requests, of which cells take 32 bits.

use batchmaker_graph::{ElementType, InvalidRequest, TensorData};

/// Checks that every integer is below `ids`, if given, and fits 32 bits if `narrow`. The error names the first
/// that does not.
pub(crate) fn check_integers(
    name: &str,
    (ids, narrow): (Option<usize>, bool),
    data: &TensorData,
) -> Result<(), InvalidRequest> {
    let (low, high, what) = match (ids, narrow) {
        (Some(ids), _) => (0, ids as i64, "ids in"),
        (None, true) => (i64::from(i32::MIN), i64::from(i32::MAX) + 1, "integers in"),
        (None, false) => return Ok(()),
    };
    let bad = match data {
        TensorData::I64(data) => data.iter().copied().find(|n| !(low..high).contains(n)),
        TensorData::I32(data) => {
            data.iter().map(|&n| i64::from(n)).find(|n| !(low..high).contains(n))
        }
        _ => None,
    };
    match bad {
        None => Ok(()),
        Some(bad) => {
            let text = format!("tensor `{name}`: expected {what} {low}..{high}, got {bad}");
            Err(InvalidRequest(text))
        }
    }
}

/// Whether integers of the type may exceed 32 bits, which is all that cells take.
pub(crate) fn is_wide(element: ElementType) -> bool {
    element.stored() == ElementType::I64
}
