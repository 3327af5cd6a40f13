//! The host's work for steps of an LSTM of 1,024 units, 512 chains at a time: what it gives the GPU to do, and its own time. The GPU computes nothing.
//!
//! ```console
//! $ SHOW=1 cargo test --release -p batchmaker-cuda --features compiled-kernels --test device host_work -- --nocapture
//! ```

use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex};

use batchmaker_cuda::{Compile, CudaConfig, CudaDevice, Quantum};
use batchmaker_engine::{Engine, EngineConfig, NamedTensor, Request, Tensor, TensorData};
use batchmaker_graph::{
    Cell, CellGraphBuilder, CellRegistry, CellTypeId, ElementType, Lookup, ModelId, ModelPriority,
    OutputTensor, Parameters, RecurrentCell, RecurrentKind, RowSpec, Rows, Sink, SinkTime, Unfold,
    UnfoldError, Unfolded,
};
use batchmaker_model::{
    Axis, Content, InputLayout, Model, ModelCell, ReplyTensor, RequestTensor, Takes, TensorInfo,
    Unfolding,
};
use tokio::runtime::Builder;

use crate::emulated::{Emulated, compile_without_steps, config, in_process};
use crate::playing::Random;

const CHAINS: usize = 512;

/// The connections, each with a request in flight: some requests wait for others to end.
const IN_FLIGHT: usize = 768;

const HIDDEN: usize = 1024;
const WORDS: usize = 100;

/// The microseconds that a step takes an H100 at least, in f32: 2 * 512 * 4 * 1024 * 2048 operations at 67 TFLOP/s (NVIDIA's data sheet).
const FLOOR_US: f64 = 128.0;

/// The microseconds that a launch takes the host, on an H200: `bench/gpu/README.md`. All that gives the GPU work counts as much here.
const CALL_US: f64 = 3.9;

/// The same at 790 TFLOP/s of bfloat16, as an H200 was measured to do.
const BF16_FLOOR_US: f64 = 10.9;

/// The kernel that takes tasks from a ring.
const QUANTUM: &str = "quantum_lstm_";

/// The units of a cell whose weights fit the registers of the emulated GPU.
const HIDDEN_IN_REGISTERS: usize = 128;

/// How often each load runs.
const TURNS: usize = 5;

/// A chain over words, whose last h is the reply.
struct Words {
    cell_type: CellTypeId,
    hidden: usize,
}

impl Unfold for Words {
    fn unfold(&self, tensors: Vec<NamedTensor>, _: &Parameters) -> Result<Unfolded, UnfoldError> {
        let inputs: Vec<Tensor> = tensors.into_iter().map(|of| of.tensor).collect();
        let length = inputs[0].shape()[0] as u32;
        let mut graph = CellGraphBuilder::new();
        let ids = graph.input(RowSpec::new(ElementType::I64, []), length);
        let value = graph.value(RowSpec::flat(ElementType::F32, self.hidden), 1);
        let sink = Sink { port: 0, time: SinkTime::Last, rows: Rows::all(value) };
        graph.chain(self.cell_type, length, vec![Rows::all(ids)], vec![None; 2], vec![sink]);
        graph.output(value);
        let (name, shape) = ("h".to_owned(), vec![self.hidden]);
        let output =
            OutputTensor { name, value, rows: Some(0..1), shape, until: None, permutation: None };
        Ok(Unfolded { graph: graph.finish()?, inputs, outputs: vec![output], checks: Vec::new() })
    }
}

/// An LSTM over words. No kernel multiplies with its weights.
fn words(registry: &mut CellRegistry, hidden: usize) -> Model {
    let zeros = |count: usize| vec![0.0; count].into();
    let cell = Cell::recurrent(RecurrentCell {
        kind: RecurrentKind::Lstm { p: None, bytes: None },
        input_size: hidden,
        hidden_size: hidden,
        w: zeros(4 * hidden * hidden),
        r: zeros(4 * hidden * hidden),
        b: None,
        lookup: Some(Lookup { table: zeros(WORDS * hidden), width: hidden }),
    });
    let priority = ModelPriority { model: ModelId(0), priority: 0 };
    let cell_type = registry.add("lstm", cell, CHAINS as u32, priority);
    let cells = vec![ModelCell {
        name: "lstm".to_owned(),
        cell_type,
        stage: 0,
        fused: true,
        limit_given: true,
        priority: 0,
        description: String::new(),
    }];
    let info = |name: &str, element, shape| TensorInfo { name: name.to_owned(), element, shape };
    let content = Content::Ids(WORDS as u64);
    let layout = InputLayout { axes: vec![Axis::Time], content, optional: false };
    let ids = info("ids", ElementType::I64, vec![-1]);
    let inputs = vec![RequestTensor { info: ids, layout, step_axis: None }];
    let h = info("h", ElementType::F32, vec![hidden as i64]);
    let outputs = vec![ReplyTensor { info: h, batch_axis: None }];
    let unfolder = Arc::new(Words { cell_type, hidden });
    let unfolding =
        Unfolding { unfolder, inputs, outputs, cells, max_length: 4096, takes: Takes::NONE };
    Model::new("words", "1", unfolding).unwrap()
}

