//! The policies that `bench` measures.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

use batchmaker::{Delay, Policy};
use batchmaker_bench::Batching;

/// The option of `zero` and `delay` that has requests padded.
const PADDED: &str = "padded";

/// A policy to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeasuredPolicy {
    /// One of the engine's.
    OfEngine(Policy),
    /// A batcher before the engine pads the requests of a batch to the longest and joins them to one request, which the engine runs alone, from
    /// start to end. Reads and prints as `zero:padded[:batch=N]` or `delay:padded:window=TIME[:batch=N]`.
    Padded(Delay),
}

impl MeasuredPolicy {
    /// The policy of the engine.
    pub(crate) fn of_engine(self) -> Policy {
        match self {
            Self::OfEngine(policy) => policy,
            Self::Padded(_) => Policy::Delayed(Delay { batch_max: 1, window_ns: 0 }),
        }
    }

    /// The batches that are formed before the engine, with as many at a time as there are workers.
    pub(crate) fn batching(self, workers: u16) -> Option<Batching> {
        match self {
            Self::OfEngine(_) => None,
            Self::Padded(Delay { batch_max, window_ns }) => Some(Batching {
                batch_max,
                window: Duration::from_nanos(window_ns),
                concurrency: workers,
            }),
        }
    }
}

impl Display for MeasuredPolicy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfEngine(policy) => policy.fmt(f),
            Self::Padded(delay) => {
                let text = delay.to_string();
                let (name, options) = text.split_once(':').unwrap_or((&text, ""));
                let separator = if options.is_empty() { "" } else { ":" };
                write!(f, "{name}:{PADDED}{separator}{options}")
            }
        }
    }
}

impl FromStr for MeasuredPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let (padded, others): (Vec<&str>, Vec<&str>) =
            options.split(':').partition(|&option| option == PADDED);
        if padded.is_empty() || !["zero", "delay"].contains(&name) {
            return text.parse().map(Self::OfEngine);
        }
        let others = [&[name], &others[..]].concat().join(":");
        let delay = others.parse().ok().filter(|_| padded.len() == 1).map(Self::Padded);
        delay.ok_or_else(|| {
            format!("'{text}' is no policy: expected zero:padded[:batch=N] or delay:padded:window=TIME[:batch=N]")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_printed() {
        let read = |text: &str| text.parse::<MeasuredPolicy>().map(|policy| policy.to_string());
        for text in [
            "cellular",
            "padded:10",
            "zero",
            "zero:padded",
            "zero:padded:batch=8",
            "delay:padded:window=2ms",
        ] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        assert_eq!(
            read("delay:batch=8:window=2ms:padded"),
            read("delay:padded:window=2ms:batch=8")
        );
        for text in ["delay:padded", "zero:padded:padded", "staged:padded", "padded:zero"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn padded_batches_are_formed_before_the_engine() {
        let policy: MeasuredPolicy = "delay:padded:window=2ms:batch=8".parse().unwrap();
        let batching = Batching { batch_max: 8, window: Duration::from_millis(2), concurrency: 3 };
        assert_eq!(policy.batching(3), Some(batching));
        assert_eq!(policy.of_engine().to_string(), "zero:batch=1");
        assert_eq!(MeasuredPolicy::OfEngine(Policy::Cellular).batching(3), None);
    }
}
