//! GPUs through NVIDIA's driver: the one place that calls it.
//!
//! Addresses of a GPU's memory are numbers here, and what a kernel or a copy does with them is not checked: the rest of the crate passes
//! those of allocations that it holds until the work is over. Memory of this process that GPUs access is [`Pinned`], which keeps its bounds.
//!
//! | file | idea |
//! |---|---|
//! | `functions.rs` | the functions of the driver that are called |
//! | `device.rs` | a GPU: its context and its kernels |
//! | `resident.rs` | a kernel that is compiled for one cell |
//! | `launches.rs` | launches one after the other |
//! | `graphs.rs` | launches that one call submits again |
//! | `stream.rs` | a stream of work for a GPU, and events in it |
//! | `pool.rs` | memory of a GPU |
//! | `pieces.rs` | pieces of memory of a few sizes |
//! | `pinned.rs` | memory of this process that GPUs access |
//! | `images.rs` | the compiled kernels, and which of them a GPU takes |
//! | `compiler.rs` | NVIDIA's compiler library |
//! | `image_cache.rs` | a folder that keeps what was compiled |
//! | `error.rs` | what the driver refuses |
#![allow(unsafe_code, reason = "calls of the driver")]

mod compiler;
mod device;
mod error;
mod functions;
mod graphs;
mod image_cache;
mod images;
mod launches;
mod pieces;
mod pinned;
mod pool;
mod resident;
mod stream;

pub use compiler::nvrtc;
pub(crate) use device::{Gpu, devices};
pub(crate) use error::GpuError;
pub(crate) use functions::FUNCTIONS;
pub(crate) use graphs::Graphs;
pub use images::Images;
pub(crate) use launches::Launches;
pub(crate) use pieces::{Pieces, Place, piece_bytes};
pub(crate) use pinned::Pinned;
pub(crate) use pool::{Allocation, Pool};
pub(crate) use resident::ResidentKernel;
pub(crate) use stream::{Event, Stream};
