//! The variants of a whole ONNX file: each takes other branches of its `If`s. A request is unfolded by the one whose
//! conditions it meets.

use std::sync::Arc;

use batchmaker_graph::{
    InvalidRequest, NamedTensor, Parameters, TensorData, Unfold, UnfoldError, Unfolded,
};

use crate::data::scalar::Scalar;
use crate::unfold::plan::UnfoldPlan;
use crate::unfold::planner::Planned;
use crate::unfold::unfolding::{TensorInfo, Unfolding};

/// A plan, and the conditions of the requests that it is for.
#[derive(Clone, Debug)]
struct Variant {
    plan: Arc<UnfoldPlan>,
    conditions: Vec<(Scalar, bool)>,
}

impl Variant {
    /// The reason that a sequence cannot come in chunks, by what chooses between variants.
    fn why_no_chunks(&self) -> Option<&'static str> {
        if self.conditions.iter().any(|(condition, _)| condition.reads_steps()) {
            return Some("it takes a branch by the length of its sequence");
        }
        let has_windows = self.plan.overlap.as_ref().is_ok_and(Option::is_some);
        let windows = has_windows.then_some("it takes windows of steps in a branch");
        self.plan.refuses_chunks.or(windows)
    }
}

/// The variants that were planned so far.
#[derive(Default)]
pub(crate) struct Variants {
    variants: Vec<Variant>,
    joined: Option<Unfolding>,
}

/// Chooses the variant of a request.
#[derive(Clone, Debug)]
struct Chooser {
    variants: Vec<Variant>,
    /// Why a request that meets the conditions of no variant is refused.
    refusal: String,
}

impl Variants {
    /// Adds a variant for requests that meet its conditions.
    pub(crate) fn add(&mut self, planned: Planned, conditions: Vec<(Scalar, bool)>) {
        let Planned { plan, unfolding } = planned;
        match &mut self.joined {
            None => self.joined = Some(unfolding),
            Some(joined) => {
                let inputs = joined.inputs.iter_mut().zip(unfolding.inputs);
                inputs.for_each(|(known, other)| join(&mut known.info, &other.info));
                let outputs = joined.outputs.iter_mut().zip(unfolding.outputs);
                outputs.for_each(|(known, other)| join(&mut known.info, &other.info));
                for cell in unfolding.cells {
                    if joined.cells.iter().all(|known| known.cell_type != cell.cell_type) {
                        joined.cells.push(cell);
                    }
                }
            }
        }
        self.variants.push(Variant { plan, conditions });
    }

    /// The unfolding by all variants; none if there is none. `reason` says why another branch is not served.
    pub(crate) fn joined(self, reason: Option<&str>) -> Option<Unfolding> {
        let mut unfolding = self.joined?;
        if self.variants.len() > 1 || !self.variants[0].conditions.is_empty() {
            let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
            let refusal =
                format!("the model takes a branch for this request that is not served{reason}");
            unfolding.unfolder = Arc::new(Chooser { variants: self.variants, refusal });
        }
        Some(unfolding)
    }
}

/// Axes that differ between variants are those that requests choose.
fn join(known: &mut TensorInfo, other: &TensorInfo) {
    for (length, other) in known.shape.iter_mut().zip(&other.shape) {
        if length != other {
            *length = -1;
        }
    }
}

impl Unfold for Chooser {
    fn unfold(
        &self,
        tensors: Vec<NamedTensor>,
        parameters: &Parameters,
    ) -> Result<Unfolded, UnfoldError> {
        let mut misfit = None;
        for Variant { plan, conditions } in &self.variants {
            let lengths = match plan.lengths(&tensors, false) {
                Ok(lengths) => lengths,
                Err(error) => {
                    misfit.get_or_insert(error);
                    continue;
                }
            };
            let input =
                |index: usize| -> Option<&TensorData> { Some(tensors.get(index)?.tensor.data()) };
            let holds = |(condition, is_true): &(Scalar, bool)| {
                let value = condition.value(&input, &|int| lengths.int(int));
                value.is_some_and(|value| value.is_true() == *is_true)
            };
            if conditions.iter().all(holds) {
                return plan.unfold(tensors, parameters);
            }
        }
        let refusal = || InvalidRequest(self.refusal.clone());
        Err(misfit.unwrap_or_else(refusal).into())
    }

    fn refuses_chunks(&self) -> Option<&str> {
        self.variants.iter().find_map(Variant::why_no_chunks)
    }
}
