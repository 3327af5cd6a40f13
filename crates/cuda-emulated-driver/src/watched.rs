//! A launch while it runs: the host sees what it publishes, and it ends when its device is lost.

use batchmaker_cuda_emulator::Observer;

use crate::driver::Driver;
use crate::order::Preceding;

/// A launch: its device, its number and what precedes it.
pub(crate) struct Watched<'a> {
    pub(crate) driver: &'a Driver,
    pub(crate) device: usize,
    pub(crate) operation: u32,
    pub(crate) preceding: &'a Preceding,
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
