//! The interface between a launch that runs and the program around it, such as an emulated driver.

/// Learns from a launch what it does while it runs, and tells it whether the GPU is lost.
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
