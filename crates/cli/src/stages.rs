//! Cuts a model into stages for `batchmaker profile` (DVABatch, section 7.1).

use std::time::Duration;

use anyhow::{Context as _, bail};
use batchmaker::{Loaded, Model, StageStarts, has_lengths, rows_of_request, stages_pay};
use batchmaker_device::Device;
use batchmaker_profile::{
    MeasureError, ModelStages, Piece, PieceCells, fast_size, measure_pieces, preferred_size, slice,
    stages_of_decisions, times_of,
};

use crate::models::only_model;
use crate::subject::Subject;

/// Sizes of batches that pieces and stages are measured at.
const SIZES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// A size of batch with which the whole takes longer is the last that is measured.
const LONGEST: Duration = Duration::from_secs(2);

/// Numbers of stages to choose from.
const COUNTS: [usize; 5] = [2, 3, 4, 6, 8];

/// For each number of stages, the cut model and the whole are measured this many times, in turns.
const TURNS: usize = 3;

/// Stages are chosen only if a batch takes at most this many times as long in all of them as in the whole model.
const SLOWER_MAX: f64 = 1.02;

/// The number of steps of a sequence if `--steps` gives none.
const STEPS: usize = 64;

/// Cuts a model into stages.
pub(crate) struct Slicer<'a> {
    pub(crate) subject: &'a Subject<'a>,
    pub(crate) device: &'a dyn Device,
    pub(crate) steps: Option<usize>,
}

