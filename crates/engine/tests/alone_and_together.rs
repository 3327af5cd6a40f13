//! A model on the CPU device: a reply does not depend on who else is there, nor on workers,
//! threads or policy; requests that leave free what they held.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use batchmaker_cpu::{CpuConfig, CpuDevice, InputProjection};
use batchmaker_engine::{Engine, EngineConfig, EngineError, Policy, Request, Tensor, TensorData};
use batchmaker_graph::{CellRegistry, ModelId};
use batchmaker_model::{LoadOptions, PerCell, load};

fn langid(workers: u16, threads_per_worker: usize, max_requests: usize) -> Engine {
    let config = EngineConfig { workers, max_requests, ..EngineConfig::default() };
    langid_with(threads_per_worker, &config)
}

fn langid_with(threads_per_worker: usize, config: &EngineConfig) -> Engine {
    start("../../models/langid", PerCell::default(), threads_per_worker, config)
}

fn start(
    model: &str,
    max_batch_size: PerCell<u32>,
    threads_per_worker: usize,
    config: &EngineConfig,
) -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(model);
    let mut registry = CellRegistry::default();
    let options = LoadOptions { max_batch_size, ..LoadOptions::new(ModelId(0)) };
    let model = load(&path, &options, &mut registry).unwrap();
    let cpu = CpuConfig { threads_per_worker, ..CpuConfig::default() };
    Engine::start(vec![model], &registry, Arc::new(CpuDevice::new(cpu).unwrap()), config).unwrap()
}

fn request(text: &str) -> Request {
    let tensor = Tensor::new(vec![1], TensorData::Bytes(vec![text.as_bytes().to_vec()]));
    Request::new().input("text", tensor)
}

const TEXTS: [&str; 4] = [
    "All human beings are born free and equal in dignity and rights.",
    "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "Tous les êtres humains naissent libres et égaux en dignité et en droits.",
    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
];

#[test]
fn a_reply_is_the_same_alone_and_together() {
    let text = |index: usize| TEXTS[index % 4].repeat(1 + index % 7);
    let engine = langid(1, 1, 1000);
    let alone: Vec<_> = (0..40)
        .map(|index| {
            engine.submit("langid", request(&text(index))).unwrap().wait().unwrap().outputs
        })
        .collect();
    let policy = |text: &str| text.parse::<Policy>().unwrap();
    for (workers, threads, policy) in [
        (1, 1, Policy::Cellular),
        (2, 1, Policy::Cellular),
        (1, 2, Policy::Cellular),
        (1, 2, policy("padded:10")),
        (2, 1, policy("padded:40:own")),
    ] {
        let config =
            EngineConfig { workers, policy, max_requests: 1000, ..EngineConfig::default() };
        let engine = langid_with(threads, &config);
        let pending: Vec<_> = (0..400)
            .map(|index| engine.submit("langid", request(&text(index % 40))).unwrap())
            .collect();
        for (index, pending) in pending.into_iter().enumerate() {
            assert_eq!(pending.wait().unwrap().outputs, alone[index % 40]);
        }
        let statistics = engine.statistics();
        assert_eq!(statistics.permits_in_use, 0);
        assert!(statistics.cells.iter().all(|cell| cell.slots_in_use == 0));
        assert!(statistics.cells.iter().any(|cell| cell.nodes > 2 * cell.tasks), "batches form");
        let is_padded = statistics.cells.iter().any(|cell| cell.padding > 0);
        assert_eq!(is_padded, policy != Policy::Cellular, "{policy}");
    }
}

