//! Products of rows with packed weights, in every precision.
//!
//! | file | idea |
//! |---|---|
//! | `tiling.rs` | how products run over rows and weights |
//! | `register_tile.rs` | the innermost loop of f32: a tile of sums in registers |
//! | `panel_product.rs` | rows times a panel of f32: tiles, blocks, the order of sums |
//! | `reduced/` | products in bfloat16 and in bytes |
//! | `weights.rs` | weights in any precision, and the product with them |

pub(crate) mod panel_product;
pub(crate) mod reduced;
pub(crate) mod register_tile;
pub(crate) mod tiling;
pub(crate) mod weights;
