//! One step over dense slices, in the calling thread: for tests and benchmarks.

use super::recurrence::{Recurrence, StepRow, XPart};
use crate::error::KernelError;
use crate::packing::checks::check_len;

/// One step over dense slices, in this thread: for tests and benchmarks.
///
/// `x` is `[batch, input]`; `h` before and `h_out` after the step are `[batch, hidden]`; `c`,
/// updated in place, is `[batch, c_len]`.
///
/// # Errors
/// [`KernelError::Length`] for a slice of another length.
pub fn step_dense(
    cell: &dyn Recurrence,
    batch: usize,
    x: &[f32],
    h: &[f32],
    h_out: &mut [f32],
    c: &mut [f32],
) -> Result<(), KernelError> {
    let (input_size, hidden_size) = (cell.input_size(), cell.hidden_size());
    let len = |size: usize| {
        size.checked_mul(batch).ok_or(KernelError::TooLarge { input_size, hidden_size, batch })
    };
    let (x_len, h_len, c_len) = (len(input_size)?, len(hidden_size)?, len(cell.c_len())?);
    check_len("x", x, x_len)?;
    check_len("h", h, h_len)?;
    check_len("h_out", h_out, h_len)?;
    check_len("c", c, c_len)?;
    let (x, h) = (x.as_ptr(), h.as_ptr());
    let (h_out, c) = (h_out.as_mut_ptr(), c.as_mut_ptr());
    let row = |row: usize| {
        let (at_x, at_h) = (row * input_size, row * hidden_size);
        // SAFETY: `row < batch`, and the slices have `batch` rows.
        unsafe {
            StepRow {
                x: x.add(at_x),
                x_part: XPart::Given,
                h_in: h.add(at_h),
                h_out: h_out.add(at_h),
                c: c.add(row * cell.c_len()),
                y: std::ptr::null_mut(),
            }
        }
    };
    let rows: Vec<StepRow> = (0..batch).map(row).collect();
    for phase in 0..cell.phases() {
        // SAFETY: the slices have `batch` rows of the sizes that a step reads and writes; the
        // borrows keep others away, and rows of one slice do not overlap.
        unsafe { cell.step(phase, &rows, 0..cell.panels(phase)) };
    }
    Ok(())
}
