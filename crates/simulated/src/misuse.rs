//! A misuse of a device: something that its contract forbids the manager or the engine to ask for.

use batchmaker_device::RosterError;
use batchmaker_graph::RequestId;

/// The device was asked for what no device can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

impl Misuse {
    /// The request that a call names is not in flight.
    pub(crate) fn unknown(request: RequestId) -> Self {
        Self(format!("{request:?} is not in flight"))
    }
}

impl From<RosterError> for Misuse {
    fn from(error: RosterError) -> Self {
        Self(error.to_string())
    }
}
