//! Instructions that threads of a warp execute together (CUDA C++ Programming Guide, "Warp Shuffle Functions", "Warp Vote Functions").

/// Threads of a warp.
pub(super) const LANES: usize = 32;

/// What a shuffle returns that reads from a thread which takes no part: a number that is none.
const NOTHING: u32 = 0x7fc0_dead;

/// The operations, as `emulated_warp` of the header numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Operation {
    Shuffle,
    ShuffleUp,
    ShuffleDown,
    ShuffleXor,
    Ballot,
    #[default]
    Sync,
    All,
    Any,
}

impl Operation {
    pub(super) fn of(number: u32) -> Self {
        match number {
            0 => Self::Shuffle,
            1 => Self::ShuffleUp,
            2 => Self::ShuffleDown,
            3 => Self::ShuffleXor,
            4 => Self::Ballot,
            6 => Self::All,
            7 => Self::Any,
            _ => Self::Sync,
        }
    }
}

/// An instruction of a thread.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Instruction {
    pub(super) operation: Operation,
    /// A bit for each thread of the warp that takes part.
    pub(super) mask: u32,
    pub(super) value: u32,
    /// The lane, or the distance, of a shuffle.
    pub(super) argument: u32,
    /// The threads among which a shuffle goes: a power of two.
    pub(super) width: u32,
}

impl Instruction {
    /// What the thread in `lane` gets where `instructions` has those of the threads that take part. An error names the lane that it
    /// reads from and that takes no part.
    pub(super) fn result(
        self,
        lane: usize,
        instructions: &[Option<Instruction>; LANES],
    ) -> Result<u32, usize> {
        if self.operation == Operation::Sync {
            return Ok(0);
        }
        let mut votes = instructions.iter().flatten().map(|of| of.value != 0);
        match self.operation {
            Operation::All => return Ok(u32::from(votes.all(|vote| vote))),
            Operation::Any => return Ok(u32::from(votes.any(|vote| vote))),
            Operation::Ballot => {
                let votes = instructions.iter().enumerate();
                let votes = votes.filter(|(_, of)| of.is_some_and(|of| of.value != 0));
                return Ok(votes.fold(0, |votes, (lane, _)| votes | 1 << lane));
            }
            _ => {}
        }
        let source = self.source(lane);
        instructions.get(source).copied().flatten().map(|of| of.value).ok_or(source)
    }

    /// The lane that a shuffle reads from.
    fn source(self, lane: usize) -> usize {
        let (width, by) = (self.width.max(1) as usize, self.argument as usize);
        let first = lane & !(width - 1);
        let end = first + width;
        let (from, is_within) = match self.operation {
            Operation::Shuffle => (first | by & (width - 1), true),
            Operation::ShuffleUp => (lane.wrapping_sub(by), by <= lane && lane - by >= first),
            Operation::ShuffleDown => (lane.wrapping_add(by), by < width && lane + by < end),
            _ => (lane ^ by, lane ^ by < end),
        };
        if is_within { from } else { lane }
    }
}

/// What a thread gets instead of a value that nobody gave.
pub(super) fn nothing() -> u32 {
    NOTHING
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lanes 0, 1, 15, 16 and 31 get where each gives its number.
    fn of(operation: Operation, argument: u32, width: u32) -> [u32; 5] {
        let all = std::array::from_fn(|lane| {
            Some(Instruction { operation, mask: !0, value: lane as u32, argument, width })
        });
        [0, 1, 15, 16, 31].map(|lane: usize| all[lane].unwrap().result(lane, &all).unwrap())
    }

    #[test]
    fn shuffles_read_where_the_guide_says() {
        assert_eq!(of(Operation::Shuffle, 3, 32), [3, 3, 3, 3, 3]);
        assert_eq!(of(Operation::Shuffle, 17, 16), [1, 1, 1, 17, 17]);
        assert_eq!(of(Operation::ShuffleUp, 1, 32), [0, 0, 14, 15, 30]);
        assert_eq!(of(Operation::ShuffleUp, 1, 16), [0, 0, 14, 16, 30]);
        assert_eq!(of(Operation::ShuffleDown, 16, 32), [16, 17, 31, 16, 31]);
        assert_eq!(of(Operation::ShuffleDown, 1, 16), [1, 2, 15, 17, 31]);
        assert_eq!(of(Operation::ShuffleXor, 1, 32), [1, 0, 14, 17, 30]);
        assert_eq!(of(Operation::ShuffleXor, 16, 16), [0, 1, 15, 0, 15], "lower groups only");
    }

    #[test]
    fn votes_are_those_of_the_mask() {
        let vote = |value| {
            Some(Instruction {
                operation: Operation::Ballot,
                mask: 0b101,
                value,
                ..Instruction::default()
            })
        };
        let mut all = [None; LANES];
        (all[0], all[2]) = (vote(1), vote(0));
        assert_eq!(all[0].unwrap().result(0, &all), Ok(1));
        for (operation, result) in [(Operation::All, 0), (Operation::Any, 1)] {
            let of = Instruction { operation, ..all[0].unwrap() };
            assert_eq!(of.result(0, &all), Ok(result), "{operation:?}");
        }
        let shuffle = Instruction {
            argument: 1,
            width: 32,
            operation: Operation::Shuffle,
            ..all[0].unwrap()
        };
        assert_eq!(shuffle.result(0, &all), Err(1));
    }
}
