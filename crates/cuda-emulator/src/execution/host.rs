//! Atomic operations on memory of the host: what they must be, and what they publish there.

use super::scheduler::Execution;
use super::threads::Site;
use crate::detector::{Effect, Order, Scope};
use crate::report::Fault;

impl Execution<'_> {
    /// The current thread is about to access memory of the host with an atomic operation.
    pub(super) fn access_host(
        &mut self,
        at: *const u8,
        (effect, order, scope): (Effect, Order, Scope),
        site: Site,
    ) {
        let writes = effect != Effect::Load;
        let fence = self.detector.last_fence(self.current);
        let is_released = order.releases || fence == Some(Scope::System);
        if scope < Scope::System || writes && !is_released {
            let (kernel, memory) = (self.launch.kernel, self.memory);
            let code = kernel.site(site);
            self.report(Fault::HostScope, (code, 0), || {
                format!("{} is accessed at {}", memory.describe(at), kernel.line(code))
            });
        } else if writes {
            self.publish_to_host();
        }
    }

    fn publish_to_host(&mut self) {
        if !self.publishes_to_host {
            self.publishes_to_host = true;
            self.observer.publishes_to_host();
        }
    }
}
