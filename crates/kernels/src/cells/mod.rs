//! The cells: what is done with the sums of products.
//!
//! | file | idea |
//! |---|---|
//! | `activations.rs` | sigmoid and tanh |
//! | `recurrence.rs` | what a recurrent cell is to its caller: steps, and projections of their inputs |
//! | `finish.rs` | what follows products: activations over rows of panels |
//! | `pieces.rs` | the pieces that a step is computed in |
//! | `lstm.rs`, `gru.rs`, `rnn.rs` | the recurrent cells |
//! | `tree_leaf.rs`, `tree_inner.rs` | the cells of a binary TreeLSTM |
//! | `linear.rs` | output projections, arg-max, embeddings |
//! | `step_dense.rs` | one step over dense slices |

pub(crate) mod activations;
pub(crate) mod finish;
pub(crate) mod gru;
pub(crate) mod linear;
pub(crate) mod lstm;
pub(crate) mod pieces;
pub(crate) mod recurrence;
pub(crate) mod rnn;
pub(crate) mod step_dense;
pub(crate) mod tree_inner;
pub(crate) mod tree_leaf;
