//! Some steps of a batch on the threads of a worker: who computes which part, and when they meet.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use batchmaker_kernels::{ProjectionRow, ROWS_MAX, Recurrence, StepRow};

use crate::strategies::tuner::Split;
use crate::threads::phases::{ITEMS_MAX, Member, part};
use crate::threads::thread_group::ThreadGroup;

/// Multiply-adds of a step, or of a projection, that are worth trying a second thread on; below,
/// telling it costs more than it brings.
pub(crate) const WORTH_THREADS: usize = 20_000;

/// Multiply-adds of an item that is worth taking: a microsecond or so.
const MACS_AN_ITEM: usize = 32_000;

/// Items of a step for each member, at most: neighbouring panels are better read in one go.
const ITEMS_A_MEMBER: usize = 16;

/// Into how many items to divide `panels` panels of so many multiply-adds in all, of which a call
/// should have some at least.
pub(crate) fn items(macs: usize, panels: usize, a_call: usize, members: usize) -> usize {
    let items = (macs / MACS_AN_ITEM).clamp(members, ITEMS_A_MEMBER * members);
    items.min(calls(panels, a_call, members))
}

/// Into how many calls panels can be divided among so many members.
fn calls(panels: usize, a_call: usize, members: usize) -> usize {
    (panels / a_call).max(members).min(panels)
}

/// The steps.
pub(crate) struct Job<'a> {
    pub(crate) cell: &'a dyn Recurrence,
    pub(crate) to_project: &'a [ProjectionRow],
    /// `[step, chain]`.
    pub(crate) rows: &'a [StepRow],
    pub(crate) size: usize,
    pub(crate) split: Split,
}

/// What a job took.
pub(crate) struct Times {
    pub(crate) projecting_ns: f32,
    pub(crate) stepping_ns: f32,
}

impl Job<'_> {
    /// # Safety
    /// As for [`Recurrence::project`] and [`Recurrence::step`], for one thread at a time.
    pub(crate) unsafe fn run(&self, group: &mut ThreadGroup) -> Times {
        let project_macs = self.to_project.len() * self.cell.projection_macs();
        let is_projection_shared = project_macs >= WORTH_THREADS;
        let start = Instant::now();
        let projected_ns = AtomicU64::new(0);
        let share = |member: &mut Member<'_>| {
            if !self.to_project.is_empty() {
                // SAFETY: the caller's promise.
                unsafe { project(self.cell, self.to_project, member) };
                if member.number() == 0 {
                    projected_ns.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                }
            }
            // SAFETY: the caller's promise, and inputs are projected.
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
        if is_projection_shared || self.split != Split::None {
            group.run(&share);
        } else {
            group.run_alone(&share);
        }
        let total_ns = start.elapsed().as_nanos() as f32;
        let projecting_ns = projected_ns.into_inner() as f32;
        Times { projecting_ns, stepping_ns: total_ns - projecting_ns }
    }

    /// A member's part of all steps, in which items are panels of all rows.
    ///
    /// # Safety
    /// As for `run`; all members call it, and inputs are projected.
    unsafe fn step_units(&self, member: &mut Member<'_>) {
        for step in self.rows.chunks(self.size) {
            for phase in 0..self.cell.phases() {
                let panels = self.cell.panels(phase);
                let macs = self.size * self.cell.step_macs() / self.cell.phases();
                let a_call = self.cell.panels_a_call();
                let items = items(macs, panels, a_call, member.members());
                member.share(items, |item| {
                    // SAFETY: the caller's promise; items have different panels, and stages part
                    // phases and steps.
                    unsafe { self.cell.step(phase, step, part(panels, item, items)) };
                });
            }
        }
    }

    /// All steps of some rows.
    ///
    /// # Safety
    /// As for `run`; nobody else steps these rows, and inputs are projected.
    unsafe fn step_rows(&self, rows: Range<usize>) {
        for step in self.rows.chunks(self.size) {
            for phase in 0..self.cell.phases() {
                // SAFETY: the caller's promise.
                unsafe { self.cell.step(phase, &step[rows.clone()], 0..self.cell.panels(phase)) };
            }
        }
    }
}

/// Projects rows on all threads that are worth it.
///
/// # Safety
/// As for [`Recurrence::project`].
pub(crate) unsafe fn project_rows(
    cell: &dyn Recurrence,
    rows: &[ProjectionRow],
    group: &mut ThreadGroup,
) {
    let share = |member: &mut Member<'_>| {
        // SAFETY: the caller's promise.
        unsafe { project(cell, rows, member) }
    };
    match rows.len() * cell.projection_macs() >= WORTH_THREADS {
        true => group.run(&share),
        false => group.run_alone(&share),
    }
}

/// A member's part of projections: items are a panel, or as many as a call should have, of as many
/// rows as go over it together.
///
/// # Safety
/// As for [`Recurrence::project`]; all members call it.
unsafe fn project(cell: &dyn Recurrence, rows: &[ProjectionRow], member: &mut Member<'_>) {
    let panels = cell.projection_panels();
    let parts = calls(panels, cell.panels_a_call(), member.members()).min(ITEMS_MAX);
    let blocks = rows.len().div_ceil(ROWS_MAX).min(ITEMS_MAX / parts);
    member.share(blocks * parts, |item| {
        let rows = &rows[part(rows.len(), item / parts, blocks)];
        // SAFETY: the caller's promise; items have different panels or rows.
        unsafe { cell.project(rows, part(panels, item % parts, parts)) };
    });
}