impl Slicer<'_> {
    /// Checks that the model can be cut into stages.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let (starts, cut) = self.cut(StageStarts::All)?;
        if starts.is_empty() || cut.is_none() {
            bail!(
                "the model cannot be cut into stages: it has recurrent operators, branches by what a request brings, several files, \
                 inputs other than numbers, or too few operators that take time"
            );
        }
        Ok(())
    }

    /// The stages of the model, `count` of them, or as many as slow no batch down, if they bring anything; none if it cannot be cut. A stage begins
    /// with each decision in any case, if there are not too many. `tell` is called with what is measured next.
    ///
    /// # Errors
    /// The model or the device fails.
    pub(crate) fn stages(
        &self,
        count: Option<usize>,
        mut tell: impl FnMut(String),
    ) -> anyhow::Result<Option<ModelStages>> {
        let (starts, cells) = self.cut(StageStarts::All)?;
        let Some(cells) = cells.filter(|_| !starts.is_empty()) else { return Ok(None) };
        let (starts, fewest) = if count == Some(1) {
            (Vec::new(), Vec::new())
        } else {
            tell(format!("the {} pieces that stages may be made of", starts.len() + 1));
            let pieces = self.measure(&cells, &SIZES, LONGEST)?;
            let fewest = starts_of(&pieces, stages_of_decisions(&pieces));
            match count {
                Some(count) => (starts_of(&pieces, count), fewest),
                None => (self.choose(&pieces, &mut tell)?, fewest),
            }
        };
        let mut stages = self.measure_stages(starts, &mut tell)?;
        if count.is_none() && stages.starts != fewest && !stages_pay(&stages, cells.is_varied) {
            stages = self.measure_stages(fewest, &mut tell)?;
        }
        let short_batch = self.short_batch(stages.starts.clone(), &mut tell)?;
        Ok(Some(ModelStages { short_batch, ..stages }))
    }

    /// Measures the stages that begin with these nodes.
    fn measure_stages(
        &self,
        starts: Vec<String>,
        tell: &mut impl FnMut(String),
    ) -> anyhow::Result<ModelStages> {
        tell(match starts.len() {
            0 => "the whole model as one stage".to_owned(),
            starts => format!("{} stages", starts + 1),
        });
        let cells = self.cut_at(starts)?;
        Ok(ModelStages::of(&self.measure(&cells, &SIZES, LONGEST)?))
    }

    /// The fast size of batches of short sequences; none where all requests are alike.
    fn short_batch(
        &self,
        starts: Vec<String>,
        tell: &mut impl FnMut(String),
    ) -> anyhow::Result<Option<u32>> {
        let short = Self { steps: Some((self.steps.unwrap_or(STEPS) / 4).max(1)), ..*self };
        let loaded = short.subject.load_in_stages(StageStarts::Named(starts))?.loaded;
        let model = only_model(&loaded.models, self.subject.path())?;
        let cells = short.cells(&loaded, model).filter(|cut| cut.steps == short.steps);
        let Some(cells) = cells.filter(|_| has_lengths(model)) else { return Ok(None) };
        tell("batches of short sequences".to_owned());
        let pieces = short.measure(&cells, &SIZES, LONGEST)?;
        Ok(fast_size(&times_of(&pieces)))
    }

    /// The starts of as many stages as take no longer than the fewest, for one request and for batches of the sizes that the model
    /// prefers and is served in.
    fn choose(
        &self,
        pieces: &[Piece],
        tell: &mut impl FnMut(String),
    ) -> anyhow::Result<Vec<String>> {
        let times = times_of(pieces);
        let mut sizes = vec![1];
        sizes.extend([preferred_size(&times), fast_size(&times)].into_iter().flatten());
        sizes.dedup();
        let fewest = stages_of_decisions(pieces);
        let mut chosen = starts_of(pieces, fewest);
        let whole = self.cut_at(chosen.clone())?;
        let counts = COUNTS.into_iter().filter(|&count| fewest < count && count <= pieces.len());
        for count in counts {
            tell(format!("{count} stages, to choose their number"));
            let starts = starts_of(pieces, count);
            let cut = self.cut_at(starts.clone())?;
            // In turns, the least of each: what else the machine does is no matter.
            let mut least = [vec![f64::INFINITY; sizes.len()], vec![f64::INFINITY; sizes.len()]];
            for _ in 0..TURNS {
                for (least, stages) in least.iter_mut().zip([&whole, &cut]) {
                    let stages = self.measure(stages, &sizes, Duration::MAX)?;
                    for (least, (_, ns)) in least.iter_mut().zip(times_of(&stages)) {
                        *least = least.min(ns as f64);
                    }
                }
            }
            let [of_whole, of_cut] = least;
            if of_cut.iter().zip(&of_whole).all(|(cut, whole)| *cut <= SLOWER_MAX * whole) {
                chosen = starts;
            }
        }
        Ok(chosen)
    }

    /// The stages of the model, cut at these nodes.
    fn cut_at(&self, starts: Vec<String>) -> anyhow::Result<Cut> {
        let (_, cells) = self.cut(StageStarts::Named(starts))?;
        cells.context("a model whose requests are numbers")
    }

    fn measure(
        &self,
        cut: &Cut,
        sizes: &[u32],
        longest: Duration,
    ) -> Result<Vec<Piece>, MeasureError> {
        measure_pieces(self.device, &cut.pieces, sizes, longest, cut.steps, &mut || true)
    }

    /// Loads the model cut, and gives the nodes that begin stages, and the stages. No stages of a model whose requests are not
    /// numbers.
    fn cut(&self, stages: StageStarts) -> anyhow::Result<(Vec<String>, Option<Cut>)> {
        let loaded = self.subject.load_in_stages(stages)?.loaded;
        let model = only_model(&loaded.models, self.subject.path())?;
        Ok((model.stage_starts.clone(), self.cells(&loaded, model)))
    }

    fn cells(&self, loaded: &Loaded, model: &Model) -> Option<Cut> {
        let wanted = self.steps.unwrap_or(STEPS);
        let (rows, taken) = rows_of_request(model, wanted)?;
        let starts = [String::new()].into_iter().chain(model.stage_starts.iter().cloned());
        let piece = |start: String| {
            let is_decided = model.decided_starts.contains(&start);
            PieceCells { start, is_decided, cells: Vec::new() }
        };
        let mut pieces: Vec<PieceCells> = starts.map(piece).collect();
        // Cells that share a type have all its rows together.
        for (&cell_type, &rows) in &rows {
            let cell = loaded.registry.get(cell_type);
            pieces[cell.stage].cells.push((cell.clone(), rows));
        }
        let steps = if taken == wanted { self.steps } else { Some(taken) };
        Some(Cut { pieces, steps, is_varied: has_lengths(model) })
    }
}

/// A model that is cut, to be measured.
struct Cut {
    pieces: Vec<PieceCells>,
    /// The steps of each sequence; none: as many as a cell takes.
    steps: Option<usize>,
    /// Whether requests bring sequences of different lengths.
    is_varied: bool,
}

/// The nodes that begin `count` stages.
fn starts_of(pieces: &[Piece], count: usize) -> Vec<String> {
    slice(pieces, count).into_iter().map(|at| pieces[at].start.clone()).collect()
}
