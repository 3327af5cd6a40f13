//! Layers that keep no state: windows over images and sequences.
//!
//! Images are `[images, height, width, channels]`, a pixel's channels side by side; sequences are images of height 1.
//!
//! | file | idea |
//! |---|---|
//! | `window.rs` | the positions of windows |
//! | `activation.rs` | residuals and activations |
//! | `convolution.rs` | convolutions as products of windows with weights |
//! | `depthwise.rs` | convolutions of each channel by itself |
//! | `pool.rs` | pools |

pub(crate) mod activation;
pub(crate) mod convolution;
mod depthwise;
pub(crate) mod pool;
pub(crate) mod window;
