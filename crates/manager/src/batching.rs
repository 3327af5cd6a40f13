//! The interface of a batching policy, which the manager drives.

use batchmaker_graph::{
    BatchedTask, CellTypeId, ModelId, RequestId, RunIndex, SessionId, WorkerId,
};

use crate::batch_in_stages::BatchInStages;
use crate::counters::BatchCounters;
use crate::discarded::Discarded;
use crate::event::{Event, Finished, Undecided};

/// A batching policy at work. The methods are those of [`crate::Manager`].
pub(crate) trait Batching: std::fmt::Debug + Send {
    /// Takes note of `event`. `now_ns` never runs backwards.
    fn handle(&mut self, now_ns: u64, event: Event);
    /// Gives up the requests whose deadlines are reached at `now_ns`, which never runs backwards, and ends waits for others.
    fn advance(&mut self, now_ns: u64);
    fn next_task(&mut self, worker: WorkerId) -> Option<BatchedTask>;
    /// The next task of the round, or the batch, that `worker` is being given. None if there is no more of it, and then it is over, whatever
    /// becomes ready later.
    fn next_of_round(&mut self, worker: WorkerId) -> Option<BatchedTask>;
    /// Whether [`Self::next_of_round`] would give a task.
    fn has_rest_of_round(&self, worker: WorkerId) -> bool;
    /// The requests that ended and were not taken yet.
    fn finished(&mut self) -> &mut Vec<Finished>;
    fn completed_nodes(&self, _request: RequestId, _run: RunIndex) -> u32 {
        0
    }
    /// Closed batches run what decisions might leave out, so they ask for none.
    fn take_undecided(&mut self) -> Vec<Undecided> {
        Vec::new()
    }
    fn take_ended_sessions(&mut self) -> Vec<SessionId> {
        Vec::new()
    }
    fn take_discarded(&mut self) -> Discarded;
    fn requests(&self) -> usize;
    fn is_busy(&self, worker: WorkerId) -> bool;
    fn has_work_for(&self, worker: WorkerId) -> bool;
    fn next_deadline(&self) -> Option<u64>;
    fn counters(&self, cell_type: CellTypeId) -> BatchCounters;
    fn batches_in_stages(&self) -> Vec<BatchInStages> {
        Vec::new()
    }
    fn worker_ns(&self, model: ModelId) -> Option<u64>;
    fn slots_in_use(&self, cell_type: CellTypeId) -> usize;
    /// The number of subgraphs that wait outside a running batch with a ready node.
    fn waiting(&self, cell_type: CellTypeId) -> usize;
}
