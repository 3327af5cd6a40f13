//! `serve --calibrate`: profiles of models that have none, made while nobody asks for anything, and
//! taken at once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use anyhow::bail;
use batchmaker_cpu::Plans;
use batchmaker_engine::{Engine, Limits};
use batchmaker_graph::{CellRegistry, CellType, Precision};
use batchmaker_model::Model;
use batchmaker_profile::{Goal, Hardware, ModelProfile, Profile};

use crate::models::Loaded;
use crate::profile::{keep, measure_cells};
use crate::profiled::Profiles;
use crate::start::Machine;

/// Nobody asks for anything if no request was in flight so often in a row, so far apart.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// What there is to measure, and what the server is told of it.
pub(crate) struct Calibration {
    subjects: Vec<Subject>,
    machine: Machine,
    goal: Goal,
    registry: CellRegistry,
    /// By cell type, whether its batch limit was given.
    is_limit_given: Vec<bool>,
    profiles: Profiles,
    plans: Plans,
}

/// A model to measure, and the file to keep its profile in.
struct Subject {
    model: String,
    file: PathBuf,
    cells: BTreeMap<String, CellType>,
}

impl Calibration {
    /// Of the models without a profile of all their cells. Those that come with the project have no
    /// place for one.
    pub(crate) fn new(loaded: &Loaded, machine: Machine, goal: Goal) -> Self {
        let Loaded { models, registry, profiles, plans, profile_files, .. } = loaded;
        let subject = |(model, file): (&Model, &Option<PathBuf>)| {
            let of_model = |cell: &batchmaker_model::CellUse| registry.get(cell.cell_type).clone();
            let cells: BTreeMap<String, CellType> =
                model.cells.iter().map(|cell| (cell.name.clone(), of_model(cell))).collect();
            let is_known = cells.values().all(|cell| profiles.knows(cell));
            (!is_known).then_some(Subject { model: model.name.clone(), file: file.clone()?, cells })
        };
        let mut is_limit_given = vec![false; registry.cell_types().len()];
        for cell in models.iter().flat_map(|model| &model.cells) {
            is_limit_given[cell.cell_type.index()] |= cell.limit_given;
        }
        Self {
            subjects: models.iter().zip(profile_files).filter_map(subject).collect(),
            machine,
            goal,
            registry: registry.clone(),
            is_limit_given,
            profiles: profiles.clone(),
            plans: plans.clone(),
        }
    }

    /// Starts measuring, in a thread that ends with the engine.
    ///
    /// # Errors
    /// Where the system gives no thread.
    pub(crate) fn start(mut self, engine: Weak<Engine>) -> std::io::Result<()> {
        let calibrate = move || {
            for subject in std::mem::take(&mut self.subjects) {
                match self.calibrate(&engine, &subject) {
                    Ok(()) => eprintln!(
                        "note: {} was calibrated: it is served by '{}' from now on",
                        subject.model,
                        subject.file.display()
                    ),
                    Err(error) => {
                        eprintln!("note: {} was not calibrated: {error:#}", subject.model);
                    }
                }
            }
        };
        std::thread::Builder::new().name("calibrate".to_owned()).spawn(calibrate).map(drop)
    }

    fn calibrate(&mut self, engine: &Weak<Engine>, subject: &Subject) -> anyhow::Result<()> {
        let mut profile = self.measure(engine, subject)?;
        for (name, cell) in &mut profile.cells {
            cell.precision = subject.cells[name].cell.precision.to_string();
        }
        self.take(engine, &subject.model, profile.clone());
        let known = Profile::read(&subject.file).ok();
        keep(&subject.file, known, self.machine.isa, &subject.model, profile)
    }

    fn measure(&self, engine: &Weak<Engine>, subject: &Subject) -> anyhow::Result<ModelProfile> {
        wait_until_idle(engine)?;
        let hardware = Hardware::measure(self.machine.isa, self.machine.threads_per_worker)?;
        let asked = |cell: &CellType| {
            let mut precisions = vec![Precision::F32, cell.cell.precision];
            precisions.dedup();
            precisions
        };
        measure_cells(&hardware, &subject.cells, asked, |_| wait_until_idle(engine))
    }

    /// Lets the server go by what was found.
    fn take(&mut self, engine: &Weak<Engine>, model: &str, profile: ModelProfile) {
        let Some(engine) = engine.upgrade() else { return };
        self.profiles.add_model(model, profile);
        self.profiles.plans(&self.registry).for_each(|(cell, plan)| self.plans.add(cell, plan));
        let limit = |(cell, &is_given): (&CellType, &bool)| {
            let found = self.profiles.max_batch_size(cell, self.goal).filter(|_| !is_given);
            found.unwrap_or(cell.max_batch_size)
        };
        engine.set_limits(&Limits {
            batch_max: self
                .registry
                .cell_types()
                .iter()
                .zip(&self.is_limit_given)
                .map(limit)
                .collect(),
            ahead: self.profiles.ahead(&self.registry, self.goal),
        });
    }
}

/// Waits until nobody has asked for anything for a while.
fn wait_until_idle(engine: &Weak<Engine>) -> anyhow::Result<()> {
    let mut looks = 0;
    while looks < LOOKS {
        std::thread::sleep(BETWEEN_LOOKS);
        let Some(engine) = engine.upgrade() else { bail!("the server stopped") };
        looks = if engine.statistics().permits_in_use == 0 { looks + 1 } else { 0 };
    }
    Ok(())
}
