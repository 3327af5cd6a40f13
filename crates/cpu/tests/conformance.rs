//! The CPU device conforms, with every instruction set of this machine and with several threads.

use batchmaker_cpu::{CpuConfig, CpuDevice, Isa, ProjectionAhead};
use batchmaker_device::conformance;

#[test]
fn every_instruction_set() {
    for isa in [Isa::Scalar, Isa::Avx2, Isa::Avx512] {
        if isa.is_available() {
            conformance::run(|| CpuDevice::new(CpuConfig { isa, ..CpuConfig::default() }).unwrap());
        }
    }
}

#[test]
fn three_threads_with_and_without_projection_ahead() {
    use ProjectionAhead::{Always, Measured, Never};
    for projection_ahead in [Measured, Always, Never] {
        let config = CpuConfig { threads_per_worker: 3, projection_ahead, ..CpuConfig::default() };
        conformance::run(|| CpuDevice::new(config.clone()).unwrap());
    }
}
