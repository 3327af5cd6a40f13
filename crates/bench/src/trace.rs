//! Traces: when the requests of a run arrive, and how long each is. A trace is drawn once and then played to every
//! policy, so that all of them run under the same load. It is no clock and no player.

use std::io::{self, Write};
use std::time::Duration;

use rand_distr::{Distribution, Exp};
use serde::Serialize;

use crate::random::{Purpose, stream};
use crate::shape::{Shape, Tree};

const NS_PER_S: f64 = 1e9;

/// One request to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time at which it should arrive, in nanoseconds since the start; none in a saturated run, where it is sent
    /// as soon as fewer requests are in flight than the load allows.
    pub at_ns: Option<u64>,
    /// The request's shape.
    pub shape: Shape,
}

/// The requests of a run in the order of their arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Either all have times, in ascending order, or none has.
    pub arrivals: Vec<Arrival>,
}

impl Trace {
    /// Requests that arrive independently of each other and of the server (open loop): gaps are
    /// exponential with mean 1 / `rate_rps`, the first from the start on. The gaps of a seed are
    /// drawn apart from its lengths, so the same requests come at every rate.
    ///
    /// # Panics
    /// Unless `rate_rps` is finite and above 0: whoever reads the rate checks it.
    pub fn poisson(shapes: Vec<Shape>, rate_rps: f64, seed: u64) -> Self {
        assert!(rate_rps.is_finite() && rate_rps > 0.0, "a rate of {rate_rps} requests a second");
        let gaps_s = Exp::new(rate_rps).expect("the rate is above 0");
        let mut rng = stream(seed, Purpose::Arrivals);
        let mut now_ns = 0_u64;
        let arrivals = shapes.into_iter().map(|shape| {
            let gap_ns = (gaps_s.sample(&mut rng) * NS_PER_S).round() as u64;
            now_ns = now_ns.saturating_add(gap_ns);
            Arrival { at_ns: Some(now_ns), shape }
        });
        Self { arrivals: arrivals.collect() }
    }

    /// Requests that arrive as in [`poisson`](Self::poisson), at a rate for a time, then at the next. As many come as the rates and times
    /// say; `shapes` are gone through over and over again.
    ///
    /// # Panics
    /// Unless all rates are finite and above 0, and there are shapes.
    pub fn stepping(shapes: &[Shape], steps: &[(f64, Duration)], seed: u64) -> Self {
        let mut rng = stream(seed, Purpose::Arrivals);
        let mut arrivals = Vec::new();
        let (mut begin_s, mut shapes) = (0.0, shapes.iter().cycle());
        for &(rate_rps, time) in steps {
            assert!(rate_rps.is_finite() && rate_rps > 0.0, "a rate of {rate_rps} a second");
            let gaps_s = Exp::new(rate_rps).expect("the rate is above 0");
            let end_s = begin_s + time.as_secs_f64();
            let mut now_s = begin_s + gaps_s.sample(&mut rng);
            while now_s < end_s {
                let shape = shapes.next().expect("there are shapes").clone();
                let at_ns = Some((now_s * NS_PER_S).round() as u64);
                arrivals.push(Arrival { at_ns, shape });
                now_s += gaps_s.sample(&mut rng);
            }
            begin_s = end_s;
        }
        Self { arrivals }
    }

    /// Requests without times: the next is sent whenever fewer requests are in flight than the load allows.
    pub fn saturated(shapes: Vec<Shape>) -> Self {
        let arrivals = shapes.into_iter().map(|shape| Arrival { at_ns: None, shape });
        Self { arrivals: arrivals.collect() }
    }

    /// The trace cut into `n` consecutive parts of as many requests (give or take one), so that
    /// policies can take turns. The times of a part count from its own start, which is the last
    /// arrival of the part before: played one after the other, the parts are the trace.
    ///
    /// # Panics
    /// If `n` is 0.
    pub fn parts(&self, n: usize) -> Vec<Self> {
        assert!(n > 0, "a trace in no parts");
        let cut = |part: usize| (part as u128 * self.arrivals.len() as u128 / n as u128) as usize;
        let part = |part: usize| {
            let (before, rest) = self.arrivals.split_at(cut(part));
            let start_ns = before.last().and_then(|arrival| arrival.at_ns).unwrap_or(0);
            let arrivals = rest[..cut(part + 1) - before.len()].iter().map(|arrival| Arrival {
                at_ns: arrival.at_ns.map(|at_ns| at_ns - start_ns),
                ..arrival.clone()
            });
            Self { arrivals: arrivals.collect() }
        };
        (0..n).map(part).collect()
    }

