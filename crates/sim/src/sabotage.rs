//! Mistakes that a simulation makes on purpose, to test that they are noticed.

use batchmaker_manager::Config;

/// A mistake between the manager and the device, or in the manager's configuration, made on purpose.
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
    /// The manager is not told that a deadline is reached, unless something else happens.
    LateDeadlines,
    /// The manager does not know the shares of models.
    NoShares,
    /// The manager promotes no requests.
    NoAging,
    /// Neither the manager nor the books promote requests, as if priorities were meant to be strict.
    StrictPriorities,
    /// The manager has no patience with cell types that fill slowly.
    NoPatience,
    /// The manager does not tell large requests from small ones.
    NoLargeRequests,
}

impl Sabotage {
    /// The configuration that the books are kept by, where that is to be `config`.
    pub(crate) fn config_of_books(self, config: &Config) -> Config {
        match self {
            Self::StrictPriorities => self.config(config),
            _ => config.clone(),
        }
    }

    /// The manager's configuration, where that is to be `config`.
    pub(crate) fn config(self, config: &Config) -> Config {
        let mut config = config.clone();
        if let Some(fairness) = &mut config.fairness {
            match self {
                Self::NoShares => fairness.shares = None,
                Self::NoAging | Self::StrictPriorities => fairness.aging_ns = None,
                Self::NoPatience => {
                    (fairness.patience_ns, fairness.large_patience_ns) = (None, None);
                }
                Self::NoLargeRequests => fairness.large_rows = None,
                _ => {}
            }
        }
        config
    }
}