/// Layers whose inputs come with the request, ids among them, and others whose inputs come from a
/// layer below: projected ahead or not, replies are the same.
#[test]
fn projecting_ahead_changes_no_bit() {
    let outputs = |model: &str, input_projection, threads_per_worker| -> Vec<_> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../model/tests/vectors")
            .join(model)
            .with_extension("onnx");
        let mut registry = CellRegistry::default();
        let options = LoadOptions::new(ModelId(0));
        let loaded = load(&path, &options, &mut registry).unwrap();
        let input = loaded.inputs[0].name.clone();
        let cpu = CpuConfig { threads_per_worker, input_projection, ..CpuConfig::default() };
        let device = Arc::new(CpuDevice::new(cpu).unwrap());
        let config = EngineConfig::default();
        let engine = Engine::start(vec![loaded], &registry, device, &config).unwrap();
        let request = |index: usize| {
            let time = 1 + index * 11 % 70;
            let (shape, is_ids) = match model {
                "lstm1" => (vec![time, 1, 5], false),
                "lstm2_batch_first" => (vec![1, time, 5], false),
                _ => (vec![1, time], true),
            };
            let len = shape.iter().product::<usize>();
            let numbers = (0..len).map(|at| (at * 7 + index) % 11);
            let data = match is_ids {
                true => TensorData::I64(numbers.map(|number| number as i64).collect()),
                false => TensorData::F32(numbers.map(|number| number as f32 / 5.0 - 1.0).collect()),
            };
            let tensor = Tensor::new(shape, data);
            Request::new().input(&input, tensor)
        };
        let pending: Vec<_> =
            (0..50).map(|index| engine.submit(model, request(index)).unwrap()).collect();
        pending.into_iter().map(|pending| pending.wait().unwrap().outputs).collect()
    };
    for model in ["lstm1", "lstm2_batch_first", "tagger"] {
        let never = outputs(model, InputProjection::Never, 1);
        for threads in [1, 2] {
            assert_eq!(outputs(model, InputProjection::Always, threads), never, "{model} always");
            assert_eq!(outputs(model, InputProjection::Measured, threads), never, "{model}");
        }
    }
}

/// Two layers and a head on every step: padding in row-wise cells too, cut at their limit.
#[test]
fn padded_rows_of_every_step_change_nothing() {
    let tagger = |limit, threads, policy: &str| {
        let policy = policy.parse().unwrap();
        let limits = PerCell { all: Some(limit), ..PerCell::default() };
        let config = EngineConfig { policy, ..EngineConfig::default() };
        start("../model/tests/vectors/tagger.onnx", limits, threads, &config)
    };
    // [batch, time] ids below 11.
    let request = |index: usize| {
        let (batch, time) = (1 + index % 3, 1 + index * 5 % 23);
        let ids = (0..batch * time).map(|i| ((i * i + index) % 11) as i64).collect();
        let tensor = Tensor::new(vec![batch, time], TensorData::I64(ids));
        Request::new().input("ids", tensor)
    };
    let engine = tagger(64, 1, "cellular");
    let alone: Vec<_> = (0..60)
        .map(|index| engine.submit("tagger", request(index)).unwrap().wait().unwrap().outputs)
        .collect();
    for (limit, threads, policy) in
        [(7, 1, "padded:10"), (64, 2, "padded:10"), (16, 1, "padded:40:own")]
    {
        let engine = tagger(limit, threads, policy);
        let pending: Vec<_> =
            (0..60).map(|index| engine.submit("tagger", request(index)).unwrap()).collect();
        for (pending, alone) in pending.into_iter().zip(&alone) {
            assert_eq!(pending.wait().unwrap().outputs, *alone, "{policy}, limit {limit}");
        }
        let cells = engine.statistics().cells;
        assert!(cells.iter().all(|cell| cell.padding > 0), "chains and rows: {cells:?}");
        assert!(cells.iter().all(|cell| cell.batches_by_size.len() <= limit as usize + 1));
    }
}

