//! Starting an engine on this machine's cores.

use std::thread::available_parallelism;

use anyhow::bail;
use batchmaker_cpu::{CpuConfig, CpuDevice, Isa, ProjectionAhead};
use batchmaker_device::DeviceError;
use batchmaker_engine::{Engine, EngineConfig, Policy};

use crate::args::MachineArgs;
use crate::models::Loaded;

/// What an engine runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) workers: u16,
    pub(crate) threads_per_worker: usize,
    pub(crate) isa: Isa,
}

impl Machine {
    /// Checks the arguments against this machine.
    pub(crate) fn new(args: &MachineArgs) -> anyhow::Result<Self> {
        let cores = available_parallelism()?.get();
        let workers = usize::from(args.workers);
        if workers > cores {
            bail!("{workers} workers on {cores} cores: use --workers {cores} or fewer");
        }
        let threads_per_worker = match args.threads_per_worker {
            Some(threads) => usize::from(threads),
            None => cores / workers,
        };
        if workers * threads_per_worker > cores {
            bail!(
                "{workers} workers of {threads_per_worker} threads on {cores} cores: use \
                 --threads-per-worker {} or fewer",
                cores / workers
            );
        }
        let isa = args.isa.unwrap_or_else(Isa::best);
        Ok(Self { workers: args.workers, threads_per_worker, isa })
    }
}

/// The device that an engine on this machine computes with.
pub(crate) fn device(machine: Machine) -> Result<CpuDevice, DeviceError> {
    CpuDevice::new(CpuConfig {
        projection_ahead: ProjectionAhead::Measured,
        threads_per_worker: machine.threads_per_worker,
        isa: machine.isa,
        pin_threads: true,
    })
}

/// How much may be in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

/// Starts an engine for `loaded`.
pub(crate) fn start(
    loaded: Loaded,
    machine: Machine,
    args: &MachineArgs,
    policy: Policy,
    limits: Limits,
) -> anyhow::Result<Engine> {
    let device = device(machine)?;
    let config = EngineConfig {
        workers: machine.workers,
        policy,
        max_tasks_to_submit: args.max_tasks_to_submit,
        max_requests: limits.requests,
        max_bytes: limits.bytes,
    };
    Ok(Engine::start(loaded.models, &loaded.registry, device, &config)?)
}
