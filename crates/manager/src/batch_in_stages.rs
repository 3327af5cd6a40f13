//! A batch in stages, as others see it.

use batchmaker_graph::RequestId;

/// A row of the batch table (DVABatch, section 5.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchInStages {
    /// The pipeline that it is in. Batches of one pipeline do not meet those of another.
    pub pipeline: usize,
    /// Its number in the pipeline. Batches that come of a split have numbers of their own.
    pub number: u64,
    /// When it, or the batch that was split, was made.
    pub created_ns: u64,
    /// Its members, those that were added last at the end.
    pub members: Vec<RequestId>,
    /// The paper's statusmap: for each stage, how many of its members have completed it. They are the first ones.
    pub completed: Vec<u32>,
    /// For each stage, how many of its members were handed to it, to run there once its executor is free. They are the first ones.
    pub handed: Vec<u32>,
}
