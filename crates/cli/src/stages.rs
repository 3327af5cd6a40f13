//! Cuts a model into stages for `batchmaker profile` (DVABatch, section 7.1).

use anyhow::{Context as _, bail};
use batchmaker::{Loaded, Model, StageStarts, rows_of_request};
use batchmaker_device::Device;
use batchmaker_profile::{
    ModelStages, Piece, PieceCells, measure_pieces, measure_pieces_at, preferred_size, slice,
    times_of,
};

use crate::models::only_model;
use crate::profile::Subject;

/// Numbers of stages to choose from.
const COUNTS: [usize; 5] = [2, 3, 4, 6, 8];

/// A batch may take so much longer in all stages together than in one: what is kept of members that need not wait is more.
const SLOWER_MAX: f64 = 1.03;

/// Steps of a sequence, unless others are asked for or the model takes none of so many.
const STEPS: usize = 64;

/// Cuts a model into stages.
pub(crate) struct Slicer<'a> {
    pub(crate) subject: &'a Subject<'a>,
    pub(crate) device: &'a dyn Device,
    pub(crate) steps: Option<usize>,
}

impl Slicer<'_> {
    /// The stages of the model, `count` of them or as many as slow no batch down; none if it cannot be cut. `tell` is called with
    /// what is measured next.
    ///
    /// # Errors
    /// The model or the device fails, or a model that cannot be cut is to have several stages.
    pub(crate) fn stages(
        &self,
        count: Option<usize>,
        mut tell: impl FnMut(String),
    ) -> anyhow::Result<Option<ModelStages>> {
        let (starts, cells) = self.cut(StageStarts::All)?;
        let Some(cells) = cells.filter(|_| !starts.is_empty()) else {
            if count.is_some_and(|count| count > 1) {
                bail!(
                    "the model has no operator that a stage may begin with: it is recurrent, takes other than numbers, or has too few of \
                     them"
                );
            }
            return Ok(None);
        };
        tell(format!("the {} pieces that stages may be made of", cells.len()));
        let pieces = measure_pieces(self.device, &cells, self.steps, &mut || true)?;
        let starts = match count {
            Some(count) => starts_of(&pieces, count),
            None => self.choose(&pieces, &mut tell)?,
        };
        tell(format!("{} stages", starts.len() + 1));
        let (_, cells) = self.cut(StageStarts::Named(starts))?;
        let cells = cells.context("a model that was cut")?;
        let stages = measure_pieces(self.device, &cells, self.steps, &mut || true)?;
        Ok(Some(ModelStages::of(&stages)))
    }

    /// The starts of as many stages as take no longer than the whole, for one request and for a batch of the size that the model
    /// prefers.
    fn choose(
        &self,
        pieces: &[Piece],
        tell: &mut impl FnMut(String),
    ) -> anyhow::Result<Vec<String>> {
        let mut sizes = vec![1, preferred_size(&times_of(pieces)).unwrap_or(1)];
        sizes.dedup();
        let mut chosen = Vec::new();
        let mut limits: Option<Vec<f64>> = None;
        for count in [1].into_iter().chain(COUNTS).filter(|&count| count <= pieces.len()) {
            tell(format!("{count} stages, to choose their number"));
            let starts = starts_of(pieces, count);
            let (_, cells) = self.cut(StageStarts::Named(starts.clone()))?;
            let cells = cells.context("a model that was cut")?;
            let stages = measure_pieces_at(self.device, &cells, &sizes, self.steps, &mut || true)?;
            let times: Vec<f64> = times_of(&stages).iter().map(|time| time.1 as f64).collect();
            let limits =
                limits.get_or_insert_with(|| times.iter().map(|time| SLOWER_MAX * time).collect());
            if times.iter().zip(limits.iter()).all(|(time, limit)| time <= limit) {
                chosen = starts;
            }
        }
        Ok(chosen)
    }

    /// Loads the model cut, and gives the nodes that begin stages, and each stage's cells. No cells of a model whose requests are not
    /// numbers.
    fn cut(&self, stages: StageStarts) -> anyhow::Result<(Vec<String>, Option<Vec<PieceCells>>)> {
        let loaded = self.subject.load_in_stages(stages)?.loaded;
        let model = only_model(&loaded.models, self.subject.path())?;
        Ok((model.stage_starts.clone(), self.cells(&loaded, model)))
    }

    fn cells(&self, loaded: &Loaded, model: &Model) -> Option<Vec<PieceCells>> {
        let rows = rows_of_request(model, self.steps.unwrap_or(STEPS))?;
        let starts = [String::new()].into_iter().chain(model.stage_starts.iter().cloned());
        let mut pieces: Vec<PieceCells> =
            starts.map(|start| PieceCells { start, cells: Vec::new() }).collect();
        // Cells that share a type have all its rows together.
        for (&cell_type, &rows) in &rows {
            let cell = loaded.registry.get(cell_type);
            pieces[cell.stage].cells.push((cell.clone(), rows));
        }
        Some(pieces)
    }
}

/// The nodes that begin `count` stages.
fn starts_of(pieces: &[Piece], count: usize) -> Vec<String> {
    slice(pieces, count).into_iter().map(|at| pieces[at].start.clone()).collect()
}
