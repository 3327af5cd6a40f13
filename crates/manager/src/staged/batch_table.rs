//! The batch table (DVABatch, sections 5.1 and 5.2): the batches in flight, how far their members have come, and the operations
//! that change them.

use std::collections::BTreeMap;
use std::ops::Range;

use batchmaker_graph::RequestId;

use crate::batch_in_stages::BatchInStages;

/// A batch of the table; later ones have greater ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BatchId(u64);

/// What a stage runs as one: an item of the paper's batch queues, with the members from `start` on, `num` of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) batch: BatchId,
    pub(super) members: Range<u32>,
}

impl Part {
    /// The number of members.
    pub(super) fn len(&self) -> u32 {
        self.members.end - self.members.start
    }
}

/// The way of a part after a stage has completed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Completed {
    /// Members that came later run through earlier stages: nothing goes on before they have caught up.
    WaitsForOthers,
    /// The part goes on to the next stage, merged with those that waited for it.
    GoesOn(Part),
    /// The stage was the last one. A batch whose members have all completed it is no longer in the table.
    Ends,
}

/// The batches in flight.
#[derive(Debug)]
pub(super) struct BatchTable {
    stages: usize,
    rows: BTreeMap<BatchId, Row>,
    /// The id of the last batch.
    last: u64,
    /// The last batch that [`Self::create`] made.
    newest: Option<BatchId>,
}

#[derive(Debug)]
struct Row {
    members: Vec<RequestId>,
    created_ns: u64,
    /// The paper's statusmap: for each stage, how many members have completed it. They are the first ones.
    completed: Vec<u32>,
    /// For each stage, how many members were handed to it. They are the first ones.
    handed: Vec<u32>,
    may_stretch: bool,
}

impl Row {
    fn len(&self) -> u32 {
        self.members.len() as u32
    }
}

impl BatchTable {
    /// An empty table for a model of `stages` stages.
    pub(super) fn new(stages: usize) -> Self {
        assert!(stages > 0, "a model without a stage");
        Self { stages, rows: BTreeMap::new(), last: 0, newest: None }
    }

    /// The operation *new*: a batch, and its part for the first stage. A batch that is expected to be split may not be stretched.
    pub(super) fn create(
        &mut self,
        now_ns: u64,
        members: Vec<RequestId>,
        may_stretch: bool,
    ) -> Part {
        let row = Row {
            completed: vec![0; self.stages],
            handed: vec![0; self.stages],
            created_ns: now_ns,
            members,
            may_stretch,
        };
        let batch = self.insert(row);
        self.newest = Some(batch);
        self.hand_over(batch, 0).expect("a batch has members")
    }

    fn insert(&mut self, row: Row) -> BatchId {
        self.last += 1;
        self.rows.insert(BatchId(self.last), row);
        BatchId(self.last)
    }

    /// The batch that may be stretched: the newest, if it is in flight and is not to be split, and when it was made.
    pub(super) fn stretchable(&self) -> Option<(BatchId, u64)> {
        let batch = self.newest?;
        let row = self.rows.get(&batch)?;
        // Those whose first members are at the last stage do not wait for others.
        let is_whole = row.handed[self.stages - 1] == 0;
        (row.may_stretch && is_whole).then_some((batch, row.created_ns))
    }

    /// The operation *stretch*: adds members to the batch that [`Self::stretchable`] names. Their part begins at the first stage.
    /// `may_stretch` says whether still more may be added.
    pub(super) fn stretch(&mut self, members: Vec<RequestId>, may_stretch: bool) -> Part {
        let (batch, _) = self.stretchable().expect("a batch that may be stretched");
        let row = self.row_mut(batch);
        row.members.extend(members);
        row.may_stretch = may_stretch;
        self.hand_over(batch, 0).expect("members are added")
    }

    /// The operation *split*: a batch that is together, as its members go on to `stage`, becomes batches of `sizes` members, which
    /// may not be stretched. Returns their parts for `stage`.
    pub(super) fn split(&mut self, whole: &Part, stage: usize, sizes: &[u32]) -> Vec<Part> {
        let row = self.rows.remove(&whole.batch).expect("a batch in flight");
        assert_eq!(whole.members, 0..row.len(), "only a whole batch is split");
        assert_eq!(sizes.iter().sum::<u32>(), row.len(), "the parts of a batch are the batch");
        let mut members = row.members.into_iter();
        let mut child = |&size: &u32| {
            let mut completed = vec![0; self.stages];
            completed[..stage].fill(size);
            let mut handed = completed.clone();
            handed[stage] = size;
            let members = members.by_ref().take(size as usize).collect();
            let row =
                Row { members, created_ns: row.created_ns, completed, handed, may_stretch: false };
            Part { batch: self.insert(row), members: 0..size }
        };
        sizes.iter().map(&mut child).collect()
    }

