//! Divides this machine among the workers of an engine: its cores, or a GPU for each with the cores for what the host computes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::available_parallelism;

use batchmaker_cpu::{CpuConfig, CpuDevice, Executor, InputProjection, Isa};
use batchmaker_cuda::{Compile, CudaConfig, CudaDevice, Quantum, nvrtc};
use batchmaker_device::{Device, DeviceError};
use batchmaker_graph::{CellRegistry, CellType, ModelId};

use crate::error::BuildError;
use crate::processors::{GpuKernels, Gpus, Processors};

/// The most workers of an engine.
pub const WORKERS_MAX: u16 = 64;

/// Cells whose weights are larger, and models whose cells' are, keep all cores busy together: with
/// few requests, a core of its own for each worker would read them twice at every step. Smaller ones are faster
/// without barriers. Row-wise cells do not count: they read their weights once for all steps, and long ones take the cores of idle
/// workers.
const CELL_OF_ONE_CORE_BYTES: usize = 16 << 20;
const MODEL_OF_ONE_CORE_BYTES: usize = 24 << 20;

/// The cores of this machine, and how many workers and threads are wanted on them.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    cores: usize,
    workers: Option<u16>,
    threads_per_worker: Option<usize>,
    isa: Isa,
    gpus: Option<Gpus>,
}

/// The workers and threads of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The workers; each runs batches of its own.
    pub workers: u16,
    /// The threads of each worker.
    pub threads_per_worker: usize,
    /// The instruction set of the kernels.
    pub isa: Isa,
    /// The GPUs, one of each worker; none where workers compute on their threads.
    pub gpus: Option<Gpus>,
}

impl Cores {
    /// Checks what is wanted against this machine. None leaves the choice to the models that are loaded:
    /// their sizes decide.
    ///
    /// # Errors
    /// There are fewer cores, or GPUs are wanted that are not there, or a number of workers for them.
    pub fn new(
        workers: Option<u16>,
        threads_per_worker: Option<usize>,
        isa: Option<Isa>,
        processors: &Processors,
    ) -> Result<Self, BuildError> {
        let gpus = processors.gpus()?;
        if gpus.is_some() && workers.is_some() {
            return Err(BuildError::WorkersOfGpus);
        }
        let cores = available_parallelism().map_err(BuildError::NoCores)?.get();
        let of_gpus = gpus.map(|gpus| gpus.count().into());
        let wanted: usize = of_gpus.or(workers.map(usize::from)).unwrap_or(1);
        let threads = threads_per_worker.unwrap_or(1);
        if wanted * threads > cores {
            return Err(BuildError::Cores { workers: wanted, threads, cores });
        }
        let isa = isa.unwrap_or_else(Isa::best);
        Ok(Self { cores, workers, threads_per_worker, isa, gpus })
    }

    /// The same with these kernels of recurrent cells on its GPUs.
    pub fn with_gpu_kernels(mut self, kernels: GpuKernels) -> Self {
        if let Some(gpus) = &mut self.gpus {
            gpus.kernels = kernels;
        }
        self
    }

    /// A device with the instruction set of the engine's, and one thread, as the number of threads
    /// depends on cells that are not loaded yet. It serves to identify the machine and to check plans.
    ///
    /// # Errors
    /// The system gives no threads, or the driver no GPU.
    pub fn device(self) -> Result<Arc<dyn Device>, DeviceError> {
        Machine { workers: 1, threads_per_worker: 1, isa: self.isa, gpus: self.gpus }.device()
    }

    /// Divides the cores among workers, by the sizes of the loaded models' cells that run step by step, or of all if `executor` takes a copy
    /// of their weights for each worker.
    pub fn machine(self, cells: &CellRegistry, executor: &Executor) -> Machine {
        if let Some(gpus) = self.gpus {
            let workers = gpus.count();
            let shared_out = (self.cores / usize::from(workers)).max(1);
            let threads_per_worker = self.threads_per_worker.unwrap_or(shared_out);
            return Machine { workers, threads_per_worker, isa: self.isa, gpus: self.gpus };
        }
        let mut of_models: BTreeMap<ModelId, usize> = BTreeMap::new();
        let mut is_small = true;
        let has_copies = !matches!(executor, Executor::Own);
        let counts = |cell: &&CellType| cell.is_stepped() || has_copies;
        for cell in cells.cell_types().iter().filter(counts) {
            let weights = cell.cell.weight_bytes();
            is_small &= weights <= CELL_OF_ONE_CORE_BYTES;
            for rank in &cell.priorities {
                *of_models.entry(rank.model).or_default() += weights;
            }
        }
        is_small &= of_models.values().all(|&weights| weights <= MODEL_OF_ONE_CORE_BYTES);
        let workers_max = match is_small {
            true => u16::try_from(self.cores).unwrap_or(u16::MAX).min(WORKERS_MAX),
            false => 1,
        };
        let workers = self.workers.unwrap_or_else(|| match self.threads_per_worker {
            None => workers_max,
            Some(threads) => workers_max.min((self.cores / threads) as u16).max(1),
        });
        let shared_out = self.cores / usize::from(workers);
        let threads_per_worker = self.threads_per_worker.unwrap_or(shared_out);
        Machine { workers, threads_per_worker, isa: self.isa, gpus: None }
    }
}

impl Machine {
    /// A device with these workers and threads.
    ///
    /// # Errors
    /// The system gives no threads, or the driver no GPU.
    pub fn device(self) -> Result<Arc<dyn Device>, DeviceError> {
        self.device_within(usize::MAX, Executor::Own)
    }

    /// The executor of programs with as many sessions and threads as there are workers and threads of each.
    pub fn executor(self, executor: Executor) -> Executor {
        match executor {
            Executor::Own => Executor::Own,
            Executor::OnnxRuntime(runtime) => {
                let runtime = runtime.with_sessions(self.workers.into());
                Executor::OnnxRuntime(runtime.with_threads(self.threads_per_worker))
            }
        }
    }

    /// The device that an engine with these workers and threads computes with: on the cores, batches of all workers together take at
    /// most half of `bytes`, and `executor` runs programs, on the threads of a worker.
    ///
    /// # Errors
    /// The system gives no threads, or the driver no GPU; GPUs take programs of this project's own executor alone.
    pub fn device_within(
        self,
        bytes: usize,
        executor: Executor,
    ) -> Result<Arc<dyn Device>, DeviceError> {
        if let Some(gpus) = self.gpus {
            if !matches!(executor, Executor::Own) {
                let reason = "beside GPUs, programs run in the executor of this project alone";
                return Err(DeviceError::Resources(reason.to_owned()));
            }
            return Ok(Arc::new(CudaDevice::new(CudaConfig {
                gpus: gpus.numbers().collect(),
                program_threads: self.threads_per_worker,
                persistent: (gpus.kernels != GpuKernels::Shared).then_some(nvrtc as Compile),
                quantum: (gpus.kernels == GpuKernels::Quanta).then(Quantum::default),
                ..CudaConfig::default()
            })?));
        }
        let of_worker = (bytes / 2 / usize::from(self.workers)) as u64;
        let batch_bytes_max = of_worker.min(CpuConfig::default().batch_bytes_max);
        Ok(Arc::new(CpuDevice::new(CpuConfig {
            workers: self.workers.into(),
            batch_bytes_max,
            executor: self.executor(executor),
            input_projection: InputProjection::Measured,
            threads_per_worker: self.threads_per_worker,
            isa: self.isa,
            pin_threads: true,
        })?))
    }
}
