//! How a request went: recorded exactly once, in the statistics of its model and in its metrics.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::response::{IntoResponse, Response};
use batchmaker_engine::EngineError;
use batchmaker_wire::{DurationStatistics, InferenceStatistics, ModelStatistics};

use crate::metrics::ModelMetrics;
use crate::status::ApiError;

/// How a request ended, as metrics tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Success,
    Invalid,
    Overloaded,
    Cancelled,
    Timeout,
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

    /// The label.
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

    fn of(error: &ApiError) -> Self {
        match error {
            // The client is gone, or as good as.
            ApiError::BrokenBody(_) | ApiError::Engine(EngineError::Cancelled) => Self::Cancelled,
            error => match error.status().as_u16() {
                408 | 504 => Self::Timeout,
                503 => Self::Overloaded,
                400..=499 | 501 => Self::Invalid,
                _ => Self::Failed,
            },
        }
    }
}

/// Where a request that was answered spent its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Phases {
    /// Decoding, checking, submitting.
    pub(crate) input_ns: u64,
    /// From admission to the first batch.
    pub(crate) queue_ns: u64,
    /// From the first batch to the end.
    pub(crate) compute_ns: u64,
    /// Encoding.
    pub(crate) output_ns: u64,
}

/// What is counted of one model.
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

/// A request that is being answered. Where it is dropped before its end is told, its client left.
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

    /// The whole request has come: time counts from now on.
    pub(crate) fn is_here(&mut self) {
        self.start = Instant::now();
    }

    /// Records how it went; the response.
    pub(crate) fn conclude(self, answer: Result<(Response, Phases), ApiError>) -> Response {
        match answer {
            Ok((response, phases)) => {
                self.succeeded(phases);
                response
            }
            Err(error) => {
                self.failed(&error);
                error.into_response()
            }
        }
    }

    pub(crate) fn succeeded(mut self, phases: Phases) {
        self.end(Outcome::Success, Some(phases));
    }

    pub(crate) fn failed(mut self, error: &ApiError) {
        self.end(Outcome::of(error), None);
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
