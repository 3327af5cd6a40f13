//! A launch while it runs: the host sees what it publishes, and it ends when its device is lost.

use batchmaker_cuda_emulator::{Observer, Schedule, run_among};

use crate::control::{is_to_fail, report, settings};
use crate::driver::Driver;
use crate::launches::KernelLaunch;
use crate::lock::lock;
use crate::order::Preceding;
use crate::status::Status;

/// A launch: its device, its number and what precedes it.
struct Watched<'a> {
    driver: &'a Driver,
    device: usize,
    operation: u32,
    preceding: &'a Preceding,
}

impl Observer for Watched<'_> {
    /// The host cannot be seen to poll: it counts as having seen the launch before the value is there that it polls, or else what it submits at
    /// once would have no order.
    fn publishes_to_host(&self) {
        self.driver.host_has_seen(&self.preceding.and(self.operation));
    }

    fn is_lost(&self) -> bool {
        self.driver.is_lost(self.device)
    }
}

/// Runs a launch on a device, as the operation of a number. An error if the settings want it to fail, or if something was reported.
pub(crate) fn run(
    driver: &Driver,
    device: usize,
    launch: &KernelLaunch,
    (operation, preceding): (u32, &Preceding),
) -> Result<(), Status> {
    let seed = {
        let settings = &mut *settings();
        if is_to_fail(&mut settings.fail_launch) {
            return Err(Status::LaunchFailed);
        }
        let only = &settings.runs_only;
        if !only.is_empty() && !only.iter().any(|only| launch.kernel().starts_with(only)) {
            return Ok(());
        }
        settings.seed
    };
    let _running = lock(&driver.running);
    let schedule = Schedule::of_seed(seed ^ u64::from(operation) << 20);
    let watched = Watched { driver, device, operation, preceding };
    let operation = (operation, preceding as _);
    // SAFETY: `running` is held; who made the launch vouched for the memory that its arguments lead to.
    let outcome =
        unsafe { run_among(&driver.memory, &launch.launch(), schedule, operation, &watched) };
    let is_right = outcome.reports.is_empty();
    outcome.reports.iter().for_each(|of| report(of.to_string()));
    is_right.then_some(()).ok_or(Status::LaunchFailed)
}
