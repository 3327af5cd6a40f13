//! Threads: a group that runs a job together, phase by phase.

pub(crate) mod phases;
pub(crate) mod signal;
pub(crate) mod thread_group;
