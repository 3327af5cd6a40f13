//! How long the batches of a run take at the kernels' own rate: each cell type run alone on a
//! device of its own, with no manager, no arrivals and no replies. What a run spent beyond that is
//! what the system around the kernels costs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use batchmaker_device::{Device, DeviceError, LoneWorker};
use batchmaker_engine::CellStatistics;
use batchmaker_graph::{
    CellGraph, CellGraphBuilder, CellType, CellTypeId, ElementType, Item, Join, RequestId, Rows,
    RunIndex, Sink, SinkTime, SlotId, Tensor, TensorData, Work, WorkerId,
};

/// Steps of a chain that are given at once.
const STEPS: u32 = 24;

/// A batch size is measured for so long at least, after a warm-up of the same length.
const MEASURED: Duration = Duration::from_millis(120);

/// And so often at least.
const RUNS_MIN: usize = 15;

/// Seconds a batch, by cell type and batch size.
#[derive(Clone, Debug)]
pub struct KernelRate {
    /// `(size, seconds)`, sizes ascending.
    by_cell: Vec<Vec<(usize, f64)>>,
}

impl KernelRate {
    /// Measures every cell type on a queue of `device`, which has materialised them and runs
    /// nothing else, at powers of two and halfway between, up to the type's limit.
    ///
    /// # Errors
    /// Where the device has no queue.
    pub fn measure(device: &Arc<dyn Device>, cell_types: &[CellType]) -> Result<Self, DeviceError> {
        let mut bench = CellsAlone::new(device.clone())?;
        let by_cell = (0..).zip(cell_types).map(|(id, cell_type)| {
            let limit = cell_type.max_batch_size as usize;
            let time =
                |size| (size, bench.batch_s(CellTypeId(id), cell_type, size, Effort::default()));
            sizes(limit).into_iter().map(time).collect()
        });
        Ok(Self { by_cell: by_cell.collect() })
    }

    /// The mean of several measurements of the same cell types; none of none.
    pub fn mean(measured: &[Self]) -> Option<Self> {
        let mut sum = measured.first()?.clone();
        for (of_cell, times) in sum.by_cell.iter_mut().enumerate() {
            for (at, (_, mean)) in times.iter_mut().enumerate() {
                let total: f64 = measured.iter().map(|one| one.by_cell[of_cell][at].1).sum();
                *mean = total / measured.len() as f64;
            }
        }
        Some(sum)
    }

    /// Of all batches that `cells` counts, in the order of the cell types.
    pub fn seconds(&self, cells: &[CellStatistics]) -> f64 {
        let of_cell = |(cell, times): (&CellStatistics, &Vec<(usize, f64)>)| -> f64 {
            let batches = cell.batches_by_size.iter().enumerate().filter(|(_, count)| **count > 0);
            batches.map(|(size, &count)| count as f64 * interpolated(times, size)).sum()
        };
        cells.iter().zip(&self.by_cell).map(of_cell).sum()
    }
}

/// Powers of two up to the limit, halfway between them, and the limit.
fn sizes(limit: usize) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|bit| 1_usize << bit).take_while(|&size| size <= limit);
    let mut sizes: Vec<usize> = powers.flat_map(|size| [size, size + size / 2]).collect();
    sizes.push(limit);
    sizes.retain(|&size| size <= limit);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Between the neighbours in `times`; beyond them, in proportion.
