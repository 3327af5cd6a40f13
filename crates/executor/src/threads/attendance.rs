//! Which runs of a program are attended.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Which runs of a program are attended, as its earlier runs have shown. A program is run with inputs of many sizes, which come in any order. If
/// the work of a run was worth dividing, runs whose inputs have as many elements or more are attended; if not, runs of as many or
/// fewer are not.
#[derive(Debug)]
pub(crate) struct Attendance {
    /// Elements of the inputs of the smallest run that is to be attended.
    smallest: AtomicUsize,
    /// The most threads that any operator of such a run was worth.
    worth: AtomicUsize,
}

impl Default for Attendance {
    fn default() -> Self {
        Self { smallest: AtomicUsize::new(usize::MAX), worth: AtomicUsize::new(1) }
    }
}

impl Attendance {
    /// The number of threads that are to attend to a run whose inputs have `elements` elements, the one that it begins on included; 1 if no
    /// other is.
    pub(crate) fn worth(&self, elements: usize) -> usize {
        match elements >= self.smallest.load(Ordering::Relaxed) {
            true => self.worth.load(Ordering::Relaxed),
            false => 1,
        }
    }

    /// Notes a run whose inputs have `elements` elements. `worth` is the largest number of threads that one of its operators was worth.
    pub(crate) fn note(&self, elements: usize, worth: usize) {
        if worth > 1 {
            self.worth.fetch_max(worth, Ordering::Relaxed);
            self.smallest.fetch_min(elements, Ordering::Relaxed);
        } else {
            self.smallest.fetch_max(elements.saturating_add(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_runs_are_attended_whatever_came_before() {
        let attendance = Attendance::default();
        let worths = |sizes: [usize; 4]| sizes.map(|elements| attendance.worth(elements));
        assert_eq!(worths([2, 40, 89, 90]), [1; 4], "nothing is known");
        attendance.note(90, 5);
        attendance.note(2, 1);
        assert_eq!(worths([2, 89, 90, 200]), [1, 1, 5, 5]);
        attendance.note(40, 4);
        assert_eq!(worths([2, 39, 40, 200]), [1, 1, 5, 5]);
        attendance.note(40, 1);
        assert_eq!(worths([2, 40, 41, 200]), [1, 1, 5, 5]);
    }
}
