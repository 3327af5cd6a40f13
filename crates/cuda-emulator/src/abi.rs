//! What a library of kernels and the emulator know of each other: the structures of `include/emulated_cuda.h`.

use std::ffi::{c_char, c_void};

/// What the emulator does for a kernel: `emulated_calls` of the header.
#[repr(C)]
pub(crate) struct Calls {
    pub(crate) access: unsafe extern "C" fn(*mut u8, usize, u32, *const c_void),
    pub(crate) volatile_access: unsafe extern "C" fn(*mut u8, usize, u32, *const c_void),
    pub(crate) read_only: unsafe extern "C" fn(*const u8, usize, *const c_void),
    pub(crate) misaligned: unsafe extern "C" fn(*const u8, usize, *const c_char, *const c_void),
    pub(crate) position: unsafe extern "C" fn(u32) -> Dim3,
    pub(crate) sync_threads: unsafe extern "C" fn(*const c_char, u32, *const c_void),
    pub(crate) fence: unsafe extern "C" fn(u32),
    pub(crate) atomic:
        unsafe extern "C" fn(u32, u32, u32, *mut u8, u32, u64, u64, *const c_void) -> u64,
    pub(crate) warp: unsafe extern "C" fn(u32, u32, u32, u32, u32, *const c_void) -> u32,
    pub(crate) shared: unsafe extern "C" fn(*const c_void, usize, *const c_char) -> *mut u8,
    pub(crate) pause: unsafe extern "C" fn(),
}

/// Three extents or a position.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dim3 {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

/// `emulated_kernel` of the header.
#[repr(C)]
pub(crate) struct RawKernel {
    pub(crate) name: *const c_char,
    pub(crate) call: unsafe extern "C" fn(*mut *mut c_void),
    pub(crate) parameter_bytes: *const usize,
    pub(crate) parameters: usize,
}
