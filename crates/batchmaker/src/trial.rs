//! A request of zeros to every model with programs, before any other: a model that the executor cannot run
//! is refused when it is loaded, and not at its first request.

use std::time::{Duration, Instant};

use batchmaker_engine::{Engine, EngineError, Request};
use batchmaker_graph::{NamedTensor, Tensor, TensorData};
use batchmaker_model::{Content, InputLayout, Model, TensorInfo};

use crate::error::BuildError;

/// Numbers of steps to try: a model may take no fewer than some, or only its own.
const LENGTHS: [usize; 8] = [4, 1, 2, 8, 16, 64, 256, 1024];

/// The most time that a model's first reply may take.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A larger tensor is not made up.
const ELEMENTS_MAX: usize = 1 << 24;

/// Asks each model once.
///
/// # Errors
/// A model fails.
pub(crate) fn ask_all(engine: &Engine) -> Result<(), BuildError> {
    for model in engine.models() {
        if model.cells.iter().all(|cell| cell.fused) {
            continue;
        }
        match ask(engine, model) {
            // One that takes none of these is asked by its clients first.
            Ok(()) | Err(EngineError::Invalid(_) | EngineError::Reply(_)) => {}
            Err(source) => {
                return Err(BuildError::Trial { model: model.name.clone(), source });
            }
        }
    }
    Ok(())
}

fn ask(engine: &Engine, model: &Model) -> Result<(), EngineError> {
    let mut answer = Ok(());
    for length in LENGTHS {
        let Some(tensors) = zeros(model, length) else { return Ok(()) };
        let mut request = Request::from(tensors);
        // The time that requests have by default says nothing about the first.
        request.deadline = Some(Instant::now() + PATIENCE);
        answer = engine.submit(&model.name, request).and_then(|pending| pending.wait().map(drop));
        if !matches!(answer, Err(EngineError::Invalid(_))) {
            break;
        }
    }
    answer
}

/// A request of one sequence; none where that is not made of numbers, or of too many.
fn zeros(model: &Model, length: usize) -> Option<Vec<NamedTensor>> {
    let layouts = model.layouts();
    let inputs = model.inputs.iter().zip(layouts).filter(|(_, layout)| !layout.optional);
    let tensor = |(info, layout): (&TensorInfo, InputLayout)| {
        if !matches!(layout.content, Content::Numbers | Content::Ids(_)) {
            return None;
        }
        let shape = layout.shape(length);
        let count = shape.iter().try_fold(1usize, |count, &n| count.checked_mul(n))?;
        let data = (count <= ELEMENTS_MAX).then(|| TensorData::zeros(info.element, count))?;
        Some(NamedTensor { name: info.name.clone(), tensor: Tensor::new(shape, data) })
    };
    inputs.map(tensor).collect()
}
