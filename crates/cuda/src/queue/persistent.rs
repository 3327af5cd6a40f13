//! Runs the steps of a batch: by a kernel that is made for the cell, if it has one, or one after the other.

use super::steps::Run;
use super::submitter::{Submitter, TaskError};
use crate::cells::{OperationBody, Persistent, Step};
use crate::gpu::{GpuError, Launches};
use crate::kernels::batch::Batch;
use crate::kernels::persistent::PersistentArguments;

/// The most polls of a block at a barrier. They take seconds; blocks that run are microseconds late.
pub(crate) const TRIES_MAX: u32 = 1 << 24;

impl Submitter {
    /// Runs the steps of a batch.
    pub(super) fn run_batch(&mut self, run: &Run<'_>) -> Result<(), TaskError> {
        let of = run.typed.stepwise;
        let body = of.operations.first().map(|operation| &operation.body);
        match (&of.persistent, body) {
            (Some(persistent), Some(OperationBody::Step(step))) if run.batch.count > 0 => {
                Ok(self.run_persistent(run, step, persistent)?)
            }
            _ => self.run_steps(run),
        }
    }

    /// Multiplies x of as many steps as there is memory for, then has the kernel run them; again until all steps have run.
    fn run_persistent(
        &mut self,
        run: &Run<'_>,
        step: &Step,
        persistent: &Persistent,
    ) -> Result<(), GpuError> {
        let (number, frame) = (self.worker.number, run.frame);
        let constants = run.typed.cell.constants.on(number);
        let (kernel, resident) = (persistent.kernel, persistent.on_gpu(number));
        let grid = kernel.grid(run.batch.count as usize, resident.blocks());
        // Registers are x, the states, and those after the step.
        let states = run.typed.stepwise.states.len();
        let state = |of: usize| frame.registers[1 + of.min(states - 1)];
        let [w, second] = [0, 1].map(|launch| step.weights.get(launch).copied());
        let place = |of: Option<u64>| of.map_or(0, |place| constants + place);
        let (steps, at_once) = (run.finishes.len(), frame.projected.steps);
        for first in (0..steps).step_by(at_once.max(1)) {
            let steps = at_once.min(steps - first);
            let batch = Batch { time: run.batch.time.wrapping_add(first as u32), ..run.batch };
            let cell = (&**run.typed.cell, run.typed.stepwise);
            let mut launches = Launches::default();
            self.project(cell, &frame.projected, batch, steps, &mut launches);
            self.worker.stream.launch_all(&launches)?;
            let arguments = PersistentArguments {
                batch,
                h: state(0),
                c: state(1),
                next_h: frame.next_states[0],
                next_c: frame.next_states[states - 1],
                projected: frame.projected.at([0, 0]),
                r: place(w.map(|[_, r, _]| r)),
                r_of_state: place(second.map(|[_, r, _]| r)),
                b: place(w.map(|[.., b]| b)),
                peepholes: place(step.peepholes),
                between: frame.between,
                projected_of_state: frame.projected.at([0, 1]),
                arrived: self.completions.arrived(),
                failed: self.completions.failed(),
                arrived_before: self.arrivals,
                tries_max: TRIES_MAX,
                inputs: run.typed.stepwise.inputs as u32,
                steps: steps as i32,
            };
            self.worker.stream.launch_resident(resident, [grid, kernel.block()], &arguments)?;
            let [columns, rows, _] = grid;
            let arrivals = (columns * rows).wrapping_mul(kernel.barriers(steps as u32));
            self.arrivals = self.arrivals.wrapping_add(arrivals);
        }
        Ok(())
    }
}
