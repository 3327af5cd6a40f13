//! ONNX Runtime as the executor of programs: a shared library that is loaded at run time, if asked for.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use batchmaker_graph::TensorData;
use ort::environment::Environment;
use ort::session::builder::{GraphOptimizationLevel, PrepackedWeights};
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, PrimitiveTensorElementType, Tensor};

use crate::error::ExecutorError;
use crate::tensors::Shaped;
use crate::threads::{ExecutorThreads, SharedCores};

/// The least time of a run that several threads share: those of each session sleep between its runs, and to wake them takes tens of
/// microseconds.
const LONG_ENOUGH_FOR_THREADS: Duration = Duration::from_micros(200);

/// The least time of a run that uses the cores of idle workers: they may get work while it runs.
const LONG_ENOUGH_FOR_ALL: Duration = Duration::from_millis(1);

/// How many times as long, or as short, as a usual run others may be: sessions for them are made when the program is loaded.
const NEAR: u32 = 8;

/// The time that a run is taken to need if no run of the program could be timed: long enough for all threads.
const UNKNOWN: Duration = Duration::from_secs(1);

/// The part of its time, and the most, that a long run waits for the other workers: often one of them runs a short cell of the same request.
const PATIENCE: u32 = 32;
const PATIENCE_MAX: Duration = Duration::from_micros(100);

/// ONNX Runtime, loaded from a library.
///
/// Its kernels compute a row or sequence in a batch otherwise than alone, so that the last bits of a reply depend on its company,
/// unless each runs by itself.
#[derive(Clone)]
pub struct OnnxRuntime {
    environment: Environment,
    name: String,
    threads: usize,
    sessions: usize,
    is_alone: bool,
    is_where_faster: bool,
}

/// The library of this process and its environment, of which there is one.
static LOADED: Mutex<Option<(PathBuf, Environment)>> = Mutex::new(None);

impl OnnxRuntime {
    /// Loads the library at `path`: `libonnxruntime.so` of version 1.17 or later. Programs run on one thread, in batches.
    ///
    /// # Errors
    /// The library cannot be loaded, is none of ONNX Runtime, or this process has loaded another one before.
    pub fn load(path: &Path) -> Result<Self, OnnxRuntimeError> {
        let error = |reason: &dyn fmt::Display| OnnxRuntimeError {
            path: path.to_owned(),
            reason: reason.to_string(),
        };
        let absolute = path.canonicalize().map_err(|of| error(&of))?;
        let name = name_of(&absolute);
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let environment = match &*loaded {
            Some((known, environment)) if *known == absolute => environment.clone(),
            Some((known, _)) => {
                return Err(error(&format!("this process runs {} already", known.display())));
            }
            None => {
                let builder = ort::init_from(&absolute).map_err(|of| error(&of))?;
                // Errors say what goes wrong.
                let logger =
                    Arc::new(|_: ort::logging::LogLevel, _: &str, _: &str, _: &str, _: &str| {});
                let builder =
                    builder.with_name("batchmaker").with_telemetry(false).with_logger(logger);
                let environment = builder.build().map_err(|of| error(&of))?;
                *loaded = Some((absolute, environment.clone()));
                environment
            }
        };
        Ok(Self {
            environment,
            name,
            threads: 1,
            sessions: 1,
            is_alone: false,
            is_where_faster: false,
        })
    }

    /// Runs each program on `threads` threads, or on one if it is short.
    #[must_use]
    pub fn with_threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Prepares each program to be run by `count` workers at the same time, and by one on the threads of all. More workers would have to
    /// prepare it when they run it.
    #[must_use]
    pub fn with_sessions(self, count: usize) -> Self {
        Self { sessions: count, ..self }
    }

    /// Runs each row and each sequence by itself, so that no reply depends on its company.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }

    /// Runs the programs that it is faster with than the own executor, by the times of a few runs when they are loaded.
    #[must_use]
    pub fn where_faster(self) -> Self {
        Self { is_where_faster: true, ..self }
    }

    /// Whether the own executor keeps the programs that it is faster with.
    pub fn is_where_faster(&self) -> bool {
        self.is_where_faster
    }

    /// The threads of a worker that runs alone, as all others are idle.
    pub(crate) fn threads_of_all(&self) -> ExecutorThreads {
        ExecutorThreads::of_worker(
            self.threads,
            Arc::new(SharedCores::new(self.sessions, self.threads)),
        )
    }

