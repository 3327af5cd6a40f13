//! The packing of weights: the precision and instructions that it is for, and its layout in memory.
//!
//! | file | idea |
//! |---|---|
//! | `reduced.rs` | the formats of weights that are not f32, and the instructions that multiply them |
//! | `precision.rs` | the precision and instruction set that a caller asks for |
//! | `target.rs` | the same on this machine |
//! | `checks.rs` | checks of sizes and slices |
//! | `lines.rs` | memory in whole cache lines |
//! | `panel_matrix.rs` | the layout of packed weights |

pub(crate) mod checks;
pub(crate) mod lines;
pub(crate) mod panel_matrix;
pub(crate) mod precision;
pub(crate) mod reduced;
pub(crate) mod target;
