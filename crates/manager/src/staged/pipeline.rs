//! The way of batches through the stages: the three operations of DVABatch, on the batch table, the batch queues and the executors.

use std::collections::{BTreeMap, VecDeque};

use batchmaker_graph::RequestId;

use crate::stages::Stages;
use crate::staging::Staging;

use super::batch_table::{BatchId, BatchTable, Completed, Part};
use super::stage_executors::{ExecutorState, InputAfter, StageExecutors};
use crate::batch_in_stages::BatchInStages;

/// The batches in flight.
#[derive(Debug)]
pub(super) struct Pipeline {
    staging: Staging,
    stages: Stages,
    table: BatchTable,
    executors: StageExecutors,
    /// The paper's batch queues: for each stage, the parts that wait for its executor, and the pair that holds their input.
    queues: Vec<VecDeque<(Part, Option<usize>)>>,
    /// For each stage, the part that its executor has.
    taken: Vec<Option<Taken>>,
    /// The pairs of parts that wait behind a stage for others of their batch.
    waiting: BTreeMap<(BatchId, usize), usize>,
    /// For each batch that came of a split, what it shares with the others.
    families: BTreeMap<BatchId, FamilyId>,
    /// For each family, the number of parts that every stage has still to complete.
    parts_left: BTreeMap<FamilyId, Vec<u32>>,
    /// The members of its batches that have not ended.
    members: u32,
}

/// The batches that a batch was split into, and those that these were split into, which share a buffer pair: that batch.
type FamilyId = BatchId;

#[derive(Debug)]
struct Taken {
    part: Part,
    has_begun: bool,
}

impl Pipeline {
    pub(super) fn new(staging: Staging, stages: Stages) -> Self {
        let count = stages.count();
        Self {
            table: BatchTable::new(count),
            executors: StageExecutors::new(count, staging.pairs as usize),
            queues: vec![VecDeque::new(); count],
            taken: (0..count).map(|_| None).collect(),
            waiting: BTreeMap::new(),
            families: BTreeMap::new(),
            parts_left: BTreeMap::new(),
            members: 0,
            staging,
            stages,
        }
    }

    /// Whether the first stage takes a part at once.
    pub(super) fn is_open(&self) -> bool {
        let is_active = self.executors.state(0) == ExecutorState::Active;
        // Buffers that it found available may be in use since.
        is_active && self.queues[0].is_empty() && self.executors.legitimate_pair(0).is_some()
    }

    /// The batches in flight, which are in the pipeline of that number.
    pub(super) fn batches(&self, pipeline: usize) -> impl Iterator<Item = BatchInStages> {
        self.table.batches(pipeline)
    }

    /// The number of members of its batches in flight that have not ended.
    pub(super) fn members(&self) -> u32 {
        self.members
    }

    /// A member has ended.
    pub(super) fn leave(&mut self) {
        self.members -= 1;
    }

    /// When the batch was made that may be stretched, if there is one.
    pub(super) fn newest_ns(&self) -> Option<u64> {
        self.table.stretchable().map(|(_, created_ns)| created_ns)
    }

    /// The most members of a new batch, where all batches, of other pipelines too, have `members`.
    pub(super) fn room(&self, members: u32) -> u32 {
        self.staging.batch_max.min(self.staging.active_max.saturating_sub(members))
    }

    /// The number of members by which the newest batch may be stretched at `now_ns`, if it may (Policy III), where all batches have
    /// `members`.
    pub(super) fn stretchable(&self, now_ns: u64, members: u32) -> Option<u32> {
        let (batch, created_ns) = self.table.stretchable()?;
        let is_young = now_ns - created_ns < self.staging.stretch_ns;
        let room =
            self.room(members).min(self.staging.batch_max.saturating_sub(self.table.size(batch)));
        (is_young && room > 0).then_some(room)
    }

    /// The same where the batch is about to leave `stage`, which is done with it, and late-comers find the first stage free: the batch
    /// waits for them.
    pub(super) fn room_behind(&self, stage: usize, now_ns: u64, members: u32) -> Option<u32> {
        let room = self.stretchable(now_ns, members)?;
        let (batch, _) = self.table.stretchable()?;
        let is_there = self.taken[stage].as_ref().is_some_and(|taken| taken.part.batch == batch);
        let is_first_free = match stage {
            0 => self.queues[0].is_empty() && self.executors.legitimate_pair(0).is_some(),
            _ => self.is_open(),
        };
        let is_last = stage + 1 == self.stages.count();
        (is_there && is_first_free && !is_last).then_some(room)
    }

    /// The operation *new*.
    pub(super) fn create(&mut self, now_ns: u64, members: Vec<RequestId>) {
        let size = members.len() as u32;
        self.members += size;
        let part = self.table.create(now_ns, members, !self.is_to_be_split(size));
        self.enter(part);
    }

