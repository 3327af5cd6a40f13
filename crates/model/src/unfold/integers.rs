//! Checks of the integers of requests, of which cells take 32 bits.

use std::ops::Range;

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
    first_outside(low..high, data).map_or(Ok(()), |bad| {
        let text = format!("tensor `{name}`: expected {what} {low}..{high}, got {bad}");
        Err(InvalidRequest(text))
    })
}

/// Checks that every integer that a node computes fits 32 bits.
pub(crate) fn check_computed(node: &str, data: &TensorData) -> Result<(), InvalidRequest> {
    let range = i64::from(i32::MIN)..i64::from(i32::MAX) + 1;
    first_outside(range, data).map_or(Ok(()), |bad| {
        Err(InvalidRequest(format!(
            "an integer that node `{node}` computes passes 32 bits, which integers have in programs: {bad}"
        )))
    })
}

/// The first integer that is not in `range`.
fn first_outside(range: Range<i64>, data: &TensorData) -> Option<i64> {
    match data {
        TensorData::I64(data) => data.iter().copied().find(|n| !range.contains(n)),
        TensorData::I32(data) => data.iter().map(|&n| n.into()).find(|n| !range.contains(n)),
        _ => None,
    }
}

/// Whether integers of the type may exceed 32 bits, which is all that cells take.
pub(crate) fn is_wide(element: ElementType) -> bool {
    element.stored() == ElementType::I64
}
