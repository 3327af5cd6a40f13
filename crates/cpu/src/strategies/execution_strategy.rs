//! The execution strategies for a batch of a recurrent cell. All give the same bits.

use serde::{Deserialize, Serialize};

/// Whether inputs are projected before the steps that need them. It changes no bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputProjection {
    /// It happens where measurement says that it is faster, for each cell type and size of batch.
    #[default]
    Measured,
    /// Wherever inputs are known.
    Always,
    /// Never.
    Never,
}

/// The division of a step among threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// They do not: the worker's own thread does everything.
    None,
    /// Each computes some of the units of all rows, and they synchronise after each phase.
    Units,
    /// Each computes some of the rows, for as many steps as are known.
    Rows,
}

/// One strategy for running a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExecutionStrategy {
    /// The division of the steps among threads.
    pub split: Split,
    /// Whether inputs are projected in large products before the steps that need them, where they are known.
    pub pre_projection: bool,
}

impl ExecutionStrategy {
    /// Every strategy.
    pub const ALL: [Self; 6] = [
        Self { split: Split::None, pre_projection: false },
        Self { split: Split::None, pre_projection: true },
        Self { split: Split::Units, pre_projection: false },
        Self { split: Split::Units, pre_projection: true },
        Self { split: Split::Rows, pre_projection: false },
        Self { split: Split::Rows, pre_projection: true },
    ];

    /// The position in [`Self::ALL`].
    pub(crate) fn index(self) -> usize {
        let split = match self.split {
            Split::None => 0,
            Split::Units => 2,
            Split::Rows => 4,
        };
        split + usize::from(self.pre_projection)
    }
}
