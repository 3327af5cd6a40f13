//! A kernel that is made for one recurrent cell: the weights of h stay in registers for all steps of a task (GRNN).

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::RecurrentCell;

use super::error::CellError;
use crate::config::Compile;
use crate::gpu::ResidentKernel;
use crate::kernels::persistent::PersistentKernel;
use crate::mapping::{CostModel, Limits};
use crate::worker::Worker;

/// Rows for which a mapping is chosen: as many of these as the registers allow. More rows are more tiles of a block.
const ROWS: [usize; 5] = [16, 8, 4, 2, 1];

/// The kernel of a cell, on all GPUs.
pub(crate) struct Persistent {
    pub(crate) kernel: PersistentKernel,
    /// By worker.
    on_gpus: Vec<ResidentKernel>,
}

impl Persistent {
    /// Compiles the kernel and loads it; none where the weights fit the registers of no GPU, or there is no such kernel.
    pub(super) fn new(
        cell: &RecurrentCell,
        workers: &[Arc<Worker>],
        compile: Compile,
    ) -> Result<Option<Self>, CellError> {
        // All GPUs have the same mapping: bits follow from it.
        let multiprocessors = workers.iter().map(|worker| worker.gpu().multiprocessors).min();
        let Some(kernel) = choose(cell, multiprocessors.unwrap_or(0)) else { return Ok(None) };
        let (source, name) = (PersistentKernel::source(&[kernel]), kernel.name());
        let [threads, ..] = kernel.block();
        let mut images = BTreeMap::new();
        let mut on_gpus = Vec::new();
        for worker in workers {
            let gpu = worker.gpu();
            let image = match images.get(&gpu.architecture) {
                Some(image) => image,
                None => {
                    let image = compile(&source, gpu.architecture).map_err(CellError::NoKernel)?;
                    images.entry(gpu.architecture).or_insert(image)
                }
            };
            on_gpus.push(ResidentKernel::load(gpu, image, &name, threads)?);
        }
        // The compiler may have taken more registers than were expected.
        let [columns, ..] = kernel.grid(1, 1);
        let are_resident = on_gpus.iter().all(|of| of.blocks() >= columns as usize);
        Ok(are_resident.then_some(Self { kernel, on_gpus }))
    }

    /// The kernel on a worker's GPU.
    pub(crate) fn on(&self, worker: usize) -> &ResidentKernel {
        &self.on_gpus[worker]
    }
}

/// The kernel of a cell whose mapping has the least cost among those for the most rows.
fn choose(cell: &RecurrentCell, multiprocessors: usize) -> Option<PersistentKernel> {
    let limits = Limits::of(multiprocessors);
    let model = CostModel { multiprocessors: multiprocessors as f64, ..CostModel::TITAN_V };
    ROWS.into_iter().find_map(|rows| {
        let ranked = PersistentKernel::ranked(&cell.kind, (cell.hidden_size, rows), limits, &model);
        ranked.first().copied()
    })
}
