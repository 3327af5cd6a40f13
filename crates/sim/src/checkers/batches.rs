//! The shape of tasks. A task has one cell type. No batch is empty or over the limit, and none but the
//! first of a round is under the least size. A round has one cell type and no more batches than a
//! worker may be given, and begins while few enough of the worker's tasks are unfinished. Tasks are
//! numbered without gaps, and are only for workers that are up.
//!
//! Rounds are those of the cellular policy where no models in stages stand beside it. Batches of the padded policy may hold padding
//! alone.

use batchmaker_graph::{BatchedTask, CellTypeId, RunKind, Work};
use batchmaker_manager::{BatchSizes, CellTypeConfig, Config, Policy, TaskForm};

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::{Nodes, Observation};

pub(crate) struct Batches {
    /// Whether all tasks are of rounds of the cellular policy.
    has_rounds: bool,
    cell_types: Vec<CellTypeConfig>,
    sizes: Vec<BatchSizes>,
    lookahead: usize,
    max_tasks_to_submit: u32,
    task_form: TaskForm,
    workers: Vec<Worker>,
}

#[derive(Clone)]
struct Worker {
    last_task: u64,
    /// The cell type and the number of batches since the last task that may have begun a round.
    round: Option<(CellTypeId, u32)>,
}

impl Batches {
    pub(crate) fn new(config: &Config) -> Self {
        let worker = Worker { last_task: 0, round: None };
        Self {
            has_rounds: config.policy == Policy::Cellular && config.staged_models.is_empty(),
            cell_types: config.cell_types.clone(),
            sizes: config.cell_types.iter().map(|cell| cell.batch_sizes).collect(),
            lookahead: config.lookahead as usize,
            max_tasks_to_submit: config.max_tasks_to_submit,
            task_form: config.task_form,
            workers: vec![worker; usize::from(config.workers)],
        }
    }

    fn check_task(&mut self, ledger: &Ledger, task: &BatchedTask) -> Result<(), String> {
        let worker = &mut self.workers[task.worker.index()];
        if ledger.workers[task.worker.index()].is_down {
            return Err(format!("{} is down and is given {task:?}", task.worker));
        }
        if task.id.0 != worker.last_task + 1 {
            return Err(format!("{task:?} after {}", worker.last_task));
        }
        worker.last_task = task.id.0;
        if ledger.workers[task.worker.index()].tasks.len() <= self.lookahead {
            worker.round = None;
        }
        match (&task.work, self.task_form) {
            _ if !self.has_rounds => Ok(()),
            (Work::Roster { .. }, TaskForm::Rows) => Err(format!("{task:?} is no list of rows")),
            (Work::Roster { steps: 0, .. }, _) => Err(format!("{task:?} runs no step")),
            _ => Ok(()),
        }
    }

    fn check_batch(
        &mut self,
        ledger: &Ledger,
        worker: usize,
        cell_type: CellTypeId,
        nodes: &[Nodes],
    ) -> Result<(), String> {
        let rows: u32 = nodes.iter().map(|part| part.count).sum();
        if self.has_rounds {
            self.check_round(ledger, worker, cell_type, rows)?;
            if rows == 0 || nodes.iter().any(|part| part.count == 0) {
                return Err(format!("an empty batch of {cell_type}: {nodes:?}"));
            }
        }
        let max = self.sizes[cell_type.index()].max;
        if rows > max {
            return Err(format!("{rows} rows of {cell_type}, at most {max}"));
        }
        for part in nodes {
            let Some((request, _)) = ledger.run_of(part) else { continue };
            let run = &request.graph.runs()[part.run.index()];
            if run.cell_type != cell_type {
                return Err(format!("{part:?} of {} among {cell_type}", run.cell_type));
            }
            if run.kind == RunKind::Chain && part.count != 1 {
                return Err(format!("{part:?}: several steps of a chain at once"));
            }
        }
        Ok(())
    }

