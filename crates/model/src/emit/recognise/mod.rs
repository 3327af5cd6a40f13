//! Cells written in primitive operators that a fused kernel computes.
//!
//! `expression` reads the row ops of a cell as formulas over its inputs, in which products with
//! weights, sums of them, biases, joins and splits have become one affine map; `tree_lstm` compares
//! these with what the kernels compute. So it does not matter how a file spells a gate: as
//! products of its own, as columns of one large product, over children joined or apart.

mod expression;
pub(crate) mod tree_lstm;
