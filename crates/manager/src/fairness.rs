//! The configuration of fairness: which rules stand beside those of Algorithm 1. Each can be left
//! out, and without any the manager keeps to the paper's rules.
//!
//! | rule | decides | between |
//! |---|---|---|
//! | shares, with a credit | whose turn a round is | models |
//! | longest round | how many steps of chains a round has, and how many sequences a batch | models |
//! | patience | which cell type a round runs | cell types of all models, or of the chosen one |
//! | aging | the level of a request in the queues | client priorities |
//! | large requests | the place within a level | requests of different sizes |
//!
//! Shares hold under all policies that serve several models, aging under all but [`crate::Policy::Staged`] and [`crate::Policy::Delayed`]. The other rules order queues and cell types, which closed batches
//! do not have: they are for [`crate::Policy::Cellular`] alone.

/// The rules that keep a request, a cell type or a model from waiting for others for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fairness {
    /// The weight of each model, by id, each at least 1; models past the end have 1. The model of a
    /// round is chosen first: of those that have a ready node for the worker, the one that had the
    /// least worker time for its weight.
    ///
    /// Every cell type must list all models that use it ([`crate::CellTypeConfig::priorities`]).
    /// A batch of a cell type that several models share holds nodes of all of them: its seats are dealt
    /// by the weights, and each model pays for its rows.
    pub shares: Option<Vec<u32>>,
    /// The worker time, in nanoseconds, that a model which had nothing for a worker to run may have before
    /// models that had: what its share would have given it meanwhile, up to this. So a model that needs
    /// less than its share is served at once.
    pub credit_ns: u64,
    /// The age, in nanoseconds since it took its place in the queues, beyond which a request goes
    /// before all that have an explicit priority. A chunk of a session takes its place when the
    /// chunk before it has ended. Of a large request, only the next slice of each cell type does, each time
    /// that it has aged that long again.
    pub aging_ns: Option<u64>,
    /// The time, in nanoseconds, beyond which a cell type that has ready nodes and gets no batch goes
    /// before those that have a full batch (line 5 of Algorithm 1). The one that has waited longest
    /// goes first.
    pub patience_ns: Option<u64>,
    /// The patience while a large request is in flight that can fill a batch by itself, where that is less: small
    /// requests need all cell types. It can where, of some cell type, as many of its nodes may be ready at once as
    /// a batch had when the request started; of a chain, one is.
    pub large_patience_ns: Option<u64>,
    /// The most work, in nanoseconds by the recent time of a step, of a round of chains, and of a batch of
    /// whole sequences by the recent time of their rows; none: as much as the other bounds allow. The model
    /// whose turn is next waits for the end of a round. A batch of one sequence takes as long as it takes.
    pub round_ns: Option<u64>,
    /// The number of nodes from which on a request is large, at least 1. A large request is served in
    /// slices of that many nodes, each in the place of a request that arrives when a fair share would
    /// have served the slice and the next: smaller ones pass it.
    pub large_rows: Option<u32>,
}