/// The nanoseconds that a thread of this process has had of processors; none of one that has not begun.
fn processor_ns(name: &str) -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_thread = tasks.map(|task| task.unwrap().path()).find(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    let times = of_thread.map(|of| std::fs::read_to_string(of.join("schedstat")).unwrap());
    times.map_or(0.0, |times| times.split(' ').next().unwrap().parse().unwrap())
}

/// The work of a worker's thread up to some time, or between two.
#[derive(Clone)]
struct Work {
    /// Microseconds of a processor, but for those of the driver's calls.
    own_us: f64,
    /// What it gave the GPU to do.
    launches: f64,
    graphs: f64,
    copies: f64,
    fills: f64,
    events: f64,
}

impl Work {
    fn so_far(emulated: &Emulated) -> Self {
        let calls = emulated.calls("worker-0");
        let count = |begins: &str| {
            let of = calls.iter().filter(|(what, _)| what.starts_with(begins));
            let of = of.filter(|(what, _)| !what.ends_with("by a graph"));
            of.map(|(_, &count)| count as f64).sum::<f64>()
        };
        Self {
            own_us: (processor_ns("worker-0") - count("nanoseconds")) / 1e3,
            launches: count("a launch"),
            graphs: count("a graph"),
            copies: count("a copy"),
            fills: count("a fill"),
            events: count("an event"),
        }
    }

    /// Something of each number of two works.
    fn with(&self, other: &Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            own_us: of(self.own_us, other.own_us),
            launches: of(self.launches, other.launches),
            graphs: of(self.graphs, other.graphs),
            copies: of(self.copies, other.copies),
            fills: of(self.fills, other.fills),
            events: of(self.events, other.events),
        }
    }

    /// The part of each of so many.
    fn per(&self, many: f64) -> Self {
        self.with(self, |own, _| own / many)
    }

    fn calls(&self) -> f64 {
        self.launches + self.graphs + self.copies + self.fills + self.events
    }

    fn us(&self) -> f64 {
        self.own_us + CALL_US * self.calls()
    }
}

impl Display for Work {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { own_us, launches, graphs, copies, fills, events } = self;
        write!(
            f,
            "{own_us:.1}, {launches:.2}, {graphs:.2}, {copies:.2}, {fills:.2}, {events:.2}; {:.1}",
            self.us()
        )
    }
}

/// Sends one request after the other, of the lengths that are left, as a server's connections do.
async fn connection(engine: Arc<Engine>, lengths: Arc<Mutex<VecDeque<usize>>>) {
    let next = || lengths.lock().unwrap().pop_front();
    while let Some(length) = next() {
        let ids = TensorData::I64((0..length).map(|at| (at % WORDS) as i64).collect());
        let tensor = NamedTensor { name: "ids".to_owned(), tensor: Tensor::new(vec![length], ids) };
        engine.submit("words", Request::from(vec![tensor])).unwrap().await.unwrap();
    }
}

/// How the steps of a task come to the GPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Steps {
    /// Each by a launch.
    Launched,
    /// In a ring, from which a launch takes task after task.
    InRing,
}

/// An engine on a GPU that computes nothing.
struct Host<'a> {
    engine: Arc<Engine>,
    emulated: &'a Emulated,
}

