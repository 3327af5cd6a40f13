//! How a GPU chooses the mapping of a cell's persistent kernels: the cost model ranks the mappings, the best few run, and the fastest one is the cell's
//! plan (GRNN, section 7.2).
//!
//! | file | idea |
//! |---|---|
//! | `kernel_timer.rs` | times persistent kernels on one GPU |
//! | `clock.rs` | a host's clock around launches |
//! | `workload.rs` | memory that such a kernel works on |
//! | `selection.rs` | the fastest of some kernels of a cell |
//! | `benchmarks.rs` | micro-benchmarks of what the cost model counts |
//! | `fit.rs` | the constants of the cost model that follow from their times |
//! | `plan.rs` | plans as text, and what a device takes of a profile's |

mod benchmarks;
mod clock;
mod fit;
mod kernel_timer;
mod plan;
mod selection;
mod workload;

pub use kernel_timer::KernelTimer;
pub(crate) use plan::{describe, of_cell, read, write};
pub(crate) use selection::fastest;
