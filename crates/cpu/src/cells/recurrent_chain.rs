//! A chain in a batch of a fused recurrent cell: where its inputs, its state and its outputs lie.

use batchmaker_device as device;
use batchmaker_graph::SinkTime;

use crate::memory::projected_blocks::ProjectedSteps;
use crate::memory::row_pointers::RowPointers;
use crate::memory::state_arena::StateSlot;

/// A chain in a batch. Its rows stay where they are until its request is retired; after that it may still be on a roster,
/// but no step of it runs.
pub(crate) struct RecurrentChain {
    pub(crate) course: device::Chain,
    pub(crate) slot: StateSlot,
    pub(crate) x: RowPointers,
    /// Whether x came with the request, so that all of it is there.
    pub(crate) is_x_known: bool,
    /// The first step whose token id was not yet offered to the projection cache.
    pub(crate) ids_claimed: u32,
    /// The projections of the next steps, if there are any.
    pub(crate) projected: Option<ProjectedSteps>,
    /// Receives h after every step, if a sink wants it.
    pub(crate) y: Option<RowPointers>,
    /// Every other sink: its time, the output port, and the rows that it writes.
    pub(crate) other_sinks: Vec<(SinkTime, usize, RowPointers)>,
}

impl AsRef<device::Chain> for RecurrentChain {
    fn as_ref(&self) -> &device::Chain {
        &self.course
    }
}

impl RecurrentChain {
    /// The first step whose input may not be written, where those of the next `known` steps are.
    pub(crate) fn known_end(&self, known: u32) -> u32 {
        let end = if self.is_x_known { u32::MAX } else { self.course.step() + known };
        end.min(self.course.length())
    }

    /// Leaves out the next `steps` steps, whose task failed: the states after them are undefined.
    pub(crate) fn skip(&mut self, steps: u32) {
        self.course.advance(steps);
        self.ids_claimed = self.ids_claimed.max(self.course.step());
    }

    /// The number of steps after which a projection ends that another one should follow.
    pub(crate) fn steps_projected(&self) -> Option<u32> {
        let (step, end) = (self.course.step(), self.projected.as_ref()?.steps().end);
        (step < end && end < self.course.length()).then(|| end - step)
    }

    /// Whether the projection of the next step lies ready.
    pub(crate) fn is_projected(&self) -> bool {
        let steps = self.projected.as_ref().map(ProjectedSteps::steps);
        steps.is_some_and(|steps| steps.contains(&self.course.input_node(self.course.step())))
    }

    /// The token id that is the input of `step`, of a cell behind an embedding.
    ///
    /// # Safety
    /// x has rows of one i64, and that of `step` is written.
    pub(crate) unsafe fn token_id(&self, step: u32) -> i64 {
        // SAFETY: the row is one i64, which is written.
        unsafe { self.x.row(step).cast::<i64>().read() }
    }
}
