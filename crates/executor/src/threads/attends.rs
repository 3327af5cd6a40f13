//! Which threads run attended work, or attend to some.

use std::cell::Cell;

thread_local! {
    /// Whether this thread runs attended work, or attends to some.
    static ATTENDS: Cell<bool> = const { Cell::new(false) };
}

/// A thread that runs attended work or attends to it, until this is dropped. While it looks for parts, it may come upon the request to
/// attend to another run, or to its own, which it would not come back from.
pub(super) struct Attends;

impl Attends {
    /// None if this thread runs attended work, or attends to some, already.
    pub(super) fn begin() -> Option<Self> {
        // Not `then_some`: a guard that is not given out would end the one that is there.
        (!ATTENDS.replace(true)).then(|| Self)
    }
}

impl Drop for Attends {
    fn drop(&mut self) {
        ATTENDS.set(false);
    }
}

/// Whether this thread runs attended work, or attends to some.
pub(super) fn is_attending() -> bool {
    ATTENDS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_attends_to_one_run() {
        let attends = Attends::begin();
        assert!(attends.is_some());
        for _ in 0..2 {
            assert!(Attends::begin().is_none());
            assert!(is_attending());
        }
        drop(attends);
        assert!(!is_attending());
        assert!(Attends::begin().is_some());
    }
}
