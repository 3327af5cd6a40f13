//! The host's work for steps of an LSTM of 1,024 units, 512 chains at a time: what it asks of the driver, and its own time. The GPU computes nothing.

use std::collections::BTreeMap;
use std::ops::Sub;
use std::sync::Arc;

use batchmaker_cuda::{CudaConfig, CudaDevice};
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

use crate::emulated::{Emulated, config, in_process};

const CHAINS: usize = 512;
const HIDDEN: usize = 1024;
const WORDS: usize = 100;

/// The microseconds that a step takes an H100 at least, in f32: 2 * 512 * 4 * 1024 * 2048 operations at 67 TFLOP/s (NVIDIA's data sheet).
const FLOOR_US: f64 = 128.0;

/// The microseconds that a launch takes the host, on an H200: `bench/gpu/README.md`. Other calls count as much here.
const CALL_US: f64 = 3.9;

/// A chain over words, whose last h is the reply.
struct Words {
    cell_type: CellTypeId,
}

impl Unfold for Words {
    fn unfold(&self, tensors: Vec<NamedTensor>, _: &Parameters) -> Result<Unfolded, UnfoldError> {
        let inputs: Vec<Tensor> = tensors.into_iter().map(|of| of.tensor).collect();
        let length = inputs[0].shape()[0] as u32;
        let mut graph = CellGraphBuilder::new();
        let ids = graph.input(RowSpec::new(ElementType::I64, []), length);
        let value = graph.value(RowSpec::flat(ElementType::F32, HIDDEN), 1);
        let sink = Sink { port: 0, time: SinkTime::Last, rows: Rows::all(value) };
        graph.chain(self.cell_type, length, vec![Rows::all(ids)], vec![None; 2], vec![sink]);
        graph.output(value);
        let (name, shape) = ("h".to_owned(), vec![HIDDEN]);
        let output =
            OutputTensor { name, value, rows: Some(0..1), shape, until: None, permutation: None };
        Ok(Unfolded { graph: graph.finish()?, inputs, outputs: vec![output], checks: Vec::new() })
    }
}

/// An LSTM over words. No kernel multiplies with its weights.
fn words(registry: &mut CellRegistry) -> Model {
    let zeros = |count: usize| vec![0.0; count].into();
    let cell = Cell::recurrent(RecurrentCell {
        kind: RecurrentKind::Lstm { p: None, bytes: None },
        input_size: HIDDEN,
        hidden_size: HIDDEN,
        w: zeros(4 * HIDDEN * HIDDEN),
        r: zeros(4 * HIDDEN * HIDDEN),
        b: None,
        lookup: Some(Lookup { table: zeros(WORDS * HIDDEN), width: HIDDEN }),
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
    let h = info("h", ElementType::F32, vec![HIDDEN as i64]);
    let outputs = vec![ReplyTensor { info: h, batch_axis: None }];
    let unfolder = Arc::new(Words { cell_type });
    let unfolding =
        Unfolding { unfolder, inputs, outputs, cells, max_length: 4096, takes: Takes::NONE };
    Model::new("words", "1", unfolding).unwrap()
}

/// The work of a worker's thread up to some time.
#[derive(Clone, Debug)]
struct Work {
    manager_us: f64,
    replies_us: f64,
    /// Without the time of the driver's calls.
    device_us: f64,
    calls: BTreeMap<String, f64>,
}

impl Work {
    fn so_far(engine: &Engine, emulated: &Emulated) -> Self {
        let all = engine.statistics();
        let calls: BTreeMap<String, f64> =
            emulated.calls("worker-0").into_iter().map(|(of, count)| (of, count as f64)).collect();
        let us = |ns: u64| ns as f64 / 1e3;
        let in_driver_us = calls.get("nanoseconds").copied().unwrap_or(0.0) / 1e3;
        Self {
            manager_us: us(all.manager_ns),
            replies_us: us(all.replies_ns),
            device_us: us(all.device_ns) - in_driver_us,
            calls,
        }
    }

    fn own_us(&self) -> f64 {
        self.manager_us + self.replies_us + self.device_us
    }

    fn count(&self, what: &str) -> f64 {
        self.calls.get(what).copied().unwrap_or(0.0)
    }

    fn launches(&self) -> f64 {
        self.calls.iter().filter(|(of, _)| of.starts_with("a launch")).map(|(_, count)| count).sum()
    }

    fn steps(&self) -> f64 {
        self.count("a launch of lstm_step_f32")
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        let since = |(of, count): (&String, &f64)| (of.clone(), count - earlier.count(of));
        Self {
            manager_us: self.manager_us - earlier.manager_us,
            replies_us: self.replies_us - earlier.replies_us,
            device_us: self.device_us - earlier.device_us,
            calls: self.calls.iter().map(since).collect(),
        }
    }
}

/// Runs as many chains as a batch has, all of one length.
fn run(engine: &Engine, emulated: &Emulated, length: usize) -> Work {
    let before = Work::so_far(engine, emulated);
    let request = || {
        let ids = TensorData::I64((0..length).map(|at| (at % WORDS) as i64).collect());
        let tensor = Tensor::new(vec![length], ids);
        Request::from(vec![NamedTensor { name: "ids".to_owned(), tensor }])
    };
    let pending: Vec<_> = (0..CHAINS).map(|_| engine.submit("words", request()).unwrap()).collect();
    for of in pending {
        of.wait().unwrap();
    }
    Work::so_far(engine, emulated) - before
}

#[test]
fn steps() {
    in_process("host_work::steps", 1, |emulated| {
        emulated.configure("runs_only", "signal_host");
        emulated.configure("memory_bytes", &(1usize << 30).to_string());
        let mut registry = CellRegistry::default();
        let model = words(&mut registry);
        let config = CudaConfig { bytes_max: Some(64 << 20), block_bytes: 64 << 20, ..config(1) };
        let device = Arc::new(CudaDevice::new(config).unwrap());
        let engine_config =
            EngineConfig { workers: 1, max_requests: 2 * CHAINS, ..EngineConfig::default() };
        let engine = Engine::start(vec![model], &registry, device, &engine_config).unwrap();
        run(&engine, emulated, 20);
        for _ in 0..3 {
            let (short, long) = (run(&engine, emulated, 40), run(&engine, emulated, 840));
            println!("{short:#?} {long:#?}");
        }
    });
}
