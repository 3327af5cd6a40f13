//! Values of requests, states in slots, and what lies between the host and a GPU.
//!
//! | file | idea |
//! |---|---|
//! | `request_memory.rs` | the values of a request, on the GPUs that use them and in memory of the host |
//! | `row_holders.rs` | which GPUs hold a row of a request |
//! | `host_pool.rs` | memory of the host for rows that kernels write |
//! | `slots.rs` | the states of a cell type on one GPU |
//! | `staging.rs` | memory of the host that copies go through |
//! | `tensors.rs` | tensors as bytes |

mod host_pool;
mod request_memory;
mod row_holders;
mod slots;
mod staging;
mod tensors;

pub(crate) use host_pool::{HostAllocation, HostPool};
pub(crate) use request_memory::{Base, RequestMemory};
pub(crate) use row_holders::Holder;
pub(crate) use slots::Slots;
pub(crate) use staging::{Staged, Staging};
pub(crate) use tensors::{append_bytes, of_bytes};
