//! Windows over the steps of a sequence that comes in chunks.
//!
//! Windows reach back over the steps of chunks before. A session keeps as many of its last steps as later windows need,
//! and the next chunk brings them again before its own. Cells up to the last window compute all of these steps; what
//! they make of kept steps alone was answered already, and is left out from there on. So each step of a reply is
//! computed once, of the same numbers as in the whole sequence.

use std::collections::{BTreeSet, HashMap};

use batchmaker_graph::{KeptSteps, NamedTensor};

use crate::analysis::reach::{Dependence, Reach, count, settled};
use crate::data::axes::Axes;
use crate::data::symbol::Symbol;
use crate::unfold::plan::{
    Extent, Overlap, PlanCell, PlanInput, PlanOutput, PlanValue, UnfoldPlan,
};

/// The most steps of a request that one of its reply waits for.
const STEPS_MAX: i64 = 1 << 14;

/// A kernel may compute this many steps together, counted from the first one that it is given. The bits of a step then depend on whether it is the
/// first or the second of them.
const TILE_STEPS: i64 = 2;

impl Overlap {
    /// The overlap of a plan; none if no cell takes several steps at once. `dependences` are those of its values.
    ///
    /// # Errors
    /// The reason that a sequence cannot come in chunks.
    pub(crate) fn of(
        axes: &Axes,
        (values, cells, outputs): (&[PlanValue], &[PlanCell], &[PlanOutput]),
        dependences: &HashMap<usize, Dependence>,
    ) -> Result<Option<Self>, &'static str> {
        if !cells.iter().any(|cell| cell.is_sequence_level) {
            return Ok(None);
        }
        let all_at_once = "a part of it takes all steps at once";
        // Values that windows are computed of, and cells that compute these.
        let mut needed: BTreeSet<usize> = BTreeSet::new();
        let mut is_again = vec![false; cells.len()];
        for (index, cell) in cells.iter().enumerate().rev() {
            let is_needed = cell.sinks.iter().any(|sink| needed.contains(&sink.value));
            if !(cell.is_sequence_level || is_needed) {
                continue;
            }
            if cell.chain.is_some() || cell.inputs.iter().any(|read| read.at.is_some()) {
                return Err(all_at_once);
            }
            is_again[index] = true;
            needed.extend(cell.inputs.iter().map(|read| read.value));
        }
        let mut is_full = vec![true; values.len()];
        for (cell, is_again) in cells.iter().zip(&is_again) {
            let times = cell.sinks.iter().map(|sink| values[sink.value].domain.time);
            let times: BTreeSet<_> = times.flatten().map(|axis| axes.find(axis)).collect();
            // All of its windows are there, or none is.
            if cell.is_sequence_level && times.len() > 1 {
                return Err(all_at_once);
            }
            for sink in &cell.sinks {
                let is_total = values[sink.value].domain.time.is_none();
                let depends = dependences.get(&sink.value) != Some(&Dependence::Nothing);
                if *is_again && is_total && depends {
                    return Err(all_at_once);
                }
                is_full[sink.value] &= is_again;
            }
        }
        let later = cells.iter().zip(&is_again).filter(|(_, is_again)| !**is_again);
        let later = later.flat_map(|(cell, _)| cell.inputs.iter().map(|read| read.value));
        let read = later.chain(outputs.iter().map(|output| output.value));
        let mut found: Option<(Symbol, Symbol, Reach)> = None;
        for value in read.filter(|&value| is_full[value]).collect::<BTreeSet<_>>() {
            let Some(symbol) = values[value].domain.time else { continue };
            let Some(&Dependence::Steps(base, reach)) = dependences.get(&value) else {
                return Err(all_at_once);
            };
            let reach = settled(axes, symbol, base, reach)
                .ok_or("its steps depend on later steps of its sequence")?;
            let (axis, replied, all) = found.get_or_insert((base, axes.find(symbol), reach));
            if (*axis, *replied) != (base, axes.find(symbol)) {
                return Err("its steps are not those of its input");
            }
            *all = all.and(reach);
        }
        let (axis, replied, reach) = found.ok_or(all_at_once)?;
        if reach.stride > STEPS_MAX {
            return Err(all_at_once);
        }
        let has_all = |&length: &usize| {
            let mut counts = axes.all().filter_map(|symbol| count(axes, symbol, axis, length));
            counts.all(|count| count > 0)
        };
        let least = (1..STEPS_MAX as usize).find(has_all).ok_or(all_at_once)?;
        let is_total = |output: &PlanOutput| values[output.value].domain.time.is_none();
        let has_totals = outputs.iter().any(is_total);
        Ok(Some(Self { axis, replied, reach, least, is_again, has_totals }))
    }
}

