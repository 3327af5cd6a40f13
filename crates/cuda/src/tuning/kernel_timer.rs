//! Times persistent kernels on one GPU.

use std::slice;
use std::sync::Arc;

use batchmaker_device::DeviceError;

use super::benchmarks;
use super::clock::{difference_us, failed, time};
use super::fit::fit;
use super::workload::Workload;
use crate::cells::load_persistent;
use crate::config::{Compile, CudaConfig};
use crate::gpu::{GpuError, ResidentKernel};
use crate::kernels::persistent::PersistentKernel;
use crate::mapping::{CostModel, Limits};
use crate::memory::HostPool;
use crate::queue::BLOCKS_WAIT;
use crate::worker::{Worker, limits};

/// Launches before those that are timed.
const WARM_UPS: usize = 2;

/// Launches that are timed; their median counts.
const LAUNCHES: usize = 7;

/// The least time of a step: what is measured of one is the difference of two times, and may be none.
const STEP_US_MIN: f64 = 1e-3;

/// Times persistent kernels on one GPU.
pub struct KernelTimer {
    worker: Arc<Worker>,
    compile: Compile,
}

impl KernelTimer {
    /// A timer on the first GPU of a configuration, whose [`persistent`](CudaConfig::persistent) compiles the kernels.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where the GPU is not there, or the configuration has no compiler.
    pub fn new(config: &CudaConfig) -> Result<Self, DeviceError> {
        let refused = |reason: &str| DeviceError::Resources(reason.to_owned());
        let gpu = *config.gpus.first().ok_or_else(|| refused("no GPU to time kernels on"))?;
        let compile = config.persistent;
        let compile = compile.ok_or_else(|| refused("no compiler of the kernels to time"))?;
        let host_pool = HostPool::new(config.block_bytes == 0);
        Ok(Self::of_worker(Arc::new(Worker::new(0, gpu, config, &host_pool)?), compile))
    }

    /// A timer on the GPU of a worker that has nothing else to do.
    pub(crate) fn of_worker(worker: Arc<Worker>, compile: Compile) -> Self {
        Self { worker, compile }
    }

    /// What bounds mappings on the GPU.
    pub fn limits(&self) -> Limits {
        limits(slice::from_ref(&self.worker))
    }

    /// Microseconds of a step of `rows` rows: the median of some launches of `steps` steps each, less that of as many launches of one step, without the
    /// products of x. None: not all blocks of the kernel's least grid run at a time, or the compiler's registers do not allow it.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where the kernel cannot be compiled, or the GPU has no memory for the rows; [`DeviceError::Lost`] where it fails.
    pub fn step_us(
        &self,
        kernel: PersistentKernel,
        rows: usize,
        steps: u32,
    ) -> Result<Option<f64>, DeviceError> {
        assert!(rows > 0 && steps > 0, "a launch has rows and steps");
        let loaded = load_persistent(kernel, slice::from_ref(&self.worker), self.compile);
        let loaded = loaded.map_err(|error| DeviceError::Resources(error.to_string()))?;
        let Some([resident]) = loaded.as_deref() else { return Ok(None) };
        let us = self.time(kernel, resident, rows, steps).map_err(failed)?;
        us.map(Some).ok_or_else(|| DeviceError::Lost(BLOCKS_WAIT.to_owned()))
    }

    /// The constants of the cost model, from micro-benchmarks on this GPU.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where the benchmarks cannot be compiled, or the GPU has no memory for them; [`DeviceError::Lost`] where it fails.
    pub fn fit(&self) -> Result<CostModel, DeviceError> {
        let times = benchmarks::run(&self.worker, self.compile)?;
        Ok(fit(&times, self.worker.gpu().multiprocessors))
    }

    /// Times a kernel; none if blocks have waited for one another in vain.
    fn time(
        &self,
        kernel: PersistentKernel,
        resident: &ResidentKernel,
        rows: usize,
        steps: u32,
    ) -> Result<Option<f64>, GpuError> {
        let mut workload = Workload::new(&self.worker, kernel, rows, steps)?;
        // The weights are loaded in launches of few steps, too.
        let few = steps.min(2) - 1;
        let us = difference_us([steps, few], [WARM_UPS, LAUNCHES], |steps| {
            time(&self.worker.stream, || workload.launch(resident, steps))
        })?;
        let step_us = (us / f64::from(steps - few)).max(STEP_US_MIN);
        Ok((!workload.is_stuck()?).then_some(step_us))
    }
}
