//! What the performance model has to be told of this machine, measured in about a second: bytes a
//! second from each level of the memory, and what starting threads and meeting costs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use batchmaker_kernels::{Isa, KernelError, Lines, Packing, peaks};

use crate::thread_group::ThreadGroup;

/// The machine as one worker sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes a nanosecond that a thread reads from memory of so many bytes, over and over, while
    /// nobody else does; sizes ascending.
    pub alone: Vec<(f64, f64)>,
    /// The same of each thread, while all do so in memory of their own.
    pub together: Vec<(f64, f64)>,
    /// Nanoseconds to start all threads on a job and to see them end it.
    pub fork_ns: f64,
    /// Nanoseconds for all threads to meet within a job.
    pub meet_ns: f64,
}

/// Sizes of memory to read, in KiB: within and between the caches of processors of the last years.
const SIZES_KIB: [usize; 10] = [16, 32, 128, 512, 1024, 2048, 4096, 16384, 65536, 196_608];

/// Bytes to read at each size, at least.
const READ_BYTES: usize = 32 << 20;

/// Measurements of which the best counts.
const TRIALS: usize = 4;

/// Jobs and meetings to time.
const TIMES: u32 = 200;

impl Limits {
    /// Measures a worker of so many threads.
    ///
    /// # Errors
    /// Where the machine lacks the instructions.
    pub fn measure(isa: Isa, threads: usize) -> Result<Self, KernelError> {
        let mut group = ThreadGroup::new("limits", threads, |_| {})
            .map_err(|_| KernelError::IsaUnavailable(isa))?;
        let alone =
            bandwidths(isa, &mut ThreadGroup::new("limits", 1, |_| {}).expect("this thread"));
        let together = if threads > 1 { bandwidths(isa, &mut group) } else { alone.clone() };
        let fork_ns = -best(TRIALS, || {
            let start = Instant::now();
            for _ in 0..TIMES {
                group.run(&|_| {});
            }
            -(start.elapsed().as_nanos() as f64) / f64::from(TIMES)
        });
        let meet_ns = -best(TRIALS, || {
            let start = Instant::now();
            group.run(&|member| {
                for _ in 0..TIMES {
                    member.share(member.members(), |_| {});
                }
            });
            -(start.elapsed().as_nanos() as f64) / f64::from(TIMES)
        });
        Ok(Self { alone, together, fork_ns, meet_ns })
    }

    /// Floating-point operations (of bytes: operations) a nanosecond of a thread, by the instruction
    /// that products in a packing's precision are made of.
    ///
    /// # Errors
    /// Where the machine lacks the instructions.
    pub fn flops(packing: Packing) -> Result<f64, KernelError> {
        let _ = peaks::products(packing, 1)?;
        Ok(best(TRIALS, || {
            let start = Instant::now();
            let operations = peaks::products(packing, 20_000).unwrap_or(0);
            operations as f64 / start.elapsed().as_nanos() as f64
        }))
    }

    /// Bytes a nanosecond for a thread whose weights have so many bytes, alone or as one of all.
    pub fn bandwidth(&self, bytes: f64, together: bool) -> f64 {
        let known = if together { &self.together } else { &self.alone };
        let after = known.partition_point(|&(size, _)| size < bytes);
        match (after.checked_sub(1).map(|before| known[before]), known.get(after)) {
            (Some((a, of_a)), Some(&(b, of_b))) => {
                let share = (bytes / a).ln() / (b / a).ln();
                of_a + (of_b - of_a) * share
            }
            (Some((_, known)), None) | (None, Some(&(_, known))) => known,
            (None, None) => f64::INFINITY,
        }
    }
}

/// The largest of several measurements.
fn best(trials: usize, mut measure: impl FnMut() -> f64) -> f64 {
    (0..trials).map(|_| measure()).fold(f64::NEG_INFINITY, f64::max)
}

/// Of each thread, by size of memory.
fn bandwidths(isa: Isa, group: &mut ThreadGroup) -> Vec<(f64, f64)> {
    let members = group.threads();
    let largest = SIZES_KIB[SIZES_KIB.len() - 1] << 10;
    // Written, so that it is there, and of whole lines, as weights are.
    let fill = |_| {
        let mut lines = Lines::zeros(largest / 4);
        lines.as_mut_slice().fill(1.0);
        lines
    };
    let memory: Vec<Lines> = (0..members).map(fill).collect();
    let of_size = |kib: usize| {
        let bytes = kib << 10;
        let turns = (READ_BYTES / bytes).max(1);
        let rate = best(TRIALS, || {
            let slowest_ns = AtomicU64::new(0);
            group.run(&|member| {
                let own = &memory[member.number()].as_slice()[..bytes / 4];
                let start = Instant::now();
                for _ in 0..turns {
                    // The instructions are there: the group would not have been asked for.
                    let _ = peaks::read_sweep(isa, own);
                }
                slowest_ns.fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            });
            (turns * bytes) as f64 / slowest_ns.into_inner() as f64
        });
        (bytes as f64, rate)
    };
    SIZES_KIB.into_iter().map(of_size).collect()
}
