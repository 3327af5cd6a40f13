//! Products of x ahead of the steps that need them: for all steps of a task at once, where x is an input.

use super::submitter::Submitter;
use crate::cells::{CudaCell, Operation, OperationBody, Step, Stepwise};
use crate::gpu::Launches;
use crate::kernels::batch::{Batch, Operand};
use crate::kernels::projection::{Projection, ProjectionArguments, ROWS_MAX};
use crate::kernels::tiles;

/// How large a batch is.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) rows: usize,
    pub(super) steps: usize,
    /// Whether an output may end the chain of a row.
    pub(super) may_end: bool,
    /// The most bytes of sums at once.
    pub(super) projected_bytes: usize,
}

/// Where the sums of products of x are.
#[derive(Default)]
pub(super) struct Projected {
    /// The steps that are multiplied at once; 0 where each step multiplies its own.
    pub(super) steps: usize,
    rows: usize,
    sums: Vec<Sums>,
}

/// The sums that one kernel of one operation begins with.
struct Sums {
    operation: usize,
    launch: usize,
    projection: Projection,
    at: u64,
}

impl Projected {
    /// Places the sums of a batch. `take` gives the address of memory of so many bytes.
    pub(super) fn place(of: &Stepwise, extent: Extent, mut take: impl FnMut(usize) -> u64) -> Self {
        let all = || projections(of, extent);
        let bytes = extent.rows * all().map(|(_, of)| of.row_bytes()).sum::<usize>();
        // A kernel that is made for the cell multiplies no x.
        let least = if of.persistent.is_some() { 1 } else { 2 };
        let steps = steps_at_once(extent, bytes, least);
        let Some(steps) = steps else { return Self::default() };
        let place = |([operation, launch], projection): ([usize; 2], Projection)| {
            let at = take(steps * extent.rows * projection.row_bytes());
            Sums { operation, launch, projection, at }
        };
        Self { steps, rows: extent.rows, sums: all().map(place).collect() }
    }

    /// The address of what a kernel of an operation begins with at the first step that is multiplied; 0 if it multiplies x itself.
    pub(super) fn at(&self, of: [usize; 2]) -> u64 {
        let is_own = |sums: &&Sums| [sums.operation, sums.launch] == of;
        self.sums.iter().find(is_own).map_or(0, |sums| sums.at)
    }

    /// What a kernel of an operation begins with at a step of the task.
    pub(super) fn operand(&self, [operation, launch]: [usize; 2], step: usize) -> Operand {
        let is_own = |sums: &&Sums| [sums.operation, sums.launch] == [operation, launch];
        self.sums.iter().find(is_own).map_or(Operand::NOWHERE, |sums| {
            let row_bytes = sums.projection.row_bytes();
            let before = step % self.steps * self.rows * row_bytes;
            Operand::dense(sums.at + before as u64, row_bytes)
        })
    }
}

/// How many steps are multiplied at once if the sums of one have so many bytes: about the same number each time, one at least. None if these would be
/// less than `least`: then each step multiplies its own.
fn steps_at_once(extent: Extent, bytes: usize, least: usize) -> Option<usize> {
    let most = extent.projected_bytes.checked_div(bytes)?.min(ROWS_MAX / extent.rows).max(1);
    let steps = extent.steps.div_ceil(extent.steps.div_ceil(most).max(1));
    (steps >= least).then_some(steps)
}

/// The projections of the kernels of a cell, each with the numbers of its operation and its kernel.
fn projections(of: &Stepwise, extent: Extent) -> impl Iterator<Item = ([usize; 2], Projection)> {
    of.operations.iter().enumerate().flat_map(move |(operation, of_cell)| {
        let step = step_of_input(of_cell, of.inputs).map(|(step, _)| step);
        // The ids after the end of a sequence are nobody's: they may be none of the table.
        let step = step.filter(|step| !(extent.may_end && step.table.is_some()));
        let launches = step.into_iter().flat_map(|step| step.packed.launches.iter().enumerate());
        launches.filter_map(move |(at, launch)| Some(([operation, at], launch.projection?)))
    })
}

