//! Checks of the integers of requests, of which cells take 32 bits.

use batchmaker_graph::{ElementType, InvalidRequest, TensorData};

/// Checks that every integer is below `ids`, if given, or fits `bits`, if given. The error names the first that
/// does not.
pub(crate) fn check_integers(
    name: &str,
    (ids, bits): (Option<usize>, Option<u32>),
    data: &TensorData,
) -> Result<(), InvalidRequest> {
    let (low, high, what) = match (ids, bits) {
        (Some(ids), _) => (0, ids as i64, "ids in"),
        (None, Some(bits)) => (-(1 << (bits - 1)), 1 << (bits - 1), "integers in"),
        (None, None) => return Ok(()),
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
