//! Which of two executors is faster with a program, by the times of a few runs.

use std::time::Duration;

/// Rows or sequences of the batches that are timed: alone, and together as they come under load.
const COUNTS: [usize; 2] = [1, 8];

/// How often each runs a batch, within how much time; once, after a first run, if that is long.
const RUNS_MIN: usize = 3;
const RUNS_MAX: usize = 100;
const TIME: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_millis(300);

/// How many times as fast ONNX Runtime must be, as the replies of the own executor have the same bits in any company.
const MARGIN: f64 = 1.05;

/// Programs whose runs are shorter stay with the own executor: what goes into a session and comes out of it is copied, and the next cells
/// find it in no near cache.
const SHORT: Duration = Duration::from_micros(200);

/// Decides which executor runs a program: gives the reason for the own one, or none if ONNX Runtime is faster. `time` runs a batch in both, and returns
/// the time of the own executor, then that of ONNX Runtime; its argument is the number of rows or sequences in the batch. Without `is_batched`, a batch
/// has one.
pub(crate) fn why_own<E>(
    is_batched: bool,
    time: impl Fn(usize) -> Result<[Duration; 2], E>,
) -> Option<String> {
    let counts = if is_batched { &COUNTS[..] } else { &COUNTS[..1] };
    let (mut ratio, mut timed) = (1.0, 0);
    for &count in counts {
        let Ok([own, theirs]) = medians(|| time(count)) else {
            return Some("the time of the other is not known".to_owned());
        };
        if own < SHORT {
            return Some("its runs are short".to_owned());
        }
        ratio *= own.as_secs_f64() / theirs.as_secs_f64().max(1e-9);
        timed += 1;
        if own + theirs > LONG {
            // Together, they would take seconds.
            break;
        }
    }
    let ratio = ratio.powf(1.0 / f64::from(timed));
    (ratio < MARGIN).then(|| format!("{:.2} times as fast as the other", 1.0 / ratio))
}

/// The median times of runs in turns.
fn medians<E>(run: impl Fn() -> Result<[Duration; 2], E>) -> Result<[Duration; 2], E> {
    // The first fills caches.
    let first = run()?;
    let runs_min = if first[0] + first[1] > LONG { 1 } else { RUNS_MIN };
    let (mut spent, mut times) = (Duration::ZERO, [Vec::new(), Vec::new()]);
    while times[0].len() < runs_min || (times[0].len() < RUNS_MAX && spent < 2 * TIME) {
        for (times, time) in times.iter_mut().zip(run()?) {
            times.push(time);
            spent += time;
        }
    }
    Ok(times.map(|mut of| {
        of.sort_unstable();
        of[of.len() / 2]
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The decision, given the microseconds of a run of one row and of eight: in the own executor, then in ONNX Runtime.
    fn chosen(one: [u64; 2], eight: [u64; 2]) -> Option<String> {
        let time =
            |count| Ok::<_, ()>(if count == 1 { one } else { eight }.map(Duration::from_micros));
        why_own(true, time)
    }

    #[test]
    fn the_faster_one_runs_it() {
        assert_eq!(chosen([2000, 1000], [9000, 9000]), None);
        assert_eq!(chosen([1000, 2000], [2000, 1000]).unwrap(), "1.00 times as fast as the other");
        assert_eq!(chosen([1000, 990], [2000, 1990]).unwrap(), "0.99 times as fast as the other");
        assert_eq!(chosen([1000, 1500], [1000, 1500]).unwrap(), "1.50 times as fast as the other");
        assert_eq!(chosen([150, 10], [1200, 80]).unwrap(), "its runs are short");
    }

    #[test]
    fn long_runs_are_timed_alone() {
        let count = std::cell::Cell::new(0);
        let time = |of| {
            assert_eq!(of, 1);
            count.set(count.get() + 1);
            Ok::<_, ()>([2_000, 1_000].map(Duration::from_millis))
        };
        assert_eq!(why_own(true, time), None);
        assert_eq!(count.get(), 2);
    }

    #[test]
    fn sequences_that_run_one_by_one_are_timed_alone() {
        let time = |count| match count {
            1 => Ok([2000, 1000].map(Duration::from_micros)),
            _ => Err(()),
        };
        assert_eq!(why_own(false, time), None);
        assert_eq!(why_own(true, time).unwrap(), "the time of the other is not known");
    }
}
