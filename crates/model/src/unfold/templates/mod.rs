//! The unfold templates that a `model.toml` can name (its key `kind`), over cells of its own: each an
//! [`Unfold`](batchmaker_graph::Unfold) of public parts alone, as any other unfolding function would be.

pub(crate) mod chain;
pub(crate) mod encoder_decoder;
pub(crate) mod row_tensor;
pub(crate) mod template_cell;
pub(crate) mod tree;
