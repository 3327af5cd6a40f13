//! Which processors compute, and with which kernels.

use batchmaker::{GpuKernels, Processors};

/// The processors that compute.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct DeviceArgs {
    /// The processors that compute: cpu; cuda, all NVIDIA GPUs; cuda:0,1, some of them; or auto, all GPUs that can be used and
    /// the cores otherwise. A GPU has one worker
    #[arg(long, value_name = "DEVICE", default_value_t = Processors::Cpu)]
    pub(crate) device: Processors,

    /// The kernels of recurrent cells on GPUs: shared, by all cells; persistent, made for each cell, whose weights stay on the chip for all steps
    /// of a task; or quanta, the same for many tasks. The last two take NVIDIA's compiler library NVRTC, and no GPU has run them yet
    #[arg(long, value_name = "KERNELS", default_value_t = GpuKernels::Shared)]
    pub(crate) gpu_kernels: GpuKernels,
}
