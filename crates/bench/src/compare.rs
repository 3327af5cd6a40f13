//! One load, several subjects in turns: a machine that slows down slows all of them.

use std::time::Duration;

use batchmaker::{CellStatistics, Statistics};

use crate::cpu_time::CpuTime;
use crate::driver::{Answer, Saturation, Service, play};
use crate::measurement::{AnswerTime, Measurement, Reading, Subject};
use crate::report::Report;
use crate::trace::Trace;

/// Requests that a subject is warmed up with, at most.
const WARM_UP_MAX: usize = 256;

/// A load.
#[derive(Clone, Debug)]
pub struct Load {
    /// The workload's name, for the report.
    pub workload: String,
    /// The seed of all that was drawn, for the report.
    pub seed: u64,
    /// The rate, in requests a second; none: saturated.
    pub rate_rps: Option<f64>,
    /// The requests.
    pub trace: Trace,
    /// The number of parts that the trace is cut into. Contenders take turns, part by part.
    pub parts: usize,
    /// The number of requests that are kept in flight when saturated.
    pub in_flight_max: usize,
    /// When saturated, the time over all parts for which the requests are sent over and over again; none: each is
    /// sent once.
    pub time: Option<Duration>,
}

/// Something to measure.
#[derive(Debug)]
pub struct Contender<S> {
    /// The policy's name in the report.
    pub policy: String,
    /// The model that requests are for.
    pub model: String,
    /// The number of its workers; none over HTTP.
    pub workers: Option<u16>,
    /// The system that takes the requests.
    pub service: S,
}

/// The progress of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The policy that is being measured.
    pub policy: &'a str,
    /// The number of requests that all contenders together have answered.
    pub answered: usize,
}

/// The results of a contender.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The figures.
    pub report: Report,
    /// The distribution of the time to the first batch, as points of `(ms, share)`; empty over a
    /// wire.
    pub queue_cdf: Vec<(f64, f64)>,
    /// The distribution of the time from the first batch to the reply, likewise.
    pub compute_cdf: Vec<(f64, f64)>,
    /// The engine's counters of each cell type, in the order of the cell types.
    pub cells: Vec<CellStatistics>,
    /// Wall time, in seconds.
    pub wall_s: f64,
    /// The time that compute threads waited for a core, in seconds; 0 where the system does not report it.
    pub descheduled_s: f64,
    /// The time of each answer, in the order in which they came.
    pub answers: Vec<AnswerTime>,
    /// The error of the first request that failed.
    pub first_error: Option<String>,
}

/// Every request of the warm-up failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{policy}: every request fails: {error}")]
pub struct WarmUpFailed {
    /// The contender's policy.
    pub policy: String,
    /// The error of the first request.
    pub error: String,
}

/// Plays `load` to all `contenders` in turns. `between` is called before each turn and after the
/// last, while nothing runs, so that it can measure the machine in the same state.
///
/// # Errors
/// If a contender answers nothing but errors while it is warmed up.
pub fn compare<S: Service>(
    load: &Load,
    contenders: &mut [Contender<S>],
    between: &mut dyn FnMut(),
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Vec<Measured>, WarmUpFailed> {
    let mut warm_up_requests = 0;
    for contender in contenders.iter_mut() {
        warm_up_requests = warm_up(load, contender)?;
    }
    let mut measurements: Vec<Measurement> = Vec::new();
    measurements.resize_with(contenders.len(), || Measurement::new(load.rate_rps.is_none()));
    let mut answered_before = 0;
    for (turn, part) in load.trace.parts(load.parts).iter().enumerate() {
        between();
        for position in 0..contenders.len() {
            // No contender is always the first.
            let index = (position + turn) % contenders.len();
            let Contender { policy, service, .. } = &mut contenders[index];
            let measurement = &mut measurements[index];
            let before = read(service);
            let mut seen: Option<Statistics> = before.engine.clone();
            let mut watch = |service: &S, at: Duration, answered: usize, in_flight: usize| {
                progress(Progress { policy, answered: answered_before + answered });
                if let (Some(seen), Some(now)) = (&mut seen, service.statistics()) {
                    measurement.sample(at, in_flight, seen, &now);
                    *seen = now;
                }
            };
            let saturation = Saturation {
                in_flight_max: load.in_flight_max,
                time: load.time.map(|time| time / load.parts as u32),
            };
            let (start, sent) = play(service, part, saturation, &mut watch);
            let after = read(service);
            measurement.add(start, &sent, &before, &after);
            answered_before += sent.len();
            progress(Progress { policy, answered: answered_before });
        }
    }
    between();
    let measured = contenders.iter().zip(measurements).map(|(contender, measurement)| {
        let subject = Subject {
            policy: contender.policy.clone(),
            model: contender.model.clone(),
            workload: load.workload.clone(),
            seed: load.seed,
            rate_rps: load.rate_rps,
            workers: contender.workers,
            warm_up: warm_up_requests,
        };
        let (wall_s, descheduled_s) = measurement.wall_and_descheduled_s();
        Measured {
            cells: measurement.engine().map_or(Vec::new(), |engine| engine.cells.clone()),
            wall_s,
            descheduled_s,
            report: measurement.report(subject),
            queue_cdf: measurement.queue_cdf(),
            compute_cdf: measurement.compute_cdf(),
            answers: measurement.answers,
            first_error: measurement.first_error,
        }
    });
    Ok(measured.collect())
}

fn read<S: Service>(service: &S) -> Reading {
    Reading { engine: service.statistics(), cpu: CpuTime::now() }
}

/// Sends requests so that a contender allocates its memory and starts its threads. Gives the number of requests.
fn warm_up<S: Service>(load: &Load, contender: &mut Contender<S>) -> Result<u64, WarmUpFailed> {
    let shapes = load.trace.arrivals.iter().map(|arrival| arrival.shape.clone());
    let trace = Trace::saturated(shapes.take(load.in_flight_max.min(WARM_UP_MAX)).collect());
    let service = &mut contender.service;
    let saturation = Saturation { in_flight_max: load.in_flight_max, time: None };
    let (_, sent) = play(service, &trace, saturation, &mut |_, _, _, _| {});
    let mut errors = sent.iter().map(|request| match &request.answer {
        Answer::Error(error) => Some(error),
        Answer::Reply { .. } => None,
    });
    match errors.next() {
        Some(Some(error)) if errors.all(|error| error.is_some()) => {
            Err(WarmUpFailed { policy: contender.policy.clone(), error: error.clone() })
        }
        _ => Ok(sent.len() as u64),
    }
}
