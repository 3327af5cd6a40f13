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
    /// The mean time for which requests that were answered of late had held their places, in nanoseconds.
    held_ns: AtomicU64,
    start: Instant,
    /// When a request was last answered, or was the first in flight, in nanoseconds since the start.
    answered_ns: AtomicU64,
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
            start: Instant::now(),
            answered_ns: AtomicU64::new(0),
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
        let before = take(&self.requests, self.max_requests)
            .map_err(|in_flight| EngineError::Overloaded { in_flight })?;
        if before == 0 {
            self.answered_ns.store(self.now_ns(), Ordering::Relaxed);
        }
        if let Err(in_flight) = take(&self.of_models[model.0 as usize], self.max_requests_per_model)
        {
            self.requests.fetch_sub(1, Ordering::SeqCst);
            return Err(EngineError::ModelOverloaded { model: name.to_owned(), in_flight });
        }
        Ok(Place { admission: self.clone(), model, since: Instant::now() })
    }

    /// The time after which the requests that are in flight now are likely to be answered: the mean time from
    /// a request's admission to its answer (by Little's law, that in which as many requests are answered), or the time
    /// for which none was answered, if that is longer.
    pub(crate) fn stay(&self) -> Duration {
        let mean_ns = self.held_ns.load(Ordering::Relaxed);
        let quiet_ns = match self.requests() {
            0 => 0,
            _ => self.now_ns().saturating_sub(self.answered_ns.load(Ordering::Relaxed)),
        };
        Duration::from_nanos(mean_ns.max(quiet_ns))
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

impl Place {
    /// Gives the place of a request back that is answered. Those of requests that were refused or given up say nothing
    /// about the time of others.
    pub(crate) fn answered(self) {
        let held_ns = self.since.elapsed().as_nanos() as u64;
        let mean = |known: u64| Some((known * (MEAN_OVER - 1) + held_ns) / MEAN_OVER);
        let admission = &self.admission;
        let _ = admission.held_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mean);
        admission.answered_ns.store(admission.now_ns(), Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.of_models[self.model.0 as usize].fetch_sub(1, Ordering::SeqCst);
        self.admission.requests.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Adds 1 to `in_use`, and returns what it was.
///
/// # Errors
/// The sum would exceed `max`: what is in use.
fn take(in_use: &AtomicUsize, max: usize) -> Result<usize, usize> {
    let add = |in_use: usize| (in_use < max).then_some(in_use + 1);
    in_use.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add)
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

    #[test]
    fn only_answered_requests_say_how_long_others_stay() {
        let admission = Admission::new(3, 3, 1);
        let place = || admission.place(ModelId(0), "a").unwrap();
        let pause = Duration::from_millis(20);
        let answered = place();
        std::thread::sleep(pause);
        answered.answered();
        let mean = admission.stay();
        assert!(mean >= pause / MEAN_OVER as u32, "{mean:?}");
        (0..1000).for_each(|_| drop(place()));
        assert_eq!(admission.stay(), mean, "refused requests count");
        // Nothing was in flight meanwhile.
        std::thread::sleep(10 * mean);
        let held = place();
        std::thread::sleep(pause);
        let stay = admission.stay();
        assert!(stay >= pause, "{stay:?}, and nothing is answered");
        drop(held);
        assert_eq!(admission.stay(), mean);
    }
}