    /// The operation *stretch*.
    pub(super) fn stretch(&mut self, members: Vec<RequestId>) {
        self.members += members.len() as u32;
        let before = self.table.stretchable().map_or(0, |(batch, _)| self.table.size(batch));
        let may_stretch = !self.is_to_be_split(before + members.len() as u32);
        let part = self.table.stretch(members, may_stretch);
        self.enter(part);
    }

    /// Whether a batch of `size` will be split before some stage.
    fn is_to_be_split(&self, size: u32) -> bool {
        (1..self.stages.count()).any(|stage| self.split(stage, size).len() > 1)
    }

    /// The sizes of the batches that one of `size` becomes before `stage`.
    fn split(&self, stage: usize, size: u32) -> Vec<u32> {
        match self.staging.split_margin_percent {
            Some(margin_percent) => self.stages.split(stage, size, margin_percent),
            None => vec![size],
        }
    }

    fn enter(&mut self, part: Part) {
        self.queues[0].push_back((part, None));
        self.take_parts();
    }

    /// Lets executors that are active take parts.
    fn take_parts(&mut self) {
        for stage in (0..self.queues.len()).rev() {
            if self.executors.state(stage) == ExecutorState::Active
                && let Some((part, pair)) = self.queues[stage].pop_front()
            {
                let pair = pair.or_else(|| self.executors.legitimate_pair(stage));
                let pair = pair.expect("an active executor has a pair");
                if self.waiting.get(&(part.batch, stage)) == Some(&pair) {
                    self.executors.read_again(stage, pair);
                }
                self.executors.take(stage, pair);
                self.taken[stage] = Some(Taken { part, has_begun: false });
            }
        }
    }

    /// The parts that can begin, with their stages and members, those of later stages first.
    pub(super) fn parts(&self) -> impl Iterator<Item = (usize, &[RequestId])> {
        let stages = self.taken.iter().enumerate().rev();
        stages.filter_map(|(stage, taken)| {
            let taken = taken.as_ref().filter(|taken| !taken.has_begun)?;
            let is_ready = matches!(self.executors.state(stage), ExecutorState::Working { .. });
            is_ready.then(|| (stage, self.table.members(&taken.part)))
        })
    }

    /// Begins a part of [`Self::parts`].
    pub(super) fn begin(&mut self, stage: usize) {
        self.taken[stage].as_mut().expect("an executor works on a part").has_begun = true;
    }

    /// A stage is done with its part.
    pub(super) fn complete(&mut self, stage: usize) {
        let Taken { part, .. } = self.taken[stage].take().expect("a stage completes a part");
        let ExecutorState::Working { pair } = self.executors.state(stage) else {
            unreachable!("an executor works on what has begun")
        };
        let completed = self.table.complete(stage, &part);
        let mut input = self.input_after(stage, part.batch);
        match completed {
            Completed::WaitsForOthers => {
                let of_first = *self.waiting.entry((part.batch, stage)).or_insert(pair);
                if of_first != pair {
                    input = InputAfter::Available;
                }
            }
            Completed::GoesOn(next) => {
                let of_first = self.waiting.remove(&(part.batch, stage));
                if of_first.is_some_and(|of_first| of_first != pair) {
                    input = InputAfter::Available;
                }
                self.go_on(stage + 1, next, of_first.unwrap_or(pair));
            }
            Completed::Ends => {}
        }
        self.executors.complete(stage, input);
        self.take_parts();
    }

    /// The state of the input buffer of a part after `stage` has completed it.
    fn input_after(&mut self, stage: usize, batch: BatchId) -> InputAfter {
        let Some(family) = self.families.get(&batch).copied() else { return InputAfter::Invalid };
        let left = self.parts_left.get_mut(&family).expect("a family of a batch in flight");
        left[stage] -= 1;
        let is_over = left[stage] == 0;
        if stage + 1 == left.len() {
            self.families.remove(&batch);
            if is_over {
                self.parts_left.remove(&family);
            }
        }
        if is_over { InputAfter::Invalid } else { InputAfter::ReadAgain }
    }

    /// Queues a part for `stage`, split if its batch is together and smaller ones are better from there on (Policy II).
    fn go_on(&mut self, stage: usize, part: Part, pair: usize) {
        let is_whole = part.len() == self.table.size(part.batch);
        let sizes = self.split(stage, part.len());
        if !is_whole || sizes.len() < 2 {
            return self.queues[stage].push_back((part, Some(pair)));
        }
        let parent = self.families.remove(&part.batch);
        let family = parent.unwrap_or(part.batch);
        let stages = self.stages.count();
        let left = self.parts_left.entry(family).or_insert_with(|| vec![0; stages]);
        let added = sizes.len() as u32 - u32::from(parent.is_some());
        left[stage..].iter_mut().for_each(|left| *left += added);
        for child in self.table.split(&part, stage, &sizes) {
            self.families.insert(child.batch, family);
            self.queues[stage].push_back((child, Some(pair)));
        }
    }
}
