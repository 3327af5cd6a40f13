//! The results of the driver's functions (`CUresult`).

/// A result: its number and name in `cuda.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Status {
    Success = 0,
    InvalidValue = 1,
    OutOfMemory = 2,
    NotInitialized = 3,
    NoDevice = 100,
    InvalidDevice = 101,
    InvalidImage = 200,
    InvalidContext = 201,
    InvalidHandle = 400,
    NotFound = 500,
    NotReady = 600,
    IllegalAddress = 700,
    LaunchOutOfResources = 701,
    LaunchFailed = 719,
    CooperativeLaunchTooLarge = 720,
    NotSupported = 801,
    DeviceUnavailable = 46,
}

impl Status {
    const ALL: [(Self, &'static std::ffi::CStr); 17] = [
        (Self::Success, c"CUDA_SUCCESS"),
        (Self::InvalidValue, c"CUDA_ERROR_INVALID_VALUE"),
        (Self::OutOfMemory, c"CUDA_ERROR_OUT_OF_MEMORY"),
        (Self::NotInitialized, c"CUDA_ERROR_NOT_INITIALIZED"),
        (Self::NoDevice, c"CUDA_ERROR_NO_DEVICE"),
        (Self::InvalidDevice, c"CUDA_ERROR_INVALID_DEVICE"),
        (Self::InvalidImage, c"CUDA_ERROR_INVALID_IMAGE"),
        (Self::InvalidContext, c"CUDA_ERROR_INVALID_CONTEXT"),
        (Self::InvalidHandle, c"CUDA_ERROR_INVALID_HANDLE"),
        (Self::NotFound, c"CUDA_ERROR_NOT_FOUND"),
        (Self::NotReady, c"CUDA_ERROR_NOT_READY"),
        (Self::IllegalAddress, c"CUDA_ERROR_ILLEGAL_ADDRESS"),
        (Self::LaunchOutOfResources, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
        (Self::LaunchFailed, c"CUDA_ERROR_LAUNCH_FAILED"),
        (Self::CooperativeLaunchTooLarge, c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"),
        (Self::NotSupported, c"CUDA_ERROR_NOT_SUPPORTED"),
        (Self::DeviceUnavailable, c"CUDA_ERROR_DEVICE_UNAVAILABLE"),
    ];

    /// The name of a number, if it is one of these.
    pub(crate) fn name(number: i32) -> Option<&'static std::ffi::CStr> {
        Self::ALL.iter().find(|(status, _)| *status as i32 == number).map(|(_, name)| *name)
    }
}
