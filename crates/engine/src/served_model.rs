//! A model with its id among the models of an engine, and its policy.

use batchmaker_graph::{CellGraph, InvalidRequest, ModelId, RunKind};
use batchmaker_manager::Policy;
use batchmaker_model::Model;

use crate::error::EngineError;

/// A model with its id and its policy.
#[derive(Debug)]
pub(crate) struct ServedModel {
    pub(crate) id: ModelId,
    pub(crate) model: Model,
    pub(crate) policy: Policy,
}

impl ServedModel {
    /// Checks that the policy takes the graph.
    pub(crate) fn check_runs(&self, graph: &CellGraph) -> Result<(), EngineError> {
        if !self.policy.is_of_rows() || graph.runs().iter().all(|run| run.kind == RunKind::Rows) {
            return Ok(());
        }
        let policy = self.policy;
        let text = format!("the policy '{policy}' takes no nodes that read others of their cell");
        Err(InvalidRequest(text).into())
    }

    /// Checks that the policy takes sessions.
    pub(crate) fn check_sessions(&self) -> Result<(), EngineError> {
        if self.policy == Policy::Cellular {
            return Ok(());
        }
        let text = "sessions need the policy 'cellular': closed batches take whole sequences";
        Err(InvalidRequest(text.to_owned()).into())
    }
}