    /// Takes note that `stage` has completed a part.
    pub(super) fn complete(&mut self, stage: usize, part: &Part) -> Completed {
        let is_last = stage + 1 == self.stages;
        let row = self.row_mut(part.batch);
        assert_eq!(row.completed[stage], part.members.start, "a part overtook another");
        row.completed[stage] = part.members.end;
        if is_last {
            if row.completed[stage] == row.len() {
                self.rows.remove(&part.batch);
            }
            return Completed::Ends;
        }
        if row.completed[stage] < row.len() {
            return Completed::WaitsForOthers;
        }
        Completed::GoesOn(self.hand_over(part.batch, stage + 1).expect("a part went on"))
    }

    /// Hands all members to `stage` that were not handed to it before.
    fn hand_over(&mut self, batch: BatchId, stage: usize) -> Option<Part> {
        let row = self.row_mut(batch);
        let members = row.handed[stage]..row.len();
        row.handed[stage] = members.end;
        (!members.is_empty()).then_some(Part { batch, members })
    }

    /// The batches, which are in the pipeline of that number.
    pub(super) fn batches(&self, pipeline: usize) -> impl Iterator<Item = BatchInStages> {
        self.rows.iter().map(move |(&BatchId(number), row)| BatchInStages {
            pipeline,
            number,
            created_ns: row.created_ns,
            members: row.members.clone(),
            completed: row.completed.clone(),
            handed: row.handed.clone(),
        })
    }

    /// The requests of a part.
    pub(super) fn members(&self, part: &Part) -> &[RequestId] {
        &self.rows[&part.batch].members[as_indices(&part.members)]
    }

    /// The number of members of a batch.
    pub(super) fn size(&self, batch: BatchId) -> u32 {
        self.rows[&batch].len()
    }

    fn row_mut(&mut self, batch: BatchId) -> &mut Row {
        self.rows.get_mut(&batch).expect("a batch in flight")
    }
}

fn as_indices(members: &Range<u32>) -> Range<usize> {
    members.start as usize..members.end as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(indices: Range<u32>) -> Vec<RequestId> {
        indices.map(|index| RequestId { index, generation: 0 }).collect()
    }

    /// Completes stages of a part that goes on alone, and returns what goes on to `to`.
    fn through(table: &mut BatchTable, mut part: Part, stages: Range<usize>) -> Part {
        for stage in stages {
            let Completed::GoesOn(next) = table.complete(stage, &part) else {
                panic!("it does not go on from stage {stage}");
            };
            part = next;
        }
        part
    }

    #[test]
    fn only_the_newest_batch_is_stretched() {
        let mut table = BatchTable::new(2);
        assert_eq!(table.stretchable(), None);
        let first = table.create(10, requests(0..1), true);
        assert_eq!(table.stretchable(), Some((first.batch, 10)));
        let second = table.create(20, requests(1..2), true);
        assert_eq!(table.stretchable(), Some((second.batch, 20)));
        let second = through(&mut table, second, 0..1);
        assert_eq!(table.complete(1, &second), Completed::Ends);
        assert_eq!(table.stretchable(), None, "the first is not the newest, though it is alone");
    }

    #[test]
    fn a_batch_at_its_last_stage_is_not_stretched() {
        let mut table = BatchTable::new(2);
        let part = table.create(0, requests(0..2), true);
        through(&mut table, part, 0..1);
        assert_eq!(table.stretchable(), None, "it would not wait");
    }

    #[test]
    fn a_batch_that_is_to_be_split_is_not_stretched() {
        let mut table = BatchTable::new(3);
        table.create(0, requests(0..4), false);
        assert_eq!(table.stretchable(), None);
        let batch = table.create(0, requests(4..8), true);
        let whole = through(&mut table, batch, 0..1);
        let parts = table.split(&whole, 1, &[1, 3]);
        assert_eq!(parts.iter().map(Part::len).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(table.stretchable(), None, "nor are the batches that came of a split");
        for (part, members) in parts.into_iter().zip([4..5, 5..8]) {
            let part = through(&mut table, part, 1..2);
            assert_eq!(table.members(&part), requests(members.clone()));
            assert_eq!(table.complete(2, &part), Completed::Ends);
        }
    }

    /// Figure 8(b), with late-comers who travel alone through two stages.
    #[test]
    fn nothing_goes_on_before_all_have_caught_up() {
        let mut table = BatchTable::new(4);
        let first = table.create(0, requests(0..2), true);
        let batch = first.batch;
        let first = through(&mut table, first, 0..2);
        let late = table.stretch(requests(2..4), true);
        assert_eq!(late, Part { batch, members: 2..4 });
        assert_eq!(table.complete(2, &first), Completed::WaitsForOthers);
        let late = through(&mut table, late, 0..2);
        assert_eq!(late, Part { batch, members: 2..4 });
        let merged = through(&mut table, late, 2..3);
        assert_eq!(merged, Part { batch, members: 0..4 }, "one merged item");
        assert_eq!(table.complete(3, &merged), Completed::Ends);
    }
}
