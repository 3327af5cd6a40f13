//! Some steps of a batch on the threads of a worker: which member computes which part, and where members
//! synchronise.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use batchmaker_kernels::{ProjectionRow, ROWS_MAX, Recurrence, StepRow};

use crate::strategies::execution_strategy::Split;
use crate::threads::phases::{ITEMS_MAX, Member, part};
use crate::threads::thread_group::{Members, ThreadGroup};

/// Multiply-adds of a step, or of a projection, from which on a second thread is worth trying; below,
/// starting it costs more than it gains.
pub(crate) const WORTH_THREADS: usize = 20_000;

/// Multiply-adds of an item: about a microsecond, which is worth claiming it.
const MACS_AN_ITEM: usize = 32_000;

/// The most items of a step for each member: neighbouring panels are better read in one go.
const ITEMS_A_MEMBER: usize = 16;

/// The number of items to divide `panels` panels into, of `macs` multiply-adds in all, among `members` members.
/// A call should have `a_call` panels at least.
pub(crate) fn items(macs: usize, panels: usize, a_call: usize, members: usize) -> usize {
    let items = (macs / MACS_AN_ITEM).clamp(members, ITEMS_A_MEMBER * members);
    items.min(calls(panels, a_call, members))
}

/// The number of calls that panels can be divided into among `members` members.
fn calls(panels: usize, a_call: usize, members: usize) -> usize {
    (panels / a_call).max(members).min(panels)
}

/// Runs a job of `macs` multiply-adds, on all threads if that is enough work.
pub(crate) fn run_shared(
    group: &mut ThreadGroup,
    macs: usize,
    job: &(dyn Fn(&mut Member<'_>) + Sync),
) {
    match macs >= WORTH_THREADS {
        true => group.run(job),
        false => group.run_alone(job),
    }
}

/// Divides the panels of a phase of `macs` multiply-adds among the members: `step` receives the panels of each
/// item. There are `panels` panels, of which a call should have `a_call` at least.
pub(crate) fn run_panels(
    member: &mut Member<'_>,
    macs: usize,
    (panels, a_call): (usize, usize),
    step: impl Fn(Range<usize>),
) {
    let items = items(macs, panels, a_call, member.members());
    member.run_phase(items, |item| step(part(panels, item, items)));
}

/// Some steps of a batch.
pub(crate) struct Job<'a> {
    pub(crate) cell: &'a dyn Recurrence,
    pub(crate) to_project: &'a [ProjectionRow],
    /// `[step, chain]`.
    pub(crate) rows: &'a [StepRow],
    pub(crate) size: usize,
    pub(crate) split: Split,
}

/// The times that a job took.
pub(crate) struct Times {
    pub(crate) projecting_ns: f32,
    pub(crate) stepping_ns: f32,
    /// Whether all members were there from the start to the end.
    pub(crate) is_complete: bool,
}

impl Job<'_> {
    /// Projects `to_project`, then runs the steps, on as many of `members` as the split and the work ask for: guests have no part of a job that
    /// is split by rows.
    ///
    /// # Safety
    /// - Inputs, states and outputs that `to_project` and `rows` point to are readable and writable as
    ///   [`Recurrence::project`] and [`Recurrence::step`] ask for, with the lengths of `cell`. Rows are steps one
    ///   after the other: a step may read what `to_project` and the steps before it write.
    /// - Until this returns nobody else accesses what is written, and nobody writes what is read. Rows of one
    ///   step overlap in nothing that they write.
    pub(crate) unsafe fn run(&self, group: &mut ThreadGroup, members: Members) -> Times {
        let project_macs = self.to_project.len() * self.cell.projection_macs();
        let is_projection_shared = project_macs >= WORTH_THREADS;
        let start = Instant::now();
        let projected_ns = AtomicU64::new(0);
        let share = |member: &mut Member<'_>| {
            if !self.to_project.is_empty() {
                // SAFETY: the caller vouches for the rows; all members that run the job project.
                unsafe { project(self.cell, self.to_project, member) };
                if member.number() == 0 {
                    projected_ns.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                }
            }
            // SAFETY: inputs are projected, and members step different rows or panels.
            unsafe {
                match self.split {
                    Split::None if member.number() == 0 => self.step_rows(0..self.size),
                    Split::None => {}
                    Split::Units => self.step_units(member),
                    Split::Rows => {
                        self.step_rows(part(self.size, member.number(), member.members()));
                    }
                }
            }
        };
        let is_complete = match self.split {
            Split::Units => group.run_on(members, &share),
            Split::None if !is_projection_shared => {
                group.run_alone(&share);
                true
            }
            Split::None | Split::Rows => group.run_on(group.own_members(), &share),
        };
        let total_ns = start.elapsed().as_nanos() as f32;
        let projecting_ns = projected_ns.into_inner() as f32;
        Times { projecting_ns, stepping_ns: total_ns - projecting_ns, is_complete }
    }

    /// A member's part of all steps, in which items are panels of all rows.
    ///
    /// # Safety
    /// The promises of [`Self::run`] hold, inputs are projected, and all members of the running job call it.
    unsafe fn step_units(&self, member: &mut Member<'_>) {
        for step in self.rows.chunks(self.size) {
            for phase in 0..self.cell.phases() {
                let panels = self.cell.panels(phase);
                let macs = self.size * self.cell.step_macs() / self.cell.phases();
                let a_call = self.cell.panels_a_call();
                run_panels(member, macs, (panels, a_call), |panels| {
                    // SAFETY: items have different panels, and members synchronise after each phase of each
                    // step.
                    unsafe { self.cell.step(phase, step, panels) };
                });
            }
        }
    }

    /// All steps of some rows.
    ///
    /// # Safety
    /// The promises of [`Self::run`] hold, inputs are projected, and no other member steps these rows.
    unsafe fn step_rows(&self, rows: Range<usize>) {
        for step in self.rows.chunks(self.size) {
            for phase in 0..self.cell.phases() {
                // SAFETY: the rows are this member's alone, and their steps run in order.
                unsafe { self.cell.step(phase, &step[rows.clone()], 0..self.cell.panels(phase)) };
            }
        }
    }
}

