//! The CPU device conforms, with every instruction set of this machine and with several threads.

use batchmaker_cpu::{CpuConfig, CpuDevice, Isa};
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
fn three_threads() {
    let config = CpuConfig { threads_per_worker: 3, ..CpuConfig::default() };
    conformance::run(|| CpuDevice::new(config.clone()).unwrap());
}
