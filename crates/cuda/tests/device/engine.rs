//! The engine on emulated GPUs: chains, heads, decoders, trees, sessions and streams. Replies have the bits of requests that are alone, and
//! are those of the CPU within 1e-5.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_cuda::{Compile, CudaConfig, CudaDevice};
use batchmaker_device::Device;
use batchmaker_engine::{
    Engine, EngineConfig, EngineError, NamedTensor, Pending, Request, SessionChunk, SessionKey,
    Tensor, TensorData,
};
use batchmaker_manager::Failure;

use crate::emulated::{Emulated, compile_for_cell, config, in_process, quantum};
use crate::models::{KINDS, Kind, load_all};
use crate::playing::{Random, wait};

/// The largest difference from the CPU's replies, of numbers up to 1; of larger ones in proportion.
const TOLERANCE: f32 = 1e-5;

pub(crate) fn engine(device: impl Device + 'static, workers: usize) -> Engine {
    let (models, registry) = load_all();
    let config = EngineConfig { workers: workers as u16, ..EngineConfig::default() };
    let engine = Engine::start(models, &registry, Arc::new(device), &config);
    engine.expect("the device runs every cell")
}

/// A device whose memory is taken from the driver piece by piece, or, for odd seeds, in blocks; these have room for a few graphs only.
fn cuda(emulated: &Emulated, gpus: usize, kernels: Kernels) -> CudaDevice {
    let (block_bytes, graphs_max) =
        if emulated.seed() % 2 == 1 { (1 << 18, 3) } else { (0, CudaConfig::default().graphs_max) };
    let persistent = (kernels != Kernels::Shared).then_some(compile_for_cell as Compile);
    let quantum = (kernels == Kernels::Quanta).then(|| quantum(emulated));
    CudaDevice::new(CudaConfig { block_bytes, graphs_max, persistent, quantum, ..config(gpus) })
        .unwrap()
}

/// The kernels of recurrent cells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kernels {
    /// Those that all cells share.
    Shared,
    /// Those that are made for a cell, with a launch for each task.
    PerTask,
    /// The same, with launches that run task after task.
    Quanta,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ask {
    kind: Kind,
    length: usize,
    salt: usize,
}

impl Ask {
    fn draw(random: &mut Random) -> Self {
        let kind = KINDS[random.below(KINDS.len())];
        // The decoder is a model of real size, which the emulator takes long for.
        let longest = if kind == Kind::Decoded { 2 } else { 8 };
        Self { kind, length: 1 + random.below(longest), salt: random.below(2) }
    }

    fn request(self) -> Request {
        self.kind.request(self.length, self.salt)
    }
}

/// An engine that has one request at a time, on a GPU and on the CPU.
struct Alone {
    engines: [Engine; 2],
    replies: Mutex<HashMap<Ask, Vec<NamedTensor>>>,
}

impl Alone {
    fn new(emulated: &Emulated, kernels: Kernels) -> Self {
        let cpu = CpuDevice::new(CpuConfig::default()).unwrap();
        let engines = [engine(cuda(emulated, 1, kernels), 1), engine(cpu, 1)];
        Self { engines, replies: Mutex::default() }
    }

    /// The reply to a request that is alone on a GPU, which is close to that of the CPU.
    fn reply(&self, ask: Ask) -> Vec<NamedTensor> {
        let mut replies = self.replies.lock().unwrap_or_else(PoisonError::into_inner);
        let compute = || {
            let [on_gpu, on_cpu] = self.engines.each_ref().map(|engine| {
                engine.submit(ask.kind.model(), ask.request()).unwrap().wait().unwrap().outputs
            });
            check_close(ask, &on_gpu, &on_cpu);
            on_gpu
        };
        replies.entry(ask).or_insert_with(compute).clone()
    }
}

fn check_close(ask: Ask, on_gpu: &[NamedTensor], on_cpu: &[NamedTensor]) {
    assert_eq!(on_gpu.len(), on_cpu.len());
    for (gpu, cpu) in on_gpu.iter().zip(on_cpu) {
        let name = &gpu.name;
        assert_eq!((name, gpu.tensor.shape()), (&cpu.name, cpu.tensor.shape()), "{ask:?}");
        match (gpu.tensor.data(), cpu.tensor.data()) {
            (TensorData::F32(gpu), TensorData::F32(cpu)) => {
                for (gpu, cpu) in gpu.iter().zip(cpu) {
                    let is_close = (gpu - cpu).abs() <= TOLERANCE * cpu.abs().max(1.0);
                    assert!(is_close, "{ask:?}, {name}: {gpu} is not {cpu}");
                }
            }
            (gpu, cpu) => assert_eq!(gpu, cpu, "{ask:?}, {name}"),
        }
    }
}

/// Whether a request may end so where a GPU is lost.
fn is_of_loss(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Failed(Failure::Task(_) | Failure::WorkerLost(_))
            | EngineError::SessionLost
            | EngineError::DeviceLost(_)
    )
}

