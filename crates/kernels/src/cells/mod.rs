//! The cells: what is done with the sums of products.

pub(crate) mod activations;
pub(crate) mod finish;
pub(crate) mod gru;
pub(crate) mod linear;
pub(crate) mod lstm;
pub(crate) mod recurrence;
pub(crate) mod rnn;
pub(crate) mod tree_lstm;
