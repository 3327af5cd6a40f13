//! What weights are packed for, and how they lie in memory.

pub(crate) mod panel_matrix;
pub(crate) mod precision;
pub(crate) mod target;
