//! The cores that the process may use, and threads that stay on one.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;

use core_affinity::CoreId;

/// Puts the calling thread on core `core`, counted from the first that the process may use, if there are
/// that many.
pub(crate) fn pin(core: usize) {
    if let Some(&core) = cores().get(core) {
        core_affinity::set_for_current(core);
    }
}

/// Keeps the calling thread off `cores`, counted likewise, if there are others, and the system knows such a thing.
pub(crate) fn stay_off(cores: &Range<usize>) {
    thread_local! {
        /// The cores that the last call kept this thread off.
        static KEPT_OFF: RefCell<Range<usize>> = const { RefCell::new(0..0) };
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if KEPT_OFF.replace(cores.clone()) != *cores {
        use rustix::thread::{CpuSet, sched_setaffinity};

        let mut others = CpuSet::new();
        let all = self::cores().iter().enumerate();
        all.filter(|(number, _)| !cores.contains(number)).for_each(|(_, core)| others.set(core.id));
        if others.count() > 0 {
            let _ = sched_setaffinity(None, &others);
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    KEPT_OFF.replace(cores.clone());
}

/// The cores that the process may use, as read at the first call: a thread that was put on one core
/// meanwhile sees that one only.
fn cores() -> &'static [CoreId] {
    static CORES: OnceLock<Vec<CoreId>> = OnceLock::new();
    CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}