    /// The threads of a worker while others run.
    pub(crate) fn threads_of_one(&self) -> ExecutorThreads {
        ExecutorThreads::with_threads(self.threads)
    }

    /// Whether each row and each sequence runs by itself.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }
}

/// The name with the version that the library's file tells: `libonnxruntime.so.1.31.1` is `ONNX Runtime 1.31.1`.
fn name_of(library: &Path) -> String {
    let file = library.file_name().unwrap_or_default().to_string_lossy();
    let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
    let version: Vec<&str> = file.split('.').filter(is_number).collect();
    let name = format!("ONNX Runtime {}", version.join("."));
    name.trim_end().to_owned()
}

impl fmt::Display for OnnxRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for OnnxRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}, {} threads, alone: {}", self.threads, self.is_alone)
    }
}

/// ONNX Runtime cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[error("ONNX Runtime cannot be loaded from {}: {reason}", path.display())]
pub struct OnnxRuntimeError {
    path: PathBuf,
    reason: String,
}

/// A program that ONNX Runtime has loaded.
pub(crate) struct OnnxRuntimeProgram {
    runtime: OnnxRuntime,
    file: Arc<[u8]>,
    /// Weights in the layout of its kernels, as far as sessions share them.
    weights: PrepackedWeights,
    /// Seconds on one thread for each byte that a run allocates; none if that is not known, and runs are taken to be long.
    pace: Option<f64>,
    /// The sessions of short runs, and those of longer ones on all threads of a worker.
    short: Sessions,
    long: Option<Sessions>,
    /// A session on the threads of all workers, unless it runs: for a worker while the others are idle.
    wide: Mutex<Option<Session>>,
}

/// Sessions of a program that have the same number of threads: one for each worker.
struct Sessions {
    threads: usize,
    /// Those that no worker is running.
    idle: Mutex<Vec<Session>>,
}

impl Sessions {
    fn on(threads: usize) -> Self {
        Self { threads, idle: Mutex::default() }
    }

