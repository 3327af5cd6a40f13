//! ONNX operators `Loop` and `Scan` (opset 9 and later).
//!
//! A loop with a step for every step of a tensor is a chain, as a recurrent operator is: its body is the
//! cell. One whose number of steps the file knows, and few, is the body that many times. The part of a body that
//! does not depend on the step is computed before it.

mod body;
mod chain;
mod counted;
mod executed;
mod form;
mod repeat;
pub(super) mod rules;
mod states;
