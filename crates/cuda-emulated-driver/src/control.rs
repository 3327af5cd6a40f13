//! The settings that a test makes, by calls or by the environment, and the reports that wait for it.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use batchmaker_cuda_emulator::KernelLibrary;

/// The variable of the environment that has settings: `devices=2;kernels=/a/rows.so`.
const SETTINGS_VARIABLE: &str = "EMULATED_CUDA";

/// That of a file to which reports are appended as they come. It is made when the settings are first used: if it is there, a program has used the
/// driver.
const REPORTS_VARIABLE: &str = "EMULATED_CUDA_REPORTS";

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
    /// Launches, and nodes of graphs, that run up to the one that fails; 0: none does.
    pub(crate) fail_launch: u64,
    /// Allocations of devices' memory up to the one that finds none; 0: all find some.
    pub(crate) fail_allocation: u64,
    /// Allocations of devices' memory up to the first that finds none, and with it all later ones; 0: all find some.
    pub(crate) full_from: u64,
    /// The device that is lost.
    pub(crate) lose_device: Option<usize>,
    /// The one kernel that launches run; none: all.
    pub(crate) runs_only: Vec<String>,
    /// Libraries of kernels.
    pub(crate) kernels: Vec<KernelLibrary>,
    /// The reports that no call has fetched yet.
    pub(crate) reports: Vec<String>,
    /// The file to which they are appended too.
    report_file: Option<File>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: 1,
            memory_bytes: 256 << 20,
            multiprocessors: 4,
            architecture: 90,
            seed: 1,
            pause_us: 0,
            fail_launch: 0,
            fail_allocation: 0,
            full_from: 0,
            lose_device: None,
            runs_only: Vec::new(),
            kernels: Vec::new(),
            reports: Vec::new(),
            report_file: None,
        }
    }
}

impl Settings {
    /// Those of the environment.
    ///
    /// # Panics
    /// If they cannot be set: a test that goes on would test something else.
    fn of_environment() -> Self {
        let mut settings = Self::default();
        let texts = std::env::var(SETTINGS_VARIABLE).unwrap_or_default();
        for text in texts.split(';').filter(|text| !text.is_empty()) {
            let is_set = text.split_once('=').and_then(|(name, value)| settings.set(name, value));
            assert!(is_set.is_some(), "{SETTINGS_VARIABLE}: '{text}' cannot be set");
        }
        settings.report_file = std::env::var_os(REPORTS_VARIABLE).map(|path| {
            let file = File::options().create(true).append(true).open(&path);
            file.unwrap_or_else(|error| panic!("{REPORTS_VARIABLE}: {}: {error}", path.display()))
        });
        settings
    }

    /// Sets what a name says; none if the driver does not know it, or its value.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        if name == "kernels" {
            self.kernels.push(KernelLibrary::load(&PathBuf::from(value)).ok()?);
            return Some(());
        }
        if name == "runs_only" {
            self.runs_only.push(value.to_owned());
            return Some(());
        }
        let number: u64 = value.parse().ok()?;
        match name {
            "devices" => self.devices = number as usize,
            "memory_bytes" => self.memory_bytes = number as usize,
            "multiprocessors" => self.multiprocessors = number as u32,
            "architecture" => self.architecture = number as u32,
            "seed" => self.seed = number,
            "pause_us" => self.pause_us = number,
            "fail_launch" => self.fail_launch = number,
            "fail_allocation" => self.fail_allocation = number,
            "full_from" => self.full_from = number,
            "lose_device" => self.lose_device = Some(number as usize),
            _ => return None,
        }
        Some(())
    }
}

static SETTINGS: LazyLock<Mutex<Settings>> =
    LazyLock::new(|| Mutex::new(Settings::of_environment()));

pub(crate) fn settings() -> MutexGuard<'static, Settings> {
    SETTINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets what a name says; none if the driver does not know it, or its value.
pub(crate) fn set(name: &str, value: &str) -> Option<()> {
    settings().set(name, value)
}

/// Counts down to something that is to fail. Whether it is this one.
pub(crate) fn is_to_fail(left: &mut u64) -> bool {
    let fails = *left == 1;
    *left = left.saturating_sub(1);
    fails
}

/// Whether an allocation is to find no memory.
pub(crate) fn is_full() -> bool {
    let settings = &mut *settings();
    let is_full = settings.full_from == 1;
    settings.full_from -= u64::from(settings.full_from > 1);
    is_to_fail(&mut settings.fail_allocation) || is_full
}

/// Keeps a report for whoever asks.
pub(crate) fn report(report: String) {
    let settings = &mut *settings();
    if let Some(file) = &mut settings.report_file {
        // In one piece: other processes may append to the file.
        if let Err(error) = file.write_all(format!("{report}\n").as_bytes()) {
            eprintln!("{REPORTS_VARIABLE}: {error}: {report}");
            std::process::abort();
        }
    }
    settings.reports.push(report);
}

/// The reports that no call has fetched yet.
pub(crate) fn take_reports() -> Vec<String> {
    std::mem::take(&mut settings().reports)
}
