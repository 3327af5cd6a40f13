//! A subgraph: one run of a request's cell graph, with its progress.

use std::collections::VecDeque;
use std::sync::Arc;

use batchmaker_graph::{CellTypeId, Need, RequestId, RunIndex, RunKind, SlotId, TaskId, WorkerId};

/// A position in the table of subgraphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SubgraphIndex(pub(super) u32);

/// The order of a type's queue: level, then tag, then arrival, then position in the graph. Keys are
/// compared for each place that a search passes, so they are packed, from the highest bit on:
///
/// | bits | part |
/// |---|---|
/// | 16 | level: the request's priority, or the greatest level where it sets none; 0 while it is promoted |
/// | 56 | tag: the number of requests that arrived before; with places for large requests, what `fair_places` says |
/// | 32 | the number of requests that arrived before, modulo 2^32 |
/// | 24 | the run within the request's graph |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueKey(u128);

impl QueueKey {
    /// The greatest tag.
    pub(super) const TAG_MAX: u64 = (1 << 56) - 1;

    const LEVEL_SHIFT: u32 = 112;
    const TAG_SHIFT: u32 = 56;
    const ARRIVAL_SHIFT: u32 = 24;

    /// The key of a run of a request of that `priority`, where 0 is none.
    ///
    /// # Panics
    /// If the graph has more than 2^24 runs.
    #[inline]
    pub(super) fn new(priority: u32, tag: u64, arrival: u64, run: RunIndex) -> Self {
        assert!(run.0 < 1 << Self::ARRIVAL_SHIFT, "{run} is too late for a place in a queue");
        Self(
            Self::level_of(priority)
                | u128::from(tag.min(Self::TAG_MAX)) << Self::TAG_SHIFT
                | u128::from(arrival as u32) << Self::ARRIVAL_SHIFT
                | u128::from(run.0),
        )
    }

    fn level_of(priority: u32) -> u128 {
        let level = if priority == 0 { 0xffff } else { priority.min(0xfffe) };
        u128::from(level) << Self::LEVEL_SHIFT
    }

    /// The key at the level before all priorities.
    pub(super) fn promoted(self) -> Self {
        Self(self.0 & !(0xffff << Self::LEVEL_SHIFT))
    }

    /// The key at the level of a request of that `priority`, which is not promoted.
    pub(super) fn with_priority(self, priority: u32) -> Self {
        Self(self.promoted().0 | Self::level_of(priority))
    }

    /// The tag.
    pub(super) fn tag(self) -> u64 {
        (self.0 >> Self::TAG_SHIFT) as u64 & Self::TAG_MAX
    }

    /// The key with another tag.
    pub(super) fn with_tag(self, tag: u64) -> Self {
        let cleared = self.0 & !(u128::from(Self::TAG_MAX) << Self::TAG_SHIFT);
        Self(cleared | u128::from(tag.min(Self::TAG_MAX)) << Self::TAG_SHIFT)
    }
}

/// The progress of a subgraph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is in no queue: no node is ready for any worker, or it lacks a slot.
    Blocked,
    /// It is in its type's queue: some node is ready for some worker.
    Waiting,
    /// It is a member of a worker's roster.
    Roster(WorkerId),
    /// It ran to its end, or was given up.
    Ended,
}

/// One stay of a subgraph in a roster, in steps of that roster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stay {
    /// The roster step that ran the subgraph's node `node`.
    pub(super) join_step: u64,
    /// The first node of the stay.
    pub(super) node: u32,
    /// The first roster step that did not run the subgraph; `u64::MAX` while it stays.
    pub(super) leave_step: u64,
}

/// A dependency of a subgraph on another one of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubgraphEdge {
    /// The subgraph that is depended on.
    pub(super) producer: SubgraphIndex,
    /// The number of the producer's nodes that each node needs.
    pub(super) need: Need,
}

/// A subgraph that depends on another one of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Consumer {
    pub(super) index: SubgraphIndex,
    /// The least progress of the producer, in nodes, that makes a node of the consumer available.
    pub(super) from: u32,
    /// The progress from which on no more makes any available.
    pub(super) until: u32,
}

