//! Programs that the host runs in the order of the GPU's work: between the copy that brings their inputs and the one that takes their outputs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use batchmaker_executor::{ExecutorError, ExecutorThreads};
use batchmaker_graph::{RowSpec, TensorData};

use crate::lock::lock;
use crate::memory::{Staged, append_bytes, of_bytes};

/// The first failure of a program of a task.
#[derive(Clone, Default)]
pub(super) struct ProgramFailure(Arc<Mutex<Option<Arc<str>>>>);

impl ProgramFailure {
    fn note(&self, reason: &str) {
        lock(&self.0).get_or_insert_with(|| reason.into());
    }

    pub(super) fn get(&self) -> Option<Arc<str>> {
        lock(&self.0).clone()
    }
}

/// The rows of a port of a program, in memory that the GPU and the host access.
pub(super) struct HostRows {
    pub(super) row: RowSpec,
    pub(super) rows: usize,
    pub(super) staged: Staged,
}

impl HostRows {
    fn bytes(&self) -> usize {
        self.rows * self.row.bytes().expect("a port that was checked has rows")
    }

    fn read(&self) -> TensorData {
        let (memory, offset) = self.staged.range();
        of_bytes(self.row.element, memory.read(offset, self.bytes()))
    }

    /// Writes the rows, or zeros in the place of those that a program does not give.
    fn write(&self, data: Option<&TensorData>) {
        let mut bytes = Vec::with_capacity(self.bytes());
        data.into_iter().for_each(|data| append_bytes(&mut bytes, data));
        bytes.resize(self.bytes(), 0);
        let (memory, offset) = self.staged.range();
        memory.write(offset, &bytes);
    }
}

/// A run of a program on the host.
pub(super) struct HostRun {
    pub(super) inputs: Vec<HostRows>,
    pub(super) outputs: Vec<HostRows>,
    pub(super) threads: Arc<ExecutorThreads>,
    pub(super) failure: ProgramFailure,
}

impl HostRun {
    /// Runs the program: `run` computes outputs from inputs. Outputs of one that fails are zeros.
    pub(super) fn run(
        &self,
        run: impl FnOnce(Vec<TensorData>, &ExecutorThreads) -> Result<Vec<TensorData>, ExecutorError>
        + Send,
    ) {
        let inputs = self.inputs.iter().map(HostRows::read).collect();
        let _in_use = self.threads.in_use();
        let run = AssertUnwindSafe(|| self.threads.host().run(|| run(inputs, &self.threads)));
        // The driver, whose thread this is, knows no panics.
        let outputs = match catch_unwind(run) {
            Ok(Ok(outputs)) => outputs,
            Ok(Err(error)) => {
                self.failure.note(&error.to_string());
                Vec::new()
            }
            Err(_) => {
                self.failure.note("a program panicked");
                Vec::new()
            }
        };
        for (at, rows) in self.outputs.iter().enumerate() {
            rows.write(outputs.get(at));
        }
    }
}
