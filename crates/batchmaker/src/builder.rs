//! Builds an engine: which models, on which cores, within which limits.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use batchmaker_cpu::{Executor, Isa};
use batchmaker_device::Device;
use batchmaker_engine::EngineConfig;
use batchmaker_graph::Precision;
use batchmaker_manager::Policy;
use batchmaker_model::StageStarts;
use batchmaker_profile::Goal;

use crate::available_memory::available_bytes;
use crate::custom::CustomModel;
use crate::engine::Engine;
use crate::error::BuildError;
use crate::fairness::Fairness;
use crate::loading::{CellOptions, EmbeddedModel, Loaded, ProfileChoice, Source, load};
use crate::machine::{Cores, Machine};
use crate::processors::{GpuKernels, Processors};
use crate::trial;

/// Builds an [`Engine`].
///
/// ```
/// # fn main() -> Result<(), batchmaker::BuildError> {
/// # let tagger = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/vectors/tagger.onnx");
/// let engine = batchmaker::Engine::builder()
///     .model(tagger)
///     .workers(1)
///     .max_requests(10_000)
///     .build()?;
/// assert_eq!(engine.models()[0].name, "tagger");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct EngineBuilder {
    sources: Vec<Source>,
    cells: CellOptions,
    profile: Option<PathBuf>,
    uses_profiles: bool,
    goal: Goal,
    workers: Option<u16>,
    threads_per_worker: Option<usize>,
    isa: Option<Isa>,
    processors: Processors,
    gpu_kernels: GpuKernels,
    executor: Executor,
    max_memory_bytes: Option<usize>,
    fairness: Fairness,
    config: EngineConfig,
}

/// Models that are loaded, with the configuration of the engine that is to serve them.
#[derive(Debug)]
pub struct Prepared {
    /// The models.
    pub loaded: Loaded,
    /// The workers and threads that the engine will have.
    pub machine: Machine,
    executor: Executor,
    config: EngineConfig,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            cells: CellOptions::default(),
            profile: None,
            uses_profiles: true,
            goal: Goal::default(),
            workers: None,
            threads_per_worker: None,
            isa: None,
            processors: Processors::default(),
            gpu_kernels: GpuKernels::default(),
            executor: Executor::Own,
            max_memory_bytes: None,
            fairness: Fairness::default(),
            config: EngineConfig::default(),
        }
    }
}

impl Engine {
    /// A builder without models.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }
}

impl EngineBuilder {
    /// The most tasks that are formed for a worker at a time, unless
    /// [`max_tasks_to_submit`](Self::max_tasks_to_submit) sets another number.
    pub const MAX_TASKS_TO_SUBMIT: u32 = batchmaker_manager::Config::MAX_TASKS_TO_SUBMIT;

    /// Adds the models at a path: an ONNX file, a model directory, or a folder of these.
    pub fn model(mut self, path: impl Into<PathBuf>) -> Self {
        self.sources.push(Source::Path(path.into()));
        self
    }

    /// Adds a model that is compiled into the program.
    pub fn embedded_model(mut self, model: EmbeddedModel) -> Self {
        self.sources.push(Source::Embedded(model));
        self
    }

    /// Adds a model with an unfolding function of the program's own.
    pub fn custom_model(mut self, model: CustomModel) -> Self {
        self.sources.push(Source::Custom(model));
        self
    }

    /// Sets the number of workers, each of which runs batches of its own. Without it, the sizes of the
    /// models and the cores decide.
    pub fn workers(mut self, workers: u16) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Sets the number of threads of each worker. Without it, the workers share out the cores.
    pub fn threads_per_worker(mut self, threads: usize) -> Self {
        self.threads_per_worker = Some(threads);
        self
    }

    /// Sets the instruction set of the kernels. Without it, the best one of the machine is taken.
    pub fn isa(mut self, isa: Isa) -> Self {
        self.isa = Some(isa);
        self
    }

