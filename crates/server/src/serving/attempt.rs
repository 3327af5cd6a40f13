//! Records the outcome of each request exactly once, in the statistics of its model and in its metrics.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use batchmaker_wire::{DurationStatistics, InferenceStatistics, ModelStatistics};

use crate::serving::metrics::ModelMetrics;
use crate::serving::outcome::{Outcome, Phases};

/// The counts of one model.
#[derive(Debug)]
pub(crate) struct ModelRecord {
    metrics: ModelMetrics,
    statistics: Mutex<ModelStatistics>,
}

impl ModelRecord {
    pub(crate) fn new(metrics: ModelMetrics) -> Self {
        Self { metrics, statistics: Mutex::default() }
    }

    /// The counts, without name, version and what the engine counts.
    pub(crate) fn statistics(&self) -> ModelStatistics {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, outcome: Outcome, total_ns: u64, phases: Option<Phases>) {
        self.metrics.count(outcome, total_ns, phases);
        let mut statistics = self.statistics.lock().unwrap_or_else(PoisonError::into_inner);
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        statistics.last_inference = since_epoch.as_millis() as u64;
        let InferenceStatistics {
            success,
            fail,
            queue,
            compute_input,
            compute_infer,
            compute_output,
            ..
        } = &mut statistics.inference_stats;
        match phases {
            Some(phases) => {
                add(success, total_ns);
                add(queue, phases.queue_ns);
                add(compute_input, phases.input_ns);
                add(compute_infer, phases.compute_ns);
                add(compute_output, phases.output_ns);
                statistics.inference_count += 1;
            }
            None => add(fail, total_ns),
        }
    }
}

fn add(statistics: &mut DurationStatistics, ns: u64) {
    statistics.count += 1;
    statistics.ns += ns;
}

/// A request that is being answered. If it is dropped before its end was recorded, its client left.
#[derive(Debug)]
pub(crate) struct Attempt {
    record: Arc<ModelRecord>,
    start: Instant,
    is_over: bool,
}

impl Attempt {
    pub(crate) fn start(record: Arc<ModelRecord>) -> Self {
        Self { record, start: Instant::now(), is_over: false }
    }

    /// Starts the clock: the whole request has arrived.
    pub(crate) fn arrived(&mut self) {
        self.start = Instant::now();
    }

    /// Records that the request was answered.
    pub(crate) fn succeeded(mut self, phases: Phases) {
        self.end(Outcome::Success, Some(phases));
    }

    /// Records that the request has no reply.
    pub(crate) fn failed(mut self, outcome: Outcome) {
        self.end(outcome, None);
    }

    fn end(&mut self, outcome: Outcome, phases: Option<Phases>) {
        self.is_over = true;
        self.record.count(outcome, self.start.elapsed().as_nanos() as u64, phases);
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Outcome::Cancelled, None);
        }
    }
}
