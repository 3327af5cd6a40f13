//! Threads that others wait for, beside threads that compute all the time.

/// The time slices that a thread asks the system for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slices {
    /// Slices of 0.3 ms: for a thread that sleeps most of the time and then runs for less than that, such as one of a network.
    Short,
    /// Those that the system gives unless asked: for a thread that computes, which would be interrupted more often by short ones, and win nothing.
    Usual,
}

/// Asks the system for time slices of the calling thread, and of the threads that it starts from then on.
///
/// Linux lets a thread that computes finish its time slice of some milliseconds before one that wakes up runs, unless that one has asked for shorter
/// slices and has had no more than its part of the core (`sched_setattr(2)`, from Linux 6.12 on). Other systems have no such slices, and nothing
/// changes there, nor for a thread of another policy than the usual one.
pub fn ask_for_slices(slices: Slices) {
    #[cfg(target_os = "linux")]
    linux::ask_for_slices_of(match slices {
        Slices::Short => SHORT_NS,
        Slices::Usual => 0,
    });
    #[cfg(not(target_os = "linux"))]
    let _ = slices;
}

/// Longer than it takes to unfold and submit a request, in nanoseconds; Linux grants 0.1 ms and more, and 0.7 to 3 ms unless asked.
#[cfg(target_os = "linux")]
const SHORT_NS: u64 = 300_000;

#[cfg(target_os = "linux")]
mod linux {
    use libc::{SCHED_OTHER, SYS_sched_getattr, SYS_sched_setattr, sched_attr};

    /// Linux reads and writes this much of the attributes, whatever later versions add.
    const SIZE: u32 = size_of::<sched_attr>() as u32;

    const THIS_THREAD: libc::pid_t = 0;
    const NO_FLAGS: libc::c_uint = 0;

    /// The attributes of the calling thread; none if the system does not tell.
    pub(super) fn attributes() -> Option<sched_attr> {
        let mut attributes = sched_attr {
            size: SIZE,
            sched_policy: 0,
            sched_flags: 0,
            sched_nice: 0,
            sched_priority: 0,
            sched_runtime: 0,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: the system writes `SIZE` bytes at most, which `attributes` has.
        let result = unsafe {
            libc::syscall(SYS_sched_getattr, THIS_THREAD, &raw mut attributes, SIZE, NO_FLAGS)
        };
        (result == 0).then_some(attributes)
    }

    /// Slices of 0 ns are the usual ones.
    pub(super) fn ask_for_slices_of(ns: u64) {
        let Some(mut attributes) = attributes() else { return };
        if attributes.sched_policy != SCHED_OTHER as u32 {
            return;
        }
        attributes.sched_runtime = ns;
        // SAFETY: the system reads `SIZE` bytes of `attributes`, which it has.
        unsafe { libc::syscall(SYS_sched_setattr, THIS_THREAD, &raw const attributes, NO_FLAGS) };
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn slices_are_short_while_asked_for_and_nothing_else_changes() {
        let attributes = |ask: fn()| {
            let of_thread = move || {
                ask();
                linux::attributes().map(|of| (of.sched_policy, of.sched_nice, of.sched_runtime))
            };
            std::thread::spawn(of_thread).join().unwrap()
        };
        let before = attributes(|| ());
        let Some((policy, nice, usual_ns)) = before else { return };
        // Before Linux 6.12 there are no slices to read.
        let short_ns = if usual_ns > 0 && policy == 0 { SHORT_NS } else { usual_ns };
        let short = attributes(|| ask_for_slices(Slices::Short));
        assert_eq!(short, Some((policy, nice, short_ns)));
        let usual =
            attributes(|| [Slices::Short, Slices::Usual].into_iter().for_each(ask_for_slices));
        assert_eq!(usual, before);
    }
}