impl UnfoldPlan {
    /// The axis of steps of each input that has one.
    fn axes_of_steps(&self, axis: Symbol) -> impl Iterator<Item = (&str, usize)> {
        self.inputs.iter().filter_map(move |input| {
            let of_steps = |extent: &Extent| *extent == Extent::Steps(axis);
            Some((&*input.name, input.axes.iter().position(of_steps)?))
        })
    }

    /// The steps of the reply, by the lengths of all axes; 0 where windows wait for their first steps.
    pub(super) fn reply_steps(&self, overlap: &Overlap, lengths: &[usize]) -> usize {
        let of = |axis: Symbol| lengths[axis.0 as usize];
        if of(overlap.axis) < overlap.least { 0 } else { of(overlap.replied) }
    }

    /// The steps that the session's next chunk needs again: see [`batchmaker_graph::Unfold::keep`].
    pub(super) fn steps_to_keep(&self, tensors: &[NamedTensor], answered: usize) -> KeptSteps {
        let Ok(Some(overlap)) = &self.overlap else { return KeptSteps::default() };
        let with_steps: Vec<(&NamedTensor, usize)> = self
            .axes_of_steps(overlap.axis)
            .filter_map(|(name, axis)| {
                let tensor = tensors.iter().find(|tensor| tensor.name == name)?;
                (axis < tensor.tensor.shape().len()).then_some((tensor, axis))
            })
            .collect();
        let Some(length) =
            with_steps.iter().map(|(tensor, axis)| tensor.tensor.shape()[*axis]).min()
        else {
            return KeptSteps::default();
        };
        let next = self.reply_steps(overlap, &self.counts(overlap.axis, length)).max(answered);
        // Windows over what is kept begin where they do in the whole sequence, steps are computed together with the same others, and there is one of each window.
        let Reach { stride, low, .. } = overlap.reach;
        let first = usize::try_from(stride * next as i64 + low).unwrap_or(0);
        let (first, stride) = (first.min(length.saturating_sub(overlap.least)), stride as usize);
        let tile = stride * TILE_STEPS as usize;
        let first = first / tile * tile;
        let answered = next - first / stride;
        let tensors = with_steps.into_iter().map(|(tensor, axis)| NamedTensor {
            name: tensor.name.clone(),
            tensor: tensor.tensor.from_position(axis, first),
        });
        KeptSteps { answered, tensors: tensors.collect() }
    }

    /// Puts kept steps before those of a chunk: see [`batchmaker_graph::Unfold::join`].
    pub(super) fn after_kept(
        &self,
        kept: &KeptSteps,
        mut chunk: Vec<NamedTensor>,
    ) -> Vec<NamedTensor> {
        let Ok(Some(overlap)) = &self.overlap else { return chunk };
        for (name, axis) in self.axes_of_steps(overlap.axis) {
            let before = kept.tensors.iter().find(|tensor| tensor.name == name);
            let after = chunk.iter_mut().find(|tensor| tensor.name == name);
            // What does not fit is refused as it is.
            if let (Some(before), Some(after)) = (before, after)
                && let Some(joined) = before.tensor.followed_by(axis, &after.tensor)
            {
                after.tensor = joined;
            }
        }
        chunk
    }

    /// The most bytes of steps that a session keeps.
    pub(super) fn kept_bytes(&self) -> usize {
        let Ok(Some(overlap)) = &self.overlap else { return 0 };
        let is_kept = |input: &&PlanInput| {
            input.derived.is_none() && input.axes.contains(&Extent::Steps(overlap.axis))
        };
        let bytes = self.inputs.iter().filter(is_kept);
        let bytes = bytes.map(|input| {
            let fixed = input.axes.iter().map(|extent| match extent {
                Extent::Fixed(n) => *n,
                _ => 1,
            });
            let Reach { stride, low, high } = overlap.reach;
            let steps = (high - low + (1 + TILE_STEPS) * stride) as usize + overlap.least;
            let elements = fixed.fold(steps, usize::saturating_mul);
            elements.saturating_mul(size_of::<i64>())
        });
        bytes.fold(0, usize::saturating_add)
    }
}
