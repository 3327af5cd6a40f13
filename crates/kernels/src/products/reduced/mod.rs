//! Products whose weights are kept in fewer than 32 bits.
//!
//! ```text
//! sums(row)[column] = start(row)[column] + sum over k of x[k] w[k]             bfloat16
//!                   = start(row)[column] + s(row) s(column) sum over k of x[k] w[k]   bytes
//! ```
//! where x is the row's input in the precision of the weights, and the sum over k begins with zero.
//!
//! **Packed lane groups.** The weights of consecutive k that share the 32 bits of one lane, two of bfloat16
//! or four bytes, are a *lane group*. Lane groups lie as the f32 of a
//! [panel](crate::packing::panel_matrix) do, `[panel][group of k][vector][lane]`: as the instructions
//! `vdpbf16ps` and `vpdpbusd` read them. For the tiles of AMX, 16 lane groups of k of a vector lie
//! together: `[panel][tile of k][vector][group of the tile][lane]`.
//!
//! **The same bits.** A sum's bits depend on its row and column alone. Sums of bytes are exact, so
//! all instructions agree. Sums of bfloat16 are rounded at each term: in order of k with vectors; by
//! tiles, those of even and of odd k apart and added after every 32 (Intel's manual, `TDPBF16PS`).
//! So a machine's results in bfloat16 do not depend on batches or threads, but those of a machine
//! with tiles may differ in the last bits from another's.
//!
//! | file | idea |
//! |---|---|
//! | `round.rs` | f32 to bfloat16, and to bytes with a scale |
//! | `matrix.rs` | weights packed in lane groups |
//! | `operand.rs` | the rows' inputs in the same precision, converted once for all panels |
//! | `vectors.rs` | sums by vector instructions, generic over how a lane group is multiplied; widened to f32 |
//! | `dots.rs` | sums by `vdpbf16ps` and `vpdpbusd`, and by `vpmaddubsw` and `vpmaddwd` |
//! | `tile_blocks.rs` | the innermost loops over the tiles of AMX |
//! | `tiles.rs` | sums by these tiles: which tiles go together, and what is fetched meanwhile |
//! | `product.rs` | the product: which instructions make its sums, and what is done with them |
//! | `peak.rs` | the rate of the instructions without memory |

#[cfg(target_arch = "x86_64")]
mod dots;
pub(crate) mod matrix;
pub(crate) mod operand;
mod peak;
pub(crate) mod product;
pub(crate) mod round;
#[cfg(target_arch = "x86_64")]
mod tile_blocks;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod vectors;
