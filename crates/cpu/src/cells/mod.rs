//! Cells: how batches of each kind of cell run.
//!
//! | file | idea |
//! |---|---|
//! | `packing.rs` | the weights of a recurrent cell, packed for the kernels |
//! | `batch_job.rs` | some steps of a batch, divided among threads |
//! | `embedding.rs` | an embedding in front of a recurrent cell, and the projections of its rows |
//! | `initial_state.rs` | the states that a chain begins with |
//! | `recurrent_chain.rs` | a chain in a batch of a fused cell |
//! | `chain_inputs.rs` | the inputs of such chains, and their projection before the steps that need them |
//! | `recurrent_chains.rs` | a batch of chains as rows of a fused kernel |
//! | `arg_max.rs` | the arg-max of a linear layer, divided among threads |
//! | `composite_program.rs` | composite cells: programs, and operations with fused kernels between them |
//! | `composite_chains.rs` | a batch of chains whose steps are composite programs |
//! | `tree_buffers.rs` | the rows of a batch of TreeLSTM nodes, as they are listed for the kernels |
//! | `tree_nodes.rs` | a batch of TreeLSTM nodes as rows of a fused kernel |
//! | `row_wise.rs` | batches of row-wise cells |
//! | `sequence_level.rs` | batches of sequence-level cells |
//! | `materialized.rs` | a cell type of any kind, packed or compiled, and batches of it |

pub(crate) mod arg_max;
pub(crate) mod batch_job;
pub(crate) mod chain_inputs;
pub(crate) mod composite_chains;
pub(crate) mod composite_program;
pub(crate) mod embedding;
pub(crate) mod initial_state;
pub(crate) mod materialized;
pub(crate) mod packing;
pub(crate) mod recurrent_chain;
pub(crate) mod recurrent_chains;
pub(crate) mod row_wise;
pub(crate) mod sequence_level;
pub(crate) mod tree_buffers;
pub(crate) mod tree_nodes;
