//! Kernels that are made for one recurrent cell: the weights of h stay on the chip for all steps of a task, or of many tasks (GRNN).

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::RecurrentCell;

use super::error::CellError;
use crate::config::Compile;
use crate::gpu::ResidentKernel;
use crate::kernels::persistent::PersistentKernel;
use crate::kernels::quantum::QuantumKernel;
use crate::kernels::weights::Storage;
use crate::mapping::{CostModel, Limits, Mapping};
use crate::worker::Worker;

/// Rows for which a mapping is chosen: as many of these as the registers allow. More rows are more tiles of a block.
pub(super) const ROWS: [usize; 5] = [16, 8, 4, 2, 1];

/// The compiler of kernels that are made for one cell.
#[derive(Clone, Copy)]
pub(crate) struct Compiler {
    pub(crate) compile: Compile,
    /// Whether there is a kernel for launches that run task after task, too.
    pub(crate) with_quanta: bool,
    /// All GPUs have the same mapping, which fits each: bits follow from it.
    pub(crate) limits: Limits,
    /// The mapping of the cell's plan, if there is one.
    pub(crate) mapping: Option<Mapping>,
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
    /// Compiles the kernels and loads them; none where not all blocks of the least grid run at a time.
    pub(super) fn new(
        (kernel, quantum): (PersistentKernel, Option<QuantumKernel>),
        workers: &[Arc<Worker>],
        compile: Compile,
    ) -> Result<Option<Self>, CellError> {
        let load_quantum = |kernel: QuantumKernel| {
            let (source, name) = (QuantumKernel::source(&[kernel]), kernel.name());
            let of = (kernel.persistent(), kernel.grid(1, 1));
            let on_gpus = load(workers, compile, (&source, &name), of)?;
            Ok::<_, CellError>(on_gpus.map(|on_gpus| OfQuantum { kernel, on_gpus }))
        };
        let quantum = quantum.map(load_quantum).transpose()?.flatten();
        let on_gpus = load_persistent(kernel, workers, compile)?;
        Ok(on_gpus.map(|on_gpus| Self { kernel, on_gpus, quantum }))
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

/// Compiles the kernel of a task and loads it on all GPUs; none if not all blocks of the least grid run at a time.
pub(crate) fn load_persistent(
    kernel: PersistentKernel,
    workers: &[Arc<Worker>],
    compile: Compile,
) -> Result<Option<Vec<ResidentKernel>>, CellError> {
    let (source, name) = (PersistentKernel::source(&[kernel]), kernel.name());
    load(workers, compile, (&source, &name), (&kernel, kernel.grid(1, 1)))
}

/// Compiles a kernel, which has the shape of blocks and the weights of `of`, and loads it on all GPUs; none if not all blocks of the least grid run at a
/// time.
fn load(
    workers: &[Arc<Worker>],
    compile: Compile,
    (source, name): (&str, &str),
    (of, least): (&PersistentKernel, [u32; 3]),
) -> Result<Option<Vec<ResidentKernel>>, CellError> {
    let ([threads, ..], shared) = (of.block(), of.shared_bytes_of_weights());
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
        on_gpus.push(ResidentKernel::load(gpu, image, name, threads, shared)?);
    }
    // The compiler may have taken more registers than were expected.
    let blocks = least.iter().product::<u32>() as usize;
    let are_resident = on_gpus.iter().all(|of| of.blocks() >= blocks);
    Ok(are_resident.then_some(on_gpus))
}

/// The cost model of section 7.1 with the paper's constants, but for the multiprocessors. Which lanes a cell has without a profile follows from it and from the
/// limits: they are the same wherever the GPUs are.
pub(crate) fn model_of(limits: Limits) -> CostModel {
    CostModel { multiprocessors: limits.multiprocessors as f64, ..CostModel::TITAN_V }
}

/// The kernel of a cell whose mapping has the least cost among those for the most rows.
pub(super) fn choose(
    (cell, storage): (&RecurrentCell, Storage),
    limits: Limits,
) -> Option<PersistentKernel> {
    ROWS.into_iter().find_map(|rows| {
        let size = (cell.hidden_size, rows);
        let ranked =
            PersistentKernel::ranked_as(&cell.kind, storage, size, limits, &model_of(limits));
        ranked.first().copied()
    })
}

/// The same of kernels that run task after task.
pub(super) fn choose_quantum(
    (cell, storage): (&RecurrentCell, Storage),
    limits: Limits,
) -> Option<QuantumKernel> {
    ROWS.into_iter().find_map(|rows| {
        let size = (cell.hidden_size, rows);
        QuantumKernel::cheapest(&cell.kind, storage, size, limits, &model_of(limits))
    })
}
