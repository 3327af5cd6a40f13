//! The functions of `cuda.h`, as far as the launchers of kernels call them.
//!
//! Pointers are those that the documentation of CUDA's driver API asks for; null where a result is to be written is an error of the caller.

mod configuration;
mod devices;
mod memory;
mod modules;
mod streams;

use crate::calls;
use crate::status::Status;

/// Makes a call, and gives the number of its result.
fn status(call: impl FnOnce() -> Result<(), Status>) -> i32 {
    let begun = calls::processor_time();
    let result = call();
    calls::count(calls::processor_time() - begun);
    result.map_or_else(|why| why as i32, |()| Status::Success as i32)
}

/// Writes what a call gives to `to`, if it gives something, and gives the number of its result.
///
/// # Safety
/// `to` has room for it.
unsafe fn give<T>(to: *mut T, call: impl FnOnce() -> Result<T, Status>) -> i32 {
    status(|| {
        let value = call()?;
        // SAFETY: the caller's promise.
        unsafe { to.write(value) };
        Ok(())
    })
}
