//! ONNX operators `LSTM`, `GRU` and `RNN` (opset 7 and later): their attributes, weights and
//! initial states.
//!
//! A bidirectional operator is two chains and the joining of what they give. What the fused steps
//! do not do is a step of primitive operators ([`StepRule`](crate::analysis::step_rule::StepRule)); nothing is
//! ignored.

mod arguments;
mod first_states;
pub(super) mod rules;
