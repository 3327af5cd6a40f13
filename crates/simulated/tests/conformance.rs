//! The simulated device conforms: one worker and two, a memory for all and a memory each, and whether
//! it reports the steps of a task or not. What it was asked to do was always right.

use std::sync::Arc;
use std::time::Duration;

use batchmaker_device::conformance::{Instance, Subject, run_all};
use batchmaker_graph::{Precision, StatePlacement};
use batchmaker_simulated::{Faults, SimulatedConfig, SimulatedDevice};

struct Simulated {
    config: SimulatedConfig,
    workers: usize,
}

impl Subject for Simulated {
    fn name(&self) -> String {
        let SimulatedConfig { placement, faults, .. } = &self.config;
        let percent = faults.reported_percent;
        format!("{} workers, memory {placement:?}, {percent} % of steps reported", self.workers)
    }

    fn make(&self) -> Instance {
        let device = Arc::new(SimulatedDevice::new(self.config.clone()));
        let lost = device.clone();
        Instance { device, lose: Some(Box::new(move |worker| lost.lose(worker))) }
    }

    fn workers(&self) -> usize {
        self.workers
    }

    fn precisions(&self) -> &[Precision] {
        &Precision::ALL
    }

    /// The general executor has integers of 32 bits.
    fn failing_input(&self) -> Option<i64> {
        Some(1 << 40)
    }

    fn reports_steps(&self) -> bool {
        self.config.faults.reported_percent == 100
    }
}

fn check(workers: usize, placement: StatePlacement, reported_percent: u32) {
    let faults = Faults { reported_percent, batch_max: Duration::ZERO, ..Faults::default() };
    let bytes_max = Some(1 << 20);
    let config = SimulatedConfig { placement, bytes_max, faults, ..SimulatedConfig::default() };
    let subject = Simulated { config, workers };
    let summary = run_all(&subject);
    let is_expected = |name: &&String| {
        let needs_two = name.starts_with("two workers/") || name.starts_with("losses/");
        (workers == 1 && needs_two)
            || *name == "plans/batches run as measured have the same bits"
            || (reported_percent < 100 && *name == "streams/steps of a task that goes on")
    };
    let unexpected: Vec<_> = summary.skipped.iter().filter(|name| !is_expected(name)).collect();
    assert!(unexpected.is_empty(), "{} skips {unexpected:?}", subject.name());
}

#[test]
fn two_workers_with_a_memory_each() {
    check(2, StatePlacement::PerWorker, 100);
}

#[test]
fn two_workers_that_share_a_memory() {
    check(2, StatePlacement::Shared, 0);
}

#[test]
fn one_worker() {
    check(1, StatePlacement::PerWorker, 100);
}
