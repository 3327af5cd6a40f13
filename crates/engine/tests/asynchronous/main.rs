//! Tests the engine on an asynchronous device with bounds, which fails tasks and loses workers: requests of
//! every kind, sessions and streams, on two to four workers that share a memory or have one each. A seed
//! decides the order of events.
//!
//! `SEEDS=n cargo test -p batchmaker-engine --release --test asynchronous` plays more seeds.

mod models;
mod playing;
mod starting;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use batchmaker_engine::{
    Engine, EngineConfig, EngineError, NamedTensor, Request, SessionChunk, SessionKey, Tensor,
};
use batchmaker_graph::{StatePlacement, WorkerId};
use batchmaker_manager::Failure;
use batchmaker_simulated::{Faults, SimulatedConfig, SimulatedDevice};

use models::{KINDS, Kind, load_all};
use playing::{Random, wait};

/// No seed takes nearly as long: one that does hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn seeds() -> u64 {
    std::env::var("SEEDS").map_or(200, |seeds| seeds.parse().expect("SEEDS is a number"))
}

fn engine(config: &SimulatedConfig) -> (Engine, Arc<SimulatedDevice>) {
    let (models, registry) = load_all();
    let device = Arc::new(SimulatedDevice::new(config.clone()));
    let config = EngineConfig { workers: config.workers, ..EngineConfig::default() };
    let engine = Engine::start(models, &registry, device.clone(), &config);
    (engine.expect("the device runs every cell"), device)
}

/// A request, and whether its steps are wanted as they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ask {
    kind: Kind,
    length: usize,
    salt: usize,
}

impl Ask {
    fn draw(random: &mut Random) -> Self {
        let kind = KINDS[random.below(KINDS.len())];
        Self { kind, length: 1 + random.below(12), salt: random.below(3) }
    }

    fn request(self) -> Request {
        self.kind.request(self.length, self.salt)
    }
}

/// An engine that has one request at a time, and what it replied.
struct Alone {
    engine: Engine,
    replies: HashMap<Ask, Vec<NamedTensor>>,
}

/// The reply to a request that is alone on a device of one worker.
fn alone(ask: Ask) -> Vec<NamedTensor> {
    static KNOWN: OnceLock<Mutex<Alone>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let config = SimulatedConfig { workers: 1, ..SimulatedConfig::default() };
        Mutex::new(Alone { engine: engine(&config).0, replies: HashMap::new() })
    });
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    let Alone { engine, replies } = &mut *known;
    let reply = || engine.submit(ask.kind.model(), ask.request()).unwrap().wait().unwrap().outputs;
    replies.entry(ask).or_insert_with(reply).clone()
}

/// The configuration that a seed stands for.
struct Scenario {
    device: SimulatedConfig,
    /// Whether requests may fail.
    has_faults: bool,
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let random = &mut Random(seed);
        let mut faults = Faults {
            batch_max: Duration::from_micros([0, 20, 100, 300][random.below(4)]),
            reported_percent: [0, 30, 90][random.below(3)],
            ..Faults::default()
        };
        match seed % 4 {
            1 => faults.failed_percent = 4,
            3 => faults.lost_percent = 2,
            _ => {}
        }
        let device = SimulatedConfig {
            workers: 2 + random.below(3) as u16,
            placement: match random.below(4) {
                0 => StatePlacement::Shared,
                _ => StatePlacement::PerWorker,
            },
            lookahead: random.below(4) as u32,
            slots_max: [None, None, Some(3), Some(8)][random.below(4)],
            rows_max: [None, Some(1), Some(4)][random.below(3)],
            bytes_max: None,
            faults,
            seed,
        };
        Self { device, has_faults: !seed.is_multiple_of(2) }
    }
}

/// Whether a request may end so on a device with faults.
fn is_documented(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Failed(Failure::Task(_) | Failure::WorkerLost(_))
            | EngineError::SessionLost
            | EngineError::DeviceLost(_)
    )
}

/// Counts over all seeds.
#[derive(Default)]
struct Counts {
    right: AtomicU64,
    failed: AtomicU64,
    moved_states: AtomicU64,
    workers_lost: AtomicU64,
    streamed_steps: AtomicU64,
    chunks: AtomicU64,
}