/// Takes the steps of a reply as they come, then the reply. Returns the number of steps, or none where the request failed with a GPU.
fn check(alone: &Alone, ask: Ask, mut pending: Pending, may_fail: bool) -> Option<usize> {
    let mut steps = 0;
    while let Some(more) = wait(pending.next_steps()) {
        steps += more[0].tensor.shape()[0];
    }
    match pending.wait() {
        Ok(reply) => assert_eq!(reply.outputs, alone.reply(ask), "{ask:?}"),
        Err(error) => {
            assert!(may_fail && is_of_loss(&error), "{ask:?}: {error}");
            return None;
        }
    }
    Some(steps)
}

/// A sequence in chunks, whose replies together are that to the whole.
fn talk(engine: &Engine, alone: &Alone, number: usize, chunks: &[usize], may_fail: bool) {
    let ask = Ask { kind: Kind::Stacked, length: chunks.iter().sum(), salt: number };
    let floats = |tensor: &Tensor| match tensor.data() {
        TensorData::F32(data) => data.clone(),
        other => panic!("{other:?}"),
    };
    let whole = floats(&ask.request().tensors[0].tensor);
    let (mut done, mut rows) = (0, Vec::<f32>::new());
    for (index, &steps) in chunks.iter().enumerate() {
        let x = whole[5 * done..5 * (done + steps)].to_vec();
        done += steps;
        let tensor = Tensor::new(vec![1, steps, 5], TensorData::F32(x));
        let key = SessionKey::Number(number as u64);
        let (start, end) = (index == 0, index + 1 == chunks.len());
        let request = Request::new().input("x", tensor).session(SessionChunk { key, start, end });
        match engine.submit(ask.kind.model(), request).and_then(Pending::wait) {
            Ok(reply) => rows.extend(floats(&reply.outputs[0].tensor)),
            Err(_) if may_fail => return,
            Err(error) => panic!("{number}: {error}"),
        }
    }
    assert_eq!(rows, floats(&alone.reply(ask)[0].tensor), "{number}: chunks {chunks:?}");
}

/// How often all requests are sent at most, until some have streamed steps and have moved between GPUs.
const TURNS_MAX: usize = 10;

/// Requests and sessions on some GPUs, one of which may be lost on the way.
fn play(emulated: &'static Emulated, gpus: usize, loses: bool) {
    play_with(emulated, gpus, loses, Kernels::Shared);
}

fn play_with(emulated: &'static Emulated, gpus: usize, loses: bool, kernels: Kernels) {
    emulated.configure("devices", &gpus.to_string());
    emulated.configure("pause_us", "50");
    let engine = engine(cuda(emulated, gpus, kernels), gpus);
    let random = &mut Random(emulated.seed() ^ 0x5bd1_e995);
    let asks: Vec<Ask> = (0..20).map(|_| Ask::draw(random)).collect();
    // On a GPU that is not lost: the first is.
    let alone = Alone::new(emulated, kernels);
    if loses {
        asks.iter().for_each(|&ask| _ = alone.reply(ask));
        (0..3).for_each(|salt| _ = alone.reply(Ask { kind: Kind::Stacked, length: 7, salt }));
    }
    let (mut streamed, mut failed) = (0, 0);
    let moved = || {
        let devices = engine.statistics().devices;
        devices.iter().map(|of| of.states_moved).sum::<u64>()
    };
    // Which sequences move depends on the speed of the GPUs.
    for _ in 0..TURNS_MAX {
        std::thread::scope(|scope| {
            for number in 0..3 {
                let (engine, alone) = (&engine, &alone);
                scope.spawn(move || talk(engine, alone, number, &[2, 1, 4], loses));
            }
            let mut pending = Vec::new();
            for (at, &ask) in asks.iter().enumerate() {
                let mut request = ask.request();
                request.stream = at % 2 == 0;
                match engine.submit(ask.kind.model(), request) {
                    Ok(one) => pending.push((ask, one)),
                    Err(error) => assert!(loses && is_of_loss(&error), "{error}"),
                }
                if at == asks.len() / 2 && loses {
                    emulated.configure("lose_device", "0");
                }
            }
            for (ask, one) in pending {
                match check(&alone, ask, one, loses) {
                    Some(steps) => streamed += steps,
                    None => failed += 1,
                }
            }
        });
        if loses || streamed > 0 && (gpus == 1 || moved() > 0) {
            break;
        }
    }
    let moved = moved();
    println!(
        "{streamed} steps streamed, {moved} states moved, {failed} requests failed with their GPU"
    );
    assert!(streamed > 0, "no step is streamed");
    assert!(gpus == 1 || loses || moved > 0, "no sequence moves to the other GPU");
    if loses {
        let up = engine.statistics().workers_up;
        assert!(up < gpus && failed < asks.len(), "{up} GPUs are up, {failed} requests failed");
        // Those that are left serve on.
        if up > 0 {
            let ask = Ask { kind: Kind::Stacked, length: 7, salt: 0 };
            let reply = engine.submit(ask.kind.model(), ask.request()).unwrap().wait();
            assert_eq!(reply.unwrap().outputs, alone.reply(ask));
        }
    }
    engine.shutdown();
    assert_eq!(emulated.reports(), [""; 0]);
    // A driver that lacks one of them is refused.
    let known = BTreeSet::from(CudaDevice::DRIVER_FUNCTIONS.map(str::to_owned));
    let asked = emulated.asked();
    let functions = asked.iter().filter(|of| of.starts_with("cu"));
    let unknown: Vec<_> = functions.filter(|&of| !known.contains(of)).collect();
    assert_eq!(unknown, [""; 0]);
}

