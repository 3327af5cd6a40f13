//! A request of zeros to every model with programs, before any other: a model that the executor cannot run
//! is refused when it is loaded, and not at its first request.

use std::time::{Duration, Instant};

use batchmaker_engine::{Engine, EngineError, Request};
use batchmaker_model::Model;

use crate::error::BuildError;
use crate::zeros::{LENGTHS, zeros};

/// The most time that a model's first reply may take.
const PATIENCE: Duration = Duration::from_secs(3600);

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
