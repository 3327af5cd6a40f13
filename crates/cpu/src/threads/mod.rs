//! Threads: a group that runs a job together, phase by phase, and what threads ask the system for.
//!
//! | file | idea |
//! |---|---|
//! | `cores.rs` | the cores that the process may use, and threads that stay on one or keep off some |
//! | `signal.rs` | waiting for another thread |
//! | `phases.rs` | the work of a job in phases, divided among threads as they come to it |
//! | `thread_group.rs` | threads that start a job together |
//! | `slices.rs` | time slices: threads that others wait for, beside those that compute |

pub(crate) mod cores;
pub(crate) mod phases;
pub(crate) mod signal;
pub(crate) mod slices;
pub(crate) mod thread_group;
