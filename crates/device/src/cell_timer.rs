//! The time of batches of a cell on a device that runs nothing else: with no manager, no arrivals and no
//! replies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchmaker_graph::{
    CellGraph, CellGraphBuilder, CellType, CellTypeId, ElementType, Item, Join, RequestId, RowSpec,
    Rows, RunIndex, Sink, SinkTime, SlotId, Tensor, TensorData, Work, WorkerId,
};

use crate::contract::{Device, DeviceError};
use crate::lone_worker::LoneWorker;

/// The effort of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The minimum time to measure, after a warm-up of the same length.
    pub time: Duration,
    /// The minimum number of runs.
    pub runs: usize,
    /// The steps of a chain in one task.
    pub steps: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { time: Duration::from_millis(120), runs: 15, steps: 24 }
    }
}

/// The first worker of a device, which runs batches of cells that the device has materialised.
pub struct CellTimer {
    worker: LoneWorker,
    /// The chains on the roster of each cell type, in the first slots.
    standing: HashMap<CellTypeId, u32>,
}

impl CellTimer {
    /// Takes the queue of the first worker.
    ///
    /// # Errors
    /// As for [`Device::queue`].
    pub fn new(device: Arc<dyn Device>) -> Result<Self, DeviceError> {
        let worker = LoneWorker::new(device, WorkerId(0))?;
        Ok(Self { worker, standing: HashMap::new() })
    }

    /// The median time, in seconds, of a batch of `size` rows: of one step, where the cell has states.
    ///
    /// # Errors
    /// [`DeviceError::Cell`] where a batch of the cell fails, and as for [`Device::admit`].
    pub fn batch_s(
        &mut self,
        id: CellTypeId,
        cell_type: &CellType,
        size: usize,
        effort: Effort,
    ) -> Result<f64, DeviceError> {
        let is_chain = !cell_type.cell.states.is_empty();
        let (requests, nodes) = match is_chain {
            true => (size as u32, effort.steps),
            false => (1, size as u32),
        };
        let graph = Arc::new(graph(id, cell_type, nodes, is_chain));
        let device = self.worker.device().clone();
        for index in 0..requests {
            let inputs = inputs(cell_type, nodes);
            if let Err(error) = device.admit(request(index), graph.clone(), inputs) {
                (0..index).for_each(|index| device.retire(request(index)));
                return Err(error);
            }
        }
        let mut work = || match is_chain {
            true => {
                let leaves = self.standing.insert(id, requests).unwrap_or_default();
                Work::Roster {
                    leaves: (0..leaves).map(slot).collect(),
                    joins: (0..requests).map(join).collect(),
                    steps: nodes,
                }
            }
            false => {
                let (request, run, count) = (request(0), RunIndex(0), nodes);
                let (slot, moved_from) = (None, None);
                Work::Rows(vec![Item { request, run, first: 0, count, slot, moved_from }])
            }
        };
        let mut run = || {
            let start = Instant::now();
            let done = self.worker.run(id, work());
            done.result.map(|()| start.elapsed())
        };
        let times = times(&mut run, effort);
        (0..requests).for_each(|index| device.retire(request(index)));
        let mut times = times.map_err(|reason| DeviceError::Cell {
            cell: cell_type.name.clone(),
            reason: reason.to_string(),
        })?;
        times.sort_unstable();
        let batches = if is_chain { nodes } else { 1 };
        Ok(times[times.len() / 2].as_secs_f64() / f64::from(batches))
    }
}

/// The times of runs after a warm-up.
fn times(
    run: &mut dyn FnMut() -> Result<Duration, Arc<str>>,
    effort: Effort,
) -> Result<Vec<Duration>, Arc<str>> {
    let mut times = Vec::new();
    for is_measured in [false, true] {
        let start = Instant::now();
        let mut runs = 0;
        while start.elapsed() < effort.time || runs < effort.runs {
            let time = run()?;
            times.extend(is_measured.then_some(time));
            runs += 1;
        }
    }
    Ok(times)
}

fn request(index: u32) -> RequestId {
    RequestId { index, generation: 0 }
}

fn slot(index: u32) -> SlotId {
    SlotId { index, generation: 0 }
}

/// The join of a request's chain at its first step.
fn join(index: u32) -> Join {
    let (request, slot) = (request(index), slot(index));
    Join { request, run: RunIndex(0), slot, step: 0, moved_from: None }
}

/// One run of the cell, whose last states, or whose rows, are kept.
fn graph(id: CellTypeId, cell_type: &CellType, nodes: u32, is_chain: bool) -> CellGraph {
    let cell = &cell_type.cell;
    let mut graph = CellGraphBuilder::new();
    let inputs = cell.inputs.iter().map(|row| Rows::all(graph.input(row.clone(), nodes))).collect();
    let (time, rows) = if is_chain { (SinkTime::Last, 1) } else { (SinkTime::Every, nodes) };
    let sinks = cell.outputs.iter().enumerate().map(|(port, row)| {
        let value = graph.value(row.clone(), rows);
        let rows = if is_chain { Rows::one(value, 0) } else { Rows::all(value) };
        Sink { port, time, rows }
    });
    let sinks: Vec<Sink> = sinks.collect();
    if is_chain {
        graph.chain(id, nodes, inputs, vec![None; cell.states.len()], sinks);
    } else {
        graph.rows(id, nodes, inputs, sinks);
    }
    graph.finish().unwrap()
}

/// Inputs of a measurement: floats of 0.25, and ids of 0, which every table has.
fn inputs(cell_type: &CellType, nodes: u32) -> Vec<Tensor> {
    let input = |row: &RowSpec| {
        let mut shape = vec![nodes as usize];
        shape.extend(&row.shape);
        let len = shape.iter().product();
        let data = match row.element {
            ElementType::F32 => TensorData::F32(vec![0.25; len]),
            element => TensorData::zeros(element, len),
        };
        Tensor::new(shape, data)
    };
    cell_type.cell.inputs.iter().map(input).collect()
}
