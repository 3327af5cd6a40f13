//! The stage executors and their buffer pairs (DVABatch, section 6 with Figure 11).
//!
//! Executor `s` reads its input from one buffer of a pair and writes its output to the other, which is the input buffer of executor
//! `s + 1` in the pair of the same number. On a device where values belong to requests, a buffer is a token: with one pair, batches run
//! one after the other (the paper's serial manner), with several they run in different stages at the same time (the parallel manner).

/// The state of a stage executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExecutorState {
    /// It has a legitimate pair, and takes a part when there is one.
    Active,
    /// It has a part, whose pair is not legitimate yet.
    Checking { pair: usize },
    /// It runs a part.
    Working { pair: usize },
    /// It has no legitimate pair.
    Inactive,
}

/// The state of an input buffer after its executor has run a part from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputAfter {
    /// It is invalid until the next executor is done with what came of it.
    Invalid,
    /// It stays readable: it holds other parts of the batch, which was split, and their turn comes later.
    ReadAgain,
    /// It is available at once: the part belongs to a stretched batch, which waits in another pair, and its output is written there.
    Available,
}

/// A buffer while nobody uses it: what it holds between two uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Buffer {
    /// Whether it is no input, as its executor has read it and the next one is not done.
    is_invalid: bool,
    is_read: bool,
    is_written: bool,
}

impl Buffer {
    fn is_used(self) -> bool {
        self.is_read || self.is_written
    }
}

#[derive(Debug)]
struct Executor {
    state: ExecutorState,
    /// The pair of the part that it completed last, until its executor is active again.
    completed: Option<usize>,
    /// The input buffer of each pair.
    inputs: Vec<Buffer>,
}

/// The executors of a model's stages.
#[derive(Debug)]
pub(super) struct StageExecutors {
    executors: Vec<Executor>,
}

impl StageExecutors {
    /// The executors of `stages` stages with `pairs` buffer pairs each, all available.
    pub(super) fn new(stages: usize, pairs: usize) -> Self {
        assert!(pairs > 0, "an executor without a buffer pair");
        let executor = |_| Executor {
            state: ExecutorState::Active,
            completed: None,
            inputs: vec![Buffer::default(); pairs],
        };
        Self { executors: (0..stages).map(executor).collect() }
    }

    pub(super) fn state(&self, stage: usize) -> ExecutorState {
        self.executors[stage].state
    }

    /// A pair that is legitimate at a stage.
    pub(super) fn legitimate_pair(&self, stage: usize) -> Option<usize> {
        (0..self.executors[stage].inputs.len()).find(|&pair| self.is_legitimate(stage, pair))
    }

    /// Whether the input buffer of a pair is available, and its output buffer available or invalid.
    fn is_legitimate(&self, stage: usize, pair: usize) -> bool {
        let input = self.executors[stage].inputs[pair];
        let output = self.executors.get(stage + 1).map(|next| next.inputs[pair]);
        !input.is_invalid && !input.is_used() && !output.is_some_and(Buffer::is_used)
    }

    /// The input buffer of a pair is to be read again: those that a batch is stretched by come in the pair in which the batch waits, as other
    /// rows of its buffers.
    pub(super) fn read_again(&mut self, stage: usize, pair: usize) {
        self.executors[stage].inputs[pair].is_invalid = false;
    }

    /// The active executor of `stage` takes a part with `pair`. Returns whether it works: otherwise it waits for the pair.
    pub(super) fn take(&mut self, stage: usize, pair: usize) -> bool {
        let executor = &mut self.executors[stage];
        assert_eq!(executor.state, ExecutorState::Active, "executor {stage} takes a part");
        executor.state = ExecutorState::Checking { pair };
        self.settle();
        self.state(stage) == ExecutorState::Working { pair }
    }

    /// The working executor of `stage` is done.
    pub(super) fn complete(&mut self, stage: usize, input: InputAfter) {
        let ExecutorState::Working { pair } = self.state(stage) else {
            panic!("executor {stage} is done without work");
        };
        let is_last = stage + 1 == self.executors.len();
        if let Some(next) = self.executors.get_mut(stage + 1) {
            next.inputs[pair].is_written = false;
        }
        let executor = &mut self.executors[stage];
        executor.inputs[pair].is_read = false;
        executor.inputs[pair].is_invalid = !is_last && input == InputAfter::Invalid;
        executor.completed = (input != InputAfter::ReadAgain).then_some(pair);
        executor.state = ExecutorState::Inactive;
        self.settle();
    }

    /// Makes the transitions that the buffers allow.
    fn settle(&mut self) {
        // Later stages first, as they make buffers available for those before.
        while (0..self.executors.len()).rev().any(|stage| self.step(stage)) {}
    }

