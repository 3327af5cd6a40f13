//! What a test tells the driver, and what it asks.

use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use batchmaker_cuda_emulator::KernelLibrary;

/// The settings of the driver and its devices, and the reports that wait.
#[derive(Debug)]
pub(crate) struct Settings {
    /// GPUs, from when the driver is initialised.
    pub(crate) devices: usize,
    /// Bytes of memory of each.
    pub(crate) memory_bytes: usize,
    /// Multiprocessors of each.
    pub(crate) multiprocessors: u32,
    /// The architecture: 90 for 9.0.
    pub(crate) architecture: u32,
    /// Decides the order of operations and threads.
    pub(crate) seed: u64,
    /// The longest pause before an operation, in microseconds.
    pub(crate) pause_us: u64,
    /// Launches up to the one that fails; 0: none does.
    pub(crate) fail_launch: u64,
    /// The device that is lost from the next operation on.
    pub(crate) lose_device: Option<usize>,
    /// Libraries of kernels.
    pub(crate) kernels: Vec<KernelLibrary>,
    /// The reports that no call has fetched yet.
    pub(crate) reports: Vec<String>,
}

static SETTINGS: Mutex<Settings> = Mutex::new(Settings {
    devices: 1,
    memory_bytes: 256 << 20,
    multiprocessors: 4,
    architecture: 90,
    seed: 1,
    pause_us: 0,
    fail_launch: 0,
    lose_device: None,
    kernels: Vec::new(),
    reports: Vec::new(),
});

pub(crate) fn settings() -> MutexGuard<'static, Settings> {
    SETTINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets one of `devices`, `memory_bytes`, `multiprocessors`, `architecture`, `seed`, `pause_us`, `fail_launch` (the nth launch from now on fails)
/// and `lose_device` (a device's index), or adds a library of kernels (`kernels`, a path). Returns 0, or 1 if it cannot be set.
///
/// # Safety
/// Both are strings that end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulated_cuda_configure(name: *const c_char, value: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    let [name, value] = unsafe { [name, value].map(|of| CStr::from_ptr(of).to_string_lossy()) };
    i32::from(set(&name, &value).is_none())
}

fn set(name: &str, value: &str) -> Option<()> {
    if name == "kernels" {
        let library = KernelLibrary::load(&PathBuf::from(value)).ok()?;
        settings().kernels.push(library);
        return Some(());
    }
    let number: u64 = value.parse().ok()?;
    let settings = &mut *settings();
    match name {
        "devices" => settings.devices = number as usize,
        "memory_bytes" => settings.memory_bytes = number as usize,
        "multiprocessors" => settings.multiprocessors = number as u32,
        "architecture" => settings.architecture = number as u32,
        "seed" => settings.seed = number,
        "pause_us" => settings.pause_us = number,
        "fail_launch" => settings.fail_launch = number,
        "lose_device" => settings.lose_device = Some(number as usize),
        _ => return None,
    }
    Some(())
}

/// Writes what was reported since the last call to `to`, a line each, with a zero at the end; what does not fit `len` bytes is left out.
/// Returns the number of reports.
///
/// # Safety
/// `to` has room for `len` bytes, at least one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn emulated_cuda_reports(to: *mut c_char, len: usize) -> usize {
    let reports = std::mem::take(&mut settings().reports);
    let text = reports.join("\n");
    let text = &text.as_bytes()[..text.len().min(len - 1)];
    // SAFETY: the caller's promise.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    reports.len()
}

/// Keeps a report for whoever asks.
pub(crate) fn report(report: String) {
    settings().reports.push(report);
}
