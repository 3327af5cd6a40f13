//! What the driver refuses.

use std::ffi::CStr;

use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// An error of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", describe(*.0))]
pub(crate) struct GpuError(DriverError);

impl GpuError {
    /// Whether memory is short: the GPU works on.
    pub(crate) fn is_out_of_memory(self) -> bool {
        self.0.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY
    }
}

impl From<DriverError> for GpuError {
    fn from(error: DriverError) -> Self {
        Self(error)
    }
}

/// The driver's name of an error, and its sentence.
fn describe(error: DriverError) -> String {
    let text = |text: Result<&CStr, DriverError>| {
        text.map_or_else(|_| "unknown".into(), |text| text.to_string_lossy().into_owned())
    };
    let (sentence, name) = (text(error.error_string()), text(error.error_name()));
    if sentence == name { name } else { format!("{sentence} ({name})") }
}
