//! The functions of NVIDIA's driver that are called here. Calls find them by their names, and end the program where there is none: a driver that lacks
//! one is refused before.

use cudarc::driver::sys;

/// The functions.
pub(crate) const FUNCTIONS: [&str; 47] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphAddKernelNode_v2",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchCooperativeKernel",
    "cuLaunchHostFunc",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyPeerAsync",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamQuery",
    "cuStreamSynchronize",
];

/// The first function that the driver lacks. There is a driver.
pub(super) fn missing() -> Option<&'static str> {
    // SAFETY: the library is that of the driver, which may be loaded at any time; nothing is called.
    let is_there =
        |name: &str| unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.as_bytes()).is_ok() };
    FUNCTIONS.into_iter().find(|name| !is_there(name))
}