    /// Sets the processors that compute; the cores without it. A GPU has one worker: [`workers`](Self::workers) are not set then.
    pub fn processors(mut self, processors: Processors) -> Self {
        self.processors = processors;
        self
    }

    /// Sets the kernels of recurrent cells on GPUs; those that all cells share without it. Others take NVIDIA's compiler library, NVRTC.
    pub fn gpu_kernels(mut self, kernels: GpuKernels) -> Self {
        self.gpu_kernels = kernels;
        self
    }

    /// Sets what runs the parts of models that have no fused kernel: this project's own executor, or ONNX Runtime where it takes them.
    pub fn executor(mut self, executor: Executor) -> Self {
        self.executor = executor;
        self
    }

    /// Sets the policy that forms batches of all models (`model` is none), or of one; [`Policy::Cellular`] without it. Models that are not
    /// served in stages ([`Policy::Staged`]) have one policy in common.
    pub fn policy(mut self, model: Option<&str>, policy: Policy) -> Self {
        match model {
            None => self.config.policy = policy,
            Some(model) => drop(self.config.policies.insert(model.to_owned(), policy)),
        }
        self
    }

    /// Sets the rules by which models and requests share the workers; [`Fairness::default`] without it.
    pub fn fairness(mut self, rules: Fairness) -> Self {
        self.fairness = rules;
        self
    }

    /// Sets the most rows of a batch of all cells (`cell` is none) or of one.
    pub fn max_batch_size(mut self, cell: Option<&str>, rows: u32) -> Self {
        set(&mut self.cells.max_batch_size, cell, rows);
        self
    }

    /// Sets the precision of the weights of all cells that multiply with weights (`cell` is none) or of one.
    pub fn precision(mut self, cell: Option<&str>, precision: Precision) -> Self {
        set(&mut self.cells.precision, cell, precision);
        self
    }

    /// Names the file of profiles for all models. Without it, each model's `profile.json` is taken, if
    /// there is one.
    pub fn profile(mut self, path: impl Into<PathBuf>) -> Self {
        self.profile = Some(path.into());
        self
    }

    /// Sets how models without recurrence are cut into stages. Without it, they are one stage, or for [`Policy::Staged`] cut as their
    /// profiles say.
    pub fn stages(mut self, stages: StageStarts) -> Self {
        self.cells.stages = Some(stages);
        self
    }

    /// Ignores all profiles.
    pub fn without_profiles(mut self) -> Self {
        self.uses_profiles = false;
        self
    }

