//! The CPU device conforms: with one and two workers, one and two threads a worker, each instruction set
//! of this machine, and inputs projected before the steps or not.

use batchmaker_cpu::{CpuConfig, CpuDevice, InputProjection, Isa};
use batchmaker_device::conformance::{Instance, Subject, run_all};

/// Cases that no CPU can pass: its memory has no bound of its own, it ends tasks whole, and cannot be lost.
const NEVER: [&str; 4] = [
    "streams/steps of a task that goes on",
    "losses/the other worker goes on",
    "losses/a state that is lost with its worker",
    "admission/what does not fit is refused, and fits later",
];

struct Cpu {
    config: CpuConfig,
    workers: usize,
}

impl Subject for Cpu {
    fn name(&self) -> String {
        let CpuConfig { threads_per_worker, isa, input_projection, .. } = &self.config;
        let workers = self.workers;
        format!("{workers}x{threads_per_worker} {isa}, input projection {input_projection:?}")
    }

    fn make(&self) -> Instance {
        CpuDevice::new(self.config.clone()).expect("this machine has it").into()
    }

    fn workers(&self) -> usize {
        self.workers
    }

    /// The general executor has integers of 32 bits.
    fn failing_input(&self) -> Option<i64> {
        Some(1 << 40)
    }
}

/// Runs the suite, and checks that it skips only cases that no CPU can pass.
fn check(workers: usize, config: CpuConfig) {
    let subject = Cpu { config, workers };
    let summary = run_all(&subject);
    let is_expected = |name: &String| {
        NEVER.contains(&name.as_str()) || (workers == 1 && name.starts_with("two workers/"))
    };
    let unexpected: Vec<_> = summary.skipped.iter().filter(|name| !is_expected(name)).collect();
    assert!(unexpected.is_empty(), "{} skips {unexpected:?}", subject.name());
}

fn with_threads(threads_per_worker: usize) -> CpuConfig {
    CpuConfig { threads_per_worker, ..CpuConfig::default() }
}

#[test]
fn one_worker_of_one_thread_in_each_instruction_set() {
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        check(1, CpuConfig { isa, ..CpuConfig::default() });
    }
}

#[test]
fn two_workers() {
    check(2, with_threads(1));
}

#[test]
fn one_worker_of_two_threads() {
    check(1, with_threads(2));
}

#[test]
fn inputs_projected_ahead_or_not() {
    for input_projection in [InputProjection::Always, InputProjection::Never] {
        check(1, CpuConfig { input_projection, ..with_threads(2) });
    }
}