    /// Writes the trace as JSON lines `{"at_s": number|null, "length": n}`; of pairs, with
    /// `target`; of trees, with `leaves`, `words` and `children` (see [`Tree`]). A time in seconds, times 10⁹ and rounded, is the time in
    /// nanoseconds again, up to 2⁵³ ns (104 days).
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_jsonl(&self, mut to: impl Write) -> io::Result<()> {
        #[derive(Serialize)]
        struct Line<'a> {
            at_s: Option<f64>,
            length: u32,
            #[serde(skip_serializing_if = "Option::is_none")]
            target: Option<u32>,
            #[serde(flatten)]
            tree: Option<&'a Tree>,
        }
        for Arrival { at_ns, shape } in &self.arrivals {
            let tree = match shape {
                Shape::Sequence(_) | Shape::Pair { .. } => None,
                Shape::Tree(tree) => Some(&**tree),
            };
            let at_s = at_ns.map(|at_ns| at_ns as f64 / NS_PER_S);
            let (length, target) = (shape.length(), shape.target());
            let line = Line { at_s, length, target, tree };
            serde_json::to_writer(&mut to, &line)?;
            to.write_all(b"\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace of `(at_ns, length)`.
    fn trace<const N: usize>(arrivals: [(u64, u32); N]) -> Trace {
        let arrival = |(at_ns, length)| {
            let (at_ns, shape) = (Some(at_ns), Shape::Sequence(length));
            Arrival { at_ns, shape }
        };
        Trace { arrivals: arrivals.map(arrival).to_vec() }
    }

    fn sequences(lengths: Vec<u32>) -> Vec<Shape> {
        lengths.into_iter().map(Shape::Sequence).collect()
    }

    #[test]
    fn gaps_are_those_of_a_poisson_process() {
        const RATE_RPS: f64 = 2000.0;
        let trace = Trace::poisson(sequences(vec![1; 100_000]), RATE_RPS, 1);
        let mut before_ns = 0;
        let gaps_s: Vec<f64> = trace
            .arrivals
            .iter()
            .map(|arrival| {
                let at_ns = arrival.at_ns.unwrap();
                let gap_ns = at_ns - std::mem::replace(&mut before_ns, at_ns);
                gap_ns as f64 / NS_PER_S
            })
            .collect();
        let count = gaps_s.len() as f64;
        let mean = gaps_s.iter().sum::<f64>() / count;
        let variance = gaps_s.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        assert!((0.97..1.03).contains(&(mean * RATE_RPS)), "{mean}");
        let variation = variance.sqrt() / mean;
        assert!((0.97..1.03).contains(&variation), "{variation}");
    }

    #[test]
    fn a_seed_means_the_same_times_for_ever() {
        let times = |seed, rate_rps| {
            let arrivals = Trace::poisson(sequences(vec![1; 4]), rate_rps, seed).arrivals;
            arrivals.into_iter().map(|arrival| arrival.at_ns.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(times(1, 1000.0), [1_318_726, 1_550_895, 2_719_000, 3_360_905]);
        assert_eq!(times(1, 100.0), times(1, 100.0));
        assert_ne!(times(1, 100.0), times(2, 100.0));
    }

    #[test]
    #[should_panic(expected = "a rate of 0 requests a second")]
    fn a_rate_of_nothing_is_refused() {
        Trace::poisson(sequences(vec![1]), 0.0, 1);
    }

    #[test]
    fn saturated_requests_have_no_times() {
        let mut lines = Vec::new();
        Trace::saturated(sequences(vec![3, 5])).write_jsonl(&mut lines).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        assert_eq!(lines, "{\"at_s\":null,\"length\":3}\n{\"at_s\":null,\"length\":5}\n");
    }

    #[test]
    fn lines_keep_the_nanoseconds() {
        let times_ns = [0, 1, 999_999_999, 86_400_000_000_001, 7_776_000_123_456_789];
        let mut lines = Vec::new();
        trace(times_ns.map(|at_ns| (at_ns, 1))).write_jsonl(&mut lines).unwrap();
        let lines = String::from_utf8(lines).unwrap();
        assert!(lines.contains("{\"at_s\":0.999999999,\"length\":1}\n"), "{lines}");
        let back = lines.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            (line["at_s"].as_f64().unwrap() * NS_PER_S).round() as u64
        });
        assert_eq!(back.collect::<Vec<_>>(), times_ns);
    }

    #[test]
    fn parts_follow_each_other() {
        let whole = trace([(10, 1), (30, 2), (60, 3), (100, 4), (150, 5)]);
        let parts = whole.parts(2);
        assert_eq!(parts[0], trace([(10, 1), (30, 2)]));
        assert_eq!(parts[1], trace([(30, 3), (70, 4), (120, 5)]));
        assert_eq!(whole.parts(1), std::slice::from_ref(&whole));
        let counts: Vec<_> = whole.parts(7).iter().map(|part| part.arrivals.len()).collect();
        assert_eq!(counts, [0, 1, 1, 0, 1, 1, 1]);
        let lengths = Trace::saturated(sequences(vec![1, 2, 3]));
        assert_eq!(lengths.parts(3)[2], Trace::saturated(sequences(vec![3])));
    }
}
