//! Registers cells with their batch limits and precisions, which the caller, the model and profiles may give.

use std::collections::{BTreeMap, HashMap};

use batchmaker_graph::{Cell, CellRegistry, CellTypeId, ModelId, ModelPriority, Precision};

/// The most chains in one batch of a recurrent cell, unless a limit is given. Beyond it
/// throughput hardly rises and every step takes longer.
pub const FUSED_BATCH_SIZE_MAX: u32 = 64;

/// The most rows in one batch of a row-wise program, unless a limit is given. Rows of one
/// sequence share a batch, so it is higher than a recurrent cell's.
pub const PROGRAM_BATCH_SIZE_MAX: u32 = 256;

/// The options with which a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The model's id in the registry.
    pub model: ModelId,
    /// The most rows in one batch, which takes precedence over the model's own limits.
    pub max_batch_size: PerCell<u32>,
    /// The precision of weights, which takes precedence over the model's own choice. Cells without weights of
    /// a choosable precision stay as they are.
    pub precision: PerCell<Precision>,
    /// The choices of profiles, which yield to the model's own: by the identity of a cell in f32, as text.
    pub profile: HashMap<String, ProfiledCell>,
    /// The stages of a file without recurrence.
    pub stages: StageStarts,
}

/// The nodes of a file without recurrence that begin its stages, but for the first stage (DVABatch, section 7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StageStarts {
    /// These, each by its name, or `OP_k`, where k nodes lie before it. They stand in the order of the file, except that what decides whether an
    /// operator is needed counts as before that operator. Without any, the file is one stage.
    Named(Vec<String>),
    /// All that stages may well begin with: heavy operators before which few tensors lie that later ones read, and those before which an
    /// early exit or a skip is decided. A file with recurrent operators, or with branches by what a request brings, is one stage, as is
    /// a directory of several files.
    All,
    /// Of these, those before which an early exit or a skip is decided.
    Decided,
}

impl Default for StageStarts {
    fn default() -> Self {
        Self::Named(Vec::new())
    }
}

impl LoadOptions {
    /// Options that leave every choice to models.
    pub fn new(model: ModelId) -> Self {
        let (max_batch_size, precision) = (PerCell::default(), PerCell::default());
        let (profile, stages) = (HashMap::new(), StageStarts::default());
        Self { model, max_batch_size, precision, profile, stages }
    }

    /// Registers a cell. `models_limit` and `models_precision` are the model's own choices.
    pub fn register(
        &self,
        registry: &mut CellRegistry,
        cell: &NewCell<'_>,
        models_limit: Option<u32>,
        models_precision: Option<Precision>,
    ) -> ModelCell {
        let &NewCell { name, cell, stage, priority, fused, description } = cell;
        let identity = || cell.identity().to_string();
        let profiled = match self.profile.is_empty() {
            true => ProfiledCell::default(),
            false => self.profile.get(&identity()).cloned().unwrap_or_default(),
        };
        let precision = self.precision.of(name).or(models_precision).or(profiled.precision);
        let cell = cell.clone().in_precision(precision.unwrap_or_default());
        let default = if fused { FUSED_BATCH_SIZE_MAX } else { PROGRAM_BATCH_SIZE_MAX };
        let given = self.max_batch_size.of(name).or(models_limit);
        let limit = given.or(profiled.max_batch_size.get(&cell.precision).copied());
        let limit = limit.unwrap_or(default).max(1);
        let rank = ModelPriority { model: self.model, priority };
        let (name, description) = (name.to_owned(), description.to_owned());
        let cell_type = registry.add_of_stage(&name, cell, stage, limit, rank);
        let limit_given = given.is_some();
        ModelCell { name, cell_type, stage, fused, limit_given, priority, description }
    }
}

/// A cell to register; its fields are those of [`ModelCell`].
#[derive(Clone, Copy, Debug)]
pub struct NewCell<'a> {
    /// See [`ModelCell::name`].
    pub name: &'a str,
    /// The cell.
    pub cell: &'a Cell,
    /// See [`ModelCell::stage`].
    pub stage: usize,
    /// See [`ModelCell::priority`].
    pub priority: i32,
    /// See [`ModelCell::fused`].
    pub fused: bool,
    /// See [`ModelCell::description`].
    pub description: &'a str,
}

/// A choice for all cells, or for some by name.
#[derive(Clone, Debug)]
pub struct PerCell<T> {
    /// The choice for every cell, if there is one.
    pub all: Option<T>,
    /// Choices by a cell's name, which take precedence over `all`.
    pub cells: BTreeMap<String, T>,
}

impl<T> Default for PerCell<T> {
    fn default() -> Self {
        Self { all: None, cells: BTreeMap::new() }
    }
}

impl<T: Copy> PerCell<T> {
    /// The value for the cell called `name`, if there is one.
    pub fn of(&self, name: &str) -> Option<T> {
        self.cells.get(name).copied().or(self.all)
    }
}

/// The choices of a profile for a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfiledCell {
    /// The most rows in one batch, in each precision.
    pub max_batch_size: BTreeMap<Precision, u32>,
    /// The precision of weights.
    pub precision: Option<Precision>,
}

/// A cell of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCell {
    /// Its name, after an ONNX node: the recurrent operator, or the last node of its segment. Where other cells have that name before it,
    /// a number follows.
    pub name: String,
    /// The registered type; equal cells of one stage share one.
    pub cell_type: CellTypeId,
    /// Its stage, from 0, in a model that is cut into stages; else 0.
    pub stage: usize,
    /// Whether a fused kernel runs it, not the general executor.
    pub fused: bool,
    /// Whether its batch limit was given, by the caller or by the model.
    pub limit_given: bool,
    /// Higher is preferred: later in the computation.
    pub priority: i32,
    /// A description: its purpose, the nodes that it is made of, and why it is a cell of its own.
    pub description: String,
}
