//! CPU kernels for recurrent cells: weights packed once, then one fused step for any rows and any
//! part of the hidden units.
//!
//! The crate knows matrices, pointers and instruction sets. It knows nothing of requests, batches'
//! origins, threads or models: who calls [`Recurrence::step`] decides which rows form a batch and
//! which thread computes which [panels](Recurrence::panels).
//!
//! **The same bits everywhere.** A row's result depends on that row's inputs and on the weights
//! alone, not on the batch size, the row's place in it, the panel split, the instruction set, nor
//! on whether its input was projected ahead: every pre-activation is accumulated in one fixed
//! order, one fused multiply-add a term, and the activations are one sequence of IEEE operations
//! written once over a vector type. (Sums of weights in [other precisions](Precision) have an order of
//! their own: see `reduced/`.)
//!
//! | file | idea |
//! |---|---|
//! | `isa.rs` | which instruction sets there are, and which this machine has |
//! | `simd.rs`, `simd/` | the vector operations kernels are written in, one token per instruction set |
//! | `activations.rs` | sigmoid and tanh |
//! | `panel_matrix.rs` | the layout of packed weights |
//! | `product.rs` | rows times a panel: tiles, blocks, the order of sums |
//! | `tiling.rs` | how products run over rows and weights |
//! | `precision.rs`, `target.rs` | what weights are packed for |
//! | `weights.rs` | weights in any precision |
//! | `reduced/` | products in bfloat16 and in bytes |
//! | `recurrence.rs` | what recurrent cells have in common: steps, and projection ahead of them |
//! | `finish.rs` | what follows products: activations over rows of panels |
//! | `lstm.rs`, `gru.rs`, `rnn.rs` | the recurrent cells |
//! | `tree_lstm.rs` | the cells of a binary TreeLSTM |
//! | `linear.rs` | output projections, arg-max, embeddings |
//! | `peaks.rs` | the machine's limits |
//!
//! ```
//! use batchmaker_kernels::{Isa, LstmParameters, PackedLstm, step_dense};
//!
//! let (input_size, hidden_size, batch) = (3, 5, 2);
//! let lstm = PackedLstm::new(
//!     Isa::best(),
//!     LstmParameters {
//!         input_size,
//!         hidden_size,
//!         w: &[0.1; 4 * 5 * 3],
//!         r: &[0.2; 4 * 5 * 5],
//!         b: None,
//!         p: None,
//!     },
//! )?;
//! let (x, h) = ([1.0; 2 * 3], [0.0; 2 * 5]);
//! let (mut h_out, mut c) = ([0.0; 2 * 5], [0.0; 2 * 5]);
//! step_dense(&lstm, batch, &x, &h, &mut h_out, &mut c)?;
//! assert_eq!(h_out[..5], h_out[5..], "equal rows, equal bits");
//! # Ok::<(), batchmaker_kernels::KernelError>(())
//! ```

mod cells;
mod error;
mod packing;
pub mod peaks;
mod products;
mod simd;
#[cfg(test)]
mod tests;

pub use cells::gru::{GruParameters, PackedGru, Reset};
pub use cells::linear::{
    ArgMax, ArgMaxRow, LinearParameters, LinearRow, PackedLinear, copy_embeddings,
};
pub use cells::lstm::{LstmParameters, PackedLstm};
pub use cells::recurrence::{ProjectionRow, Recurrence, StepRow, XPart, step_dense};
pub use cells::rnn::{PackedRnn, RnnActivation, RnnParameters};
pub use cells::tree_lstm::{
    PackedTreeInner, PackedTreeLeaf, Side, TreeChild, TreeInnerParameters, TreeInnerRow,
    TreeLeafParameters, TreeLeafRow,
};
pub use error::KernelError;
pub use packing::panel_matrix::Lines;
pub use packing::precision::{Packing, Precision};
pub use products::panel_product::ROWS_MAX;
pub use products::tiling::{Tiling, Tilings};
pub use simd::isa::Isa;
