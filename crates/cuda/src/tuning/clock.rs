//! A host's clock around launches that have the stream to themselves.

use std::time::{Duration, Instant};

use batchmaker_device::DeviceError;

use crate::gpu::{GpuError, Stream};

/// The time of a launch, from when the GPU has nothing to do until it has nothing to do again.
pub(super) fn time(
    stream: &Stream,
    launch: impl FnOnce() -> Result<(), GpuError>,
) -> Result<Duration, GpuError> {
    stream.synchronize()?;
    let start = Instant::now();
    launch()?;
    stream.synchronize()?;
    Ok(start.elapsed())
}

/// Microseconds that a launch of `many` steps or rounds takes more than one of `few`: the difference of the medians of `launches` of both, in turns, after as
/// many `warm_ups`. What a launch takes beside its steps is in both times.
pub(super) fn difference_us(
    [many, few]: [u32; 2],
    [warm_ups, launches]: [usize; 2],
    mut time: impl FnMut(u32) -> Result<Duration, GpuError>,
) -> Result<f64, GpuError> {
    let mut times = [Vec::new(), Vec::new()];
    for launch in 0..warm_ups + launches {
        for (times, count) in times.iter_mut().zip([many, few]) {
            let time = time(count)?;
            times.extend((launch >= warm_ups).then_some(time));
        }
    }
    let [many, few] = times.map(median);
    Ok((many.as_secs_f64() - few.as_secs_f64()) * 1e6)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// What an error of the driver is to whoever asked for a time.
pub(super) fn failed(error: GpuError) -> DeviceError {
    match error.is_out_of_memory() {
        true => DeviceError::Resources(format!("memory for what is timed: {error}")),
        false => DeviceError::Lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_launches_take_is_left_out() {
        let mut calls = 0;
        let time = |steps: u32| {
            calls += 1;
            // The first launches are slow, and one later.
            let more = if calls <= 4 || calls == 7 { 1000 } else { 0 };
            Ok(Duration::from_micros(9 + 2 * u64::from(steps) + more))
        };
        assert!((difference_us([11, 1], [2, 5], time).unwrap() - 20.0).abs() < 1e-9);
        assert_eq!(calls, 14);
    }
}
