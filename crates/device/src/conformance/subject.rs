//! The device under test, and its optional abilities.

use std::sync::Arc;

use batchmaker_graph::{Precision, WorkerId};

use crate::contract::Device;

/// A device, for one case.
pub struct Instance {
    /// The device, with no cell types and no requests, of which no queue was taken.
    pub device: Arc<dyn Device>,
    /// Loses a worker with all tasks that are in flight there, where the device can be made to.
    pub lose: Option<LoseWorker>,
}

/// See [`Instance::lose`].
pub type LoseWorker = Box<dyn Fn(WorkerId) + Send + Sync>;

impl<D: Device + 'static> From<D> for Instance {
    fn from(device: D) -> Self {
        Self { device: Arc::new(device), lose: None }
    }
}

/// Makes devices to test, all alike.
pub trait Subject {
    /// A name for people.
    fn name(&self) -> String;

    /// A new device.
    fn make(&self) -> Instance;

    /// The number of workers that cases may use. Where there are more than one, the chains of a case are
    /// distributed among them.
    fn workers(&self) -> usize {
        1
    }

    /// The precisions of fused cells that the device supports.
    fn precisions(&self) -> &[Precision] {
        &Precision::ALL
    }

    /// Whether the device runs LSTMs whose weights are bytes.
    fn runs_lstms_of_bytes(&self) -> bool {
        true
    }

    /// Whether the device runs cells that hold programs: at least each
    /// [`SuiteProgram`](super::SuiteProgram).
    fn runs_programs(&self) -> bool {
        true
    }

    /// An integer that makes a task fail when a row of
    /// [`SuiteProgram::Add`](super::SuiteProgram::Add) has it as its first input; none where no
    /// task can be made to fail.
    fn failing_input(&self) -> Option<i64> {
        None
    }

    /// Whether the device reports the steps of a long task before the task is over.
    fn reports_steps(&self) -> bool {
        false
    }
}