#[test]
fn a_dropped_request_frees_its_slot_and_permit() {
    let engine = langid(1, 1, 3);
    let long = TEXTS[0].repeat(900);
    let pending: Vec<_> =
        (0..3).map(|_| engine.submit("langid", request(&long)).unwrap()).collect();
    let refused = engine.submit("langid", request("a")).unwrap_err();
    assert_eq!(refused, EngineError::Overloaded { in_flight: 3 });
    drop(pending);
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while engine.statistics().permits_in_use > 0 {
        assert!(std::time::Instant::now() < limit, "still there: {:?}", engine.statistics());
        std::thread::yield_now();
    }
    assert!(engine.statistics().cells.iter().all(|cell| cell.slots_in_use == 0));
    engine.submit("langid", request(TEXTS[1])).unwrap().wait().unwrap();
}

#[test]
fn shutdown_answers_what_was_accepted() {
    let engine = langid(2, 1, 1000);
    let pending: Vec<_> =
        (0..200).map(|index| engine.submit("langid", request(TEXTS[index % 4])).unwrap()).collect();
    engine.shutdown();
    assert_eq!(engine.submit("langid", request("a")).unwrap_err(), EngineError::ShuttingDown);
    assert!(pending.into_iter().all(|pending| pending.wait().is_ok()));
}

#[test]
fn a_request_outlives_no_engine() {
    let engine = langid(1, 1, 10);
    let long = TEXTS[0].repeat(900);
    let pending: Vec<_> =
        (0..3).map(|_| engine.submit("langid", request(&long)).unwrap()).collect();
    drop(engine);
    for pending in pending {
        assert_eq!(pending.wait().unwrap_err(), EngineError::Cancelled);
    }
}

#[test]
fn memory_is_admitted_too() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/langid");
    let mut registry = CellRegistry::default();
    let options = LoadOptions::new(ModelId(0));
    let model = load(&folder, &options, &mut registry).unwrap();
    let device = Arc::new(CpuDevice::new(CpuConfig::default()).unwrap());
    let config = EngineConfig { max_memory_bytes: 2_200_000, ..EngineConfig::default() };
    let engine = Engine::start(vec![model], &registry, device, &config).unwrap();
    // A byte of text becomes an id of 8 bytes. Half of the budget is for batches of the programs in the model; of the
    // other half, what arrives can have a half.
    let submit = |length| engine.submit("langid", request(&"a".repeat(length)));
    let fit = [submit(50_000).unwrap(), submit(50_000).unwrap()];
    let later = submit(50_000).unwrap_err();
    assert!(matches!(later, EngineError::MemoryInUse { bytes: 800_000..1_100_000 }), "{later}");
    fit.into_iter().for_each(|pending| drop(pending.wait().unwrap()));
    let never = submit(63_000).unwrap_err();
    assert_eq!(never, EngineError::TooLarge { bytes: 9 * 63_000 + 56, bytes_max: 537 * 1024 });
    assert_eq!(engine.memory().bytes_in_use(), 0);
    engine.submit("langid", request("a")).unwrap().wait().unwrap();
}

#[test]
fn a_bad_request_is_refused_and_holds_nothing() {
    let engine = langid(1, 1, 1);
    for _ in 0..3 {
        let error = engine.submit("langid", request("")).unwrap_err();
        assert!(matches!(&error, EngineError::Invalid(reason) if reason.0.contains("text")));
        let error = engine.submit("nobody", request("a")).unwrap_err();
        assert_eq!(error, EngineError::UnknownModel("nobody".to_owned()));
    }
    engine.submit("langid", request("a")).unwrap().wait().unwrap();
}

#[test]
fn a_deadline_ends_a_request_and_frees_what_it_holds() {
    let engine = langid(1, 1, 4);
    let long = "a".repeat(60_000);
    let pending = engine.submit("langid", request(&long).timeout(Duration::from_millis(20)));
    assert_eq!(pending.unwrap().wait().unwrap_err(), EngineError::TimedOut);
    let beside = engine.submit("langid", request("a").timeout(Duration::from_secs(60)));
    beside.unwrap().wait().unwrap();
    assert_eq!((engine.memory().bytes_in_use(), engine.statistics().permits_in_use), (0, 0));
}
