//! A roster: the standing batch of one worker and cell type.
//!
//! A roster remembers the last batch formed. The next one differs from it only by the members that
//! leave and by those that join, so a steady batch costs nothing a node. The roster counts its steps;
//! a member's progress follows from the step at which it joined.
//!
//! # Leave steps
//! A member's *leave step* is the first step that it cannot run as things are: its run ends there, or
//! its watermark (the nodes whose dependencies this worker can rely on) does. The roster runs until
//! the earliest leave step without looking at any member. A chain can also leave earlier: an older
//! subgraph displaces it, its request is given up, or its own output ends it (its *end of sequence*).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use batchmaker_graph::{Join, SlotId, WorkerId};

use crate::cellular::subgraph::{Place, QueueKey, Stay, Subgraph, SubgraphIndex};

/// The members, and what the device does not know of them yet.
#[derive(Debug)]
pub(super) struct Roster {
    worker: WorkerId,
    /// In the order of the queue. Every member has a ready node for this worker.
    members: BTreeMap<QueueKey, SubgraphIndex>,
    /// The leave steps of members, earliest first. An entry may be early (a watermark has risen
    /// since) or stale (the member left).
    leave_steps: BinaryHeap<Reverse<(u64, SubgraphIndex)>>,
    /// Members that others depend on.
    producers: Vec<SubgraphIndex>,
    /// The number of `producers` that others of the same cell type depend on.
    producers_of_own_type: usize,
    /// The number of members that depend on others.
    consumers: usize,
    /// The number of members of each model, where the cell type tells models apart; else empty.
    members_of_models: Vec<u32>,
    submitted_steps: u64,
    completed_steps: u64,
    /// Tasks submitted and not complete. While there are any, all members are pinned.
    tasks_in_flight: u32,
    /// The subgraphs that left with nodes in flight, with the first step that did not run them.
    leaving: VecDeque<(u64, SubgraphIndex)>,
    /// Leaves that the device learns with the next task.
    pending_leaves: Vec<SlotId>,
    /// Joins that the device learns with the next task.
    pending_joins: Vec<Join>,
}

impl Roster {
    /// The empty roster of `worker`, for a cell type that tells that number of `models` apart.
    pub(super) fn new(worker: WorkerId, models: usize) -> Self {
        Self {
            worker,
            members: BTreeMap::new(),
            leave_steps: BinaryHeap::new(),
            producers: Vec::new(),
            producers_of_own_type: 0,
            consumers: 0,
            members_of_models: vec![0; models],
            submitted_steps: 0,
            completed_steps: 0,
            tasks_in_flight: 0,
            leaving: VecDeque::new(),
            pending_leaves: Vec::new(),
            pending_joins: Vec::new(),
        }
    }

    /// The members, in the order of the queue.
    pub(super) fn members(&self) -> &BTreeMap<QueueKey, SubgraphIndex> {
        &self.members
    }

    /// The number of members of each model, where the cell type tells models apart.
    pub(super) fn members_of_models(&self) -> &[u32] {
        &self.members_of_models
    }

    /// Moves a member in the order of the queue, from `before` to `key`.
    pub(super) fn change_key(&mut self, before: QueueKey, key: QueueKey) {
        if let Some(member) = self.members.remove(&before) {
            self.members.insert(key, member);
        }
    }

    /// The members that others depend on.
    pub(super) fn producers(&self) -> &[SubgraphIndex] {
        &self.producers
    }

    /// Whether any member depends on other subgraphs.
    pub(super) fn has_consumers(&self) -> bool {
        self.consumers > 0
    }

    /// Whether a step may make nodes of the roster's own cell type ready.
    pub(super) fn feeds_own_type(&self) -> bool {
        self.producers_of_own_type > 0
    }

    /// Whether nothing is in flight, so that all members are free to run elsewhere.
    pub(super) fn is_idle(&self) -> bool {
        self.tasks_in_flight == 0
    }

    /// The number of steps submitted since the start.
    pub(super) fn submitted_steps(&self) -> u64 {
        self.submitted_steps
    }

    /// The number of steps completed since the start.
    pub(super) fn completed_steps(&self) -> u64 {
        self.completed_steps
    }

    /// The number of nodes submitted of a member, whose current stay is `stay`.
    #[inline]
    pub(super) fn submitted_nodes(&self, stay: &Stay) -> u32 {
        stay.node + (self.submitted_steps - stay.join_step) as u32
    }

