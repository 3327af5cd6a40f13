//! Micro-benchmarks of what the cost model counts, on one multiprocessor: products with few warps and gate rows and with many, shuffles, loads from the L2 cache.

use std::sync::Arc;
use std::time::Duration;

use batchmaker_device::DeviceError;

use super::clock::{difference_us, failed, time};
use super::fit::{Sample, Times};
use crate::config::Compile;
use crate::gpu::{Allocation, GpuError, ResidentKernel};
use crate::kernels::benchmarks::{Benchmark, BenchmarkArguments, NUMBERS, THREADS_MAX};
use crate::mapping::CostModel;
use crate::worker::Worker;

/// Warps of a scheduler, and gate rows or sums of a thread, that are measured together.
pub(super) struct Grid {
    warps: &'static [usize],
    each: &'static [usize],
}

/// Of products: up to as many threads as a block has.
pub(super) const PRODUCTS: Grid = Grid { warps: &[1, 2, 4, 8], each: &Benchmark::COUNTS };

/// Of shuffles: those of more warps overlap as those of more sums do.
pub(super) const SHUFFLES: Grid = Grid { warps: &[1, 2, 4], each: &Benchmark::COUNTS };

impl Grid {
    /// Warps of a scheduler, with gate rows or sums of a thread.
    pub(super) fn pairs(&self) -> Vec<(usize, usize)> {
        let of_warps = |&warps: &usize| self.each.iter().map(move |&each| (warps, each));
        self.warps.iter().flat_map(of_warps).collect()
    }
}

/// The least time of a launch: the clock of the host and the launch itself take some microseconds.
const LAUNCH_MIN: Duration = Duration::from_micros(300);

/// Launches that are timed; their median counts.
const LAUNCHES: usize = 5;

/// The least time of a round in microseconds: what is measured of one is the difference of two times, and may be none.
const ROUND_US_MIN: f64 = 1e-6;

/// Runs the benchmarks on the GPU of a worker that has nothing else to do.
pub(super) fn run(worker: &Arc<Worker>, compile: Compile) -> Result<Times, DeviceError> {
    let image = compile(&Benchmark::source(), worker.gpu().architecture);
    let image = image.map_err(DeviceError::Resources)?;
    let runs = Benchmarks::new(worker, image).map_err(failed)?;
    runs.all().map_err(failed)
}

struct Benchmarks<'a> {
    worker: &'a Arc<Worker>,
    image: Vec<u8>,
    numbers: Allocation,
    results: Allocation,
}

impl<'a> Benchmarks<'a> {
    fn new(worker: &'a Arc<Worker>, image: Vec<u8>) -> Result<Self, GpuError> {
        let [numbers, results] = [NUMBERS, THREADS_MAX].map(|of| worker.pool.allocate(4 * of));
        let (numbers, results) = (numbers?, results?);
        worker.stream.clear(numbers.at(), 4 * NUMBERS)?;
        Ok(Self { worker, image, numbers, results })
    }

    fn all(&self) -> Result<Times, GpuError> {
        let samples = |grid: &Grid, kernel: fn(usize) -> Benchmark| {
            let sample = |(warps, each): (usize, usize)| {
                let threads = 32 * CostModel::TITAN_V.schedulers * warps;
                Ok(Sample { warps, each, us: self.unit_us(kernel(each), threads)? })
            };
            grid.pairs().into_iter().map(sample).collect::<Result<_, GpuError>>()
        };
        Ok(Times {
            products: samples(&PRODUCTS, Benchmark::Products)?,
            shuffles: samples(&SHUFFLES, Benchmark::Shuffles)?,
            byte_us: self.unit_us(Benchmark::Loads, THREADS_MAX)?,
        })
    }

    /// Microseconds of one of [`Benchmark::units`].
    fn unit_us(&self, kernel: Benchmark, threads: usize) -> Result<f64, GpuError> {
        let threads = threads as u32;
        let resident =
            ResidentKernel::load(self.worker.gpu(), &self.image, &kernel.name(), threads, 0)?;
        let time =
            |rounds: u32| time(&self.worker.stream, || self.launch(&resident, threads, rounds));
        let mut rounds = 1;
        while time(rounds)? < LAUNCH_MIN {
            rounds *= 2;
        }
        let us = difference_us([2 * rounds, rounds], [0, LAUNCHES], time)?;
        Ok((us / f64::from(rounds)).max(ROUND_US_MIN) / kernel.units() as f64)
    }

    /// Launches one block.
    fn launch(&self, resident: &ResidentKernel, threads: u32, rounds: u32) -> Result<(), GpuError> {
        let (numbers, results) = (self.numbers.at(), self.results.at());
        let arguments = BenchmarkArguments { numbers, results, rounds, padding: 0 };
        self.worker.stream.launch_resident(resident, [[1; 3], [threads, 1, 1]], &arguments)
    }
}