/// The step of a recurrent cell that an operation is, and the input of the cell that is its x: known for all steps of a task. None if x is no input.
fn step_of_input(operation: &Operation, inputs: usize) -> Option<(&Step, usize)> {
    let OperationBody::Step(step) = &operation.body else { return None };
    let x = operation.reads.first().copied().flatten()?;
    (x < inputs).then_some((step, x))
}

impl Submitter {
    /// A batch of so many rows and steps.
    pub(super) fn extent(&self, rows: usize, steps: usize, may_end: bool) -> Extent {
        Extent { rows, steps, may_end, projected_bytes: self.state.projected_bytes }
    }

    /// Adds to `launches` those that multiply x of `steps` steps, from that of `batch` on.
    pub(super) fn project(
        &self,
        (cell, stepwise): (&CudaCell, &Stepwise),
        projected: &Projected,
        batch: Batch,
        steps: usize,
        launches: &mut Launches,
    ) {
        let constants = cell.constants.on(self.worker.number);
        for &Sums { operation, launch, projection, at } in &projected.sums {
            let operation = &stepwise.operations[operation];
            let Some((step, x)) = step_of_input(operation, stepwise.inputs) else { continue };
            let [w, _, b] = step.weights[launch].map(|place| constants + place);
            let arguments = ProjectionArguments {
                batch,
                x: Operand::port(x),
                lookup: self.lookup(step.table, constants),
                w,
                b,
                sums: at,
                input: step.packed.input_size() as i32,
                columns: projection.columns as i32,
                steps: steps as i32,
                gates: projection.gates as i32,
                sums_of_unit: projection.sums_of_unit as i32,
                padding: 0,
            };
            let grid = projection.grid(batch.count as usize, steps);
            launches.push(self.worker.gpu(), projection.kernel, [grid, tiles::BLOCK], &arguments);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_bounded_in_bytes_and_rows() {
        let extent = |rows, steps| Extent { rows, steps, may_end: false, projected_bytes: 1000 };
        let at_once = |rows, steps, bytes| steps_at_once(extent(rows, steps), bytes, 2);
        assert_eq!(at_once(1, 7, 100), Some(7));
        assert_eq!(at_once(1, 20, 100), Some(10));
        assert_eq!(at_once(1, 7, 200), Some(4), "four and three are more even than five and two");
        assert_eq!(at_once(1, 7, 499), Some(2));
        assert_eq!([at_once(1, 7, 501), at_once(1, 1, 10), at_once(0, 7, 0)], [None; 3]);
        assert_eq!(at_once(ROWS_MAX / 3, 7, 1), Some(3), "a grid has a most of blocks");
        assert_eq!(at_once(ROWS_MAX, 7, 1), None);
        let at_least_one = |steps, bytes| steps_at_once(extent(1, steps), bytes, 1);
        assert_eq!([at_least_one(1, 10), at_least_one(7, 5000)], [Some(1); 2]);
    }

    #[test]
    fn a_step_finds_its_sums() {
        let projection = Projection { kernel: "", columns: 6, gates: 3, sums_of_unit: 4 };
        let sums = |[operation, launch]: [usize; 2], at| Sums { operation, launch, projection, at };
        let all = vec![sums([0, 0], 1000), sums([0, 1], 2000), sums([2, 0], 3000)];
        let projected = Projected { steps: 3, rows: 5, sums: all };
        let right = |at: u64, step: u64| Operand::dense(at + 5 * 24 * step, 24);
        assert_eq!(projected.operand([0, 1], 2), right(2000, 2));
        assert_eq!(projected.operand([2, 0], 3), right(3000, 0), "the next ones");
        assert_eq!(projected.operand([0, 0], 7), right(1000, 1));
        assert_eq!(projected.operand([1, 0], 0), Operand::NOWHERE);
        assert_eq!(Projected::default().operand([0, 0], 1), Operand::NOWHERE);
    }
}
