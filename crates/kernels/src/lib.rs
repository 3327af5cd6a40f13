//! CPU kernels for recurrent cells: weights packed once, then one fused step for any rows and any
//! part of the hidden units.
//!
//! The crate knows matrices, pointers and instruction sets. It knows nothing of requests, batches'
//! origins, threads or models: who calls [`Recurrence::step`] decides which rows form a batch and
//! which thread computes which [panels](Recurrence::panels).
//!
//! **The same bits everywhere.** A row's result depends on that row's inputs and on the weights
//! alone, not on the batch size, the row's place in it, the panel split, the instruction set, nor
//! on whether its input was projected before the step: every pre-activation is accumulated in one fixed
//! order, one fused multiply-add a term, and the activations are one sequence of IEEE operations
//! written once over a vector type. (Sums of weights in [other precisions](Precision) have an order of
//! their own: see `products/reduced/`.)
//!
//! | folder or file | idea |
//! |---|---|
//! | `simd/` | instruction sets, the vector operations kernels are written in, one token per instruction set |
//! | `error.rs` | what can be wrong with a request for a kernel |
//! | `packing/` | what weights are packed for, and how they lie in memory |
//! | `products/` | rows times panels of weights: tiles, blocks, the order of sums, every precision |
//! | `cells/` | activations; LSTM, GRU, RNN and TreeLSTM cells; linear layers with arg-max |
//! | `layers/` | layers without state: convolutions, pools, attention |
//! | `peaks.rs` | the machine's limits |
//!
//! Each uses only those above it.
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
//!         bytes: None,
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
mod layers;
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
pub use cells::lstm::{LstmBytes, LstmParameters, PackedLstm};
pub use cells::recurrence::{ProjectionRow, Recurrence, StepRow, XPart};
pub use cells::rnn::{PackedRnn, RnnActivation, RnnParameters};
pub use cells::step_dense::step_dense;
pub use cells::tree_inner::{PackedTreeInner, Side, TreeChild, TreeInnerParameters, TreeInnerRow};
pub use cells::tree_leaf::{PackedTreeLeaf, TreeLeafParameters, TreeLeafRow};
pub use error::KernelError;
pub use layers::activation::Activation;
pub use layers::attention::{Attention, AttentionSizes, Head, Matrix};
pub use layers::convolution::{
    ConvolutionParameters, Epilogue, Factors, Images, PackedConvolution,
};
pub use layers::elementwise::{ElementStep, Operand, elementwise};
pub use layers::layer_norm::{LayerNormParameters, layer_norm};
pub use layers::operators::{Binary, Unary};
pub use layers::pool::{Pooling, pool};
pub use layers::reduce::{Reduction, extremes, reduce};
pub use layers::softmax::softmax;
pub use layers::transpose::transpose;
pub use layers::window::Window;
pub use packing::lines::Lines;
pub use packing::precision::{Packing, Precision};
pub use products::tiling::ROWS_MAX;
pub use products::tiling::{Tiling, Tilings};
pub use simd::isa::{Isa, UnknownIsa};