impl<'a> Host<'a> {
    fn start(emulated: &'a Emulated, steps: Steps) -> Self {
        emulated.configure("runs_only", "signal_host");
        emulated.configure("runs_only", QUANTUM);
        let compile = (steps == Steps::InRing).then_some(compile_without_steps as Compile);
        emulated.configure("memory_bytes", &(1usize << 30).to_string());
        let mut registry = CellRegistry::default();
        let hidden = if steps == Steps::InRing { HIDDEN_IN_REGISTERS } else { HIDDEN };
        let model = words(&mut registry, hidden);
        let device = CudaConfig {
            bytes_max: Some(1 << 28),
            block_bytes: 64 << 20,
            projected_bytes: CudaConfig::default().projected_bytes,
            persistent: compile,
            quantum: compile.map(|_| Quantum::default()),
            ..config(1)
        };
        let device = Arc::new(CudaDevice::new(device).unwrap());
        let requests =
            EngineConfig { workers: 1, max_requests: 1 << 20, ..EngineConfig::default() };
        let engine = Engine::start(vec![model], &registry, device, &requests).unwrap();
        Self { engine: Arc::new(engine), emulated }
    }

    /// The steps so far.
    fn steps(&self) -> f64 {
        self.engine.statistics().cells[0].tasks as f64
    }

    /// Runs chains of these lengths. Of some turns, the one in which the host took least, with its steps.
    fn run(&self, lengths: impl Iterator<Item = usize> + Clone) -> (Work, f64) {
        let turn = |_| {
            let (before, steps) = (Work::so_far(self.emulated), self.steps());
            let lengths = Arc::new(Mutex::new(lengths.clone().collect::<VecDeque<_>>()));
            let runtime = Builder::new_current_thread().build().unwrap();
            let connection = |_| runtime.spawn(connection(self.engine.clone(), lengths.clone()));
            let connections: Vec<_> = (0..IN_FLIGHT).map(connection).collect();
            connections.into_iter().for_each(|of| runtime.block_on(of).unwrap());
            let work = Work::so_far(self.emulated).with(&before, |now, before| now - before);
            (work, self.steps() - steps)
        };
        let turns = (0..TURNS).map(turn);
        turns.min_by(|(a, _), (b, _)| a.own_us.total_cmp(&b.own_us)).unwrap()
    }
}

/// The host's work for a step of a roster that stays, and of one that sentences join and leave at every step. It is shown beside the time of the step.
fn measure(emulated: &Emulated, steps: Steps) -> [Work; 2] {
    let host = Host::start(emulated, steps);
    host.run(std::iter::repeat_n(20, CHAINS));
    let all_of = |length: usize| host.run(std::iter::repeat_n(length, CHAINS));
    let ((short, fewer), (long, more)) = (all_of(40), all_of(440));
    let stays = long.with(&short, |long, short| long - short).per(more - fewer);
    // Uniform, 24 in the mean.
    let mut random = Random(1);
    let lengths: Vec<usize> = (0..8 * CHAINS).map(|_| 4 + random.below(41)).collect();
    let (changes, steps) = host.run(lengths.iter().copied());
    let joins = lengths.len() as f64 / steps;
    let changes = changes.per(steps);
    println!(
        "a step of {CHAINS} chains: own us, launches, graphs, copies, fills, events; us with {CALL_US} for each"
    );
    println!("no chain joins: {stays}");
    println!("{joins:.1} chains join, as many leave: {changes}");
    println!(
        "the step takes an H100 at least {FLOOR_US} us in f32, an H200 {BF16_FLOOR_US} us in bfloat16"
    );
    // Only where nothing else runs.
    assert!(std::env::var("SHOW").is_err() || stays.us() < FLOOR_US, "{stays}");
    [stays, changes]
}

/// What the host gives a GPU to do where each step is a launch.
#[test]
fn steps() {
    in_process("host_work::steps", 1, |emulated| {
        let [stays, changes] = measure(emulated, Steps::Launched);
        let calls_of_driver = |of: &Work| of.copies + of.fills;
        // For five steps: what they bring, a graph of the products of x and of the steps, the signal that they are done, an event.
        assert!(stays.launches <= 0.5 && stays.events <= 0.25, "{stays}");
        assert!((0.15..=0.25).contains(&stays.graphs), "{stays}");
        // What comes and what changes, a graph of the step and its end, a signal.
        assert!(changes.launches <= 2.1 && changes.events <= 1.1, "{changes}");
        assert!((0.8..=1.1).contains(&changes.graphs), "{changes}");
        assert!(calls_of_driver(&stays) == 0.0 && calls_of_driver(&changes) < 0.1);
    });
}

/// The same where a launch takes task after task: it is given next to nothing.
#[test]
fn tasks_in_a_ring() {
    in_process("host_work::tasks_in_a_ring", 1, |emulated| {
        let works = measure(emulated, Steps::InRing);
        assert!(works.iter().all(|of| of.calls() < 0.5), "{} {}", works[0], works[1]);
    });
}
