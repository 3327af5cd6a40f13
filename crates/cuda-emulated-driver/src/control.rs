//! The settings that a test makes, and the reports that wait for it.

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
    /// The device that is lost.
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

/// Sets what a name says; none if the driver does not know it, or its value.
pub(crate) fn set(name: &str, value: &str) -> Option<()> {
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

/// Keeps a report for whoever asks.
pub(crate) fn report(report: String) {
    settings().reports.push(report);
}

/// The reports that no call has fetched yet.
pub(crate) fn take_reports() -> Vec<String> {
    std::mem::take(&mut settings().reports)
}
