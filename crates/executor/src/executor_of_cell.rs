//! Which executor runs a cell.

use batchmaker_graph::{Cell, CellBody};

use crate::error::ExecutorError;
use crate::executor_choice::{Executor, ProgramOptions};
use crate::row_program::RowProgram;
use crate::sequence_program::SequenceProgram;

/// The executor of a cell that is a program.
#[derive(Clone, Debug)]
pub struct CellExecutor {
    /// The executor.
    pub executor: Executor,
    /// Why it is another than was wanted, if it is.
    pub refusal: Option<String>,
}

impl Executor {
    /// The executor of a cell where this one is wanted: ONNX Runtime does not take all programs. None for a cell that is no program.
    ///
    /// # Errors
    /// [`ExecutorError::Load`] if the program cannot be run at all.
    pub fn of_cell(&self, cell: &Cell) -> Result<Option<CellExecutor>, ExecutorError> {
        let options = ProgramOptions::in_precision(cell.precision);
        let options = &ProgramOptions { executor: self.clone(), ..options };
        let (executor, refusal) = match &cell.body {
            CellBody::Program(program) => {
                let loaded = RowProgram::with(program, &cell.inputs, &cell.outputs, options)?;
                (loaded.executor(), loaded.refusal().map(str::to_owned))
            }
            CellBody::Sequence(sequence) => {
                let loaded = SequenceProgram::with(sequence, &cell.inputs, &cell.outputs, options)?;
                (loaded.executor(), loaded.refusal().map(str::to_owned))
            }
            _ => return Ok(None),
        };
        Ok(Some(CellExecutor { executor, refusal }))
    }
}
