//! Execution strategies: the ways to run a batch, plans, and the choice among them while batches run.

pub(crate) mod execution_strategy;
pub(crate) mod plan;
pub(crate) mod tuner;
