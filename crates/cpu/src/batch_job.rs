//! Some steps of a batch on the threads of a worker: who computes which part, and when they meet.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use batchmaker_kernels::{ProjectionRow, Recurrence, StepRow};

use crate::thread_group::{Barrier, ThreadGroup};
use crate::tuner::Split;

/// Multiply-adds of a step, or of a projection, that are worth trying a second thread on; below,
/// telling it costs more than it brings.
pub(crate) const WORTH_THREADS: usize = 20_000;

/// The steps.
pub(crate) struct Job<'a> {
    pub(crate) cell: &'a dyn Recurrence,
    pub(crate) to_project: &'a [ProjectionRow],
    /// `[step, chain]`.
    pub(crate) rows: &'a [StepRow],
    pub(crate) size: usize,
    pub(crate) split: Split,
    pub(crate) threads: usize,
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
        let projecting = if project_macs < WORTH_THREADS { 1 } else { self.threads };
        let stepping = if self.split == Split::None { 1 } else { self.threads };
        let start = Instant::now();
        let projected_ns = AtomicU64::new(0);
        let (barrier, all) = (Barrier::new(self.threads), projecting.max(stepping));
        let share = |thread: usize| {
            if !self.to_project.is_empty() {
                if thread < projecting {
                    let panels = part(self.cell.projection_panels(), thread, projecting);
                    // SAFETY: the caller's promise; threads have different panels.
                    unsafe { self.cell.project(self.to_project, panels) };
                }
                if all > 1 {
                    barrier.wait();
                }
                if thread == 0 {
                    projected_ns.store(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                }
            }
            if thread < stepping {
                // SAFETY: the caller's promise, and inputs are projected.
                unsafe { self.step(thread, &barrier) };
            }
        };
        if all == 1 {
            share(0);
        } else {
            group.run(&share);
        }
        let total_ns = start.elapsed().as_nanos() as f32;
        let projecting_ns = projected_ns.into_inner() as f32;
        Times { projecting_ns, stepping_ns: total_ns - projecting_ns }
    }

    /// One thread's share of all steps.
    ///
    /// # Safety
    /// As for `run`; all threads that step call it with one barrier.
    unsafe fn step(&self, thread: usize, barrier: &Barrier) {
        let (rows, units) = match self.split {
            Split::None => (0..self.size, (0, 1)),
            Split::Units => (0..self.size, (thread, self.threads)),
            Split::Rows => (part(self.size, thread, self.threads), (0, 1)),
        };
        for step in self.rows.chunks(self.size) {
            for phase in 0..self.cell.phases() {
                let panels = part(self.cell.panels(phase), units.0, units.1);
                // SAFETY: the caller's promise; threads have different panels or rows, and the
                // barrier parts phases and steps where they share rows.
                unsafe { self.cell.step(phase, &step[rows.clone()], panels) };
                if self.split == Split::Units {
                    barrier.wait();
                }
            }
        }
    }
}

/// The part of `0..count` that is the `index`th of `parts`.
fn part(count: usize, index: usize, parts: usize) -> Range<usize> {
    count * index / parts..count * (index + 1) / parts
}
