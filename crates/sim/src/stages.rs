//! Models without recurrence, whose cells are divided into stages.

use std::ops::Range;

use batchmaker_graph::{
    CellGraph, CellGraphBuilder, CellTypeId, DecisionIndex, ElementType, Guard, ModelId, RowSpec,
    Rows, Sink, SinkTime,
};
use batchmaker_manager::{Delay, Policy, Stages, Staging};

use crate::rng::Rng;

/// A model: cells in their order, each of which reads what cells before it wrote, or the request's input.
#[derive(Clone, Debug)]
pub(crate) struct StagedModel {
    pub(crate) id: ModelId,
    cells: Vec<StagedCell>,
}

#[derive(Clone, Debug)]
struct StagedCell {
    cell_type: CellTypeId,
    /// What it reads: 0 is the request's input, others are the cells before.
    reads: Vec<usize>,
    /// Whether it has one row a request, and not one a step.
    is_whole: bool,
    /// Whether its last row decides.
    decides: bool,
    /// The cell before, which decides, and the truth value for which this one is needed.
    guard: Option<(usize, bool)>,
}

impl StagedModel {
    /// A model of most of `cells`, which are cell types in the order of stages, the first one among them.
    pub(crate) fn draw(
        id: ModelId,
        cells: impl Iterator<Item = CellTypeId>,
        rng: &mut Rng,
    ) -> Self {
        let mut drawn: Vec<StagedCell> = Vec::new();
        let has_decisions = rng.chance(50);
        for cell_type in cells {
            if !drawn.is_empty() && rng.chance(15) {
                continue;
            }
            // All calls of a cell have as many inputs.
            let count = 1 + cell_type.0 as usize % 2;
            let reads = (0..count).map(|_| rng.index(drawn.len() + 1)).collect();
            let is_whole = rng.chance(30);
            let deciding: Vec<usize> = (0..drawn.len()).filter(|&at| drawn[at].decides).collect();
            let is_guarded = !deciding.is_empty() && rng.chance(60);
            let guard = is_guarded.then(|| (*rng.pick(&deciding), rng.chance(50)));
            let decides = has_decisions && rng.chance(40);
            drawn.push(StagedCell { cell_type, reads, is_whole, decides, guard });
        }
        Self { id, cells: drawn }
    }

    /// The graph of a request of `length` steps.
    pub(crate) fn unfold(&self, length: u32) -> CellGraph {
        let row = || RowSpec::new(ElementType::F32, [1]);
        let mut graph = CellGraphBuilder::new();
        let mut values = vec![(graph.input(row(), length), length)];
        let mut decisions: Vec<Option<DecisionIndex>> = Vec::new();
        for cell in &self.cells {
            let rows = if cell.is_whole { 1 } else { length };
            let reads = cell.reads.iter().map(|&read| match values[read] {
                (value, of_value) if of_value == rows => Rows::all(value),
                (value, of_value) => Rows::listed(
                    value,
                    (0..rows).map(|row| row.min(of_value - 1)).collect::<Vec<_>>(),
                ),
            });
            let value = graph.value(row(), rows);
            let every = |port, value| Sink { port, time: SinkTime::Every, rows: Rows::all(value) };
            let mut sinks = vec![every(0, value)];
            let truth = cell.decides.then(|| {
                let truth = graph.value(RowSpec::new(ElementType::Bool, []), rows);
                sinks.push(every(1, truth));
                truth
            });
            let run = graph.rows(cell.cell_type, rows, reads.collect(), sinks);
            if let Some((decided_by, when)) = cell.guard {
                let decision = decisions[decided_by].expect("a cell that decides");
                graph.guard(run, Guard { decision, when });
            }
            decisions.push(truth.map(|truth| graph.decision(truth, rows - 1)));
            values.push((value, rows));
        }
        values[1..].iter().for_each(|&(value, _)| graph.output(value));
        graph.finish().expect("cells read what is written before")
    }
}

/// Divides `cells`, which are ids of cell types, into stages, with times of batches. Types before them are in any.
pub(crate) fn stages(cells: Range<u32>, rng: &mut Rng) -> Stages {
    let mut stage = 0;
    let of_cell = |cell| {
        stage += usize::from(cell > cells.start && rng.chance(60));
        stage
    };
    let of_cells: Vec<usize> = (0..cells.end).map(of_cell).collect();
    let times = (0..=stage).map(|_| {
        // From a device that takes all rows at once to one that takes them one by one.
        let width = *rng.pick(&[1, 4, 64]);
        let time = |size: u32| (size, 10_000 * u64::from(size.div_ceil(width)));
        if rng.chance(20) { Vec::new() } else { [1, 2, 4, 8, 16, 32, 64].map(time).into() }
    });
    let times = times.collect();
    Stages::new(of_cells, times)
}

/// Draws batches in stages or, now and then, batches that run as a whole.
pub(crate) fn policy(rng: &mut Rng) -> Policy {
    let Staging { batch_max, window_ns, .. } = staging(rng);
    match rng.chance(15) {
        true => Policy::Delayed(Delay { batch_max, window_ns }),
        false => Policy::Staged(staging(rng).into()),
    }
}

/// Draws the policy's numbers.
pub(crate) fn staging(rng: &mut Rng) -> Staging {
    let mut time_ns = |percent, max_ns| {
        if rng.chance(percent) { rng.log_within(1_000..=max_ns) } else { 0 }
    };
    // Batches of long sequences take some tenths of a second.
    let (window_ns, stretch_ns) = (time_ns(50, 5_000_000), time_ns(70, 1_000_000_000));
    Staging {
        pairs: rng.within(1..=4) as u32,
        pipelines: *rng.pick(&[None, Some(1), Some(1), Some(2)]),
        batch_max: rng.log_within(1..=200) as u32,
        active_max: if rng.chance(50) { u32::MAX } else { rng.log_within(1..=100) as u32 },
        window_ns,
        stretch_ns,
        split_margin_percent: rng.chance(60).then(|| *rng.pick(&[0, 0, 2, 30])),
    }
}