    fn step(&mut self, stage: usize) -> bool {
        match self.state(stage) {
            ExecutorState::Checking { pair } if self.is_legitimate(stage, pair) => {
                self.executors[stage].inputs[pair].is_read = true;
                if let Some(next) = self.executors.get_mut(stage + 1) {
                    next.inputs[pair].is_written = true;
                }
                self.executors[stage].state = ExecutorState::Working { pair };
                true
            }
            ExecutorState::Inactive => {
                // The last one is active again at once.
                let is_last = stage + 1 == self.executors.len();
                if !is_last && self.legitimate_pair(stage).is_none() {
                    return false;
                }
                self.executors[stage].state = ExecutorState::Active;
                if let (Some(pair), Some(before)) =
                    (self.executors[stage].completed.take(), stage.checked_sub(1))
                {
                    self.executors[before].inputs[pair].is_invalid = false;
                }
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The states of all executors: A(ctive), C(hecking), W(orking), I(nactive).
    fn states(executors: &StageExecutors) -> String {
        let letter = |stage| match executors.state(stage) {
            ExecutorState::Active => 'A',
            ExecutorState::Checking { .. } => 'C',
            ExecutorState::Working { .. } => 'W',
            ExecutorState::Inactive => 'I',
        };
        (0..executors.executors.len()).map(letter).collect()
    }

    /// Figure 10(b): with one pair, no two batches are in the stages at the same time.
    #[test]
    fn one_pair_is_the_serial_manner() {
        let mut executors = StageExecutors::new(3, 1);
        for _ in 0..2 {
            assert_eq!(states(&executors), "AAA");
            assert!(executors.take(0, 0));
            assert_eq!(states(&executors), "WAA");
            executors.complete(0, InputAfter::Invalid);
            assert!(executors.take(1, 0));
            assert_eq!(states(&executors), "IWA");
            executors.complete(1, InputAfter::Invalid);
            assert_eq!(states(&executors), "IIA");
            assert!(executors.take(2, 0));
            assert_eq!(states(&executors), "IIW");
            executors.complete(2, InputAfter::Invalid);
        }
    }

    #[test]
    fn two_pairs_are_the_parallel_manner() {
        let mut executors = StageExecutors::new(3, 2);
        assert!(executors.take(0, 0));
        executors.complete(0, InputAfter::Invalid);
        assert_eq!(executors.legitimate_pair(0), Some(1));
        assert!(executors.take(1, 0) && executors.take(0, 1));
        assert_eq!(states(&executors), "WWA");
        executors.complete(1, InputAfter::Invalid);
        // It has no pair: the input buffer of the first is invalid, that of the second is being written.
        assert_eq!(states(&executors), "WIA");
        executors.complete(0, InputAfter::Invalid);
        assert_eq!(states(&executors), "AAA");
        assert_eq!(
            executors.legitimate_pair(0),
            Some(0),
            "the first batch is past the second stage"
        );
        assert!(executors.take(2, 0) && executors.take(1, 1) && executors.take(0, 0));
        assert_eq!(states(&executors), "WWW");
    }

    /// Figure 10(a): an executor that is active with another pair waits for that of its part.
    #[test]
    fn a_part_waits_for_its_own_pair() {
        let mut executors = StageExecutors::new(2, 2);
        assert!(executors.take(0, 0));
        executors.complete(0, InputAfter::Invalid);
        assert!(executors.take(0, 1));
        // The output buffer of the second pair is being written: the second stage cannot read it.
        assert!(!executors.take(1, 1));
        assert_eq!(states(&executors), "WC");
        executors.complete(0, InputAfter::Invalid);
        assert_eq!(states(&executors), "IW");
        executors.complete(1, InputAfter::Invalid);
        assert_eq!(states(&executors), "AA");
    }

    /// The parts of a batch that was split lie in one buffer, and pass the later stages one after the other.
    #[test]
    fn parts_of_a_split_batch_share_a_pair() {
        let mut executors = StageExecutors::new(3, 1);
        assert!(executors.take(0, 0));
        executors.complete(0, InputAfter::Invalid);
        for (is_last, after) in [(false, InputAfter::ReadAgain), (true, InputAfter::Invalid)] {
            assert!(executors.take(1, 0));
            executors.complete(1, after);
            assert!(executors.take(2, 0));
            executors.complete(2, after);
            assert_eq!(executors.legitimate_pair(0).is_some(), is_last);
        }
    }

    /// The part that a batch was stretched by goes on in the pair of the batch; its own is free.
    #[test]
    fn a_part_that_has_caught_up_gives_its_pair_back() {
        let mut executors = StageExecutors::new(3, 2);
        for pair in [0, 1] {
            assert!(executors.take(0, pair));
            executors.complete(0, InputAfter::Invalid);
            assert!(executors.take(1, pair));
            executors
                .complete(1, if pair == 0 { InputAfter::Invalid } else { InputAfter::Available });
        }
        assert_eq!(states(&executors), "AAA");
        assert_eq!(executors.legitimate_pair(0), Some(0));
        assert_eq!(executors.legitimate_pair(1), Some(1), "the batch waits in the other");
        assert!(executors.take(2, 0));
        executors.complete(2, InputAfter::Invalid);
        assert_eq!(executors.legitimate_pair(1), Some(0));
    }
}
