//! Admission: the places that requests in flight have, in the engine and in their model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use batchmaker_graph::ModelId;

use crate::error::EngineError;

/// The weight of the past in the mean time that a place is held.
const MEAN_OVER: u64 = 16;

/// The bounds on the number of requests in flight, and that number.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) max_requests: usize,
    max_requests_per_model: usize,
    requests: AtomicUsize,
    /// The requests of each model, by id.
    of_models: Vec<AtomicUsize>,
    /// The mean time for which places were held of late, in nanoseconds.
    held_ns: AtomicU64,
}

/// The place of one request in flight; given back on drop.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
    model: ModelId,
    since: Instant,
}

impl Admission {
    pub(crate) fn new(
        max_requests: usize,
        max_requests_per_model: usize,
        models: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            max_requests,
            max_requests_per_model,
            requests: AtomicUsize::new(0),
            of_models: (0..models).map(|_| AtomicUsize::new(0)).collect(),
            held_ns: AtomicU64::new(0),
        })
    }

    /// Requests that have a place.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// Takes a place for a request to the model, whose name errors tell.
    pub(crate) fn place(
        self: &Arc<Self>,
        model: ModelId,
        name: &str,
    ) -> Result<Place, EngineError> {
        take(&self.requests, self.max_requests)
            .map_err(|in_flight| EngineError::Overloaded { in_flight })?;
        if let Err(in_flight) = take(&self.of_models[model.0 as usize], self.max_requests_per_model)
        {
            self.requests.fetch_sub(1, Ordering::SeqCst);
            return Err(EngineError::ModelOverloaded { model: name.to_owned(), in_flight });
        }
        Ok(Place { admission: self.clone(), model, since: Instant::now() })
    }

    /// The time after which the requests that are in flight now are likely to be answered: the mean time from
    /// a request's admission to its answer (by Little's law, that in which as many requests are answered).
    pub(crate) fn mean_stay(&self) -> Duration {
        Duration::from_nanos(self.held_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let held_ns = self.since.elapsed().as_nanos() as u64;
        let mean = |known: u64| Some((known * (MEAN_OVER - 1) + held_ns) / MEAN_OVER);
        let _ = self.admission.held_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mean);
        self.admission.of_models[self.model.0 as usize].fetch_sub(1, Ordering::SeqCst);
        self.admission.requests.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Adds 1 to `in_use`.
///
/// # Errors
/// The sum would exceed `max`: what is in use.
fn take(in_use: &AtomicUsize, max: usize) -> Result<(), usize> {
    let add = |in_use: usize| (in_use < max).then_some(in_use + 1);
    in_use.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_does_not_take_the_places_of_all() {
        let admission = Admission::new(3, 2, 2);
        let place = |model, name| admission.place(ModelId(model), name);
        let held = [place(0, "a").unwrap(), place(0, "a").unwrap()];
        let full = EngineError::ModelOverloaded { model: "a".to_owned(), in_flight: 2 };
        assert_eq!(place(0, "a").unwrap_err(), full);
        let other = place(1, "b").unwrap();
        assert_eq!(place(1, "b").unwrap_err(), EngineError::Overloaded { in_flight: 3 });
        drop((held, other));
        assert_eq!(admission.requests(), 0);
        assert!(place(1, "b").is_ok());
    }
}
