//! The requests in flight on a device: for devices to use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchmaker_graph::RequestId;

/// What a device keeps of each request in flight, by the position of its id.
#[derive(Debug)]
pub struct RequestTable<T> {
    requests: Mutex<Places<T>>,
}

type Places<T> = Vec<Option<(RequestId, Arc<T>)>>;

impl<T> Default for RequestTable<T> {
    fn default() -> Self {
        Self { requests: Mutex::default() }
    }
}

impl<T> RequestTable<T> {
    /// Adds a request.
    ///
    /// # Panics
    /// If another request is in flight at the position of its id.
    pub fn admit(&self, request: RequestId, kept: T) {
        let mut requests = self.requests();
        let index = request.index as usize;
        if requests.len() <= index {
            requests.resize_with(index + 1, || None);
        }
        let before = requests[index].replace((request, Arc::new(kept)));
        assert!(before.is_none(), "{request:?} was admitted to a position in use");
    }

    /// Ends a request.
    ///
    /// # Panics
    /// If it is not in flight.
    pub fn retire(&self, request: RequestId) -> Arc<T> {
        let mut requests = self.requests();
        let known = requests[request.index as usize].take_if(|(known, _)| *known == request);
        known.expect("a request is retired once, after it was admitted").1
    }

    /// What is kept of a request in flight.
    ///
    /// # Panics
    /// If it is not in flight.
    pub fn get(&self, request: RequestId) -> Arc<T> {
        match &self.requests()[request.index as usize] {
            Some((known, kept)) if *known == request => kept.clone(),
            _ => panic!("a task names {request:?}, which is not here"),
        }
    }

    fn requests(&self) -> MutexGuard<'_, Places<T>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
