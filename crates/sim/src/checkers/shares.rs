//! Shares: while two models both have work for every worker that begins a round, they get worker time by
//! their weights: within a few rounds of each, and within 10 % over a long time.
//!
//! Models that share cell types are left out: `queue_order` checks that the seats of a batch of such a
//! type are dealt by the weights.

use std::collections::{BTreeMap, BTreeSet};

use batchmaker_graph::{CellTypeId, ModelId, WorkerId};
use batchmaker_manager::Config;

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::Observation;

pub(crate) struct Shares {
    weights: Option<Vec<u32>>,
    /// What a model may have had before another.
    credit_ns: u64,
    /// The models whose requests have nodes of each cell type.
    models: BTreeMap<CellTypeId, BTreeSet<ModelId>>,
    /// The worker time of each of two models since both have had work.
    windows: BTreeMap<(ModelId, ModelId), [u64; 2]>,
    workers: Vec<Worker>,
    /// The longest round so far.
    round_ns_max: u64,
    rounds_in_flight: u64,
}

#[derive(Clone, Default)]
struct Worker {
    /// The unfinished tasks, each with its round.
    tasks: Vec<(CellTypeId, u64)>,
    since_ns: u64,
    /// The number of rounds that began.
    rounds: u64,
    /// The round of the task that was complete last, and the time of its complete tasks.
    round: u64,
    round_ns: u64,
    begins_round: bool,
}

impl Shares {
    pub(crate) fn new(config: &Config) -> Self {
        let worker = Worker { begins_round: true, ..Worker::default() };
        let workers = u64::from(config.workers);
        Self {
            weights: config.fairness.as_ref().and_then(|fairness| fairness.shares.clone()),
            credit_ns: config.fairness.as_ref().map_or(0, |fairness| fairness.credit_ns),
            models: BTreeMap::new(),
            windows: BTreeMap::new(),
            workers: vec![worker; usize::from(config.workers)],
            round_ns_max: 0,
            rounds_in_flight: workers * u64::from(config.lookahead + 1),
        }
    }

    /// The only model that has nodes of the cell type.
    fn model_of(&self, cell_type: CellTypeId) -> Option<ModelId> {
        let models = self.models.get(&cell_type)?;
        models.first().copied().filter(|_| models.len() == 1)
    }

    /// Whether no other model has nodes of the model's cell types.
    fn is_apart(&self, model: ModelId) -> bool {
        self.models.values().all(|models| !models.contains(&model) || models.len() == 1)
    }

    /// Ends the windows of models without a ready node for `worker`, and begins those of models with.
    fn note_round(&mut self, ledger: &Ledger, worker: WorkerId) {
        let mut ready = BTreeSet::new();
        for (cell_type, open) in (0..).map(CellTypeId).zip(&ledger.open) {
            let is_ready = |run, id| ledger.requests[id].ready(run, worker) > 0;
            let model = self.model_of(cell_type).filter(|&model| self.is_apart(model));
            if let Some(model) = model
                && open.iter().any(|(place, id)| is_ready(place.run, id))
            {
                ready.insert(model);
            }
        }
        self.windows.retain(|(a, b), _| ready.contains(a) && ready.contains(b));
        for &a in &ready {
            for &b in ready.iter().filter(|&&b| a < b) {
                self.windows.entry((a, b)).or_default();
            }
        }
    }

