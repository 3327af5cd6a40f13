//! Who watches a launch while it runs.

/// What happens outside a launch while it runs, and what is told there.
pub trait Observer {
    /// The launch is about to store a value that publishes to the host: from here on the host may have seen it.
    fn publishes_to_host(&self) {}

    /// Whether the GPU is lost: the launch then ends where it is.
    fn is_lost(&self) -> bool {
        false
    }
}

/// Nobody watches, and the GPU is never lost.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl Observer for Unobserved {}
