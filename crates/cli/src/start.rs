//! Starting an engine on this machine's cores.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::bail;
use batchmaker_cpu::{CpuConfig, CpuDevice, Isa, ProjectionAhead};
use batchmaker_device::DeviceError;
use batchmaker_engine::{Engine, EngineConfig, Policy};
use batchmaker_graph::{CellRegistry, ModelId};

use crate::args::MachineArgs;
use crate::models::Loaded;
use crate::trial;

/// Cells whose weights are larger, and models whose cells' are, keep all cores busy together: with
/// few requests, a core of its own for each worker would read them twice. Smaller ones are faster
/// without meetings.
const CELL_OF_ONE_CORE_BYTES: usize = 16 << 20;
const MODEL_OF_ONE_CORE_BYTES: usize = 24 << 20;

/// What the arguments say of workers and threads, checked against this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    cores: usize,
    workers: Option<u16>,
    threads_per_worker: Option<usize>,
    isa: Isa,
}

/// What an engine runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) workers: u16,
    pub(crate) threads_per_worker: usize,
    pub(crate) isa: Isa,
}

impl Cores {
    /// Checks the arguments.
    pub(crate) fn new(args: &MachineArgs) -> anyhow::Result<Self> {
        let cores = available_parallelism()?.get();
        let workers = args.workers.map_or(1, usize::from);
        if workers > cores {
            bail!("{workers} workers on {cores} cores: use --workers {cores} or fewer");
        }
        let threads_per_worker = args.threads_per_worker.map(usize::from);
        if let Some(threads) = threads_per_worker.filter(|&threads| workers * threads > cores) {
            bail!(
                "{workers} workers of {threads} threads on {cores} cores: use \
                 --threads-per-worker {} or fewer",
                cores / workers
            );
        }
        let isa = args.isa.unwrap_or_else(Isa::best);
        Ok(Self { cores, workers: args.workers, threads_per_worker, isa })
    }

    /// Makes a device with the instruction set of the engine's, and one thread, as the number of threads
    /// depends on cells that are not loaded yet. It serves to identify the machine and to check plans.
    pub(crate) fn device(self) -> Result<CpuDevice, DeviceError> {
        device(Machine { workers: 1, threads_per_worker: 1, isa: self.isa })
    }

    /// Shares the cores out for the cells of loaded models.
    pub(crate) fn machine(self, cells: &CellRegistry) -> Machine {
        let mut of_models: BTreeMap<ModelId, usize> = BTreeMap::new();
        let mut is_small = true;
        for cell in cells.cell_types() {
            let weights = cell.cell.weight_bytes();
            is_small &= weights <= CELL_OF_ONE_CORE_BYTES;
            for rank in &cell.priorities {
                *of_models.entry(rank.model).or_default() += weights;
            }
        }
        is_small &= of_models.values().all(|&weights| weights <= MODEL_OF_ONE_CORE_BYTES);
        let workers_max = match is_small {
            // As many as the arguments allow.
            true => u16::try_from(self.cores).unwrap_or(u16::MAX).min(MachineArgs::WORKERS_MAX),
            false => 1,
        };
        let workers = self.workers.unwrap_or_else(|| match self.threads_per_worker {
            None => workers_max,
            Some(threads) => workers_max.min((self.cores / threads) as u16).max(1),
        });
        let shared_out = self.cores / usize::from(workers);
        let threads_per_worker = self.threads_per_worker.unwrap_or(shared_out);
        Machine { workers, threads_per_worker, isa: self.isa }
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
    pub(crate) sessions: usize,
    pub(crate) session_idle: Duration,
}

impl Limits {
    /// For the requests of this process alone.
    pub(crate) fn of_own(requests: usize) -> Self {
        Self { requests, bytes: usize::MAX, sessions: usize::MAX, session_idle: Duration::MAX }
    }
}

/// Starts an engine for `loaded`, each of whose models has answered once.
pub(crate) fn start(
    loaded: Loaded,
    machine: Machine,
    args: &MachineArgs,
    policy: Policy,
    limits: Limits,
) -> anyhow::Result<Engine> {
    loaded.profiles.tell_of_threads(&loaded.registry, machine.threads_per_worker);
    let device = device(machine)?;
    loaded.profiles.plan(&loaded.registry, &device)?;
    let config = EngineConfig {
        workers: machine.workers,
        policy,
        max_tasks_to_submit: args.max_tasks_to_submit,
        submission_window: loaded.submission_window,
        max_requests: limits.requests,
        max_bytes: limits.bytes,
        max_sessions: limits.sessions,
        session_idle: limits.session_idle,
    };
    let engine = Engine::start(loaded.models, &loaded.registry, Arc::new(device), &config)?;
    trial::ask_all(&engine)?;
    Ok(engine)
}
