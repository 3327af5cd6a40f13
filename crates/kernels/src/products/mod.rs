//! Products of rows with packed weights, in every precision.

pub(crate) mod panel_product;
pub(crate) mod reduced;
pub(crate) mod tiling;
pub(crate) mod weights;
