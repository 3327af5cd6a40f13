//! Unfolders: what turns the tensors of a request into a graph of cells.

pub(crate) mod integers;
pub(crate) mod planner;
pub(crate) mod templates;
pub(crate) mod unfold_plan;
pub(crate) mod unfolding;
