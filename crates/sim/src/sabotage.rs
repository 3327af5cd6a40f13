//! Mistakes that a simulation makes on purpose, to test that they are noticed.

/// A mistake between the manager and the device, made on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// There is none.
    #[default]
    None,
    /// Tasks do not name the memory that a state comes from, so that it is read where it was not copied
    /// to.
    UncopiedStates,
    /// The reader of rows as they come reads one more than the manager says is complete.
    EarlyRows,
    /// The loss of a worker is not reported to the manager, which goes on giving it rounds.
    UnreportedLoss,
}
