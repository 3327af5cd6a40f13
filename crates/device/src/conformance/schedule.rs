//! Chains as tasks, as a manager submits them: each joins in its turn and leaves after its last step,
//! and then its slot is used again.

use batchmaker_graph::{CellTypeId, EndOfSequence, Item, Join, RequestId, RunIndex, SlotId, Work};

use crate::conformance::case::Check;
use crate::conformance::harness::{Harness, Member};

/// The two forms of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Roster,
    Rows,
}

/// The form in which chains are run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    pub(super) form: Form,
    /// The steps of the tasks, used over and over; fewer where a chain ends before.
    pub(super) steps: &'static [u32],
    /// All chains leave before this step, and run padding if they are shorter.
    pub(super) padded_to: Option<u32>,
}

impl Schedule {
    /// Tasks of a few steps each.
    pub(super) const fn of(form: Form) -> Self {
        Self { form, steps: &[1, 2, 1, 3, 2, 5], padded_to: None }
    }
}

/// A chain to be run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) request: RequestId,
    pub(super) run: RunIndex,
    pub(super) length: u32,
    /// The number of the task with which it joins.
    pub(super) at: u32,
}

impl Harness {
    /// Runs chains of a cell type to their ends on a worker. The last of them stay on the roster until
    /// the worker has another task of that type. Returns the ends of sequence that were reported.
    pub(super) fn play(
        &mut self,
        worker: usize,
        cell_type: CellTypeId,
        entries: &[Entry],
        schedule: Schedule,
    ) -> Check<Vec<EndOfSequence>> {
        // Batches of items leave the roster as it is.
        let standing = match schedule.form {
            Form::Rows => self.rosters.remove(&(worker, cell_type)),
            Form::Roster => None,
        };
        let mut ends = Vec::new();
        let end = entries.iter().map(|entry| entry.at + 1).max().unwrap_or(0);
        for turn in 0.. {
            let joining: Vec<Entry> = entries.iter().filter(|e| e.at == turn).copied().collect();
            let roster = self.rosters.entry((worker, cell_type)).or_default();
            if joining.is_empty() && roster.iter().all(|member| member.step >= member.until) {
                if turn >= end {
                    break;
                }
                continue;
            }
            let leaves = self.leave(worker, cell_type);
            let joins = self.join(worker, cell_type, &joining, schedule);
            let roster = &self.rosters[&(worker, cell_type)];
            let left = roster.iter().map(|member| member.until - member.step).min().unwrap_or(1);
            let steps = schedule.steps[turn as usize % schedule.steps.len()].min(left);
            let works = match schedule.form {
                Form::Roster => vec![Work::Roster { leaves, joins, steps }],
                Form::Rows => (0..steps).map(|step| Work::Rows(items(roster, step))).collect(),
            };
            let done = self.workers[worker].run(works.into_iter().map(|work| (cell_type, work)))?;
            ends.extend(done.into_iter().flat_map(|done| done.ends));
            let roster = self.rosters.entry((worker, cell_type)).or_default();
            roster.iter_mut().for_each(|member| member.step += steps);
            if schedule.form == Form::Rows {
                self.leave(worker, cell_type);
            }
        }
        if let Some(standing) = standing {
            self.rosters.insert((worker, cell_type), standing);
        }
        Ok(ends)
    }

    /// Takes the chains that ran their last step off a roster and frees their slots. Returns the slots,
    /// which leave with the next task.
    pub(super) fn leave(&mut self, worker: usize, cell_type: CellTypeId) -> Vec<SlotId> {
        let roster = self.rosters.entry((worker, cell_type)).or_default();
        let has_run_all = |member: &Member| member.step >= member.until;
        let leaves: Vec<SlotId> =
            roster.iter().filter(|member| has_run_all(member)).map(|member| member.slot).collect();
        roster.retain(|member| !has_run_all(member));
        leaves.iter().for_each(|&slot| self.free_slot(cell_type, slot));
        leaves
    }

    fn join(
        &mut self,
        worker: usize,
        cell_type: CellTypeId,
        joining: &[Entry],
        schedule: Schedule,
    ) -> Vec<Join> {
        let mut joins = Vec::new();
        for &Entry { request, run, length, .. } in joining {
            let slot = self.take_slot(cell_type);
            joins.push(Join { request, run, slot, step: 0, moved_from: None });
            let until = schedule.padded_to.unwrap_or(length);
            let roster = self.rosters.entry((worker, cell_type)).or_default();
            roster.push(Member { request, run, slot, step: 0, until });
        }
        joins
    }
}

/// The items of the step that is `steps` after each member's next one.
fn items(roster: &[Member], steps: u32) -> Vec<Item> {
    let item = |member: &Member| Item {
        request: member.request,
        run: member.run,
        first: member.step + steps,
        count: 1,
        slot: Some(member.slot),
        moved_from: None,
    };
    roster.iter().map(item).collect()
}
