//! Registers cells: their batch limits and precisions, which the model, who loads it and profiles may give.

use std::collections::{BTreeMap, HashMap};

use batchmaker_graph::{Cell, CellRegistry, CellTypeId, ModelId, ModelPriority, Precision};

/// The most chains in one batch of a recurrent cell, unless a limit is given. Beyond it
/// throughput hardly rises and every step takes longer.
pub const FUSED_BATCH_SIZE_MAX: u32 = 64;

/// The most rows in one batch of a row-wise program, unless a limit is given. Rows of one
/// sequence share a batch, so it is higher than a recurrent cell's.
pub const PROGRAM_BATCH_SIZE_MAX: u32 = 256;

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The model's id in the registry.
    pub model: ModelId,
    /// The most rows in one batch, before what the model says.
    pub max_batch_size: ByCell<u32>,
    /// In which precision to keep weights, before what the model says. Cells that have none to choose
    /// stay as they are.
    pub precision: ByCell<Precision>,
    /// What profiles say, after what the model says: by the identity of a cell in f32, as text.
    pub profile: HashMap<String, ProfiledCell>,
}

impl LoadOptions {
    /// Nothing but what models say.
    pub fn new(model: ModelId) -> Self {
        let (max_batch_size, precision) = (ByCell::default(), ByCell::default());
        Self { model, max_batch_size, precision, profile: HashMap::new() }
    }

    /// Registers a cell, of which the model may say something itself.
    pub(crate) fn register(
        &self,
        registry: &mut CellRegistry,
        cell: &NewCell<'_>,
        models_limit: Option<u32>,
        models_precision: Option<Precision>,
    ) -> CellUse {
        let &NewCell { name, cell, priority, fused, why } = cell;
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
        let (name, why) = (name.to_owned(), why.to_owned());
        let cell_type = registry.add(&name, cell, limit, rank);
        CellUse { name, cell_type, fused, limit_given: given.is_some(), priority, why }
    }
}

/// A cell to register; see [`CellUse`].
pub(crate) struct NewCell<'a> {
    pub(crate) name: &'a str,
    pub(crate) cell: &'a Cell,
    pub(crate) priority: i32,
    pub(crate) fused: bool,
    pub(crate) why: &'a str,
}

/// What is said of all cells, or of some by name.
#[derive(Clone, Debug)]
pub struct ByCell<T> {
    /// Of every cell, if anything.
    pub all: Option<T>,
    /// By a cell's name, before `all`.
    pub cells: BTreeMap<String, T>,
}

impl<T> Default for ByCell<T> {
    fn default() -> Self {
        Self { all: None, cells: BTreeMap::new() }
    }
}

impl<T: Copy> ByCell<T> {
    fn of(&self, name: &str) -> Option<T> {
        self.cells.get(name).copied().or(self.all)
    }
}

/// What a profile says of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfiledCell {
    /// The most rows in one batch, in each precision.
    pub max_batch_size: BTreeMap<Precision, u32>,
    /// In which precision to keep weights.
    pub precision: Option<Precision>,
}

/// A cell of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellUse {
    /// After an ONNX node: the operator's, or the last of a program's.
    pub name: String,
    /// The registered type; equal cells share one.
    pub cell_type: CellTypeId,
    /// Whether a fused kernel runs it, not the general executor.
    pub fused: bool,
    /// Whether its batch limit was given, by who loads it or by the model.
    pub limit_given: bool,
    /// Higher is preferred: later in the computation.
    pub priority: i32,
    /// What it does, what it is made of, and why it is a cell of its own.
    pub why: String,
}