    fn check_round(
        &mut self,
        ledger: &Ledger,
        worker: usize,
        cell_type: CellTypeId,
        rows: u32,
    ) -> Result<(), String> {
        let round = &mut self.workers[worker].round;
        let &mut (round_type, before) = round.get_or_insert((cell_type, 0));
        *round = Some((round_type, before + 1));
        if round_type != cell_type {
            return Err(format!("a batch of {cell_type} in a round of {round_type}"));
        }
        let most = match ledger.may_be_for_one_worker() {
            true => Config::ROUNDS_AT_ONCE_ALONE * self.max_tasks_to_submit,
            false => self.max_tasks_to_submit,
        };
        if before + 1 > most {
            return Err(format!("{} batches in a round", before + 1));
        }
        let least = self.sizes[cell_type.index()].min;
        if rows < least && before > 0 {
            return Err(format!(
                "{rows} rows of {cell_type} after {before} batches, least {least}"
            ));
        }
        Ok(())
    }
}

impl Checker for Batches {
    fn name(&self) -> &'static str {
        "batches"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        match seen {
            Observation::Submitted { task } => self.check_task(ledger, task),
            Observation::Batch { worker, cell_type, nodes, .. } => {
                self.check_batch(ledger, worker.index(), *cell_type, nodes)
            }
            Observation::Limits { batch_max } => {
                let cell_types = self.cell_types.iter().zip(*batch_max);
                for (sizes, (cell, &max)) in self.sizes.iter_mut().zip(cell_types) {
                    *sizes = sizes.with_max(max.min(cell.rows_max.unwrap_or(max)));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::harness::{self, Harness, TWO_LAYERS, nodes};

    fn harness() -> Harness {
        let mut harness = Harness::new(Batches::new(&harness::config()));
        (0..4).for_each(|request| harness.arrive(request, TWO_LAYERS));
        harness
    }

    #[test]
    fn a_full_round_passes() {
        let both = |step| [nodes(0, 0, step), nodes(1, 0, step)];
        harness().task(0, 0, &[&both(0), &both(1)]).unwrap();
    }

    #[test]
    fn a_batch_over_the_limit_is_found() {
        let four: Vec<_> = (0..4).map(|request| nodes(request, 0, 0)).collect();
        assert!(harness().task(0, 0, &[&four]).unwrap_err().contains("at most 3"));
    }

    #[test]
    fn limits_change() {
        let (mut harness, two) = (harness(), [nodes(0, 0, 0), nodes(1, 0, 0)]);
        harness.limits(&[1, 1]).unwrap();
        assert!(harness.task(0, 0, &[&two]).unwrap_err().contains("at most 1"));
    }

    #[test]
    fn an_empty_batch_is_found() {
        assert!(harness().task(0, 0, &[&[]]).unwrap_err().contains("empty"));
    }

    #[test]
    fn a_small_batch_is_only_the_first() {
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        assert!(harness.task(0, 0, &[&[nodes(1, 0, 0)]]).unwrap_err().contains("least 2"));
    }

    #[test]
    fn a_long_round_is_found() {
        let mut harness = harness();
        let both = |step| [nodes(0, 0, step), nodes(1, 0, step)];
        harness.task(0, 0, &[&both(0), &both(1)]).unwrap();
        assert!(harness.task(0, 0, &[&both(2)]).unwrap_err().contains("3 batches"));
    }

    #[test]
    fn another_type_is_found_in_a_round_and_in_a_task() {
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        assert!(harness.task(0, 1, &[&[nodes(0, 1, 0)]]).unwrap_err().contains("round"));
        assert!(harness.task(1, 1, &[&[nodes(1, 0, 0)]]).unwrap_err().contains("among"));
    }

    #[test]
    fn a_round_begun_too_early_is_found() {
        for lookahead in [0, 1] {
            let config = Config { lookahead, max_tasks_to_submit: 1, ..harness::config() };
            let mut harness = Harness::new(Batches::new(&config));
            harness.arrive(0, TWO_LAYERS);
            harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
            assert_eq!(harness.task(0, 1, &[&[nodes(0, 1, 0)]]).is_ok(), lookahead > 0);
        }
    }

    #[test]
    fn a_task_for_a_worker_that_is_down_is_found() {
        let mut harness = harness();
        harness.worker_down(0).unwrap();
        assert!(harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap_err().contains("is down"));
    }
}
