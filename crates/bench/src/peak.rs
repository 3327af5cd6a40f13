//! The peak of a contender: the highest rate of requests at which it keeps a quality of service (DVABatch, section 8.1).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::compare::{Contender, Load, Progress, WarmUpFailed, compare};
use crate::driver::Service;
use crate::report::Report;

/// The search ends once the peak is known to this share of itself.
const PRECISION: f64 = 0.03;

/// The most rates that are tried.
const TRIES: usize = 20;

/// A quality of service: most requests are answered in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Qos {
    percentile: Percentile,
    within: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Percentile {
    P50,
    P90,
    P99,
}

impl Default for Qos {
    /// 99 % within 200 ms, as in the paper.
    fn default() -> Self {
        Self { percentile: Percentile::P99, within: Duration::from_millis(200) }
    }
}

impl fmt::Display for Qos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percentile = match self.percentile {
            Percentile::P50 => "p50",
            Percentile::P90 => "p90",
            Percentile::P99 => "p99",
        };
        write!(f, "{percentile}:{}ms", self.within.as_secs_f64() * 1e3)
    }
}

impl FromStr for Qos {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(':').and_then(|(percentile, within)| {
            let percentile = match percentile {
                "p50" => Percentile::P50,
                "p90" => Percentile::P90,
                "p99" => Percentile::P99,
                _ => return None,
            };
            let ms: f64 = within.strip_suffix("ms").unwrap_or(within).parse().ok()?;
            let within = Duration::try_from_secs_f64(ms / 1e3).ok()?;
            (!within.is_zero()).then_some(Self { percentile, within })
        });
        parsed.ok_or_else(|| {
            "expected p50:MS, p90:MS or p99:MS, with milliseconds above 0".to_owned()
        })
    }
}

impl Qos {
    /// Whether a run kept it.
    pub fn is_kept(&self, report: &Report) -> bool {
        let latency = &report.latency_ms;
        let ms = match self.percentile {
            Percentile::P50 => latency.p50,
            Percentile::P90 => latency.p90,
            Percentile::P99 => latency.p99,
        };
        report.errors == 0 && report.sustained && ms <= self.within.as_secs_f64() * 1e3
    }
}

/// Searches the peak of a contender, in requests a second; 0 if it keeps the quality at no rate that was tried. `load_at` gives the load of a
/// rate, or the saturated one.
///
/// # Errors
/// As [`compare`].
pub fn peak<S: Service>(
    contender: &mut Contender<S>,
    qos: Qos,
    mut load_at: impl FnMut(Option<f64>) -> Load,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<f64, WarmUpFailed> {
    let mut run = |rate: Option<f64>| -> Result<Report, WarmUpFailed> {
        let contenders = std::slice::from_mut(contender);
        let mut runs = compare(&load_at(rate), contenders, &mut || {}, progress)?;
        Ok(runs.remove(0).report)
    };
    let saturated = run(None)?.throughput_rps;
    if saturated == 0.0 {
        return Ok(0.0);
    }
    search(saturated, |rate| Ok(qos.is_kept(&run(Some(rate))?)))
}

/// The highest rate that is kept, near or below one that is not likely to be.
fn search<E>(likely_above: f64, mut is_kept: impl FnMut(f64) -> Result<bool, E>) -> Result<f64, E> {
    let (mut low, mut high) = (0.0, None);
    let mut rate = 0.9 * likely_above;
    for _ in 0..TRIES {
        if is_kept(rate)? {
            low = rate;
        } else {
            high = Some(rate);
        }
        rate = match high {
            Some(high) if low > 0.0 && high <= low * (1.0 + PRECISION) => break,
            Some(high) if low > 0.0 => (low + high) / 2.0,
            Some(high) => high / 2.0,
            None => low * 1.1,
        };
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_near_the_peak() {
        for peak in [1.0, 37.0, 90.0, 100.0, 130.0] {
            let mut tries = 0;
            let found = search(100.0, |rate| {
                tries += 1;
                Ok::<_, ()>(rate <= peak)
            });
            let found = found.unwrap();
            let is_near = found <= peak && found >= peak * 0.95;
            assert!(tries < TRIES && is_near, "{peak}: {found} in {tries}");
        }
    }

    #[test]
    fn qualities_are_read_as_they_are_written() {
        let qos: Qos = "p90:20".parse().unwrap();
        assert_eq!((qos.to_string(), "p90:20ms".parse()), ("p90:20ms".to_owned(), Ok(qos)));
        assert_eq!(Qos::default().to_string(), "p99:200ms");
        for wrong in ["", "p99", "p95:1", "p99:0", "p99:-1", "p99:x"] {
            assert!(wrong.parse::<Qos>().is_err(), "{wrong}");
        }
    }
}