fn play(seed: u64, counts: &Counts) {
    let scenario = Scenario::new(seed);
    let (engine, device) = engine(&scenario.device);
    let random = &mut Random(seed ^ 0x5bd1_e995);
    let asks: Vec<Ask> = (0..24).map(|_| Ask::draw(random)).collect();
    let talks: Vec<Vec<usize>> =
        (0..3).map(|_| (0..1 + random.below(4)).map(|_| 1 + random.below(5)).collect()).collect();
    std::thread::scope(|scope| {
        for (number, chunks) in talks.iter().enumerate() {
            let (engine, scenario) = (&engine, &scenario);
            scope.spawn(move || talk(engine, number, chunks, scenario, counts));
        }
        let mut pending = Vec::new();
        for &ask in &asks {
            let stream = random.below(2) == 0;
            let mut request = ask.request();
            request.stream = stream;
            match engine.submit(ask.kind.model(), request) {
                Ok(one) => pending.push((ask, one)),
                Err(error) => refused(&scenario, &error, counts),
            }
            if random.below(4) == 0 {
                std::thread::sleep(Duration::from_micros(random.below(500) as u64));
            }
            if random.below(12) == 0 {
                // Somebody gives up.
                pending.pop();
            }
        }
        for (ask, one) in pending {
            check(ask, one, &scenario, counts);
        }
    });
    let statistics = engine.statistics();
    counts.moved_states.fetch_add(device.moved_states(), Ordering::Relaxed);
    counts.workers_lost.fetch_add(device.workers_lost() as u64, Ordering::Relaxed);
    assert_eq!(statistics.workers_up + device.workers_lost(), statistics.workers);
    engine.shutdown();
    drop(engine);
    assert_eq!(device.misuses(), []);
    assert_eq!((device.requests(), device.cell_types()), (0, 0), "all is given back");
}

fn refused(scenario: &Scenario, error: &EngineError, counts: &Counts) {
    assert!(scenario.has_faults && is_documented(error), "{error}");
    counts.failed.fetch_add(1, Ordering::Relaxed);
}

/// Takes the steps of a reply as they come, then the reply, which must be that of the request alone.
fn check(ask: Ask, mut pending: batchmaker_engine::Pending, scenario: &Scenario, counts: &Counts) {
    let mut steps: Vec<Vec<NamedTensor>> = Vec::new();
    while let Some(more) = wait(pending.next_steps()) {
        steps.push(more);
    }
    match pending.wait() {
        Ok(reply) => {
            assert_eq!(reply.outputs, alone(ask), "{ask:?}");
            counts.right.fetch_add(1, Ordering::Relaxed);
            let count: usize = steps.iter().map(|steps| steps[0].tensor.shape()[0]).sum();
            counts.streamed_steps.fetch_add(count as u64, Ordering::Relaxed);
            check_steps(ask, &steps, &reply.outputs);
        }
        Err(error) => refused(scenario, &error, counts),
    }
}

/// The steps that came are the rows of the reply, whatever was lost on the way.
fn check_steps(ask: Ask, steps: &[Vec<NamedTensor>], outputs: &[NamedTensor]) {
    let Some(first) = steps.first().and_then(|steps| steps.first()) else { return };
    if ask.kind != Kind::Stacked {
        return;
    }
    let whole = outputs.iter().find(|output| output.name == first.name).unwrap();
    let rows = steps.iter().map(|steps| &steps[0].tensor);
    let floats = |tensor: &Tensor| match tensor.data() {
        batchmaker_engine::TensorData::F32(data) => data.clone(),
        other => panic!("{other:?}"),
    };
    let came: Vec<f32> = rows.flat_map(floats).collect();
    let all = floats(&whole.tensor);
    assert_eq!(came, all, "{ask:?}");
}

