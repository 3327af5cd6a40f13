//! A model with its id among the models of an engine.

use batchmaker_graph::ModelId;
use batchmaker_model::Model;

/// A model with its id.
#[derive(Debug)]
pub(crate) struct ServedModel {
    pub(crate) id: ModelId,
    pub(crate) model: Model,
}
