//! Operators that are others put together.

pub(in crate::analysis) mod activations;
pub(super) mod composer;
pub(in crate::analysis) mod dequantised;
pub(in crate::analysis) mod einsum;
pub(in crate::analysis) mod normalisations;
pub(in crate::analysis) mod products;
pub(in crate::analysis) mod quantised;
pub(in crate::analysis) mod quantised_lstm;
pub(in crate::analysis) mod repetition;
pub(in crate::analysis) mod reversal;
