//! Chooses the scheduler's limits from curves: the most rows in a batch, and the submission window.
//!
//! A batch that is submitted keeps a worker busy until it ends, and a request that arrives meanwhile
//! waits for it. Larger batches make more of a worker's time up to a point, and every request in one
//! waits for all of its rows. (BatchMaker, sections 2.2 and 7.3: at a low load batches are small
//! whatever the limit.)

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::curve::{Curve, Point};

/// The goal that limits are chosen for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Goal {
    /// The highest throughput.
    #[default]
    Throughput,
    /// Short times at little cost in throughput.
    Latency,
    /// The highest throughput at which most requests of `steps` steps end in time.
    P90 {
        /// The time from arrival to reply.
        within: Duration,
        /// Steps of a request that is longer than most.
        steps: u32,
    },
}

/// The limits that a goal leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The most rows in a batch.
    pub max_batch_size: u32,
    /// The submission window: how much work a worker may have submitted and not finished. None: as many batches as
    /// `MaxTasksToSubmit` says.
    pub submission_window: Option<Duration>,
    /// Whether the goal can be met at all; if not, the rest is as for [`Goal::Latency`].
    pub is_met: bool,
}

/// Shares of the largest throughput that the smallest batch must reach.
const THROUGHPUT: f64 = 0.97;
const LATENCY: f64 = 0.85;

/// Microseconds that a batch costs beside its cell: forming it, notifying a worker, and replies. Without this
/// term, small cells would get tiny batches.
const OVERHEAD_US: f64 = 10.0;

/// The shortest submission window: notifying a worker costs some microseconds.
const WINDOW_MIN: Duration = Duration::from_micros(100);

/// The steps of a request, unless the goal says: most sentences are shorter.
const STEPS: u32 = 50;

/// The part of its time that a request may wait before its first step.
const WAITING: f64 = 0.1;

impl Goal {
    /// Chooses limits for a cell with this curve. `cells` is the number of cells that a request goes through step by
    /// step: they share its time. None if the curve has no points, or is one of whole sequences: the time of a batch of others, longer or
    /// shorter, would be another.
    pub fn choose(self, curve: &Curve, cells: usize) -> Option<Choice> {
        if curve.steps.is_some() {
            return None;
        }
        let reaching = |share: f64| {
            let rate = |point: &Point| f64::from(point.batch) / (point.us + OVERHEAD_US);
            let most = curve.points.iter().map(rate).fold(0.0, f64::max);
            curve.points.iter().find(|point| rate(point) >= share * most)
        };
        let us = |us: f64| Duration::from_secs_f64(us * 1e-6);
        Some(match self {
            Self::Throughput => {
                let max_batch_size = reaching(THROUGHPUT)?.batch;
                Choice { max_batch_size, submission_window: None, is_met: true }
            }
            Self::Latency => {
                let point = reaching(LATENCY)?;
                let submission_window = Some(us(point.us).max(WINDOW_MIN));
                Choice { max_batch_size: point.batch, submission_window, is_met: true }
            }
            Self::P90 { within, steps } => {
                let all_us = within.as_secs_f64() * 1e6 * (1.0 - WAITING);
                let step_us = all_us / f64::from(steps.max(1)) / cells.max(1) as f64;
                let most = reaching(THROUGHPUT)?;
                let fits = |point: &&Point| point.us <= step_us && point.batch <= most.batch;
                let Some(point) = curve.points.iter().rfind(fits) else {
                    return Some(Choice { is_met: false, ..Self::Latency.choose(curve, cells)? });
                };
                let submission_window = Some(within.mul_f64(WAITING).max(WINDOW_MIN));
                Choice { max_batch_size: point.batch, submission_window, is_met: true }
            }
        })
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Throughput => f.pad("throughput"),
            Self::Latency => f.pad("latency"),
            Self::P90 { within, steps } => write!(f, "p90:{}:{steps}", within.as_secs_f64() * 1e3),
        }
    }
}

impl FromStr for Goal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!("'{text}' is no goal: expected throughput, latency, or p90:MS or p90:MS:STEPS")
        };
        let mut parts = text.split(':');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("throughput"), None, ..) => Ok(Self::Throughput),
            (Some("latency"), None, ..) => Ok(Self::Latency),
            (Some("p90"), Some(ms), steps, None) => {
                let ms = ms.parse().ok().filter(|ms: &f64| (1e-3..1e9).contains(ms));
                let steps = steps.map_or(Ok(STEPS), str::parse).ok().filter(|&steps| steps > 0);
                let (ms, steps) = ms.zip(steps).ok_or_else(expected)?;
                Ok(Self::P90 { within: Duration::from_secs_f64(ms * 1e-3), steps })
            }
            _ => Err(expected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell of 100 us, and 5 us a row beyond 16.
    fn curve() -> Curve {
        let time = |batch: usize| 100.0 + 5.0 * batch.saturating_sub(16) as f64;
        let points = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
        let points =
            points.into_iter().map(|batch| Point::measured(batch, time(batch), None)).collect();
        Curve { steps: None, difference: None, points }
    }

    #[test]
    fn goals_choose() {
        let choose_of = |goal: &str, cells| goal.parse::<Goal>().unwrap().choose(&curve(), cells);
        let choose = |goal: &str| choose_of(goal, 1).unwrap();
        let throughput = Choice { max_batch_size: 256, submission_window: None, is_met: true };
        assert_eq!(choose("throughput"), throughput);
        let latency = choose("latency");
        assert_eq!(latency.max_batch_size, 32);
        assert_eq!(latency.submission_window, Some(Duration::from_micros(180)));
        // 50 steps within 9 ms of 10: 180 us a step.
        assert_eq!(choose("p90:10").max_batch_size, 32);
        assert_eq!(choose("p90:10").submission_window, Some(Duration::from_millis(1)));
        assert_eq!(choose("p90:1000:10").max_batch_size, 256, "no more than throughput asks for");
        assert_eq!(
            choose_of("p90:20", 2),
            Some(Choice { submission_window: Some(Duration::from_millis(2)), ..choose("p90:10") })
        );
        assert_eq!(choose("p90:0.1"), Choice { is_met: false, ..latency });
        assert_eq!(Goal::Latency.choose(&Curve::default(), 1), None);
        let of_sequences = Curve { steps: Some(64), ..curve() };
        assert_eq!(Goal::Throughput.choose(&of_sequences, 1), None);
    }

    #[test]
    fn goals_read_back() {
        for text in ["throughput", "latency", "p90:20:50", "p90:0.5:7"] {
            assert_eq!(text.parse::<Goal>().unwrap().to_string(), text);
        }
        for text in ["", "p90", "p90:0", "p90:x", "p90:1:0", "p90:1:2:3", "latency:1"] {
            assert!(text.parse::<Goal>().is_err(), "{text}");
        }
    }
}
