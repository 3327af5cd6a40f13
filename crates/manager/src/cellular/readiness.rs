//! The nodes that a worker may run: of one subgraph, and of all subgraphs of a cell type.
//!
//! A node is ready for a worker when what it depends on has *completed*, or has been *submitted to
//! that same worker*, which runs its tasks in order. The *watermark* of a subgraph is the number of
//! its nodes, from the first on, of which this holds.

use batchmaker_graph::{CellTypeId, ModelId, RunKind, WorkerId};

use crate::cellular::queue::Queues;
use crate::cellular::request_table::RequestTable;
use crate::cellular::roster::Roster;
use crate::cellular::subgraph::{Place, QueueKey, SubgraphEdge, SubgraphIndex};

/// A view of the subgraphs in flight and of the queues that they stand in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness<'a> {
    pub(super) requests: &'a RequestTable,
    pub(super) queues: &'a Queues,
}

/// The progress and the ready nodes of one subgraph.
impl Readiness<'_> {
    /// The worker that alone may run the subgraph, because tasks with nodes of it are in flight
    /// there.
    pub(super) fn pinned_to(&self, index: SubgraphIndex) -> Option<WorkerId> {
        let subgraph = &self.requests[index];
        match subgraph.place {
            Place::Roster(worker) => {
                let roster = self.queues[subgraph.cell_type].roster(worker);
                (!roster.is_idle()).then_some(worker)
            }
            _ => subgraph.pin,
        }
    }

    /// The number of nodes submitted so far.
    #[inline]
    pub(super) fn submitted(&self, index: SubgraphIndex) -> u32 {
        let subgraph = &self.requests[index];
        match (subgraph.place, subgraph.stays.back()) {
            (Place::Roster(worker), Some(stay)) => {
                self.queues[subgraph.cell_type].roster(worker).submitted_nodes(stay)
            }
            _ => subgraph.submitted,
        }
    }

    /// The number of nodes completed so far.
    pub(super) fn completed(&self, index: SubgraphIndex) -> u32 {
        let subgraph = &self.requests[index];
        let worker = match subgraph.place {
            Place::Roster(worker) => Some(worker),
            _ => subgraph.pin,
        };
        let Some(worker) = worker else { return subgraph.completed };
        let steps = self.queues[subgraph.cell_type].roster(worker).completed_steps();
        let mut completed = subgraph.completed;
        for stay in &subgraph.stays {
            if steps > stay.join_step {
                completed = stay.node + (steps.min(stay.leave_step) - stay.join_step) as u32;
            }
        }
        completed
    }

    /// The watermark: the number of nodes, from the first on, whose dependencies `worker` can rely
    /// on. It never falls below the number of nodes that were submitted, so the search ends there.
    pub(super) fn available(&self, index: SubgraphIndex, worker: WorkerId) -> u32 {
        let subgraph = &self.requests[index];
        if subgraph.is_guarded {
            return 0;
        }
        // Once an edge is met for a worker, it stays met: where there are many, no other look is taken at it.
        let has_many = subgraph.edges.len() > 1;
        let met = if has_many { self.requests.edges_met(index, worker).get() } else { 0 };
        let (mut available, mut newly_met) = (subgraph.length, 0);
        for &SubgraphEdge { producer, need } in &subgraph.edges[met as usize..] {
            if available <= subgraph.submitted
                || need.available(0, u32::MAX, subgraph.length) >= available
            {
                break;
            }
            let progress = if self.pinned_to(producer) == Some(worker) {
                self.submitted(producer)
            } else {
                self.completed(producer)
            };
            let of_edge = need.available(progress, self.requests[producer].length, subgraph.length);
            available = available.min(of_edge);
            newly_met += u32::from(available == subgraph.length);
        }
        if has_many && newly_met > 0 {
            self.requests.edges_met(index, worker).set(met + newly_met);
        }
        available
    }

    /// The number of nodes, from the first on, that `worker` can rely on and that have the subgraph's
    /// present place in the queue.
    #[inline]
    pub(super) fn available_in_place(&self, index: SubgraphIndex, worker: WorkerId) -> u32 {
        self.available(index, worker).min(self.requests[index].place_until)
    }

    /// The number of nodes that `worker` may run now.
    pub(super) fn ready_for(&self, index: SubgraphIndex, worker: WorkerId) -> u32 {
        if self.pinned_to(index).is_some_and(|pin| pin != worker) {
            return 0;
        }
        let (subgraph, submitted) = (&self.requests[index], self.submitted(index));
        let reach = subgraph.kind.reach(submitted, subgraph.length, &subgraph.precedence);
        self.available(index, worker).min(reach).saturating_sub(submitted)
    }

    /// The leave step, as things are, of a member of the worker's roster of `cell_type`; none for a
    /// subgraph that left. Its index may have gone to a member of another roster since.
    #[inline]
    pub(super) fn leave_step(
        &self,
        index: SubgraphIndex,
        cell_type: CellTypeId,
        worker: WorkerId,
    ) -> Option<u64> {
        let subgraph = &self.requests[index];
        match (subgraph.place, subgraph.stays.back()) {
            (Place::Roster(owner), Some(stay))
                if owner == worker && subgraph.cell_type == cell_type =>
            {
                let available = self.available_in_place(index, worker);
                Some(stay.join_step + u64::from(available - stay.node))
            }
            _ => None,
        }
    }

    /// Whether the subgraph is a chain of a type with bounded slots, and has none yet.
    pub(super) fn lacks_slot(&self, index: SubgraphIndex) -> bool {
        let subgraph = &self.requests[index];
        subgraph.slot.is_none()
            && subgraph.kind == RunKind::Chain
            && !subgraph.has_ended()
            && self.queues[subgraph.cell_type].has_bounded_slots()
    }

    /// The model of the subgraph's request.
    pub(super) fn model_of(&self, index: SubgraphIndex) -> ModelId {
        let request = &self.requests[self.requests[index].request];
        request.model.expect("a live request has a model")
    }
}

