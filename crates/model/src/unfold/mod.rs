//! Unfolders, which turn the tensors of a request into a graph of cells. The unfolder of a whole ONNX file walks
//! a plan; the templates are for cells that files hold one by one.

pub(crate) mod cell_names;
mod chunks;
mod derived;
pub(crate) mod integers;
pub(crate) mod interface;
mod lengths;
mod overlap;
pub(crate) mod plan;
pub(crate) mod planner;
mod priorities;
pub(crate) mod templates;
mod unfold_plan;
pub(crate) mod unfolding;
pub(crate) mod variants;
