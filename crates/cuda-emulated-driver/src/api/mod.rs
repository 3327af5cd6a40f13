//! The functions of `cuda.h`, as far as the launchers of kernels call them.
//!
//! Pointers are those that the documentation of CUDA's driver API asks for; null where a result is to be written is an error of the caller.

mod configuration;
mod devices;
mod graphs;
mod memory;
mod modules;
mod streams;

use crate::calls;
use crate::status::Status;

/// Makes the call of the function whose closure this is, and gives the number of its result.
fn status<C: FnOnce() -> Result<(), Status>>(call: C) -> i32 {
    counted::<C, _>(call).map_or_else(|why| why as i32, |()| Status::Success as i32)
}

/// Makes a call, and counts it as one of the function whose closure `C` is.
fn counted<C, T>(call: impl FnOnce() -> T) -> T {
    let begun = calls::processor_time();
    let result = call();
    // `emulated_cuda::api::memory::cuMemFree_v2::{{closure}}`
    let name = std::any::type_name::<C>().rsplit("::").nth(1);
    calls::count(name.unwrap_or_default(), calls::processor_time() - begun);
    result
}

/// Writes what a call gives to `to`, if it gives something, and gives the number of its result.
///
/// # Safety
/// `to` has room for it.
unsafe fn give<T, C: FnOnce() -> Result<T, Status>>(to: *mut T, call: C) -> i32 {
    match counted::<C, _>(call) {
        Ok(value) => {
            // SAFETY: the caller's promise.
            unsafe { to.write(value) };
            Status::Success as i32
        }
        Err(why) => why as i32,
    }
}
