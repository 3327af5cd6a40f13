//! Admission: a permit that a request holds from its arrival to its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use batchmaker_graph::InvalidRequest;

use crate::error::EngineError;

/// The bounds on what is in flight, and what is in flight.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) max_requests: usize,
    pub(crate) max_bytes: usize,
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

/// The right to one request in flight and to the bytes of its values; given back on drop.
#[derive(Debug)]
pub(crate) struct Permit {
    admission: Arc<Admission>,
    bytes: usize,
}

impl Admission {
    pub(crate) fn new(max_requests: usize, max_bytes: usize) -> Arc<Self> {
        let (requests, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { max_requests, max_bytes, requests, bytes })
    }

    /// Requests that hold a permit.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Bytes that the requests in flight hold.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn permit(self: &Arc<Self>) -> Result<Permit, EngineError> {
        match take(&self.requests, 1, self.max_requests) {
            Ok(()) => Ok(Permit { admission: self.clone(), bytes: 0 }),
            Err(in_flight) => Err(EngineError::Overloaded { in_flight }),
        }
    }
}

impl Permit {
    /// Adds the right to `bytes`.
    pub(crate) fn add_bytes(&mut self, bytes: usize) -> Result<(), EngineError> {
        let Admission { max_bytes, bytes: in_use, .. } = &*self.admission;
        if bytes > *max_bytes {
            let text = format!("the request needs {bytes} bytes, the limit is {max_bytes}");
            return Err(InvalidRequest(text).into());
        }
        take(in_use, bytes, *max_bytes).map_err(|bytes| EngineError::MemoryInUse { bytes })?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.admission.bytes.fetch_sub(self.bytes, Ordering::SeqCst);
        self.admission.requests.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Adds `more` to `in_use`.
///
/// # Errors
/// The sum would exceed `max`: what is in use.
fn take(in_use: &AtomicUsize, more: usize, max: usize) -> Result<(), usize> {
    let add = |in_use: usize| in_use.checked_add(more).filter(|&sum| sum <= max);
    in_use.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).map(drop)
}
