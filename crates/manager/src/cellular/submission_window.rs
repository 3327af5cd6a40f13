//! The number of steps of one cell type's chains that are submitted at a time.

/// The most work, in nanoseconds of steps, that is submitted of chains that may reach their end of
/// sequence meanwhile.
const OPEN_CHAINS_NS: u64 = 1_000_000;

/// The bound on the time of a round, and what a step took of late.
#[derive(Debug)]
pub(super) struct SubmissionWindow {
    /// See [`crate::Config::submission_window_ns`].
    bound_ns: Option<u64>,
    /// See [`crate::Fairness::round_ns`].
    fair_ns: Option<u64>,
    /// Whether any of the cell type's chains may end before its last node.
    has_open_chains: bool,
    /// The moving average of a step's time, in nanoseconds; 0 before the first.
    step_ns: u64,
}

impl SubmissionWindow {
    pub(super) fn new(bound_ns: Option<u64>, fair_ns: Option<u64>) -> Self {
        Self { bound_ns, fair_ns, has_open_chains: false, step_ns: 0 }
    }

    /// Sets the bound, in nanoseconds, that holds for the rounds from now on.
    pub(super) fn set_bound(&mut self, bound_ns: Option<u64>) {
        self.bound_ns = bound_ns;
    }

    /// Notes that a run of the cell type arrived: an open chain or not.
    pub(super) fn note_run(&mut self, is_open: bool) {
        self.has_open_chains |= is_open;
    }

    /// Notes that a task of `steps` steps took `ns` nanoseconds.
    pub(super) fn note_time(&mut self, ns: u64, steps: u32) {
        let step_ns = ns / u64::from(steps.max(1));
        self.step_ns = match self.step_ns {
            0 => step_ns,
            known => (3 * known + step_ns) / 4,
        };
    }

    /// The most steps that a round submits: those that take about as long as the smallest bound, which
    /// is a millisecond at most where chains are open.
    pub(super) fn steps(&self) -> u32 {
        let of_open = self.has_open_chains.then_some(OPEN_CHAINS_NS);
        let bounds = self.bound_ns.into_iter().chain(self.fair_ns).chain(of_open);
        let Some(bound_ns) = bounds.min() else {
            return u32::MAX;
        };
        match self.step_ns {
            0 => 1,
            step_ns => (bound_ns / step_ns).clamp(1, u64::from(u32::MAX)) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_bounds_any_number_of_steps_is_submitted() {
        let mut window = SubmissionWindow::new(None, None);
        window.note_run(false);
        window.note_time(1_000, 1);
        assert_eq!(window.steps(), u32::MAX);
    }

    #[test]
    fn steps_fill_the_bound_by_their_recent_time() {
        let mut window = SubmissionWindow::new(Some(3_000_000), None);
        assert_eq!(window.steps(), 1, "no step has been measured");
        window.note_time(1_000_000, 10);
        assert_eq!(window.steps(), 30);
        window.note_time(500_000, 1);
        assert_eq!(window.steps(), 15, "the average rises to 200 us");
        window.set_bound(Some(1));
        assert_eq!(window.steps(), 1, "a round has a step at least");
    }

    #[test]
    fn other_bounds_do_not_extend_a_fair_round() {
        let mut window = SubmissionWindow::new(None, Some(2_000_000));
        window.note_time(1_000_000, 10);
        assert_eq!(window.steps(), 20);
        window.set_bound(Some(9_000_000));
        assert_eq!(window.steps(), 20);
        window.set_bound(Some(500_000));
        assert_eq!(window.steps(), 5);
    }

    #[test]
    fn open_chains_have_a_bound_of_their_own() {
        let mut window = SubmissionWindow::new(Some(3_000_000), None);
        window.note_time(1_000_000, 10);
        window.note_run(true);
        assert_eq!(window.steps(), 10);
        window.set_bound(Some(500_000));
        assert_eq!(window.steps(), 5);
    }
}
