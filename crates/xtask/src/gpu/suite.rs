//! The conformance suite on a GPU.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{anyhow, ensure};
use batchmaker_cuda::{CudaConfig, CudaDevice};
use batchmaker_device::conformance::{self, Instance, Subject};
use batchmaker_graph::Precision;

struct Gpu(CudaConfig);

impl Subject for Gpu {
    fn name(&self) -> String {
        format!("GPU {}", self.0.gpus[0])
    }

    fn make(&self) -> Instance {
        CudaDevice::new(self.0.clone()).expect("the GPU was there a moment ago").into()
    }

    fn precisions(&self) -> &[Precision] {
        &CudaDevice::PRECISIONS
    }

    /// The general executor has integers of 32 bits.
    fn failing_input(&self) -> Option<i64> {
        Some(1 << 40)
    }
}

/// Runs the cases whose names contain a text.
pub(super) fn run(config: &CudaConfig, text: &str) -> anyhow::Result<String> {
    let cases: Vec<_> =
        conformance::cases().into_iter().filter(|case| case.name().contains(text)).collect();
    let subject = Gpu(config.clone());
    let run = AssertUnwindSafe(|| conformance::run(&subject, cases));
    let summary = catch_unwind(run).map_err(|_| anyhow!("cases fail, as printed above"))?;
    ensure!(summary.passed > 0, "no case that runs has '{text}' in its name");
    Ok(format!("{} cases passed, {} skipped", summary.passed, summary.skipped.len()))
}
