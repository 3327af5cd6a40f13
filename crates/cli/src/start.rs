//! Starts an engine from the arguments of a command.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use batchmaker::{Engine, EngineBuilder, Fairness, Policy, Prepared, StageStarts};
use batchmaker_server::log;

use crate::args::{CellArgs, MachineArgs};
use crate::device_args::DeviceArgs;
use crate::executor::executor;
use crate::models::{add, explain};
use crate::scoped::OfModel;

/// The bounds of the work in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) requests: usize,
    pub(crate) requests_per_model: Option<usize>,
    /// None: the library's default.
    pub(crate) bytes: Option<usize>,
    pub(crate) memory_wait: Duration,
    pub(crate) sessions: usize,
    pub(crate) session_idle: Duration,
    /// The time for which a worker's device may have work and report nothing.
    pub(crate) hung_after: Duration,
}

impl Limits {
    /// The limits of an engine that serves the requests of this process alone.
    pub(crate) fn of_own(requests: usize) -> Self {
        Self {
            requests,
            requests_per_model: Some(requests),
            bytes: Some(usize::MAX),
            memory_wait: Duration::MAX,
            sessions: usize::MAX,
            session_idle: Duration::MAX,
            hung_after: Duration::MAX,
        }
    }
}

/// Loads the models that `paths` name, for an engine as the arguments describe it.
pub(crate) fn prepare(
    paths: &[PathBuf],
    args: &MachineArgs,
    policies: &[OfModel<Policy>],
    fairness: Fairness,
    limits: Limits,
) -> anyhow::Result<Prepared> {
    let mut builder = add(builder(args), paths, &args.cells).goal(args.goal);
    for (at, OfModel { model, value }) in policies.iter().enumerate() {
        if policies[..at].iter().any(|before| before.model == *model) {
            let whom = model.as_deref().unwrap_or("all models");
            bail!("two policies are given for {whom}: say MODEL=POLICY for one model's own");
        }
        builder = builder.policy(model.as_deref(), *value);
    }
    builder = builder.fairness(fairness).executor(executor(&args.executor)?);
    if let Some(profile) = &args.profile {
        builder = builder.profile(profile);
    }
    let prepared = bounded(builder, limits).load().map_err(explain)?;
    print_notes(&prepared);
    Ok(prepared)
}

/// Loads models and ignores their profiles.
pub(crate) fn prepare_plainly(
    paths: &[PathBuf],
    args: &MachineArgs,
    cells: &CellArgs,
    stages: StageStarts,
) -> anyhow::Result<Prepared> {
    let limits = Limits::of_own(usize::MAX);
    let builder = add(builder(args), paths, cells).stages(stages).without_profiles();
    bounded(builder, limits).load().map_err(explain)
}

/// Starts an engine. Each of its models has answered once.
pub(crate) fn start(prepared: Prepared) -> anyhow::Result<Engine> {
    prepared.start().map_err(explain)
}

fn bounded(mut builder: EngineBuilder, limits: Limits) -> EngineBuilder {
    if let Some(requests) = limits.requests_per_model {
        builder = builder.max_requests_per_model(requests);
    }
    if let Some(bytes) = limits.bytes {
        builder = builder.max_memory_bytes(bytes);
    }
    builder
        .max_requests(limits.requests)
        .memory_wait(limits.memory_wait)
        .sessions(limits.sessions, limits.session_idle)
        .hung_after(limits.hung_after)
}

fn builder(args: &MachineArgs) -> EngineBuilder {
    let DeviceArgs { device, gpu_kernels } = args.device.clone();
    let (processors, refused) = device.decided();
    if let Some(reason) = refused {
        eprintln!("note: a GPU is not used: {reason}");
    }
    let mut builder =
        Engine::builder().max_tasks_to_submit(args.max_tasks_to_submit).processors(processors);
    builder = builder.gpu_kernels(gpu_kernels);
    if let Some(workers) = args.workers {
        builder = builder.workers(workers);
    }
    if let Some(threads) = args.threads_per_worker {
        builder = builder.threads_per_worker(usize::from(threads));
    }
    if let Some(isa) = args.isa {
        builder = builder.isa(isa);
    }
    builder
}

/// Prints on standard error what the owner of the models may want to know.
pub(crate) fn print_notes(prepared: &Prepared) {
    prepared.notes().iter().for_each(|note| log(&format!("note: {note}")));
}