    /// Adds a subgraph, of which `ready` nodes can run as things are. The device learns of it by `join`.
    pub(super) fn join(
        &mut self,
        index: SubgraphIndex,
        subgraph: &mut Subgraph,
        join: Join,
        ready: u32,
    ) {
        let (join_step, node) = (self.submitted_steps, subgraph.submitted);
        subgraph.place = Place::Roster(self.worker);
        subgraph.pin = None;
        subgraph.stays.push_back(Stay { join_step, node, leave_step: u64::MAX });
        self.members.insert(subgraph.key, index);
        self.leave_steps.push(Reverse((join_step + u64::from(ready), index)));
        self.pending_joins.push(join);
        if let Some(members) = self.members_of_models.get_mut(subgraph.model_position as usize) {
            *members += 1;
        }
        self.consumers += usize::from(!subgraph.edges.is_empty());
        self.producers_of_own_type += usize::from(subgraph.feeds_own_type);
        if !subgraph.consumers.is_empty() {
            self.producers.push(index);
        }
    }

    /// Takes a member out. It is pinned while nodes of it are in flight, and then
    /// [`next_complete_leave`](Self::next_complete_leave) returns it once they are complete.
    pub(super) fn leave(&mut self, index: SubgraphIndex, subgraph: &mut Subgraph) {
        let step = self.submitted_steps;
        self.members.remove(&subgraph.key);
        if let Some(members) = self.members_of_models.get_mut(subgraph.model_position as usize) {
            *members -= 1;
        }
        self.add_pending_leave(subgraph.slot.expect("a member of a roster has a slot"));
        self.consumers -= usize::from(!subgraph.edges.is_empty());
        self.producers_of_own_type -= usize::from(subgraph.feeds_own_type);
        if !subgraph.consumers.is_empty() {
            self.producers.retain(|&producer| producer != index);
        }
        let stay = subgraph.stays.back_mut().expect("a member of a roster stays in it");
        stay.leave_step = step;
        let has_run = stay.join_step < step;
        subgraph.submitted = self.submitted_nodes(stay);
        subgraph.place = Place::Blocked;
        if self.is_idle() {
            subgraph.stays.clear();
            subgraph.completed = subgraph.submitted;
            return;
        }
        if has_run {
            self.leaving.push_back((step, index));
        } else {
            subgraph.stays.pop_back();
        }
        subgraph.pin = (!subgraph.stays.is_empty()).then_some(self.worker);
    }

    /// Withdraws the pending join of `slot`, or adds a pending leave where the device knows the join.
    fn add_pending_leave(&mut self, slot: SlotId) {
        match self.pending_joins.iter().position(|join| join.slot == slot) {
            Some(position) => {
                self.pending_joins.remove(position);
            }
            None => self.pending_leaves.push(slot),
        }
    }

    /// Takes the changes that the device does not know yet: leaves and joins.
    pub(super) fn take_pending(&mut self) -> (Vec<SlotId>, Vec<Join>) {
        (std::mem::take(&mut self.pending_leaves), std::mem::take(&mut self.pending_joins))
    }

    /// The earliest leave step on record and its member; none if the roster is empty.
    pub(super) fn first_leave_step(&self) -> Option<(u64, SubgraphIndex)> {
        self.leave_steps.peek().map(|&Reverse(first)| first)
    }

    /// Replaces the step of the earliest entry of the leave steps, or removes the entry if `step` is
    /// none.
    pub(super) fn correct_first_leave_step(&mut self, step: Option<u64>) {
        if let Some(Reverse((_, index))) = self.leave_steps.pop()
            && let Some(step) = step
        {
            self.leave_steps.push(Reverse((step, index)));
        }
    }

    /// Whether members that left early have left that many entries behind in the leave steps that
    /// these should be made anew.
    pub(super) fn has_many_stale_leave_steps(&self) -> bool {
        self.leave_steps.len() > 2 * self.members.len() + 64
    }

    /// Forgets the leave steps of a roster that all members left.
    pub(super) fn clear_leave_steps(&mut self) {
        assert!(self.members.is_empty());
        self.leave_steps.clear();
    }

    /// Replaces the leave steps of all members.
    pub(super) fn set_leave_steps(
        &mut self,
        leave_steps: BinaryHeap<Reverse<(u64, SubgraphIndex)>>,
    ) {
        self.leave_steps = leave_steps;
    }

    /// Notes that a task of that number of `steps` is submitted.
    pub(super) fn submit(&mut self, steps: u32) {
        self.submitted_steps += u64::from(steps);
        self.tasks_in_flight += 1;
    }

    /// Notes that a task is over, whose steps [`complete_steps`](Self::complete_steps) counts.
    pub(super) fn end_task(&mut self) {
        self.tasks_in_flight -= 1;
    }