fn interpolated(times: &[(usize, f64)], size: usize) -> f64 {
    let after = times.partition_point(|&(known, _)| known < size);
    match (after.checked_sub(1).map(|before| times[before]), times.get(after)) {
        (_, Some(&(known, time))) if known == size => time,
        (Some((a, time_a)), Some(&(b, time_b))) => {
            time_a + (time_b - time_a) * (size - a) as f64 / (b - a) as f64
        }
        (Some((known, time)), None) | (None, Some(&(known, time))) => {
            time * size as f64 / known as f64
        }
        (None, None) => 0.0,
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// At least, after a warm-up of the same length.
    pub time: Duration,
    /// At least.
    pub runs: usize,
    /// Steps of a chain that are given at once.
    pub steps: u32,
}

impl Default for Effort {
    fn default() -> Self {
        Self { time: MEASURED, runs: RUNS_MIN, steps: STEPS }
    }
}

/// Cells of a device that runs nothing else: one of its workers, and what that has been given.
pub struct CellsAlone {
    worker: LoneWorker,
    requests: u32,
}

impl CellsAlone {
    /// Cells that the device has materialised.
    ///
    /// # Errors
    /// Where the device has no queue.
    pub fn new(device: Arc<dyn Device>) -> Result<Self, DeviceError> {
        Ok(Self { worker: LoneWorker::new(device, WorkerId(0))?, requests: 0 })
    }

    /// Seconds of a batch of `size`, a step where the cell has states: the median.
    pub fn batch_s(
        &mut self,
        id: CellTypeId,
        cell_type: &CellType,
        size: usize,
        effort: Effort,
    ) -> f64 {
        let is_chain = !cell_type.cell.states.is_empty();
        let nodes = if is_chain { effort.steps } else { size as u32 };
        let graph = Arc::new(graph(id, cell_type, nodes, is_chain));
        let first = self.requests;
        let count = if is_chain { size as u32 } else { 1 };
        self.requests += count;
        let requests = first..self.requests;
        for index in requests.clone() {
            let inputs = inputs(cell_type, nodes);
            let admitted = self.worker.device().admit(request(index), graph.clone(), inputs);
            admitted.expect("a device that runs nothing else has room");
        }
        let slot = |index: u32| SlotId { index: index - first, generation: 0 };
        let mut is_in = false;
        let mut run = |bench: &mut Self| {
            let start = Instant::now();
            let work = if is_chain {
                let join = |index| Join {
                    request: request(index),
                    run: RunIndex(0),
                    slot: slot(index),
                    step: 0,
                    moved_from: None,
                };
                let leaves = if is_in { requests.clone().map(slot).collect() } else { Vec::new() };
                is_in = true;
                Work::Roster { leaves, joins: requests.clone().map(join).collect(), steps: nodes }
            } else {
                let (request, run) = (request(first), RunIndex(0));
                let (count, slot, moved_from) = (nodes, None, None);
                Work::Rows(vec![Item { request, run, first: 0, count, slot, moved_from }])
            };
            let done = bench.worker.run(id, work);
            done.result.expect("the cell runs");
            start.elapsed()
        };
        let mut times = Vec::new();
        for is_measured in [false, true] {
            let start = Instant::now();
            let mut runs = 0;
            while start.elapsed() < effort.time || runs < effort.runs {
                let time = run(self);
                times.extend(is_measured.then_some(time));
                runs += 1;
            }
        }
        times.sort_unstable();
        let batches = if is_chain { nodes } else { 1 };
        times[times.len() / 2].as_secs_f64() / f64::from(batches)
    }
}

fn request(index: u32) -> RequestId {
    RequestId { index, generation: 0 }
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
    graph.finish()
}

/// Zeros: ids that every table has, and numbers like any other to the arithmetic.
fn inputs(cell_type: &CellType, nodes: u32) -> Vec<Tensor> {
    let input = |row: &batchmaker_graph::RowSpec| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_at_the_limit() {
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(20), [1, 2, 3, 4, 6, 8, 12, 16, 20]);
    }

    #[test]
    fn batches_add_up_at_their_times() {
        let rate = KernelRate { by_cell: vec![vec![(1, 1.0), (2, 1.5), (4, 2.5)]] };
        let slower = KernelRate { by_cell: vec![vec![(1, 1.0), (2, 2.5), (4, 2.5)]] };
        let mean = KernelRate::mean(&[rate.clone(), slower]).unwrap();
        assert_eq!(mean.by_cell, [vec![(1, 1.0), (2, 2.0), (4, 2.5)]]);
        let cell = |batches_by_size: &[u64]| CellStatistics {
            batches_by_size: batches_by_size.to_vec(),
            ..CellStatistics::default()
        };
        assert_eq!(rate.seconds(&[cell(&[0, 3, 1])]), 4.5);
        assert_eq!(rate.seconds(&[cell(&[0, 0, 0, 2])]), 4.0, "3 is between 2 and 4");
        assert_eq!(rate.seconds(&[cell(&[0, 0, 0, 0, 0, 0, 0, 0, 1])]), 5.0, "8 is twice 4");
    }
}
