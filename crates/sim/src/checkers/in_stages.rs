//! Batches in stages (DVABatch, sections 5 and 6). A batch has no more members than it may have, nor have all together. Only the newest batch
//! of a pipeline is stretched, none that will be split, and none that came of a split. Members are handed to a stage when all of their batch have completed the
//! stage before, and run there then. A stage of a pipeline is on one worker at a time. A batch is split into batches that have its members.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use batchmaker_graph::{CellTypeId, RequestId, WorkerId};
use batchmaker_manager::{BatchInStages, Config, Policy, Stages, Staging};

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::{Nodes, Observation};

pub(crate) struct InStages {
    stages: Stages,
    staging: Staging,
    /// The batches as they were at last, by pipeline and number.
    batches: BTreeMap<Key, BatchInStages>,
    /// Those that came of a split.
    split: BTreeSet<Key>,
    /// The tasks that were submitted since.
    submitted: Vec<Submitted>,
    /// The latest stage that each request in flight has begun.
    begun: BTreeMap<RequestId, usize>,
    /// When the newest batch of each pipeline was made.
    newest_ns: BTreeMap<usize, u64>,
    /// For each worker, where its tasks in flight are.
    in_flight: Vec<VecDeque<StageOf>>,
}

type Key = (usize, u64);

/// A pipeline, and a stage of it.
type StageOf = (usize, usize);

struct Submitted {
    worker: WorkerId,
    stage: usize,
    requests: Vec<RequestId>,
}

impl InStages {
    /// The rules for a manager whose models all run in stages; none for others.
    pub(crate) fn of(config: &Config) -> Option<Self> {
        let (stages, staging) = match config.policy {
            Policy::Staged(options) => (config.stages.clone(), options.staging()),
            Policy::Delayed(delay) => (Stages::whole(config.cell_types.len()), delay.staging()),
            _ => return None,
        };
        Some(Self {
            stages,
            staging,
            batches: BTreeMap::new(),
            split: BTreeSet::new(),
            submitted: Vec::new(),
            begun: BTreeMap::new(),
            newest_ns: BTreeMap::new(),
            in_flight: vec![VecDeque::new(); usize::from(config.workers)],
        })
    }

    fn note_task(&mut self, worker: WorkerId, cell_type: CellTypeId, nodes: &[Nodes]) {
        let stage = self.stages.of(cell_type);
        let requests = nodes.iter().map(|part| part.request).collect();
        self.submitted.push(Submitted { worker, stage, requests });
    }

    fn check_sizes(&self, ledger: &Ledger, batches: &[BatchInStages]) -> Result<(), String> {
        let Staging { batch_max, active_max, .. } = self.staging;
        let size = |batch: &BatchInStages| batch.members.len() as u64;
        if let Some(batch) = batches.iter().find(|batch| size(batch) > u64::from(batch_max)) {
            return Err(format!("at most {batch_max} members: {batch:?}"));
        }
        // Members that were answered left their places to others.
        let members = batches.iter().flat_map(|batch| &batch.members);
        let all = members.filter(|member| ledger.requests.contains_key(member)).count() as u64;
        if all > u64::from(active_max) {
            return Err(format!("{all} members in all, at most {active_max}"));
        }
        Ok(())
    }

    /// Checks a batch that has more members than it had.
    fn check_stretched(&self, before: &BatchInStages) -> Result<(), String> {
        let key = key(before);
        if self.split.contains(&key) {
            return Err(format!("{before:?} came of a split, and was stretched"));
        }
        let newest_ns = self.newest_ns.get(&before.pipeline).copied().unwrap_or(0);
        if newest_ns > before.created_ns {
            return Err(format!("{before:?} was stretched, though one of {newest_ns} ns is newer"));
        }
        let size = before.members.len() as u32;
        let is_split = |stage, margin| self.stages.split(stage, size, margin).len() > 1;
        let Some(margin) = self.staging.split_margin_percent else { return Ok(()) };
        match (1..self.stages.count()).find(|&stage| is_split(stage, margin)) {
            Some(stage) => Err(format!("{before:?} was stretched, and is split before {stage}")),
            None => Ok(()),
        }
    }

    /// Checks that what was handed to a stage is all of the batch as it was, and has completed the stage before.
    fn check_handed(before: &BatchInStages, now: &BatchInStages) -> Result<(), String> {
        let all = before.members.len() as u32;
        for stage in 1..now.handed.len() {
            let (handed, completed) = (now.handed[stage], now.completed[stage - 1]);
            if handed > before.handed[stage] && (handed != completed || handed < all) {
                return Err(format!(
                    "handed to stage {stage} before all: {before:?}, then {now:?}"
                ));
            }
        }
        Ok(())
    }

