//! What a manager is told when it is made.

use batchmaker_graph::{CellRegistry, ModelPriority};

/// The batch sizes that a cell type supports: any from `min` to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSizes {
    /// `Bsizes.Min()`: a smaller batch is submitted only as the first of a round.
    pub min: u32,
    /// `Bsizes.Max()`: the batch limit.
    pub max: u32,
}

impl BatchSizes {
    /// Any size from 1 to `max`.
    pub fn up_to(max: u32) -> Self {
        Self { min: 1, max }
    }
}

/// A cell type, as far as scheduling goes.
#[derive(Clone, Debug)]
pub struct CellTypeConfig {
    /// The supported batch sizes.
    pub batch_sizes: BatchSizes,
    /// Its priority in each model that uses it.
    pub priorities: Vec<ModelPriority>,
}

/// Which form the tasks of chains take ([`batchmaker_graph::Work`]). Both run the same nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskForm {
    /// Standing lists, changed by joins and leaves, with a number of steps.
    Roster,
    /// Every item of every step listed.
    Rows,
}

/// Where the workers keep states and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePlacement {
    /// All workers share one memory; what a lost worker computed before remains.
    Shared,
    /// Each worker has its own: state moves when a subgraph moves, and is lost with its
    /// worker.
    PerWorker,
}

/// The configuration of a manager.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cell types; the id of a type is its position.
    pub cell_types: Vec<CellTypeConfig>,
    /// How many workers there are, up to 64. All are up at the start.
    pub workers: u16,
    /// `MaxTasksToSubmit` of Algorithm 1: the most batches of one round.
    pub max_tasks_to_submit: u32,
    /// The form of the tasks of chains.
    pub task_form: TaskForm,
    /// Where state lives.
    pub state_placement: StatePlacement,
}

impl Config {
    /// The default of `max_tasks_to_submit` (section 4.3 of the paper).
    pub const MAX_TASKS_TO_SUBMIT: u32 = 5;

    /// Rosters over shared memory, batches of any size up to each type's limit.
    pub fn new(registry: &CellRegistry, workers: u16) -> Self {
        let cell_types = registry.cell_types().iter().map(|cell_type| CellTypeConfig {
            batch_sizes: BatchSizes::up_to(cell_type.max_batch_size),
            priorities: cell_type.priorities.clone(),
        });
        Self {
            cell_types: cell_types.collect(),
            workers,
            max_tasks_to_submit: Self::MAX_TASKS_TO_SUBMIT,
            task_form: TaskForm::Roster,
            state_placement: StatePlacement::Shared,
        }
    }
}
