//! A model of this machine, measured in about a second: the bytes a second from each level of the memory and
//! between threads, and the times to start threads and to synchronise them.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use batchmaker_kernels::{Isa, KernelError, Lines, Packing, peaks};

use crate::threads::thread_group::ThreadGroup;

/// The machine as one worker sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineModel {
    /// `(size, rate)`: a thread that reads memory of `size` bytes over and over, while no other does, reads `rate`
    /// bytes a nanosecond; sizes ascending.
    pub alone: Vec<(f64, f64)>,
    /// The same for each thread, while all read memory of their own.
    pub together: Vec<(f64, f64)>,
    /// `(size, rate)`: each thread writes `rate` bytes a nanosecond to memory of `size` bytes that another read
    /// last, while all do so.
    pub written: Vec<(f64, f64)>,
    /// The same for reading memory that another wrote.
    pub foreign: Vec<(f64, f64)>,
    /// Nanoseconds to start all threads on a job and to see them end it: an empty fork.
    pub fork_ns: f64,
    /// Nanoseconds for all threads to synchronise within a job: a barrier.
    pub barrier_ns: f64,
}

/// Sizes of memory to read, in KiB: within and between the caches of processors of the last years.
const SIZES_KIB: [usize; 12] =
    [16, 32, 128, 512, 1024, 1536, 2048, 3072, 4096, 16384, 65536, 196_608];

/// Sizes of memory that threads exchange, in KiB.
const EXCHANGED_KIB: [usize; 6] = [16, 64, 256, 1024, 2048, 4096];

/// Bytes to read at each size, at least.
const READ_BYTES: usize = 32 << 20;

/// The number of measurements of which the best counts.
const TRIALS: usize = 4;

/// The number of forks or barriers that are timed at once, and the number of such measurements: a thread
/// that is delayed makes them long, and one that does the other's part as well makes them short.
const TIMES: u32 = 100;
const TURNS: usize = 41;

impl MachineModel {
    /// Measures the machine for a worker of `threads` threads.
    ///
    /// # Errors
    /// If the machine lacks the instructions.
    pub fn measure(isa: Isa, threads: usize) -> Result<Self, KernelError> {
        let mut group =
            ThreadGroup::new("machine", threads).map_err(|_| KernelError::IsaUnavailable(isa))?;
        let alone = bandwidths(isa, &mut ThreadGroup::new("machine", 1).expect("this thread"));
        let together = if threads > 1 { bandwidths(isa, &mut group) } else { alone.clone() };
        let fork_ns = median_ns(|| {
            for _ in 0..TIMES {
                group.run(&|_| {});
            }
        });
        let barrier_ns = median_ns(|| {
            group.run(&|member| {
                for _ in 0..TIMES {
                    member.run_phase(member.members(), |_| {});
                }
            });
        });
        let (written, foreign) = exchanges(isa, &mut group);
        Ok(Self { alone, together, written, foreign, fork_ns, barrier_ns })
    }

    /// Floating-point operations (of bytes: operations) a nanosecond of a thread, by the instruction
    /// that products in a packing's precision are made of.
    ///
    /// # Errors
    /// If the machine lacks the instructions.
    pub fn flops(packing: Packing) -> Result<f64, KernelError> {
        let _ = peaks::products(packing, 1)?;
        Ok(best(TRIALS, || {
            let start = Instant::now();
            let operations = peaks::products(packing, 20_000).unwrap_or(0);
            operations as f64 / start.elapsed().as_nanos() as f64
        }))
    }

    /// The bytes a nanosecond that a thread reads of weights of `bytes` bytes, alone or together with all others.
    pub fn bandwidth(&self, bytes: f64, together: bool) -> f64 {
        rate(if together { &self.together } else { &self.alone }, bytes)
    }

    /// Nanoseconds for a thread to write `bytes` bytes that another read last.
    pub fn write_ns(&self, bytes: f64) -> f64 {
        bytes / rate(&self.written, bytes)
    }

    /// Nanoseconds for a thread to read `bytes` bytes that another wrote.
    pub fn read_foreign_ns(&self, bytes: f64) -> f64 {
        bytes / rate(&self.foreign, bytes)
    }
}

/// The rate for a size of `bytes` bytes, interpolated between those of smaller and of larger ones.
fn rate(known: &[(f64, f64)], bytes: f64) -> f64 {
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

/// The largest of several measurements.
fn best(trials: usize, mut measure: impl FnMut() -> f64) -> f64 {
    (0..trials).map(|_| measure()).fold(f64::NEG_INFINITY, f64::max)
}

/// The median time of one of the [`TIMES`] repetitions that `all` runs.
fn median_ns(mut all: impl FnMut()) -> f64 {
    let mut ns = [(); TURNS].map(|()| {
        let start = Instant::now();
        all();
        start.elapsed().as_nanos() as f64 / f64::from(TIMES)
    });
    ns.sort_by(f64::total_cmp);
    ns[TURNS / 2]
}

/// The nanoseconds of the slowest thread, where `job` returns how long each took.
fn slowest_ns(group: &mut ThreadGroup, job: impl Fn(usize) -> Duration + Sync) -> f64 {
    let slowest = AtomicU64::new(0);
    group.run(&|member| {
        let ns = job(member.number()).as_nanos() as u64;
        slowest.fetch_max(ns, Ordering::Relaxed);
    });
    slowest.into_inner() as f64
}

/// Rates by size of memory, in bytes; sizes ascending.
type Rates = Vec<(f64, f64)>;

/// The rate at which each thread reads, by size of memory, while all members of the group do.
fn bandwidths(isa: Isa, group: &mut ThreadGroup) -> Rates {
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
            let ns = slowest_ns(group, |number| {
                let own = &memory[number].as_slice()[..bytes / 4];
                let start = Instant::now();
                for _ in 0..turns {
                    // The instructions are there: the group would not have been asked for.
                    let _ = peaks::read_sweep(isa, own);
                }
                start.elapsed()
            });
            (turns * bytes) as f64 / ns
        });
        (bytes as f64, rate)
    };
    SIZES_KIB.into_iter().map(of_size).collect()
}

/// The rates of writing what another thread read, and of reading what it wrote; none for one thread.
fn exchanges(isa: Isa, group: &mut ThreadGroup) -> (Rates, Rates) {
    let members = group.threads();
    if members == 1 {
        return (Vec::new(), Vec::new());
    }
    let largest = (EXCHANGED_KIB[EXCHANGED_KIB.len() - 1] << 10) / size_of::<f32>();
    let memory: Vec<RwLock<Lines>> =
        (0..members).map(|_| RwLock::new(Lines::zeros(largest))).collect();
    let (mut written, mut foreign) = (Vec::new(), Vec::new());
    for kib in EXCHANGED_KIB {
        let (bytes, len) = ((kib << 10) as f64, (kib << 10) / size_of::<f32>());
        let (mut write_ns, mut read_ns) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..2 * TRIALS {
            write_ns = write_ns.min(slowest_ns(group, |number| {
                let mut own = memory[number].write().expect("nobody fails");
                let start = Instant::now();
                own.as_mut_slice()[..len].fill(number as f32);
                start.elapsed()
            }));
            read_ns = read_ns.min(slowest_ns(group, |number| {
                let other = memory[(number + 1) % members].read().expect("nobody fails");
                let start = Instant::now();
                // The instructions are there: the group would not have been asked for.
                let _ = peaks::read_sweep(isa, &other.as_slice()[..len]);
                start.elapsed()
            }));
        }
        written.push((bytes, bytes / write_ns));
        foreign.push((bytes, bytes / read_ns));
    }
    (written, foreign)
}