/// The ready nodes of a cell type.
impl<'a> Readiness<'a> {
    /// `ct.NumReadyNodes()`, of those that `worker` may run.
    #[inline]
    pub(super) fn ready_nodes(&self, cell_type: CellTypeId, worker: WorkerId) -> u64 {
        let queue = &self.queues[cell_type];
        let own = queue.waiting_nodes(worker) + queue.roster(worker).members().len() as u64;
        if queue.rosters().len() == 1 {
            return own;
        }
        let elsewhere: usize = self
            .idle_rosters_elsewhere(cell_type, worker)
            .map(|roster| match roster.has_consumers() {
                false => roster.members().len(),
                true => {
                    let members = roster.members().values();
                    members.filter(|&&sub| self.ready_for(sub, worker) > 0).count()
                }
            })
            .sum();
        own + elsewhere as u64
    }

    /// Whether a node of `model` is ready for `worker`.
    pub(super) fn has_ready_node_of(
        &self,
        cell_type: CellTypeId,
        model: ModelId,
        worker: WorkerId,
    ) -> bool {
        let queue = &self.queues[cell_type];
        let Some(position) = queue.models().position(|known| known == model) else { return false };
        if !queue.tells_models_apart() {
            return self.ready_nodes(cell_type, worker) > 0;
        }
        let has_members = |roster: &Roster| roster.members_of_models()[position] > 0;
        let is_ready =
            |&sub: &SubgraphIndex| self.model_of(sub) == model && self.ready_for(sub, worker) > 0;
        queue.waiting_nodes_of(position, worker) > 0
            || has_members(queue.roster(worker))
            || self.idle_rosters_elsewhere(cell_type, worker).any(|roster| {
                has_members(roster)
                    && (!roster.has_consumers() || roster.members().values().any(is_ready))
            })
    }

    /// The models that have nodes ready for `worker`, some of them several times. Where models have shares,
    /// cell types list all models that use them.
    pub(super) fn ready_models(self, worker: WorkerId) -> impl Iterator<Item = ModelId> + use<'a> {
        self.queues.cell_types().flat_map(move |ct| {
            let models = self.queues[ct].models();
            models.filter(move |&model| self.has_ready_node_of(ct, model, worker))
        })
    }

    /// The rosters of other workers whose members `worker` may run.
    fn idle_rosters_elsewhere(
        &self,
        cell_type: CellTypeId,
        worker: WorkerId,
    ) -> impl Iterator<Item = &'a Roster> + use<'a> {
        let rosters = self.queues[cell_type].rosters().iter().enumerate();
        rosters
            .filter(move |(owner, roster)| *owner != worker.index() && roster.is_idle())
            .map(|(_, roster)| roster)
    }

    /// The subgraph that `FormBatchedTask` would look at first.
    pub(super) fn oldest_ready(
        &self,
        cell_type: CellTypeId,
        worker: WorkerId,
    ) -> Option<(QueueKey, SubgraphIndex)> {
        let own = self.queues[cell_type].roster(worker).members().iter().next();
        let elsewhere = self.idle_rosters_elsewhere(cell_type, worker).filter_map(|roster| {
            roster.members().iter().find(|&(_, &sub)| self.ready_for(sub, worker) > 0)
        });
        let members = own.into_iter().chain(elsewhere).map(|(&key, &sub)| (key, sub));
        members.chain(self.next_waiting(cell_type, worker, None)).min()
    }

    /// The first waiting subgraph after `after` with a ready node for `worker`.
    pub(super) fn next_waiting(
        &self,
        cell_type: CellTypeId,
        worker: WorkerId,
        after: Option<QueueKey>,
    ) -> Option<(QueueKey, SubgraphIndex)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let queue = &self.queues[cell_type];
        if queue.waiting_nodes(worker) == 0 {
            return None;
        }
        let range = (after.map_or(Unbounded, Excluded), Unbounded);
        let mut waiting = queue.waiting().range(range).map(|(&key, &sub)| (key, sub));
        waiting.find(|&(_, sub)| self.requests.ready(sub, worker) > 0)
    }

    /// The waiting subgraphs of the model at `model_position` with a ready node for `worker`.
    pub(super) fn waiting_of(
        self,
        cell_type: CellTypeId,
        worker: WorkerId,
        model_position: usize,
    ) -> impl Iterator<Item = (QueueKey, SubgraphIndex)> + use<'a> {
        let waiting = self.queues[cell_type].waiting_of(model_position).iter();
        let waiting = waiting.map(|(&key, &sub)| (key, sub));
        waiting.filter(move |&(_, sub)| self.requests.ready(sub, worker) > 0)
    }
}