/// A sequence in chunks, whose replies together are that to the whole.
fn talk(engine: &Engine, number: usize, chunks: &[usize], scenario: &Scenario, counts: &Counts) {
    let length = chunks.iter().sum();
    let ask = Ask { kind: Kind::Stacked, length, salt: number };
    let batchmaker_engine::TensorData::F32(whole) = ask.request().tensors[0].tensor.data().clone()
    else {
        panic!("x is F32")
    };
    let (mut done, mut rows) = (0, Vec::<f32>::new());
    for (index, &steps) in chunks.iter().enumerate() {
        let x = whole[5 * done..5 * (done + steps)].to_vec();
        done += steps;
        let tensor = Tensor::new(vec![1, steps, 5], batchmaker_engine::TensorData::F32(x));
        let key = SessionKey::Number(number as u64);
        let (start, end) = (index == 0, index + 1 == chunks.len());
        let request = Request::new().input("x", tensor).session(SessionChunk { key, start, end });
        let reply = engine.submit(ask.kind.model(), request).and_then(|pending| pending.wait());
        match reply {
            Ok(reply) => {
                counts.chunks.fetch_add(1, Ordering::Relaxed);
                match reply.outputs[0].tensor.data() {
                    batchmaker_engine::TensorData::F32(data) => rows.extend(data),
                    other => panic!("{other:?}"),
                }
            }
            // The session may have ended with its last chunk.
            Err(EngineError::Invalid(_)) if scenario.has_faults => return,
            Err(error) => return refused(scenario, &error, counts),
        }
    }
    let expected = &alone(ask)[0];
    let batchmaker_engine::TensorData::F32(expected) = expected.tensor.data() else {
        panic!("y is F32")
    };
    assert_eq!(&rows, expected, "{number}: chunks {chunks:?}");
}

/// Runs something that must come to an end.
fn in_time(what: String, run: impl FnOnce() + Send + 'static) {
    let (done, wait) = channel();
    let thread = std::thread::spawn(move || {
        run();
        let _ = done.send(());
    });
    match wait.recv_timeout(PATIENCE) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                eprintln!("{what} failed");
                std::panic::resume_unwind(panic);
            }
        }
        Err(RecvTimeoutError::Timeout) => panic!("{what} hangs"),
    }
}

#[test]
fn replies_are_those_of_requests_alone() {
    let counts = Arc::new(Counts::default());
    for seed in 0..seeds() {
        let counts = counts.clone();
        in_time(format!("seed {seed}"), move || play(seed, &counts));
    }
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    println!(
        "{} seeds: {} right, {} failed as documented, {} chunks, {} steps streamed, {} states moved, \
         {} workers lost",
        seeds(),
        count(&counts.right),
        count(&counts.failed),
        count(&counts.chunks),
        count(&counts.streamed_steps),
        count(&counts.moved_states),
        count(&counts.workers_lost),
    );
    for (what, counted) in [
        ("right replies", &counts.right),
        ("failures", &counts.failed),
        ("states that moved", &counts.moved_states),
        ("lost workers", &counts.workers_lost),
        ("streamed steps", &counts.streamed_steps),
        ("chunks", &counts.chunks),
    ] {
        assert!(count(counted) > 0, "no {what}");
    }
}

#[test]
fn a_device_that_is_lost_altogether_refuses_all() {
    in_time("a lost device".to_owned(), || {
        let faults = Faults { batch_max: Duration::from_micros(200), ..Faults::default() };
        let config = SimulatedConfig { faults, ..SimulatedConfig::default() };
        let (engine, device) = engine(&config);
        let ask = Ask { kind: Kind::Stacked, length: 12, salt: 1 };
        let submit = || engine.submit(ask.kind.model(), ask.request());
        let pending: Vec<_> = (0..20).map(|_| submit().unwrap()).collect();
        device.lose(WorkerId(0));
        device.lose(WorkerId(1));
        let mut lost = 0;
        for pending in pending {
            match pending.wait() {
                Ok(_) => {}
                Err(EngineError::Failed(Failure::WorkerLost(reason))) => {
                    assert!(reason.contains("was lost"), "{reason}");
                    lost += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(lost > 0);
        while !engine.is_lost() {
            std::thread::yield_now();
        }
        assert!(matches!(submit(), Err(EngineError::DeviceLost(_))));
        assert_eq!(engine.statistics().workers_up, 0);
        engine.shutdown();
    });
}

#[test]
fn a_full_device_refuses_until_there_is_room() {
    let config = SimulatedConfig { bytes_max: Some(4000), ..SimulatedConfig::default() };
    let (engine, device) = engine(&config);
    let ask = Ask { kind: Kind::Stacked, length: 12, salt: 1 };
    let submit = || engine.submit(ask.kind.model(), ask.request());
    let mut pending = Vec::new();
    let error = loop {
        match submit() {
            Ok(one) => pending.push(one),
            Err(error) => break error,
        }
        assert!(pending.len() < 1000, "there is always room");
    };
    assert!(matches!(error, EngineError::MemoryInUse { .. }), "{error}");
    for one in pending {
        assert_eq!(one.wait().unwrap().outputs, alone(ask));
    }
    assert_eq!(submit().unwrap().wait().unwrap().outputs, alone(ask));
    assert_eq!(device.misuses(), []);
}
