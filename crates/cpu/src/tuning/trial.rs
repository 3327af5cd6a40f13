//! A recurrent cell alone, run in any configuration, to measure its cost: without requests, slots or a
//! manager.

use std::time::{Duration, Instant};

use batchmaker_graph::RecurrentCell;
use batchmaker_kernels::{
    KernelError, Lines, Packing, ProjectionRow, Recurrence, StepRow, Tiling, Tilings, XPart,
};

use crate::cells::batch_job::Job;
use crate::cells::packing::pack;
use crate::threads::thread_group::ThreadGroup;
use crate::tuning::configurations::{Configuration, Shape};

/// The most rows of the steps that are run together.
const ROWS_TOGETHER: usize = 1024;
/// The number of steps that are run together.
const STEPS: std::ops::RangeInclusive<usize> = 4..=24;

/// A cell and rows for it.
pub struct Trial {
    cell: Box<dyn Recurrence>,
    packing: Packing,
    tiling: Option<Tiling>,
    /// Groups of one thread, of two, and so on.
    groups: Vec<ThreadGroup>,
    batch: usize,
    steps: usize,
    /// `[batch]` rows each: x, h before and after, c, y of a step.
    memory: Vec<Lines>,
    projected: Lines,
}

impl Trial {
    /// Packs the cell.
    ///
    /// # Errors
    /// [`KernelError`] where the machine lacks the instructions, or sizes and lengths do not agree.
    pub fn new(packing: Packing, cell: &RecurrentCell) -> Result<Self, KernelError> {
        Ok(Self {
            cell: pack(packing, cell)?,
            packing,
            tiling: None,
            groups: Vec::new(),
            batch: 0,
            steps: 0,
            memory: Vec::new(),
            projected: Lines::zeros(0),
        })
    }

    /// The nanoseconds of a step of `batch` rows in a configuration, with the projection of its inputs: the
    /// least of several runs, which take `at_least` together.
    ///
    /// # Errors
    /// If the system gives no more threads.
    pub fn step_ns(
        &mut self,
        configuration: &Configuration,
        batch: usize,
        at_least: Duration,
    ) -> std::io::Result<f64> {
        self.prepare(batch);
        if self.tiling != configuration.tiling {
            let tilings = configuration.tiling.map_or(Tilings::DEFAULT, Tilings::all);
            self.cell.set_tilings(&tilings);
            self.tiling = configuration.tiling;
        }
        self.group(configuration.threads)?;
        let pre_projection = configuration.strategy.pre_projection;
        let (rows, to_project) = self.rows(pre_projection);
        let job = Job {
            cell: &*self.cell,
            to_project: &to_project,
            rows: &rows,
            size: batch,
            split: configuration.strategy.split,
        };
        let group = &mut self.groups[configuration.threads - 1];
        let (start, mut least, mut runs) = (Instant::now(), f64::INFINITY, 0);
        while runs < 2 || start.elapsed() < at_least {
            // SAFETY: rows of the cell's lengths, of memory that is this trial's own; each step's
            // h_out is the next one's h_in.
            let times = unsafe { job.run(group, group.own_members()) };
            least = least.min(f64::from(times.projecting_ns) + f64::from(times.stepping_ns));
            runs += 1;
        }
        Ok(least / self.steps as f64)
    }

    /// The number of steps of `batch` rows that are run together.
    pub(crate) fn steps(batch: usize) -> usize {
        (ROWS_TOGETHER / batch).clamp(*STEPS.start(), *STEPS.end())
    }

    /// The shape of the cell.
    pub fn shape(&self) -> Shape {
        Shape::of(&*self.cell, self.packing)
    }

    /// Makes memory for `batch` rows.
    fn prepare(&mut self, batch: usize) {
        if self.batch == batch {
            return;
        }
        self.batch = batch;
        self.steps = Self::steps(batch);
        let cell = &*self.cell;
        let lens = [cell.input_size(), cell.hidden_size(), cell.hidden_size(), cell.c_len()];
        self.memory = lens
            .map(|len| {
                let mut lines = Lines::zeros(batch * Lines::row_stride(len));
                for (at, value) in lines.as_mut_slice().iter_mut().enumerate() {
                    *value = (at * 7919 % 1009) as f32 / 504.5 - 1.0;
                }
                lines
            })
            .into();
        let row = Lines::row_stride(cell.projected_len());
        self.projected = Lines::zeros(self.steps * batch * row);
    }

    /// Makes a group of `threads` threads, if there is none.
    fn group(&mut self, threads: usize) -> std::io::Result<()> {
        while self.groups.len() < threads {
            let count = self.groups.len() + 1;
            self.groups.push(ThreadGroup::new("trial", count)?);
        }
        Ok(())
    }

    /// The rows of all steps, `[step, row]`, and the rows to project before them.
    fn rows(&mut self, pre_projection: bool) -> (Vec<StepRow>, Vec<ProjectionRow>) {
        let cell = &*self.cell;
        let strides = [cell.input_size(), cell.hidden_size(), cell.hidden_size(), cell.c_len()]
            .map(Lines::row_stride);
        let [x, h_0, h_1, c] =
            std::array::from_fn(|part| self.memory[part].as_mut_slice().as_mut_ptr());
        let projected = self.projected.as_mut_slice().as_mut_ptr();
        let projected_stride = Lines::row_stride(cell.projected_len());
        let (mut rows, mut to_project) = (Vec::new(), Vec::new());
        for step in 0..self.steps {
            for row in 0..self.batch {
                let place = |from: *mut f32, part: usize| from.wrapping_add(row * strides[part]);
                let (h_in, h_out) = if step % 2 == 0 { (h_0, h_1) } else { (h_1, h_0) };
                let at = (step * self.batch + row) * projected_stride;
                let projected = projected.wrapping_add(at);
                if pre_projection {
                    to_project.push(ProjectionRow { x: place(x, 0), projected });
                }
                rows.push(StepRow {
                    x: if pre_projection { projected } else { place(x, 0) },
                    x_part: if pre_projection { XPart::Projected } else { XPart::Given },
                    h_in: place(h_in, 1),
                    h_out: place(h_out, 1),
                    c: place(c, 3),
                    y: std::ptr::null_mut(),
                });
            }
        }
        (rows, to_project)
    }
}