    fn take(&self) -> Option<Session> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn give_back(&self, session: Session) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
    }

    fn count(&self) -> usize {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl OnnxRuntimeProgram {
    /// Loads the program in `file`, to be tried on one thread: see [`Self::prepare`].
    ///
    /// # Errors
    /// ONNX Runtime does not take it.
    pub(crate) fn new(runtime: &OnnxRuntime, file: Arc<[u8]>) -> Result<Self, String> {
        let program = Self {
            runtime: runtime.clone(),
            file,
            weights: PrepackedWeights::new(),
            pace: None,
            short: Sessions::on(1),
            long: None,
            wide: Mutex::default(),
        };
        program.short.give_back(program.session(1)?);
        Ok(program)
    }

    /// Makes the sessions that workers run. `usual` has the time that a run takes on one thread and the bytes that it allocates, if they are known:
    /// runs of other bytes are taken to differ in time as they do in bytes.
    ///
    /// # Errors
    /// ONNX Runtime makes no more sessions.
    pub(crate) fn prepare(&mut self, usual: Option<(Duration, u64)>) -> Result<(), String> {
        let OnnxRuntime { threads, sessions, is_alone, .. } = self.runtime;
        self.pace = usual.map(|(time, bytes)| time.as_secs_f64() / bytes.max(1) as f64);
        let time = usual.map_or(UNKNOWN, |(time, _)| time);
        let may_reach = |least: Duration| NEAR * time >= least;
        let may_be_short = time < NEAR * LONG_ENOUGH_FOR_THREADS;
        self.long =
            (threads > 1 && may_reach(LONG_ENOUGH_FOR_THREADS)).then(|| Sessions::on(threads));
        if self.long.is_some() && !may_be_short {
            self.short = self.long.take().unwrap_or_else(|| Sessions::on(threads));
        }
        for of in [Some(&self.short), self.long.as_ref()].into_iter().flatten() {
            for _ in of.count()..sessions {
                of.give_back(self.session(of.threads)?);
            }
        }
        // Bits may depend on the number of threads.
        if may_reach(LONG_ENOUGH_FOR_ALL) && sessions > 1 && !is_alone {
            self.wide = Mutex::new(Some(self.session(threads * sessions)?));
        }
        Ok(())
    }

    /// The runtime that runs it.
    pub(crate) fn runtime(&self) -> &OnnxRuntime {
        &self.runtime
    }

    fn session(&self, threads: usize) -> Result<Session, String> {
        let commit = || -> ort::Result<Session> {
            Session::builder(&self.runtime.environment)?
                .with_intra_threads(threads)?
                // Its threads spin between operators, until the run ends: each session has threads of its own, which would take cores
                // from other cells.
                .with_intra_op_spinning(true)?
                .with_config_entry("session.force_spinning_stop", "1")?
                .with_optimization_level(GraphOptimizationLevel::All)?
                .with_prepacked_weights(&self.weights)?
                // Lengths differ from run to run.
                .with_memory_pattern(false)?
                .commit_from_memory(&self.file)
        };
        commit().map_err(|error| error.to_string())
    }

    /// Computes the outputs from the inputs, each with its shape; the run allocates `bytes`. It uses as many threads as its time is worth: the
    /// cores of idle workers too, if all others of `threads`' are.
    ///
    /// # Errors
    /// [`ExecutorError::Run`]
    pub(crate) fn run(
        &self,
        inputs: Vec<Shaped>,
        bytes: u64,
        threads: &ExecutorThreads,
    ) -> Result<Vec<Shaped>, ExecutorError> {
        // Bytes are upper bounds, and may be without measure.
        let time_of =
            |pace: f64| Duration::try_from_secs_f64(pace * bytes.max(1) as f64).unwrap_or(UNKNOWN);
        let time = self.pace.map_or(UNKNOWN, time_of);
        let run = |session: &mut Session| -> ort::Result<Vec<Shaped>> {
            let inputs = inputs.into_iter().map(|(shape, data)| value(shape, data));
            let inputs: Vec<SessionInputValue<'_>> = inputs.collect::<Result<_, _>>()?;
            let outputs = session.run(&inputs[..])?;
            outputs.values().map(|output| elements(&output)).collect()
        };
        let run = |session: &mut Session| {
            run(session).map_err(|error| ExecutorError::Run(error.to_string()))
        };
        if time >= LONG_ENOUGH_FOR_ALL
            && let Ok(mut wide) = self.wide.try_lock()
            && let Some(session) = &mut *wide
            && let Some(_borrowed) = threads.borrow_all(PATIENCE_MAX.min(time / PATIENCE))
        {
            return run(session);
        }
        let long = self.long.as_ref().filter(|_| time >= LONG_ENOUGH_FOR_THREADS);
        let sessions = long.unwrap_or(&self.short);
        let mut session = match sessions.take() {
            Some(session) => session,
            None => self.session(sessions.threads).map_err(ExecutorError::Run)?,
        };
        let outputs = run(&mut session);
        sessions.give_back(session);
        outputs
    }
}

/// A tensor of ONNX Runtime's.
fn value(shape: Vec<usize>, data: TensorData) -> ort::Result<SessionInputValue<'static>> {
    Ok(match data {
        TensorData::F32(data) => Tensor::from_array((shape, data))?.into(),
        TensorData::I64(data) => Tensor::from_array((shape, data))?.into(),
        TensorData::I32(data) => Tensor::from_array((shape, data))?.into(),
        TensorData::Bool(data) => Tensor::from_array((shape, data))?.into(),
        TensorData::Bytes(_) => return Err(ort::Error::new("text inside a cell")),
    })
}

/// The shape and the elements of one of ONNX Runtime's tensors.
fn elements(value: &DynValue) -> ort::Result<Shaped> {
    use ort::value::TensorElementType as Type;
    fn of<T: PrimitiveTensorElementType + Clone>(
        value: &DynValue,
        data: fn(Vec<T>) -> TensorData,
    ) -> ort::Result<Shaped> {
        let (shape, elements) = value.try_extract_tensor::<T>()?;
        let shape = shape.iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
        Ok((shape, data(elements.to_vec())))
    }
    match value.dtype().tensor_type() {
        Some(Type::Float32) => of(value, TensorData::F32),
        Some(Type::Int64) => of(value, TensorData::I64),
        Some(Type::Int32) => of(value, TensorData::I32),
        Some(Type::Bool) => of(value, TensorData::Bool),
        other => Err(ort::Error::new(format!("an output of type {other:?}"))),
    }
}
