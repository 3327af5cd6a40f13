//! Threads that only pass work on, beside threads that compute all the time.

/// Has the system let the calling thread run as soon as it wakes up, also while threads that compute use all cores.
///
/// Linux lets a thread that computes finish its time slice of some milliseconds first, unless the thread that wakes up has asked for shorter slices
/// (`sched_setattr(2)`, from Linux 6.12 on). Threads that the caller starts do not inherit this. It is meant for threads that sleep most of the
/// time and then run for less than a slice, such as those of a network: a thread that computes would be interrupted more often, and win nothing.
///
/// It does nothing where the system has no such slices, or the thread has another policy than the usual one.
pub fn ask_for_short_slices() {
    #[cfg(target_os = "linux")]
    linux::ask_for_slices_of(SLICE_NS);
}

/// Longer than it takes to unfold and submit a request, in nanoseconds; Linux grants 0.1 ms and more, and 0.7 to 3 ms unless asked.
#[cfg(target_os = "linux")]
const SLICE_NS: u64 = 300_000;

#[cfg(target_os = "linux")]
mod linux {
    use libc::{
        SCHED_FLAG_RESET_ON_FORK, SCHED_OTHER, SYS_sched_getattr, SYS_sched_setattr, sched_attr,
    };

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

    pub(super) fn ask_for_slices_of(ns: u64) {
        let Some(mut attributes) = attributes() else { return };
        if attributes.sched_policy != SCHED_OTHER as u32 {
            return;
        }
        attributes.sched_runtime = ns;
        attributes.sched_flags |= SCHED_FLAG_RESET_ON_FORK as u64;
        // SAFETY: the system reads `SIZE` bytes of `attributes`, which it has.
        unsafe { libc::syscall(SYS_sched_setattr, THIS_THREAD, &raw const attributes, NO_FLAGS) };
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn slices_are_short_where_the_system_has_them_and_nothing_else_changes() {
        let of_thread = |ask: fn()| {
            let attributes = move || {
                ask();
                linux::attributes().map(|of| (of.sched_policy, of.sched_nice, of.sched_runtime))
            };
            std::thread::spawn(attributes).join().unwrap()
        };
        let (Some(before), Some(after)) = (of_thread(|| ()), of_thread(ask_for_short_slices))
        else {
            return;
        };
        assert_eq!((before.0, before.1), (after.0, after.1));
        // Before Linux 6.12 there is nothing to read, and nothing changes.
        assert!(after.2 == before.2 || after.2 == SLICE_NS, "{before:?} {after:?}");
        let of_child = of_thread(|| {
            ask_for_short_slices();
            let child = std::thread::spawn(linux::attributes).join().unwrap();
            assert_ne!(child.map(|of| of.sched_runtime), Some(SLICE_NS), "a child inherits it");
        });
        assert_eq!(of_child, Some(after));
    }
}
