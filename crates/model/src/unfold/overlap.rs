//! Windows over the steps of a sequence that comes in chunks.
//!
//! Windows reach back over the steps of chunks before. A session keeps as many of its last steps as later windows need,
//! and the next chunk brings them again before its own. Cells up to the last window compute all of these steps; what
//! they make of kept steps alone was answered already, and is left out from there on. So each step of a reply is
//! computed once, of the same numbers as in the whole sequence.

use std::collections::{BTreeSet, HashMap};

use batchmaker_graph::{KeptSteps, NamedTensor};

use crate::analysis::reach::{Dependence, Reach, settled};
use crate::data::axes::Axes;
use crate::data::symbol::Symbol;
use crate::unfold::plan::{Extent, PlanCell, PlanOutput, PlanValue, UnfoldPlan};

/// What a session keeps of its steps, and the cells that compute them again.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    /// The axis of the request's steps.
    axis: Symbol,
    /// The values of which new steps alone are read, from the cells up to the last windows: axis and reach of each.
    edges: Vec<(Symbol, Reach)>,
    /// The steps kept begin at a multiple of this.
    stride: usize,
    /// The most steps that are kept.
    max: usize,
    /// Whether each cell computes kept steps again.
    is_again: Vec<bool>,
    /// Whether an output is one for all steps so far.
    has_totals: bool,
}

/// The strides of all windows together are below this.
const STRIDE_MAX: i64 = 1 << 14;

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
            cell.sinks.iter().for_each(|sink| is_full[sink.value] &= is_again);
        }
        let later = cells.iter().zip(&is_again).filter(|(_, is_again)| !**is_again);
        let later = later.flat_map(|(cell, _)| cell.inputs.iter().map(|read| read.value));
        let read = later.chain(outputs.iter().map(|output| output.value));
        let (mut axis, mut stride, mut edges, mut max) = (None, 1_i64, Vec::new(), 0);
        for value in read.filter(|&value| is_full[value]).collect::<BTreeSet<_>>() {
            let Some(symbol) = values[value].domain.time else { continue };
            let Some(&Dependence::Steps(base, reach)) = dependences.get(&value) else {
                return Err(all_at_once);
            };
            let reach = settled(axes, symbol, base, reach)
                .ok_or("its steps depend on later steps of its sequence")?;
            if *axis.get_or_insert(base) != base {
                return Err("its steps are not those of its input");
            }
            stride = stride / gcd(stride, reach.stride) * reach.stride;
            if stride > STRIDE_MAX {
                return Err(all_at_once);
            }
            max = max.max(reach.high - reach.low);
            edges.push((symbol, reach));
        }
        let axis = axis.ok_or(all_at_once)?;
        let is_total = |output: &PlanOutput| values[output.value].domain.time.is_none();
        let has_totals = outputs.iter().any(is_total);
        let max = (max + 2 * stride) as usize;
        Ok(Some(Self { axis, edges, stride: stride as usize, max, is_again, has_totals }))
    }

    pub(super) fn is_again(&self, cell: usize) -> bool {
        self.is_again[cell]
    }

    pub(super) fn axis(&self) -> Symbol {
        self.axis
    }

    pub(super) fn has_totals(&self) -> bool {
        self.has_totals
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl UnfoldPlan {
    /// The axis of steps of each input that has one.
    fn axes_of_steps(&self, axis: Symbol) -> impl Iterator<Item = (&str, usize)> {
        self.inputs.iter().filter_map(move |input| {
            let of_steps = |extent: &Extent| *extent == Extent::Steps(axis);
            Some((&*input.name, input.axes.iter().position(of_steps)?))
        })
    }

    /// The steps that the session's next chunk needs again: see [`batchmaker_graph::Unfold::keep`].
    pub(super) fn steps_to_keep(&self, tensors: &[NamedTensor]) -> KeptSteps {
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
        let counts = self.counts(overlap.axis, length);
        let first = |&(symbol, reach): &(Symbol, Reach)| {
            let next = counts[symbol.0 as usize] as i64;
            usize::try_from(reach.stride * next + reach.low).unwrap_or(0)
        };
        let first = overlap.edges.iter().map(first).min().unwrap_or(length).min(length);
        let first = first / overlap.stride * overlap.stride;
        let tensors = with_steps.into_iter().map(|(tensor, axis)| NamedTensor {
            name: tensor.name.clone(),
            tensor: tensor.tensor.from_position(axis, first),
        });
        KeptSteps { steps: length - first, tensors: tensors.collect() }
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
        let bytes = self
            .inputs
            .iter()
            .filter(|input| input.axes.iter().any(|extent| *extent == Extent::Steps(overlap.axis)));
        let bytes = bytes.map(|input| {
            let fixed = input.axes.iter().map(|extent| match extent {
                Extent::Fixed(n) => *n,
                _ => 1,
            });
            let elements = fixed.fold(overlap.max, usize::saturating_mul);
            elements.saturating_mul(size_of::<i64>())
        });
        bytes.fold(0, usize::saturating_add)
    }
}
