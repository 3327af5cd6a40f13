//! The fastest of some kernels of a cell.

use batchmaker_device::DeviceError;

use super::kernel_timer::KernelTimer;
use crate::kernels::persistent::PersistentKernel;

/// The most steps of a launch that is timed.
const STEPS_MAX: usize = 64;

/// The kernel that takes the least time for a step of `rows` rows; none if the GPU runs none of them. Sums of products of x take about `projected_bytes` at
/// most while they are timed.
pub(crate) fn fastest(
    timer: &KernelTimer,
    kernels: impl Iterator<Item = PersistentKernel>,
    rows: usize,
    projected_bytes: usize,
) -> Result<Option<PersistentKernel>, DeviceError> {
    let mut least: Option<(f64, PersistentKernel)> = None;
    for kernel in kernels {
        let gates: usize = kernel.packed_gates().iter().sum();
        let step_bytes = 4 * rows * kernel.hidden_size() * gates;
        let steps = (projected_bytes / step_bytes.max(1)).clamp(2, STEPS_MAX);
        if let Some(us) = timer.step_us(kernel, rows, steps as u32)?
            && least.is_none_or(|(of, _)| us < of)
        {
            least = Some((us, kernel));
        }
    }
    Ok(least.map(|(_, kernel)| kernel))
}
