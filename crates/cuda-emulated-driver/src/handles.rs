//! Handles: the addresses, which lead nowhere, by which the host names what it makes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock::lock;
use crate::status::Status;

/// A handle that no other thing has.
pub(crate) fn new_handle() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed) << 12
}

/// Things that the host names by handles.
pub(crate) struct Handles<T>(Mutex<HashMap<usize, Arc<T>>>);

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Handles<T> {
    /// A handle for something.
    pub(crate) fn add(&self, of: T) -> usize {
        let handle = new_handle();
        lock(&self.0).insert(handle, Arc::new(of));
        handle
    }

    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>, Status> {
        lock(&self.0).get(&handle).cloned().ok_or(Status::InvalidHandle)
    }

    pub(crate) fn remove(&self, handle: usize) -> Result<Arc<T>, Status> {
        lock(&self.0).remove(&handle).ok_or(Status::InvalidHandle)
    }
}