impl Consumer {
    /// The consumer of an edge of that `need` between runs of these lengths.
    pub(super) fn new(index: SubgraphIndex, need: Need, producer_length: u32, length: u32) -> Self {
        let (from, until) = match need {
            Need::First { nodes } => (i64::from(nodes), i64::from(nodes)),
            Need::Lockstep { offset } => {
                (offset.saturating_add(1), offset.saturating_add(i64::from(length)))
            }
        };
        // All nodes are available once all of the producer's are complete.
        let [from, until] =
            [from, until].map(|progress| progress.clamp(1, i64::from(producer_length)) as u32);
        Self { index, from, until }
    }
}

/// One run of a request's cell graph, with its progress.
#[derive(Debug)]
pub(super) struct Subgraph {
    pub(super) request: RequestId,
    pub(super) run: RunIndex,
    pub(super) cell_type: CellTypeId,
    pub(super) kind: RunKind,
    /// The number of its nodes. For a chain that reached its end of sequence: of those submitted.
    pub(super) length: u32,
    /// The number of rows of its one node, if that is a sequence; else 1.
    pub(super) span: u32,
    /// Whether the chain's own output ended it: the device computes nothing of it any more.
    pub(super) reached_end_of_sequence: bool,
    /// Whether it is not known yet if its guard lets it run.
    pub(super) is_guarded: bool,
    /// See [`batchmaker_graph::Run::precedence`].
    pub(super) precedence: Arc<[u32]>,
    pub(super) key: QueueKey,
    /// The position of its model among those that the cell type tells apart; 0 where it tells none.
    pub(super) model_position: u32,
    /// The number of nodes of the request's other cell types and of its earlier runs of this one; 0 of a
    /// request that is not large.
    pub(super) rows_before: u32,
    /// The first node that has a later place in the queue; `u32::MAX` of a request that is not large.
    pub(super) place_until: u32,
    /// The subgraphs that it depends on: first those that leave the fewest of its nodes available before
    /// their own first node.
    pub(super) edges: Vec<SubgraphEdge>,
    /// The subgraphs that depend on it, in the order of `from`.
    pub(super) consumers: Vec<Consumer>,
    /// The most progress of its own between `from` and `until` of a consumer.
    pub(super) consumer_span_max: u32,
    /// Whether any of `consumers` has the same cell type.
    pub(super) feeds_own_type: bool,
    pub(super) place: Place,
    /// Nodes submitted before the current stay in a roster.
    pub(super) submitted: u32,
    /// Nodes completed before the oldest of `stays`.
    pub(super) completed: u32,
    /// Stays in the roster of the worker that it is pinned to, oldest first; empty when nothing is
    /// in flight.
    pub(super) stays: VecDeque<Stay>,
    /// `pinned` of Algorithm 1, for a subgraph outside a roster. The paper counts the tasks in flight
    /// that hold nodes of the subgraph; tasks of a worker complete in order, so it is unpinned when
    /// the last of them is complete.
    pub(super) pin: Option<WorkerId>,
    /// The last task that held rows of a row-wise subgraph.
    pub(super) last_task: TaskId,
    /// The worker that ran it last.
    pub(super) home: Option<WorkerId>,
    /// The slot of its state, from its first step to its end.
    pub(super) slot: Option<SlotId>,
}

impl Subgraph {
    /// Whether every node has been submitted.
    pub(super) fn is_exhausted(&self) -> bool {
        self.submitted == self.length
    }

    /// Whether nothing runs any more: it left the roster, and its tasks are complete.
    pub(super) fn has_ended(&self) -> bool {
        self.place == Place::Ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_their_parts() {
        let key =
            |priority, tag, arrival, run| QueueKey::new(priority, tag, arrival, RunIndex(run));
        let last_run = (1 << 24) - 1;
        let ascending = [
            key(7, 9, 9, 9).promoted(),
            key(1, 0, 0, 0),
            key(1, 0, 0, last_run),
            key(1, 0, u64::from(u32::MAX), 0),
            key(1, 1, 0, 0),
            key(1, QueueKey::TAG_MAX, 0, 0),
            key(2, 0, 0, 0),
            key(u32::MAX, 0, 0, 0),
            key(0, 0, 0, 0),
        ];
        assert!(ascending.is_sorted());
        assert_eq!(key(1, 5, 3, 4).with_tag(6), key(1, 6, 3, 4));
        assert_eq!(key(1, 5, 3, 4).tag(), 5);
        for priority in [0, 7, u32::MAX] {
            let key = key(priority, 5, 3, 4);
            assert_eq!(key.promoted().with_priority(priority), key);
        }
    }
}
