//! Threads: a group that runs a job together, phase by phase.
//!
//! | file | idea |
//! |---|---|
//! | `cores.rs` | the cores that the process may use, and threads that stay on one or keep off some |
//! | `signal.rs` | waiting for another thread |
//! | `phases.rs` | the work of a job in phases, divided among threads as they come to it |
//! | `thread_group.rs` | threads that start a job together |

pub(crate) mod cores;
pub(crate) mod phases;
pub(crate) mod signal;
pub(crate) mod thread_group;