    fn note_time(&mut self, model: ModelId, took_ns: u64) -> Result<(), String> {
        let weights = self.weights.as_deref().unwrap_or_default();
        let weight = |model: ModelId| weights.get(model.index()).copied().unwrap_or(1);
        let slack_ns = self.credit_ns + 3 * (self.rounds_in_flight + 1) * self.round_ns_max;
        for (&(a, b), took) in &mut self.windows {
            match model {
                _ if model == a => took[0] += took_ns,
                _ if model == b => took[1] += took_ns,
                _ => continue,
            }
            let [weight_a, weight_b] = [weight(a), weight(b)].map(f64::from);
            let all_ns = (took[0] + took[1]) as f64;
            let fair_ns = all_ns * weight_a / (weight_a + weight_b);
            let off_ns = (took[0] as f64 - fair_ns).abs();
            let fair_least_ns = fair_ns.min(all_ns - fair_ns);
            let is_long = fair_least_ns * 0.1 > slack_ns as f64;
            let bound_ns = if is_long { fair_least_ns * 0.1 } else { slack_ns as f64 };
            if off_ns > bound_ns {
                let took = format!("{a} had {} ns and {b} {} ns", took[0], took[1]);
                return Err(format!("{took} at weights {weight_a} and {weight_b}"));
            }
        }
        Ok(())
    }
}

impl Checker for Shares {
    fn name(&self) -> &'static str {
        "shares"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        if self.weights.is_none() {
            return Ok(());
        }
        match *seen {
            Observation::Arrived { model, graph, .. } => {
                for run in graph.runs() {
                    self.models.entry(run.cell_type).or_default().insert(model);
                }
                // Models that were apart may not be any more.
                let windows = std::mem::take(&mut self.windows);
                let is_apart = |&((a, b), _): &_| self.is_apart(a) && self.is_apart(b);
                self.windows = windows.into_iter().filter(is_apart).collect();
            }
            Observation::Submitted { task } => {
                if std::mem::take(&mut self.workers[task.worker.index()].begins_round) {
                    self.note_round(ledger, task.worker);
                    self.workers[task.worker.index()].rounds += 1;
                }
                let worker = &mut self.workers[task.worker.index()];
                if worker.tasks.is_empty() {
                    worker.since_ns = ledger.now_ns;
                }
                worker.tasks.push((task.cell_type, worker.rounds));
            }
            Observation::Refused { worker } => {
                self.workers[worker.index()].begins_round = true;
            }
            Observation::WorkerDown { worker, .. } => {
                self.workers[worker.index()].tasks.clear();
                // What was in flight stays charged by its estimate.
                self.windows.clear();
            }
            Observation::Over { worker, .. } => {
                let state = &mut self.workers[worker.index()];
                let (cell_type, round) = state.tasks.remove(0);
                let took_ns = ledger.now_ns - std::mem::replace(&mut state.since_ns, ledger.now_ns);
                if std::mem::replace(&mut state.round, round) != round {
                    state.round_ns = 0;
                }
                state.round_ns += took_ns;
                self.round_ns_max = self.round_ns_max.max(state.round_ns);
                if let Some(model) = self.model_of(cell_type) {
                    return self.note_time(model, took_ns);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_manager::Fairness;

    use super::*;
    use crate::checkers::harness::{self, Harness, Layers, nodes};

    /// Rounds of the second model and, every `turns` of them, one of the first. A round begins while `lookahead`
    /// tasks are unfinished.
    fn play(turns: u32, lookahead: u32) -> Result<(), String> {
        let fairness = Fairness { shares: Some(vec![1, 3]), ..Fairness::default() };
        let config = Config { fairness: Some(fairness), lookahead, ..harness::config() };
        let mut harness = Harness::new(Shares::new(&config));
        for request in 0..1_000 {
            harness.arrive_of(request, request % 2, Layers::one_of(request % 2));
        }
        let mut next = [0, 1];
        for (turn, now_ns) in (0..600).zip((10..).step_by(10)) {
            let model = u32::from(turn % (turns + 1) != 0);
            let request = next[model as usize];
            next[model as usize] += 2;
            harness.task(0, model, &[&[nodes(request, 0, 0)]])?;
            harness.refuse(0)?;
            harness.advance(now_ns);
            if turn >= lookahead {
                harness.complete(0)?;
            }
        }
        Ok(())
    }

    #[test]
    fn wrong_shares_are_found() {
        for lookahead in [0, 1] {
            play(3, lookahead).unwrap();
            assert!(play(1, lookahead).unwrap_err().contains("at weights 1 and 3"));
        }
    }
}