    /// Notes which batches came of a split.
    fn note_splits(&mut self, batches: &[BatchInStages]) -> Result<(), String> {
        for batch in batches.iter().filter(|batch| !self.batches.contains_key(&key(batch))) {
            let holds = |before: &&BatchInStages| before.members.contains(&batch.members[0]);
            let Some(whole) = self.batches.values().find(holds) else { continue };
            if !batch.members.iter().all(|member| whole.members.contains(member)) {
                return Err(format!("{batch:?} came of {whole:?} and has others"));
            }
            if batches.iter().any(|other| key(other) == key(whole)) {
                return Err(format!("{whole:?} was split, and is still there"));
            }
            self.split.insert(key(batch));
        }
        self.split.retain(|split| batches.iter().any(|batch| key(batch) == *split));
        Ok(())
    }

    /// Checks a task that was submitted when the batches were as they are.
    fn check_submitted(
        &mut self,
        task: &Submitted,
        batches: &[BatchInStages],
    ) -> Result<(), String> {
        let &Submitted { worker, stage, .. } = task;
        let batch_of = |request: &RequestId| {
            let batch = batches.iter().find(|batch| batch.members.contains(request));
            batch.ok_or_else(|| format!("{request:?} runs at stage {stage}, and is in no batch"))
        };
        for request in &task.requests {
            let batch = batch_of(request)?;
            if self.begun.insert(*request, stage).is_some_and(|begun| begun > stage) {
                return Err(format!("{request:?} is at stage {stage} again"));
            }
            let place = batch.members.iter().position(|member| member == request);
            if place.is_none_or(|place| place as u32 >= batch.handed[stage]) {
                return Err(format!("{request:?} was not handed to stage {stage}: {batch:?}"));
            }
        }
        let Some(first) = task.requests.first() else { return Ok(()) };
        let at = (batch_of(first)?.pipeline, stage);
        let mut workers = self.in_flight.iter().enumerate();
        let is_there = |&(other, tasks): &(usize, &VecDeque<StageOf>)| {
            other != worker.index() && tasks.contains(&at)
        };
        if let Some((other, _)) = workers.find(is_there) {
            return Err(format!("stage {at:?} runs on {worker} and on w{other}"));
        }
        self.in_flight[worker.index()].push_back(at);
        Ok(())
    }

    fn check_batches(&mut self, ledger: &Ledger, batches: &[BatchInStages]) -> Result<(), String> {
        self.check_sizes(ledger, batches)?;
        for batch in batches {
            let Some(before) = self.batches.get(&key(batch)) else { continue };
            Self::check_handed(before, batch)?;
            if batch.members.len() > before.members.len() {
                self.check_stretched(before)?;
            }
        }
        self.note_splits(batches)?;
        for task in std::mem::take(&mut self.submitted) {
            self.check_submitted(&task, batches)?;
        }
        for batch in batches {
            let newest_ns = self.newest_ns.entry(batch.pipeline).or_default();
            *newest_ns = batch.created_ns.max(*newest_ns);
        }
        self.batches = batches.iter().map(|batch| (key(batch), batch.clone())).collect();
        Ok(())
    }
}

fn key(batch: &BatchInStages) -> Key {
    (batch.pipeline, batch.number)
}

