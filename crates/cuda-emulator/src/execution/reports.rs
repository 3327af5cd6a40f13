//! What is reported of a launch, in words.

use std::collections::BTreeMap;

use super::scheduler::Execution;
use super::threads::{Site, State, Thread, position};
use super::warp::Instruction;
use crate::abi::Dim3;
use crate::detector::{Slot, ThreadNumber};
use crate::report::{Fault, Report};

/// Reports after which a launch ends.
const REPORTS_MAX: usize = 20;

impl Execution<'_> {
    /// Whether two threads wait for each other in the same warp instruction with different masks.
    pub(super) fn has_other_masks(&self) -> bool {
        let waits = |thread: &&Thread| thread.state == State::InWarp;
        let is_other = |one: &Thread, other: &Thread| {
            let (own, of_other) = (one.instruction, other.instruction);
            one.warp == other.warp
                && own.operation == of_other.operation
                && own.mask != of_other.mask
                && own.mask >> other.lane & 1 == 1
        };
        let waiting: Vec<&Thread> = self.threads.iter().filter(waits).collect();
        waiting.iter().any(|one| waiting.iter().any(|other| is_other(one, other)))
    }

    /// Where threads wait, in words.
    pub(super) fn waiting(&self) -> String {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for thread in &self.threads {
            let place = match thread.state {
                State::Ended => continue,
                State::Ready => "run".to_owned(),
                State::Spinning(load) => {
                    let value = self.memory.describe(load.at);
                    format!("wait for a change of {value} at {}", self.line(thread.site))
                }
                State::AtBarrier => format!("wait at the barrier of {}", self.line(thread.site)),
                State::InWarp => {
                    let Instruction { operation, mask, .. } = thread.instruction;
                    format!("are in {operation:?} of {mask:#x} at {}", self.line(thread.site))
                }
            };
            *places.entry(place).or_default() += 1;
        }
        let not_begun = self.order.len() - self.begun;
        let mut words: Vec<String> =
            places.iter().map(|(place, count)| format!("{count} threads {place}")).collect();
        if not_begun > 0 {
            words.push(format!("{not_begun} blocks have not begun, as others are resident"));
        }
        words.join("; ")
    }

    /// Whether a fault at these places was not reported yet.
    pub(super) fn is_new(&self, fault: Fault, (site, other): (u32, u32)) -> bool {
        !self.seen.contains(&(fault, site, other))
    }

    /// Keeps a report, unless there is one of the same fault and places.
    pub(super) fn report(
        &mut self,
        fault: Fault,
        (site, other): (u32, u32),
        detail: impl FnOnce() -> String,
    ) {
        if self.seen.insert((fault, site, other)) {
            let kernel = self.launch.kernel.name.clone();
            self.reports.push(Report { fault, kernel, detail: detail() });
        }
        self.is_stopped |= fault.is_fatal() || self.reports.len() >= REPORTS_MAX;
    }

    /// An access in words.
    pub(super) fn sentence(
        &self,
        kind: &str,
        bytes: usize,
        at: *const u8,
        slot: Slot,
        code: u32,
    ) -> String {
        let (memory, who) = (self.memory.describe(at), self.who(slot));
        format!("{kind} of {bytes} bytes of {memory} by {who} at {}", self.launch.kernel.line(code))
    }

    /// A thread in words.
    pub(super) fn who(&self, slot: Slot) -> String {
        self.who_is(self.detector.number(slot))
    }

    /// A thread of the launch in words, which may be over.
    pub(super) fn who_is(&self, number: ThreadNumber) -> String {
        let of_block = self.threads.len() / self.blocks.len();
        let Dim3 { x, y, z } = position(number % of_block, self.launch.block);
        let of = position(number / of_block, self.launch.grid);
        format!("thread ({x}, {y}, {z}) of block ({}, {}, {})", of.x, of.y, of.z)
    }

    pub(super) fn line(&self, site: Site) -> String {
        if site.is_null() {
            return "its start".to_owned();
        }
        self.launch.kernel.line(self.launch.kernel.site(site))
    }
}
