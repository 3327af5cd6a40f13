//! What a test tells the driver, and what it asks: functions that NVIDIA's driver does not have.

use std::ffi::{CStr, c_char};

use crate::calls;
use crate::control::{set, take_reports};
use crate::driver::lose_device;

/// Sets one of `devices`, `memory_bytes`, `multiprocessors`, `architecture`, `seed`, `pause_us`, `fail_launch` (the nth launch from now on fails; each
/// node of a graph that runs is one), `fail_allocation` (the nth allocation of a device's memory from now on finds none), `full_from` (from the nth on
/// all find none), `lose_device` (the device of an index is lost at once), or adds a library of kernels (`kernels`, a path) or, once there is one, others
/// that launches run (`runs_only`, what the names of these kernels begin with). Returns 0, or 1 if it cannot be set.
///
/// # Safety
/// Both are strings that end with a zero.
#[unsafe(no_mangle)]
unsafe extern "C" fn emulated_cuda_configure(name: *const c_char, value: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    let [name, value] = unsafe { [name, value].map(|of| CStr::from_ptr(of).to_string_lossy()) };
    let is_set = set(&name, &value).is_some();
    lose_device();
    i32::from(!is_set)
}

/// Writes what was reported since the last call to `to`, a line each, with a zero at the end; what does not fit `len` bytes is left out.
/// Returns the number of reports.
///
/// # Safety
/// `to` has room for `len` bytes, at least one.
#[unsafe(no_mangle)]
unsafe extern "C" fn emulated_cuda_reports(to: *mut c_char, len: usize) -> usize {
    let reports = take_reports();
    // SAFETY: the caller's promise.
    unsafe { write_text(&reports.join("\n"), to, len) };
    reports.len()
}

/// Writes what each thread has asked of the driver to `to`, with a zero at the end: lines of the thread's name, what is counted, and the number, with
/// tabs between them. Names of functions count calls, `nanoseconds` their time of a processor, and other lines operations of that description: `a graph`
/// launches of graphs, `a launch of K` those of a kernel, and `a launch of K by a graph` nodes with it of the graphs that were launched. Returns the bytes
/// of the text; what does not fit `len` bytes is left out.
///
/// # Safety
/// `to` has room for `len` bytes, at least one.
#[unsafe(no_mangle)]
unsafe extern "C" fn emulated_cuda_calls(to: *mut c_char, len: usize) -> usize {
    let text = calls::text();
    // SAFETY: the caller's promise.
    unsafe { write_text(&text, to, len) };
    text.len()
}

/// Writes a text and a zero, or what of it fits.
///
/// # Safety
/// `to` has room for `len` bytes, at least one.
unsafe fn write_text(text: &str, to: *mut c_char, len: usize) {
    let text = &text.as_bytes()[..text.len().min(len - 1)];
    // SAFETY: the caller's promise.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
}
