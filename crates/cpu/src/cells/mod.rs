//! Cells: how batches of each kind of cell run.

pub(crate) mod batch_job;
pub(crate) mod composite_chains;
pub(crate) mod composite_program;
pub(crate) mod embedding;
pub(crate) mod materialized;
pub(crate) mod recurrent_chains;
pub(crate) mod sequence_level;
pub(crate) mod tree_nodes;