#[test]
fn one_gpu() {
    in_process("engine::one_gpu", 2, |emulated| play(emulated, 1, false));
}

/// The same with recurrent cells whose weights stay on the chip for all steps of a task.
#[test]
fn persistent_kernels() {
    in_process("engine::persistent_kernels", 2, |emulated| {
        play_with(emulated, 2, false, Kernels::PerTask);
        let asked = emulated.asked();
        let has = |launch: &str| asked.iter().any(|of| of.contains(launch));
        assert!(has("a launch of persistent_lstm_"), "{asked:?}");
        // A GRU of 320 units does not fit the registers of such a GPU, and has weights in shared memory.
        let large = "a launch of persistent_gru_reset_after_320_";
        assert!(asked.iter().any(|of| of.contains(large) && of.contains("_shared")), "{asked:?}");
    });
}

/// The same with launches that run task after task of a roster, until a task of another cell comes.
#[test]
fn quanta() {
    let play = |emulated| play_quanta(emulated, 1, false);
    in_process("engine::quanta", 2, play);
}

#[test]
fn quanta_on_two_gpus() {
    let play = |emulated| play_quanta(emulated, 2, false);
    in_process("engine::quanta_on_two_gpus", 2, play);
}

#[test]
fn a_gpu_is_lost_with_its_quanta() {
    let play = |emulated| play_quanta(emulated, 2, true);
    in_process("engine::a_gpu_is_lost_with_its_quanta", 2, play);
}

fn play_quanta(emulated: &'static Emulated, gpus: usize, loses: bool) {
    play_with(emulated, gpus, loses, Kernels::Quanta);
    let asked = emulated.asked();
    let launch = "a launch of quantum_lstm_";
    assert!(asked.iter().any(|of| of.starts_with(launch)), "{asked:?}");
}

#[test]
fn two_gpus() {
    in_process("engine::two_gpus", 2, |emulated| play(emulated, 2, false));
}

#[test]
fn a_gpu_is_lost() {
    in_process("engine::a_gpu_is_lost", 2, |emulated| play(emulated, 2, true));
}

/// Requests while one allocation finds no memory, or all from one on: whichever it is, a request fails and says why, or has the reply of one that is alone.
fn memory_runs_out(emulated: &'static Emulated) {
    let alone = Alone::new(emulated, Kernels::Shared);
    let is_full = |error: &EngineError| matches!(error, EngineError::Failed(Failure::Task(reason)) if reason.contains("no memory left"));
    let kinds = KINDS.into_iter().filter(|&kind| kind != Kind::Decoded).cycle();
    let (mut right, mut failed) = (0, 0);
    for first in (1..=40).step_by(2).map(|first| first + emulated.seed() % 2) {
        // New each time: what a GPU has once taken it keeps. It takes its memory from the driver piece by piece.
        let engine = engine(CudaDevice::new(config(1)).unwrap(), 1);
        // One allocation, or all from one on.
        let setting = ["fail_allocation", "full_from"][emulated.seed() as usize % 2];
        emulated.configure(setting, &first.to_string());
        let asks = kinds.clone().zip(0..8).map(|(kind, salt)| Ask { kind, length: 3 + salt, salt });
        let submit = |ask: Ask| (ask, engine.submit(ask.kind.model(), ask.request()).unwrap());
        let pending: Vec<_> = asks.map(submit).collect();
        for (ask, one) in pending {
            match one.wait() {
                Ok(reply) => {
                    assert_eq!(reply.outputs, alone.reply(ask), "{first}: {ask:?}");
                    right += 1;
                }
                Err(error) => {
                    assert!(is_full(&error), "{first}: {ask:?}: {error} {:?}", emulated.reports());
                    failed += 1;
                }
            }
        }
        emulated.configure(setting, "0");
        let ask = Ask { kind: Kind::Stacked, length: 7, salt: 0 };
        let later = engine.submit(ask.kind.model(), ask.request()).unwrap().wait().unwrap();
        assert_eq!(later.outputs, alone.reply(ask), "{first}: later");
        engine.shutdown();
    }
    println!("{right} replies, {failed} requests failed");
    assert!(failed > 5 && right > 5, "{right} replies, {failed} requests failed");
    assert_eq!(emulated.reports(), [""; 0]);
}

#[test]
fn no_memory_at_any_allocation() {
    in_process("engine::no_memory_at_any_allocation", 2, memory_runs_out);
}
