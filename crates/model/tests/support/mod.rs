//! Helpers that the integration tests share.

pub(crate) mod interpreter;
