//! A task: which form its cell and its work have.

use batchmaker_graph::{BatchedTask, Work};

use super::rosters::Rosters;
use super::steps::TypedCell;
use super::submitter::{Submitter, TaskError};
use crate::cells::CudaCellBody;

impl Submitter {
    /// Submits the work of a task.
    pub(super) fn run_task(
        &mut self,
        rosters: &mut Rosters,
        task: &BatchedTask,
    ) -> Result<(), TaskError> {
        let (id, cell) = (task.cell_type, self.state.cells.get(task.cell_type));
        let is_of_quantum = match (&cell.body, &task.work) {
            (CudaCellBody::Stepwise(of), Work::Roster { .. }) => of.quantum().is_some(),
            _ => false,
        };
        if !is_of_quantum {
            self.end_quantum()?;
        }
        let stepwise = match (&cell.body, &task.work) {
            (CudaCellBody::Stepwise(stepwise), _) => stepwise,
            (CudaCellBody::Sequences(program), Work::Rows(items)) => {
                return self.run_sequences(program, items);
            }
            (CudaCellBody::Sequences(_), Work::Roster { .. }) => {
                unreachable!("a cell over whole sequences has no chains")
            }
        };
        let typed = TypedCell { id, cell: &cell, stepwise };
        match &task.work {
            Work::Rows(items) if stepwise.states.is_empty() => self.run_rows(typed, items),
            Work::Rows(items) => self.run_chains(typed, items),
            Work::Roster { leaves, joins, steps } => {
                let roster = rosters.of(typed);
                self.leave(roster, typed, leaves);
                self.run_roster(roster, typed, joins, *steps)
            }
        }
    }
}
