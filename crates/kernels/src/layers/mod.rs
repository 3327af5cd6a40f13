//! Layers that keep no state: windows over images and sequences.
//!
//! Images are `[images, height, width, channels]`, a pixel's channels side by side; sequences are images of height 1.
//!
//! | file | idea |
//! |---|---|
//! | `window.rs` | the positions of windows |
//! | `activation.rs` | residuals and activations |
//! | `convolution.rs` | convolutions as products of windows with weights |
//! | `copied_windows.rs` | the same, of windows that are copied |
//! | `panels.rs` | matrices in panels of a few vectors |
//! | `sum_parts.rs` | sums, and greatest elements, in 16 parts |
//! | `taps.rs` | the elements of windows, as they lie in memory |
//! | `window_product.rs` | the same, of windows that are read where they lie |
//! | `winograd.rs` | convolutions of 3 by 3 over many channels, tile by tile |
//! | `window_dots.rs` | the same, of few outputs |
//! | `depthwise.rs` | convolutions of each channel by itself |
//! | `pool.rs` | pools |
//! | `softmax.rs` | softmax over rows |
//! | `layer_norm.rs` | layer normalisation of rows |
//! | `operators.rs` | operators on one number, and on two |
//! | `elementwise.rs` | elementwise operators, one after the other |
//! | `reduce.rs` | sums, means and extremes along an axis |
//! | `transpose.rs` | matrices with their axes swapped |
//! | `attention.rs` | attention, a block of queries at a time |

pub(crate) mod activation;
pub(crate) mod attention;
pub(crate) mod convolution;
mod copied_windows;
mod depthwise;
pub(crate) mod elementwise;
pub(crate) mod layer_norm;
pub(crate) mod operators;
mod panels;
pub(crate) mod pool;
pub(crate) mod reduce;
pub(crate) mod softmax;
mod sum_parts;
mod taps;
pub(crate) mod transpose;
pub(crate) mod window;
mod window_dots;
mod window_product;
mod winograd;
