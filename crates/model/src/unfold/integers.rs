//! Integers of requests that cells can take.

use batchmaker_graph::{ElementType, InvalidRequest, TensorData};

/// Whether every integer is one that a cell can take; otherwise the first that is not.
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

/// The integers of cells have 32 bits.
pub(crate) fn is_wide(element: ElementType) -> bool {
    element == ElementType::I64
}
