//! Plain data that everything else is made of: arrays, constants, symbolic dimensions, and how tensors of
//! requests are laid out. Nothing here knows ONNX operators.

pub(crate) mod array;
pub(crate) mod axes;
pub(crate) mod dim;
pub(crate) mod direction;
pub(crate) mod elements;
pub(crate) mod int;
pub(crate) mod int_range;
pub(crate) mod layout;
pub(crate) mod literal;
pub(crate) mod named_cell;
pub(crate) mod scalar;
pub(crate) mod symbol;
