//! The tensors of derived inputs, which are computed of those of a request.

use batchmaker_graph::{InvalidRequest, NamedTensor, Tensor};

use crate::analysis::derivation::{Derived, DerivedOperand};
use crate::data::elements::Elements;
use crate::unfold::lengths::Lengths;
use crate::unfold::plan::{Extent, PlanInput, UnfoldPlan};

impl UnfoldPlan {
    /// For each derived input its tensor, `[batch, steps, ...row]` as far as it has these axes; none where no cell reads it.
    ///
    /// # Errors
    /// An integer is divided by zero.
    pub(super) fn derived(
        &self,
        tensors: &[NamedTensor],
        lengths: &Lengths,
    ) -> Result<Vec<Option<Tensor>>, InvalidRequest> {
        let mut known: Vec<Option<Elements>> = vec![None; self.inputs.len()];
        let mut computed = Vec::new();
        for (index, input) in self.inputs.iter().enumerate() {
            let Some(derived) = &input.derived else { continue };
            for operand in &derived.operands {
                if let DerivedOperand::Rows { input, .. } = *operand
                    && known[input].is_none()
                {
                    known[input] = rows(&self.inputs[input], &tensors[input].tensor);
                }
            }
            let operand = |operand: &DerivedOperand| match operand {
                DerivedOperand::Rows { input, at, shape } => {
                    under(known[*input].as_ref()?, *at, shape)
                }
                DerivedOperand::Constant(elements) => Some(elements.clone()),
                DerivedOperand::Absent => None,
            };
            let operands: Vec<Option<Elements>> = derived.operands.iter().map(operand).collect();
            let refuse = |reason| InvalidRequest(format!("node `{}`: {reason}", input.name));
            let elements = derived.derivation.compute(&operands).map_err(refuse)?;
            let tensor = input.value.map(|_| tensor(input, derived, elements.clone(), lengths));
            computed.push(tensor);
            known[index] = Some(elements);
        }
        Ok(computed)
    }
}

/// The elements of an input as `[batch, steps, elements of a row]`, where an axis that it does not have is 1; none for text.
fn rows(input: &PlanInput, tensor: &Tensor) -> Option<Elements> {
    let place = |axis: usize| match input.axes[axis] {
        Extent::Batch => 0,
        Extent::Steps(_) | Extent::Both(_) => 1,
        Extent::Fixed(_) => 2,
    };
    let mut order: Vec<usize> = (0..input.axes.len()).collect();
    order.sort_by_key(|&axis| place(axis));
    let mut shape = vec![1; 3];
    for (axis, length) in tensor.shape().iter().enumerate() {
        shape[place(axis)] *= length;
    }
    Elements::of_tensor(shape, tensor.clone().permuted(&order).data())
}

/// Rows under a shape, or those of a step; none if there is no such step.
fn under(elements: &Elements, at: Option<i64>, shape: &[usize]) -> Option<Elements> {
    let steps = elements.shape()[1];
    let chosen = match at {
        Some(at) => {
            let step = usize::try_from(if at < 0 { steps as i64 + at } else { at }).ok()?;
            (step < steps).then(|| elements.gathered(1, &[step], &[1]))?
        }
        None => elements.clone(),
    };
    let shape = [&chosen.shape()[..2], shape].concat();
    Some(chosen.reshaped(shape))
}

/// The tensor of a derived input.
fn tensor(input: &PlanInput, derived: &Derived, elements: Elements, lengths: &Lengths) -> Tensor {
    let axes: Vec<usize> = input.axes.iter().map(|&axis| lengths.of(axis)).collect();
    let lead = axes.len() - derived.row.shape.len();
    let mut whole = vec![1, 1];
    for (extent, &length) in input.axes[..lead].iter().zip(&axes) {
        whole[usize::from(*extent != Extent::Batch)] = length;
    }
    whole.extend(&derived.row.shape);
    let row: Vec<usize> = elements.shape()[..2].iter().chain(&derived.row.shape).copied().collect();
    let data = elements.reshaped(row).expanded(&whole).into_data(derived.row.element);
    Tensor::new(axes, data)
}
