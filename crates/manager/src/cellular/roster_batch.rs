//! `FormBatchedTask` of Algorithm 1 for chains: brings the worker's roster up to date, then runs it
//! until a member must leave. Such a task stands for as many batches as it has steps.

use batchmaker_graph::{CellTypeId, Item, ModelId, Work, WorkerId};

use crate::cellular::roster::Roster;
use crate::cellular::subgraph::{QueueKey, SubgraphIndex};
use crate::cellular::subgraph_pool::SubgraphPool;
use crate::cellular::workers::InFlightWork;
use crate::config::TaskForm;

/// The roster of one worker and cell type while a task of it is formed.
pub(super) struct RosterBatch<'a> {
    pub(super) pool: &'a mut SubgraphPool,
    pub(super) cell_type: CellTypeId,
    pub(super) worker: WorkerId,
    /// The model whose turn it is, where models have shares.
    pub(super) model: Option<ModelId>,
}

impl RosterBatch<'_> {
    /// Forms a task of up to `steps_max` steps, and returns it with the number of rows of each; none
    /// if no chain is ready.
    pub(super) fn form(
        mut self,
        task_form: TaskForm,
        steps_max: u32,
    ) -> Option<(Work, InFlightWork, u32)> {
        let sizes = self.pool.queues[self.cell_type].config.batch_sizes;
        match self.pool.seats(self.cell_type, self.worker, self.model, sizes.max) {
            Some(seats) => self.fill_seats(&seats),
            None => self.fill(sizes.max as usize),
        }
        let until_leave = self.steps_until_leave()?;
        let members = self.roster().members().len();
        let steps = match task_form {
            // Only the first batch of a round may be that small.
            _ if members < sizes.min as usize => 1,
            TaskForm::Roster => u64::from(steps_max).min(until_leave) as u32,
            TaskForm::Rows => 1,
        };
        let work = self.work(task_form, steps);
        self.roster_mut().submit(steps);
        self.pool.queues[self.cell_type].counters.count(u64::from(steps), members, 0);
        // UpdateNodesDependency (line 18), then the members that have nothing left to run leave.
        self.pool.note_models_of_roster(self.cell_type, self.worker);
        self.pool.wake_consumers_of_roster(self.cell_type, self.worker);
        self.leave_at_their_step();
        Some((work, InFlightWork::Steps { steps, done: 0 }, members as u32))
    }

    fn roster(&self) -> &Roster {
        self.pool.queues[self.cell_type].roster(self.worker)
    }

    fn roster_mut(&mut self) -> &mut Roster {
        self.pool.queues[self.cell_type].roster_mut(self.worker)
    }

    /// Lets waiting subgraphs join until the roster holds the first `limit` of the queue's order.
    fn fill(&mut self, limit: usize) {
        // The limit may have come down.
        while self.roster().members().len() > limit {
            let (_, displaced) = self.youngest();
            self.pool.return_to_queue(displaced, self.worker);
        }
        let mut after = None;
        while let Some((key, index)) =
            self.pool.readiness().next_waiting(self.cell_type, self.worker, after)
        {
            if self.roster().members().len() == limit {
                let (youngest, displaced) = self.youngest();
                if youngest < key {
                    break;
                }
                self.pool.return_to_queue(displaced, self.worker);
            }
            self.pool.join_roster(index, self.worker);
            after = Some(key);
        }
    }

    /// Lets waiting subgraphs join until the roster holds the first ones of each model in the queue's
    /// order, as many as it has `seats`.
    #[cold]
    fn fill_seats(&mut self, seats: &[u32]) {
        for (position, &seats) in seats.iter().enumerate() {
            while self.roster().members_of_models()[position] > seats {
                self.displace_youngest_of(position);
            }
        }
        for (position, &seats) in seats.iter().enumerate() {
            let waiting = self.pool.readiness().waiting_of(self.cell_type, self.worker, position);
            for (key, index) in waiting.take(seats as usize).collect::<Vec<_>>() {
                if self.roster().members_of_models()[position] == seats {
                    if self.youngest_of(position).is_none_or(|(youngest, _)| youngest < key) {
                        break;
                    }
                    self.displace_youngest_of(position);
                }
                self.pool.join_roster(index, self.worker);
            }
        }
    }

    /// The last member of the model at `position` in the order of the queue.
    fn youngest_of(&self, position: usize) -> Option<(QueueKey, SubgraphIndex)> {
        let is_of_model =
            |member: SubgraphIndex| self.pool.requests[member].model_position as usize == position;
        let mut members = self.roster().members().iter().rev().map(|(&key, &member)| (key, member));
        members.find(|&(_, member)| is_of_model(member))
    }

    fn displace_youngest_of(&mut self, position: usize) {
        let (_, displaced) = self.youngest_of(position).expect("the model has members");
        self.pool.return_to_queue(displaced, self.worker);
    }

    /// The last member in the order of the queue, of a roster that is not empty.
    fn youngest(&self) -> (QueueKey, SubgraphIndex) {
        let youngest = self.roster().members().last_key_value();
        let (&key, &index) = youngest.expect("a roster at its limit has members");
        (key, index)
    }

    /// Returns the number of steps that the roster can run as it is; none if it is empty.
    fn steps_until_leave(&mut self) -> Option<u64> {
        loop {
            let (step, index) = self.roster().first_leave_step()?;
            match self.leave_step(index) {
                Some(true_step) if true_step == step => {
                    // One by one where a step may make another node of the type ready.
                    let steps = step - self.roster().submitted_steps();
                    return Some(if self.roster().feeds_own_type() { 1 } else { steps });
                }
                corrected => self.roster_mut().correct_first_leave_step(corrected),
            }
        }
    }

    /// Takes the members out of the roster whose leave step is reached.
    fn leave_at_their_step(&mut self) {
        let now = self.roster().submitted_steps();
        while let Some((step, index)) = self.roster().first_leave_step()
            && step <= now
        {
            let leave_step = self.leave_step(index);
            if leave_step == Some(now) {
                self.pool.return_to_queue(index, self.worker);
            }
            let later = leave_step.filter(|&step| step > now);
            self.roster_mut().correct_first_leave_step(later);
        }
    }

    #[inline]
    fn leave_step(&self, index: SubgraphIndex) -> Option<u64> {
        self.pool.readiness().leave_step(index, self.cell_type, self.worker)
    }

    /// The task in its form, with the changes that the device does not know yet.
    fn work(&mut self, task_form: TaskForm, steps: u32) -> Work {
        let (leaves, joins) = self.roster_mut().take_pending();
        if task_form == TaskForm::Roster {
            return Work::Roster { leaves, joins, steps };
        }
        let item = |&index: &SubgraphIndex| {
            let subgraph = &self.pool.requests[index];
            let join = joins.iter().find(|join| Some(join.slot) == subgraph.slot);
            Item {
                request: subgraph.request,
                run: subgraph.run,
                first: self.pool.readiness().submitted(index),
                count: 1,
                slot: subgraph.slot,
                moved_from: join.and_then(|join| join.moved_from),
            }
        };
        Work::Rows(self.roster().members().values().map(item).collect())
    }
}