impl Checker for InStages {
    fn name(&self) -> &'static str {
        "in stages"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        match seen {
            Observation::Batch { worker, cell_type, nodes, .. } => {
                self.note_task(*worker, *cell_type, nodes);
            }
            Observation::InStages { batches } => return self.check_batches(ledger, batches),
            Observation::Over { worker, .. } => {
                self.in_flight[worker.index()].pop_front();
            }
            Observation::WorkerDown { worker, .. } => self.in_flight[worker.index()].clear(),
            Observation::Finished { finished } => {
                self.begun.remove(&finished.request);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::harness::{self, Harness, TWO_LAYERS, nodes};

    /// Two cell types, of a stage each, and two workers.
    fn harness() -> Harness {
        let staging = Staging { batch_max: 3, split_margin_percent: Some(0), ..Staging::default() };
        let steep = vec![(1, 10), (2, 10), (3, 90)];
        let config = Config {
            policy: Policy::Staged(staging.into()),
            stages: Stages::new(vec![0, 1], vec![steep; 2]),
            ..harness::config()
        };
        let mut harness = Harness::of(&config, InStages::of(&config).unwrap());
        (0..4).for_each(|request| harness.arrive(request, TWO_LAYERS));
        harness
    }

    /// A batch whose members were all handed to the first stage, and those that completed it to the second.
    fn batch(number: u64, created_ns: u64, members: &[u32], completed: [u32; 2]) -> BatchInStages {
        let handed = vec![members.len() as u32, completed[0]];
        let members = members.iter().map(|&request| nodes(request, 0, 0).request).collect();
        let completed = completed.into();
        BatchInStages { pipeline: 0, number, created_ns, members, completed, handed }
    }

    #[test]
    fn a_batch_that_is_too_large_is_found() {
        let error = harness().in_stages(&[batch(1, 0, &[0, 1, 2, 3], [0, 0])]).unwrap_err();
        assert!(error.contains("at most 3 members"), "{error}");
    }

    #[test]
    fn stretching_an_older_batch_is_found() {
        let mut harness = harness();
        harness.in_stages(&[batch(1, 0, &[0], [1, 0]), batch(2, 5, &[1], [0, 0])]).unwrap();
        let grown = batch(2, 5, &[1, 2], [0, 0]);
        harness.in_stages(&[batch(1, 0, &[0], [1, 0]), grown.clone()]).unwrap();
        let error = harness.in_stages(&[batch(1, 0, &[0, 3], [1, 0]), grown]).unwrap_err();
        assert!(error.contains("is newer"), "{error}");
    }

    #[test]
    fn stretching_what_is_or_was_split_is_found() {
        let mut harness = harness();
        harness.in_stages(&[batch(1, 0, &[0, 1, 2], [0, 0])]).unwrap();
        let parts = [batch(2, 0, &[0], [1, 0]), batch(3, 0, &[1, 2], [2, 0])];
        harness.in_stages(&parts).unwrap();
        let error =
            harness.in_stages(&[batch(2, 0, &[0, 3], [1, 0]), parts[1].clone()]).unwrap_err();
        assert!(error.contains("came of a split"), "{error}");
    }

    #[test]
    fn going_on_before_all_have_caught_up_is_found() {
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness.in_stages(&[batch(1, 0, &[0, 1], [0, 0])]).unwrap();
        harness.complete(0).unwrap();
        harness.task(0, 1, &[&[nodes(0, 1, 0)]]).unwrap();
        let error = harness.in_stages(&[batch(1, 0, &[0, 1], [1, 0])]).unwrap_err();
        assert!(error.contains("before all"), "{error}");
    }

    #[test]
    fn running_what_was_not_handed_on_is_found() {
        let mut harness = harness();
        let both = batch(1, 0, &[0, 1], [0, 0]);
        harness.in_stages(std::slice::from_ref(&both)).unwrap();
        harness.task(0, 1, &[&[nodes(1, 1, 0)]]).unwrap();
        let error = harness.in_stages(&[both]).unwrap_err();
        assert!(error.contains("was not handed"), "{error}");
    }

    /// Members that were handed to a stage may wait there while others are added, and run before these.
    #[test]
    fn a_batch_may_be_stretched_while_members_wait_for_a_stage() {
        let mut harness = harness();
        harness.in_stages(&[batch(1, 0, &[0], [1, 0])]).unwrap();
        harness.task(0, 1, &[&[nodes(0, 1, 0)]]).unwrap();
        harness.in_stages(&[batch(1, 0, &[0, 1], [1, 0])]).unwrap();
    }

    #[test]
    fn stretching_an_older_batch_is_found_when_the_newest_has_ended() {
        let mut harness = harness();
        harness.in_stages(&[batch(1, 0, &[0], [0, 0]), batch(2, 5, &[1], [0, 0])]).unwrap();
        harness.in_stages(&[batch(1, 0, &[0], [0, 0])]).unwrap();
        let error = harness.in_stages(&[batch(1, 0, &[0, 2], [0, 0])]).unwrap_err();
        assert!(error.contains("is newer"), "{error}");
    }

    #[test]
    fn a_stage_on_two_workers_is_found() {
        let mut harness = harness();
        let both = [batch(1, 0, &[0], [0, 0]), batch(2, 0, &[1], [0, 0])];
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness.in_stages(&both).unwrap();
        harness.task(1, 0, &[&[nodes(1, 0, 0)]]).unwrap();
        let error = harness.in_stages(&both).unwrap_err();
        assert!(error.contains("runs on"), "{error}");
    }
}