/// Projects rows, on all threads if there is enough to do.
///
/// # Safety
/// For each row `x` is readable, `[input]`, and `projected` writable, `[projected_len]`, both aligned as f32.
/// Until this returns nobody else accesses the projections, nobody writes inputs, and none overlap.
pub(crate) unsafe fn project_rows(
    cell: &dyn Recurrence,
    rows: &[ProjectionRow],
    group: &mut ThreadGroup,
) {
    let share = |member: &mut Member<'_>| {
        // SAFETY: the caller vouches for the rows; all members that run the job project.
        unsafe { project(cell, rows, member) }
    };
    run_shared(group, rows.len() * cell.projection_macs(), &share);
}

/// A member's part of projections: items are a panel, or as many as a call should have, of as many
/// rows as go over it together.
///
/// # Safety
/// For each row `x` is readable, `[input]`, and `projected` writable, `[projected_len]`, both aligned as f32.
/// Until the job ends nobody but its members accesses the projections, nobody writes inputs, and none
/// overlap. All members of the running job call it with the same rows.
unsafe fn project(cell: &dyn Recurrence, rows: &[ProjectionRow], member: &mut Member<'_>) {
    let panels = cell.projection_panels();
    let parts = calls(panels, cell.panels_a_call(), member.members()).min(ITEMS_MAX);
    let blocks = rows.len().div_ceil(ROWS_MAX).min(ITEMS_MAX / parts);
    member.run_phase(blocks * parts, |item| {
        let rows = &rows[part(rows.len(), item / parts, blocks)];
        // SAFETY: the caller vouches for the rows; items have different panels or rows.
        unsafe { cell.project(rows, part(panels, item % parts, parts)) };
    });
}