    /// Notes that `steps` more steps are complete.
    pub(super) fn complete_steps(&mut self, steps: u32) {
        self.completed_steps += u64::from(steps);
    }

    /// Takes out the next subgraph that left and of which all steps before its leave step are
    /// complete. Returns this leave step and the subgraph.
    pub(super) fn next_complete_leave(&mut self) -> Option<(u64, SubgraphIndex)> {
        self.leaving.pop_front_if(|&mut (leave_step, _)| leave_step <= self.completed_steps)
    }

    /// The subgraphs that left with nodes in flight, in the order in which they left, with the first
    /// step that did not run them.
    pub(super) fn leaving(&self) -> &VecDeque<(u64, SubgraphIndex)> {
        &self.leaving
    }

    /// Forgets the work in flight, as the worker is lost.
    pub(super) fn lose_work_in_flight(&mut self) {
        self.tasks_in_flight = 0;
        self.completed_steps = self.submitted_steps;
        self.leaving.clear();
    }

    /// Forgets the changes that the device does not know yet, as the worker is lost.
    pub(super) fn lose_pending(&mut self) {
        self.pending_leaves.clear();
        self.pending_joins.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batchmaker_graph::{CellTypeId, RequestId, RunIndex, RunKind, TaskId};

    use super::*;

    const WORKER: WorkerId = WorkerId(0);

    /// A chain of 10 nodes that no other depends on.
    fn chain(index: u32) -> Subgraph {
        Subgraph {
            request: RequestId { index, generation: 0 },
            run: RunIndex(0),
            cell_type: CellTypeId(0),
            kind: RunKind::Chain,
            length: 10,
            reached_end_of_sequence: false,
            is_guarded: false,
            precedence: Arc::new([]),
            key: QueueKey::new(0, u64::from(index), 0, RunIndex(0)),
            model_position: 0,
            rows_before: 0,
            span: 1,
            place_until: u32::MAX,
            edges: Vec::new(),
            consumers: Vec::new(),
            consumer_span_max: 0,
            feeds_own_type: false,
            place: Place::Waiting,
            submitted: 0,
            completed: 0,
            stays: VecDeque::new(),
            pin: None,
            last_task: TaskId(0),
            home: None,
            slot: Some(SlotId { index, generation: 0 }),
        }
    }

    fn join(roster: &mut Roster, index: u32, subgraph: &mut Subgraph) {
        let (request, run, slot) = (subgraph.request, subgraph.run, subgraph.slot.unwrap());
        let join = Join { request, run, slot, step: subgraph.submitted, moved_from: None };
        roster.join(SubgraphIndex(index), subgraph, join, 10 - subgraph.submitted);
    }

    #[test]
    fn a_member_that_leaves_is_pinned_until_its_steps_are_complete() {
        let (mut roster, mut subgraph) = (Roster::new(WORKER, 0), chain(0));
        join(&mut roster, 0, &mut subgraph);
        assert_eq!(roster.first_leave_step(), Some((10, SubgraphIndex(0))));
        roster.submit(4);
        roster.leave(SubgraphIndex(0), &mut subgraph);
        assert_eq!((subgraph.submitted, subgraph.pin), (4, Some(WORKER)));
        roster.complete_steps(3);
        assert_eq!(roster.next_complete_leave(), None);
        roster.complete_steps(1);
        assert_eq!(roster.next_complete_leave(), Some((4, SubgraphIndex(0))));
    }

    #[test]
    fn a_member_of_an_idle_roster_leaves_unpinned() {
        let (mut roster, mut subgraph) = (Roster::new(WORKER, 0), chain(0));
        join(&mut roster, 0, &mut subgraph);
        roster.submit(4);
        roster.complete_steps(4);
        roster.end_task();
        roster.leave(SubgraphIndex(0), &mut subgraph);
        assert_eq!((subgraph.submitted, subgraph.completed, subgraph.pin), (4, 4, None));
        assert!(roster.members().is_empty() && roster.leaving().is_empty());
    }

    #[test]
    fn the_device_does_not_learn_of_a_join_that_is_withdrawn() {
        let mut roster = Roster::new(WORKER, 0);
        let mut subgraphs = [chain(0), chain(1)];
        join(&mut roster, 0, &mut subgraphs[0]);
        assert_eq!(roster.take_pending().1.len(), 1);
        join(&mut roster, 1, &mut subgraphs[1]);
        for (subgraph, index) in subgraphs.iter_mut().zip(0..) {
            roster.leave(SubgraphIndex(index), subgraph);
        }
        let (leaves, joins) = roster.take_pending();
        assert_eq!((leaves, joins), (vec![subgraphs[0].slot.unwrap()], Vec::new()));
    }
}
