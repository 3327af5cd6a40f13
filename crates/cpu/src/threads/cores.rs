//! The cores that the process may use, and threads that stay on one.

use std::sync::OnceLock;

use core_affinity::CoreId;

/// Puts the calling thread on core `core`, counted from the first that the process may use, if there are
/// that many.
pub(crate) fn pin(core: usize) {
    if let Some(&core) = cores().get(core) {
        core_affinity::set_for_current(core);
    }
}

/// The cores that the process may use, as read at the first call: a thread that was put on one core
/// meanwhile sees that one only.
fn cores() -> &'static [CoreId] {
    static CORES: OnceLock<Vec<CoreId>> = OnceLock::new();
    CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}
