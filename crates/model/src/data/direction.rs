//! The direction in which a chain of steps goes along the rows of a sequence.

use batchmaker_graph::Rows;

/// The end of a sequence at which its steps begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Row 0.
    #[default]
    Forward,
    /// The last row.
    Reverse,
}

impl Direction {
    /// The rows of a sequence of `length` for its steps: row `i` for step `i`, or from the other end.
    pub(crate) fn of(self, rows: Rows, length: u32) -> Rows {
        match self {
            Self::Forward => rows,
            Self::Reverse => rows.reversed(length),
        }
    }
}
