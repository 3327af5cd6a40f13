//! Scopes of CUDA's memory model.

/// The threads that an operation publishes to, or learns from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Block,
    Gpu,
    System,
}
