//! Runs a launch: its threads as fibers, in an order drawn from a seed.

mod accesses;
mod calls;
mod fiber;
mod host;
mod launch;
mod meetings;
mod observer;
mod random;
mod reports;
mod scheduler;
mod threads;
mod warp;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use self::calls::CALLS;
pub use self::launch::{Launch, Outcome, Schedule};
pub use self::observer::{Observer, Unobserved};
use self::scheduler::Execution;
use crate::detector::{History, Sequential};
use crate::memory::Memory;
use crate::report::{Fault, Report};

/// The most threads that are resident.
pub const THREADS_MAX: usize = 4096;

/// Numbers launches that [`run`] runs.
static LAUNCHES: AtomicU32 = AtomicU32::new(1);

/// Runs a launch to its end, or to a fault after which nothing sensible can be run. It comes after all that happened to the memory.
///
/// # Safety
/// As for [`run_among`].
///
/// # Panics
/// As [`run_among`] does.
pub unsafe fn run(memory: &Memory, launch: &Launch<'_>, schedule: Schedule) -> Outcome {
    let operation = LAUNCHES.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe { run_among(memory, launch, schedule, (operation, &Sequential), &Unobserved) }
}

/// As [`run`], for a launch that is the operation of a number among others on the GPU, after those that precede it, and that an observer watches.
///
/// # Safety
/// The library of the kernel is compiled with the emulator's header. Pointers among the arguments lead to `memory`, and nobody else
/// accesses it meanwhile, except for memory of the host as the kernel expects it.
///
/// # Panics
/// If the arguments are not those of the kernel, or a launch runs within a launch.
pub unsafe fn run_among(
    memory: &Memory,
    launch: &Launch<'_>,
    schedule: Schedule,
    operation: (u32, &dyn History),
    observer: &dyn Observer,
) -> Outcome {
    let bytes: Vec<usize> = launch.arguments.iter().map(Vec::len).collect();
    assert_eq!(bytes, launch.kernel.parameter_bytes, "the arguments of {}", launch.kernel.name);
    let blocks = launch.grid.iter().map(|&of| of as usize).product::<usize>();
    let threads = launch.block.iter().map(|&of| of as usize).product::<usize>();
    assert!(blocks > 0 && threads > 0 && launch.resident_blocks_max > 0, "an empty launch");
    let resident = blocks.min(launch.resident_blocks_max);
    if resident * threads > THREADS_MAX {
        let detail = format!("{} threads at a time, of {THREADS_MAX}", resident * threads);
        let kernel = launch.kernel.name.clone();
        let reports = vec![Report { fault: Fault::Limit, kernel, detail }];
        return Outcome { reports, ..Outcome::default() };
    }
    let mut arguments: Vec<Vec<u8>> = launch.arguments.clone();
    let mut pointers: Vec<*mut c_void> =
        arguments.iter_mut().map(|bytes| bytes.as_mut_ptr().cast()).collect();
    let pointers = pointers.as_mut_ptr();
    let mut execution =
        Execution::new((memory, observer), launch, resident, pointers, operation, schedule);
    // SAFETY: the caller's promise.
    unsafe { execution.run() };
    execution.outcome()
}
