//! Times of jobs on this project's device, with kernels whose weights stay on the chip.

use batchmaker_cuda::CudaConfig;

use super::super::own;
use super::jobs::{Job, Operator};
use super::times::{OWN, Outcome, Times};

/// Measures all jobs. Jobs that differ in their batches share a device, and so a compiled kernel. A model's layers are alike and run one after the other: its
/// time is that of one layer times their number.
pub(super) fn measure(config: &CudaConfig, jobs: &[Job], times: &mut Times) {
    measure_by(jobs, times, &mut |job, batches| {
        own::step_us(config, (&job.operator.kind(), job.hidden), batches, job.steps)
    });
}

/// Returns the microseconds of a step of one layer of a job for each of some batches.
type StepUs<'a> = dyn FnMut(Job, &[usize]) -> anyhow::Result<Vec<f64>> + 'a;

/// Measures by a function.
fn measure_by(jobs: &[Job], times: &mut Times, step_us: &mut StepUs<'_>) {
    for group in jobs.chunk_by(|a, b| cell_of(a) == cell_of(b)) {
        let batches: Vec<usize> = group.iter().map(|job| job.batch).collect();
        let of_steps = step_us(group[0], &batches);
        for (at, &job) in group.iter().enumerate() {
            let outcome = match &of_steps {
                Ok(of_steps) => {
                    Outcome::Time(of_steps[at] * f64::from(job.steps) * job.layers as f64 / 1e3)
                }
                Err(error) => Outcome::LeftOut(format!("{error:#}")),
            };
            times.add(OWN, job, outcome);
        }
    }
}

/// The part of a job that those which share a device have in common.
fn cell_of(job: &Job) -> (Operator, usize, u32, usize) {
    (job.operator, job.hidden, job.steps, job.layers)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::super::jobs;
    use super::*;

    #[test]
    fn batches_of_a_cell_are_measured_together() {
        let (jobs, mut times, mut calls) = (jobs::all(), Times::default(), Vec::new());
        measure_by(&jobs, &mut times, &mut |job, batches| {
            calls.push((job.operator.name(), job.hidden, batches.to_vec()));
            match job.operator {
                Operator::GruResetBefore => bail!("no such kernel"),
                _ => Ok(batches.iter().map(|&batch| batch as f64).collect()),
            }
        });
        assert_eq!(calls.len(), 3 * 3 + 2);
        assert_eq!(calls[1], ("lstm", 256, vec![1, 10, 20]));
        assert_eq!(times.all.len(), jobs.len());
        assert_eq!(times.own_failures(), 9);
        // Ten microseconds a step, a hundred steps; and three layers of those.
        assert_eq!(times.ms(OWN, jobs[1]), Some(1.0));
        assert_eq!(times.ms(OWN, jobs::MODELS[1].job(10)), Some(3.0));
    }
}
