//! `serve --calibrate`: profiles of models that have none, made while nobody asks for anything.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use anyhow::bail;
use batchmaker_engine::Engine;
use batchmaker_graph::{CellType, Precision};
use batchmaker_profile::{Hardware, Profile};

use crate::models::Loaded;
use crate::profile::{keep, measure_cells};
use crate::start::Machine;

/// Nobody asks for anything if no request was in flight so often in a row, so far apart.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A model to measure, and the file to keep its profile in.
pub(crate) struct Subject {
    model: String,
    file: PathBuf,
    cells: BTreeMap<String, CellType>,
}

/// The models without a profile of all their cells. Those that come with the project have no place
/// for one.
pub(crate) fn subjects(loaded: &Loaded) -> Vec<Subject> {
    let subject = |(model, file): (&batchmaker_model::Model, &Option<PathBuf>)| {
        let file = file.clone()?;
        let cells: BTreeMap<String, CellType> = model
            .cells
            .iter()
            .map(|cell| (cell.name.clone(), loaded.registry.get(cell.cell_type).clone()))
            .collect();
        let is_known = cells.values().all(|cell| loaded.is_profiled(cell));
        (!is_known).then(|| Subject { model: model.name.clone(), file, cells })
    };
    loaded.models.iter().zip(&loaded.profile_files).filter_map(subject).collect()
}

/// Starts measuring, in a thread that ends with the engine.
///
/// # Errors
/// Where the system gives no thread.
pub(crate) fn start(
    engine: Weak<Engine>,
    subjects: Vec<Subject>,
    machine: Machine,
) -> std::io::Result<()> {
    let calibrate = move || {
        for subject in &subjects {
            match calibrate(&engine, subject, machine) {
                Ok(()) => eprintln!(
                    "note: {} was calibrated: '{}' is taken from the next start on",
                    subject.model,
                    subject.file.display()
                ),
                Err(error) => eprintln!("note: {} was not calibrated: {error:#}", subject.model),
            }
        }
    };
    std::thread::Builder::new().name("calibrate".to_owned()).spawn(calibrate).map(drop)
}

fn calibrate(engine: &Weak<Engine>, subject: &Subject, machine: Machine) -> anyhow::Result<()> {
    wait_until_idle(engine)?;
    let hardware = Hardware::measure(machine.isa, machine.threads_per_worker)?;
    let asked = |cell: &CellType| {
        let mut precisions = vec![Precision::F32, cell.cell.precision];
        precisions.dedup();
        precisions
    };
    let mut of_model =
        measure_cells(&hardware, &subject.cells, asked, |_| wait_until_idle(engine))?;
    for (name, cell) in &mut of_model.cells {
        cell.precision = subject.cells[name].cell.precision.to_string();
    }
    let known = Profile::read(&subject.file).ok();
    keep(&subject.file, known, machine.isa, &subject.model, of_model)
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