    /// Sets what profiles choose batch limits for; throughput without it.
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = goal;
        self
    }

    /// Sets the most tasks that are formed for a worker at a time (`MaxTasksToSubmit` in the BatchMaker
    /// paper).
    pub fn max_tasks_to_submit(mut self, tasks: u32) -> Self {
        self.config.max_tasks_to_submit = tasks;
        self
    }

    /// Sets the most requests in flight; one more is refused as overload.
    pub fn max_requests(mut self, requests: usize) -> Self {
        self.config.max_requests = requests;
        self
    }

    /// Sets the most requests of one model in flight. Without it, a model may have all places where it is the
    /// only one, and three quarters of them otherwise.
    pub fn max_requests_per_model(mut self, requests: usize) -> Self {
        self.config.max_requests_per_model = Some(requests);
        self
    }

    /// Sets the most bytes that requests may hold, from their first byte to the last of their replies, with the
    /// states of open sessions. Without it, half of the memory that the machine, or the container, gives this
    /// process.
    pub fn max_memory_bytes(mut self, bytes: usize) -> Self {
        self.max_memory_bytes = Some(bytes);
        self
    }

    /// Sets the most time that a request waits for memory that others hold ([`UnfoldedRequest::fit`]); a second without
    /// it.
    ///
    /// [`UnfoldedRequest::fit`]: crate::UnfoldedRequest::fit
    pub fn memory_wait(mut self, time: Duration) -> Self {
        self.config.memory_wait = time;
        self
    }

    /// Sets the most sessions that may hold state, and how long one may be idle before it ends.
    pub fn sessions(mut self, max: usize, idle: Duration) -> Self {
        (self.config.max_sessions, self.config.session_idle) = (max, idle);
        self
    }

    /// Sets the time after which a request that brings no deadline of its own is given up; without it, such a request
    /// has any time.
    pub fn default_timeout(mut self, time: Duration) -> Self {
        self.config.default_timeout = Some(time);
        self
    }

    /// Sets the least time for which a worker's device may report nothing while it has work before it is taken to
    /// hang ([`Engine::hung`]); a minute without it.
    pub fn hung_after(mut self, time: Duration) -> Self {
        self.config.hung_after = time;
        self
    }

    /// Loads the models.
    ///
    /// # Errors
    /// A model cannot be loaded, or the machine has fewer cores than are wanted.
    pub fn load(self) -> Result<Prepared, BuildError> {
        let cores = Cores::new(self.workers, self.threads_per_worker, self.isa, &self.processors)?;
        let cores = cores.with_gpu_kernels(self.gpu_kernels);
        let (named, goal) = (self.profile.as_deref(), self.goal);
        let choice = match self.uses_profiles {
            true => ProfileChoice::Use { named, goal, cores },
            false => ProfileChoice::Ignore,
        };
        let mut config = self.config;
        let mut loaded = load(self.sources, &self.cells, &config, &choice)?;
        loaded.configure_stages(&mut config);
        let machine = cores.machine(&loaded.registry, &self.executor);
        loaded.profiles.note_threads(&loaded.registry, machine.threads_per_worker);
        let fairness = self.fairness.for_models(&loaded.models)?;
        let max_memory_bytes = self.max_memory_bytes.unwrap_or_else(|| available_bytes() / 2);
        Ok(Prepared {
            loaded,
            machine,
            executor: self.executor,
            config: EngineConfig { max_memory_bytes, fairness, ..config },
        })
    }

    /// Loads the models and starts an engine.
    ///
    /// # Errors
    /// A model cannot be loaded or run, or the machine does not give what is wanted.
    pub fn build(self) -> Result<Engine, BuildError> {
        self.load()?.start()
    }
}

impl Prepared {
    /// Notes for the owner of the models on how they were loaded, a sentence each.
    pub fn notes(&self) -> Vec<&str> {
        self.loaded.notes().collect()
    }

    /// Starts an engine on this machine's cores or GPUs. Each model that runs programs and takes numbers has
    /// answered a request of zeros before it is returned.
    ///
    /// # Errors
    /// A model cannot be run, or the machine does not give what is wanted.
    pub fn start(self) -> Result<Engine, BuildError> {
        let Loaded { profiles, registry, .. } = &self.loaded;
        let device =
            self.machine.device_within(self.config.max_memory_bytes, self.executor.clone())?;
        profiles.plan(registry, &*device)?;
        self.start_on(device)
    }

    /// Starts an engine on a device of one's own.
    ///
    /// # Errors
    /// A model cannot be run, or the device does not give what is wanted.
    pub fn start_on(self, device: Arc<dyn Device>) -> Result<Engine, BuildError> {
        let Self { loaded, machine, mut config, .. } = self;
        config.workers = machine.workers;
        config.submission_window = loaded.submission_window;
        let engine =
            batchmaker_engine::Engine::start(loaded.models, &loaded.registry, device, &config)?;
        trial::ask_all(&engine)?;
        Ok(engine.into())
    }
}

fn set<T>(known: &mut batchmaker_model::PerCell<T>, cell: Option<&str>, value: T) {
    match cell {
        None => known.all = Some(value),
        Some(cell) => drop(known.cells.insert(cell.to_owned(), value)),
    }
}
