//! Checks of sizes and slices, before a kernel is built or run.

use std::ops::Range;

use super::target::Target;
use crate::error::KernelError;

/// Refuses sizes whose packed weights would not fit an address space: `columns` by
/// `inputs + 2` (the bias, and one for rounding up), with units rounded up to whole panels.
pub(crate) fn check_sizes(
    target: Target,
    gates: usize,
    units: usize,
    inputs: &[usize],
) -> Result<(), KernelError> {
    if units == 0 {
        return Err(KernelError::NoHiddenUnits);
    }
    // A panel has at most 4 groups of 16 lanes.
    let bytes = units.checked_next_multiple_of(64).and_then(|units| {
        let rows = inputs.iter().try_fold(2_usize, |sum, &inputs| sum.checked_add(inputs))?;
        units.checked_mul(gates)?.checked_mul(rows)?.checked_mul(size_of::<f32>())
    });
    let longest = inputs.iter().copied().max().unwrap_or(0);
    if longest > target.inputs_max() {
        return Err(KernelError::Int8Inputs { inputs: longest, most: target.inputs_max() });
    }
    match bytes {
        Some(bytes) if bytes <= isize::MAX as usize / 2 => Ok(()),
        _ => Err(KernelError::TooLarge { input_size: longest, hidden_size: units, batch: 1 }),
    }
}

/// Refuses a slice of another length.
pub(crate) fn check_len(
    tensor: &'static str,
    slice: &[f32],
    expected: usize,
) -> Result<(), KernelError> {
    if slice.len() == expected {
        Ok(())
    } else {
        Err(KernelError::Length { tensor, expected, actual: slice.len() })
    }
}

/// Asserts that `panels` lie within `count`.
pub(crate) fn check_panels(panels: &Range<usize>, count: usize) {
    assert!(panels.start <= panels.end && panels.end <= count, "panels {panels:?} of {count}");
}
