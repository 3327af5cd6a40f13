//! Kernels that are made for one recurrent cell: the weights of h stay in registers for all steps of a task, or of many tasks (GRNN).

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::RecurrentCell;

use super::error::CellError;
use crate::config::Compile;
use crate::gpu::ResidentKernel;
use crate::kernels::persistent::PersistentKernel;
use crate::kernels::quantum::QuantumKernel;
use crate::kernels::weights::Storage;
use crate::mapping::{CostModel, Limits};
use crate::worker::Worker;

/// Rows for which a mapping is chosen: as many of these as the registers allow. More rows are more tiles of a block.
const ROWS: [usize; 5] = [16, 8, 4, 2, 1];

/// The first architecture that multiplies matrices in bfloat16.
const BF16_ARCHITECTURE: u32 = 80;

/// The compiler of kernels that are made for one cell.
#[derive(Clone, Copy)]
pub(crate) struct Compiler {
    pub(crate) compile: Compile,
    /// Whether there is a kernel for launches that run task after task, too.
    pub(crate) with_quanta: bool,
}

/// The kernels of a cell, on all GPUs.
pub(crate) struct Persistent {
    pub(crate) kernel: PersistentKernel,
    /// By worker.
    on_gpus: Vec<ResidentKernel>,
    pub(crate) quantum: Option<OfQuantum>,
}

/// The kernel that runs task after task. It has the mapping of the one for a task, and so the same bits.
pub(crate) struct OfQuantum {
    pub(crate) kernel: QuantumKernel,
    on_gpus: Vec<ResidentKernel>,
}

impl Persistent {
    /// Compiles the kernels and loads them; none where the weights fit the registers of no GPU, or there is no such kernel.
    pub(super) fn new(
        (cell, storage): (&RecurrentCell, Storage),
        workers: &[Arc<Worker>],
        compiler: Compiler,
    ) -> Result<Option<Self>, CellError> {
        let oldest = workers.iter().map(|worker| worker.gpu().architecture).min();
        if storage == Storage::Bf16 && oldest < Some(BF16_ARCHITECTURE) {
            return Ok(None);
        }
        // All GPUs have the same mapping: bits follow from it.
        let multiprocessors = workers.iter().map(|worker| worker.gpu().multiprocessors).min();
        let limits = Limits::of(multiprocessors.unwrap_or(0));
        let load = |(source, name): (String, String), block: [u32; 3], least: [u32; 3]| {
            load(workers, compiler.compile, (&source, &name), (block, least))
        };
        let mut quantum = None;
        if compiler.with_quanta
            && let Some(kernel) = choose_quantum((cell, storage), limits)
        {
            let source = QuantumKernel::source(&[kernel]);
            let loaded =
                load((source, kernel.name()), kernel.persistent().block(), kernel.grid(1, 1))?;
            quantum = loaded.map(|on_gpus| OfQuantum { kernel, on_gpus });
        }
        let kernel = match &quantum {
            Some(quantum) => Some(*quantum.kernel.persistent()),
            None => choose((cell, storage), limits),
        };
        let Some(kernel) = kernel else { return Ok(None) };
        let source = PersistentKernel::source(&[kernel]);
        let loaded = load((source, kernel.name()), kernel.block(), kernel.grid(1, 1))?;
        Ok(loaded.map(|on_gpus| Self { kernel, on_gpus, quantum }))
    }

    /// The kernel on a worker's GPU.
    pub(crate) fn on_gpu(&self, worker: usize) -> &ResidentKernel {
        &self.on_gpus[worker]
    }
}

impl OfQuantum {
    /// The kernel on a worker's GPU.
    pub(crate) fn on_gpu(&self, worker: usize) -> &ResidentKernel {
        &self.on_gpus[worker]
    }
}

/// Compiles a kernel and loads it on all GPUs; none if not all blocks of the least grid run at a time.
fn load(
    workers: &[Arc<Worker>],
    compile: Compile,
    (source, name): (&str, &str),
    ([threads, ..], least): ([u32; 3], [u32; 3]),
) -> Result<Option<Vec<ResidentKernel>>, CellError> {
    let mut images = BTreeMap::new();
    let mut on_gpus = Vec::new();
    for worker in workers {
        let gpu = worker.gpu();
        let image = match images.get(&gpu.architecture) {
            Some(image) => image,
            None => {
                let image = compile(source, gpu.architecture).map_err(CellError::NoKernel)?;
                images.entry(gpu.architecture).or_insert(image)
            }
        };
        on_gpus.push(ResidentKernel::load(gpu, image, name, threads)?);
    }
    // The compiler may have taken more registers than were expected.
    let blocks = least.iter().product::<u32>() as usize;
    let are_resident = on_gpus.iter().all(|of| of.blocks() >= blocks);
    Ok(are_resident.then_some(on_gpus))
}

fn model(limits: Limits) -> CostModel {
    CostModel { multiprocessors: limits.multiprocessors as f64, ..CostModel::TITAN_V }
}

/// The kernel of a cell whose mapping has the least cost among those for the most rows.
fn choose((cell, storage): (&RecurrentCell, Storage), limits: Limits) -> Option<PersistentKernel> {
    ROWS.into_iter().find_map(|rows| {
        let size = (cell.hidden_size, rows);
        let ranked = PersistentKernel::ranked_as(&cell.kind, storage, size, limits, &model(limits));
        ranked.first().copied()
    })
}

/// The same of kernels that run task after task.
fn choose_quantum(
    (cell, storage): (&RecurrentCell, Storage),
    limits: Limits,
) -> Option<QuantumKernel> {
    ROWS.into_iter().find_map(|rows| {
        let size = (cell.hidden_size, rows);
        QuantumKernel::cheapest(&cell.kind, storage, size, limits, &model(limits))
    })
}
