//! Execution strategies: which there are, the plans that measurements make of them, and the choice among them
//! while batches run.
//!
//! | file | idea |
//! |---|---|
//! | `execution_strategy.rs` | how threads divide a batch, and whether inputs are projected before the steps |
//! | `plan.rs` | the strategies that a measurement found for batches of a cell |
//! | `tuner.rs` | the choice of the fastest strategy, by the times of the batches that run |

pub(crate) mod execution_strategy;
pub(crate) mod plan;
pub(crate) mod tuner;
