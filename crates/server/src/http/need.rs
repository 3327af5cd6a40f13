//! The time that the server waits for a slow client while little memory is left.

use std::time::Duration;

use batchmaker::MemoryBudget;

/// The time that a client may send nothing of a body, or take nothing of its reply, while more than three quarters of
/// the memory are in use.
const TIME_IN_NEED: Duration = Duration::from_secs(3);

/// The same while hardly any memory is left.
const TIME_IN_DISTRESS: Duration = Duration::from_millis(500);

/// The time that a client may keep the server waiting, where little memory is left.
pub(crate) fn time_in_need(memory: &MemoryBudget) -> Option<Duration> {
    match (memory.bytes_in_use(), memory.bytes_max() / 16) {
        (used, part) if used > 15 * part => Some(TIME_IN_DISTRESS),
        (used, part) if used > 12 * part => Some(TIME_IN_NEED),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_memory_is_left_the_less_clients_are_waited_for() {
        let budget = MemoryBudget::new(16 << 20);
        let mut large = budget.standing();
        for (mib, time) in [(0, None), (12, None), (13, Some(TIME_IN_NEED))] {
            large.try_grow_to(mib << 20).unwrap();
            assert_eq!(time_in_need(&budget), time, "{mib} MiB");
        }
        let mut small = [(); 9].map(|()| budget.arrival());
        for small in &mut small {
            assert_eq!(time_in_need(&budget), Some(TIME_IN_NEED));
            small.try_grow_to(256 << 10).unwrap();
        }
        assert_eq!(time_in_need(&budget), Some(TIME_IN_DISTRESS));
    }
}
