//! Programs whose convolutions and products with weights are ours: see [`Stepped`].
//!
//! | file | idea |
//! |---|---|
//! | `held.rs` | a tensor between steps, in the layout of those that read it |
//! | `weights.rs`, `windows.rs` | constants and windows of a program's file |
//! | `convolution.rs`, `product.rs`, `pooling.rs` | the steps that are ours |
//! | `island.rs` | what lies between, run by rten |
//! | `cut.rs` | cuts a program into steps |
//! | `stepped.rs` | runs the steps |

mod convolution;
mod cut;
mod held;
mod island;
mod pooling;
mod product;
mod stepped;
mod weights;
mod windows;

pub(crate) use cut::{Cut, cut};
pub(crate) use stepped::Stepped;
