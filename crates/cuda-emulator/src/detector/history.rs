//! The order of operations on a GPU, which the host makes by streams and events.

/// The operations that come before one operation on a GPU.
pub trait History {
    /// Whether an operation is over before this one begins, in any run of the same calls by the host.
    fn precedes(&self, operation: u32) -> bool;

    /// An operation in words, for reports.
    fn describe(&self, operation: u32) -> String;
}

/// Operations one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Sequential;

impl History for Sequential {
    fn precedes(&self, _operation: u32) -> bool {
        true
    }

    fn describe(&self, operation: u32) -> String {
        format!("operation {operation}")
    }
}
