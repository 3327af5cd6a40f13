//! The outcomes of a request, as metrics count them.

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// It has a reply.
    Success,
    /// It is wrong, or names something that is not here.
    Invalid,
    /// There is no room for it now.
    Overloaded,
    /// Its client left or gave it up.
    Cancelled,
    /// It, or its reply, came too late.
    Timeout,
    /// The server or the model failed.
    Failed,
}

impl Outcome {
    pub(crate) const ALL: [Self; 6] = [
        Self::Success,
        Self::Invalid,
        Self::Overloaded,
        Self::Cancelled,
        Self::Timeout,
        Self::Failed,
    ];

    /// The label of the outcome in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Invalid => "invalid",
            Self::Overloaded => "overloaded",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
        }
    }
}

/// The times of a request that was answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phases {
    /// Decoding, checking and submitting, in nanoseconds.
    pub(crate) input_ns: u64,
    /// The time from admission to the first batch, in nanoseconds.
    pub(crate) queue_ns: u64,
    /// From the first batch to the reply, in nanoseconds.
    pub(crate) compute_ns: u64,
    /// Encoding, in nanoseconds.
    pub(crate) output_ns: u64,
}
