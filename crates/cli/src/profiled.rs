//! What profiles say of models that are about to be loaded.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use batchmaker_cpu::{CellPlan, Isa};
use batchmaker_graph::{CellIdentity, CellRegistry, CellType, Precision};
use batchmaker_model::ProfiledCell;
use batchmaker_profile::{CellProfile, Curve, Goal, Machine, ModelProfile, Profile};

/// The name of a profile beside a model.
const FILE: &str = "profile.json";

/// Profiles that were made on this machine, of cells by their identity in f32.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profiles {
    cells: HashMap<String, Known>,
    /// By model and cell, to tell when a profile is of another file.
    names: HashMap<(String, String), String>,
}

/// What is known of a cell.
#[derive(Clone, Debug)]
struct Known {
    profile: CellProfile,
    /// Of the worker that it was measured on.
    threads: usize,
}

/// Where the profile of a model at `path` is kept; here, for one that comes with the project.
pub(crate) fn beside(path: &Path) -> PathBuf {
    match (path.is_dir(), path.is_file()) {
        (true, _) => path.join(FILE),
        (_, true) => path.with_file_name(FILE),
        _ => PathBuf::from(FILE),
    }
}

impl Profiles {
    /// Reads the profile that was named, or those beside models.
    ///
    /// # Errors
    /// Where the named one cannot be read. One beside a model that cannot is told of and passed over.
    pub(crate) fn read(named: Option<&Path>, models: &[PathBuf], isa: Isa) -> anyhow::Result<Self> {
        let mut profiles = Self::default();
        if let Some(path) = named {
            profiles.add(path, Profile::read(path)?, isa);
            return Ok(profiles);
        }
        let exists = |path: &PathBuf| path.is_file();
        let mut paths: Vec<PathBuf> = models
            .iter()
            .filter(|path| path.exists())
            .map(|path| beside(path))
            .filter(exists)
            .collect();
        paths.sort();
        paths.dedup();
        for path in paths {
            match Profile::read(&path) {
                Ok(profile) => profiles.add(&path, profile, isa),
                Err(error) => eprintln!("note: {error}; going on without"),
            }
        }
        Ok(profiles)
    }

    fn add(&mut self, path: &Path, profile: Profile, isa: Isa) {
        let here = Machine::here(isa);
        if profile.machine != here {
            eprintln!(
                "note: the profile '{}' was made on another machine ({}; this is {here}): it is \
                 ignored",
                path.display(),
                profile.machine,
            );
            return;
        }
        for (model, of_model) in profile.models {
            self.add_model(&model, of_model);
        }
    }

    /// Adds what was found of a model on this machine.
    pub(crate) fn add_model(&mut self, model: &str, profile: ModelProfile) {
        for (cell, of_cell) in profile.cells {
            self.names.insert((model.to_owned(), cell), of_cell.identity.clone());
            let identity = of_cell.identity.clone();
            let known = Known { profile: of_cell, threads: profile.threads };
            self.cells.insert(identity, known);
        }
    }

    /// What loading should know.
    pub(crate) fn of_cells(&self, goal: Goal) -> HashMap<String, ProfiledCell> {
        let of_cell = |(identity, Known { profile: cell, .. }): (&String, &Known)| {
            let curve = cell.curve(cell.precision());
            let choice = curve.and_then(|curve| goal.choose(curve));
            let max_batch_size = choice.map(|choice| choice.max_batch_size);
            (identity.clone(), ProfiledCell { max_batch_size, precision: Some(cell.precision()) })
        };
        self.cells.iter().map(of_cell).collect()
    }

    /// Whether the cell is among them.
    pub(crate) fn knows(&self, cell: &CellType) -> bool {
        self.cells.contains_key(&identity_in_f32(cell))
    }

    /// Tells of profiles that are of another file of that name.
    pub(crate) fn tell_of_others(&self, model: &str, name: &str, cell: &CellType) {
        let key = (model.to_owned(), name.to_owned());
        if self.names.get(&key).is_some_and(|known| *known != identity_in_f32(cell)) {
            eprintln!(
                "note: the profile of cell '{name}' of {model} was made with other weights: it is \
                 ignored; run `batchmaker profile` again"
            );
        }
    }

    /// Tells of profiles whose times are those of workers with another number of threads.
    pub(crate) fn tell_of_threads(&self, registry: &CellRegistry, threads: usize) {
        let cells = registry.cell_types().iter();
        let known = cells.filter_map(|cell| self.cells.get(&identity_in_f32(cell)));
        if let Some(other) = known.map(|known| known.threads).find(|&known| known != threads) {
            eprintln!(
                "note: a profile was made on {other} threads, and workers have {threads} here: batch \
                 limits may be off; `batchmaker profile --threads-per-worker {threads}` measures anew"
            );
        }
    }

    /// How to run the batches of loaded cells.
    pub(crate) fn plans(
        &self,
        registry: &CellRegistry,
    ) -> impl Iterator<Item = (CellIdentity, CellPlan)> {
        let curves = registry.cell_types().iter().map(|cell| (cell.identity, self.curve(cell)));
        curves.filter_map(|(cell, curve)| Some((cell, curve?.plan()?)))
    }

    /// A loaded cell's curve, in its precision.
    fn curve(&self, cell: &CellType) -> Option<&Curve> {
        self.cells.get(&identity_in_f32(cell))?.profile.curve(cell.cell.precision)
    }

    /// The most rows of a batch of a loaded cell.
    pub(crate) fn max_batch_size(&self, cell: &CellType, goal: Goal) -> Option<u32> {
        Some(goal.choose(self.curve(cell)?)?.max_batch_size)
    }

    /// How much work may be submitted ahead: the least that any loaded cell asks for.
    pub(crate) fn ahead(&self, registry: &CellRegistry, goal: Goal) -> Option<Duration> {
        let ahead = |cell: &CellType| goal.choose(self.curve(cell)?)?.ahead;
        registry.cell_types().iter().filter_map(ahead).min()
    }
}

/// The identity of a cell's type in f32, as profiles have it.
pub(crate) fn identity_in_f32(cell: &CellType) -> String {
    match cell.cell.precision {
        Precision::F32 => cell.identity.to_string(),
        _ => (*cell.cell).clone().in_precision(Precision::F32).identity().to_string(),
    }
}
