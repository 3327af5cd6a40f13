//! Runs recurrent operators on the CPU device, as lines on standard input ask for. The
//! other half, `bench/peers/operators.py`, times ONNX Runtime and PyTorch in turns with it:
//! `cargo xtask operators`.
//!
//! | line | does | answers |
//! |---|---|---|
//! | `load KIND HIDDEN LAYERS BATCH STEPS THREADS` | makes a batch of sequences; input size = hidden size | `ready` |
//! | `run N` | runs all layers over all steps, N times | nanoseconds in all |
//! | `multiply-adds` | the register-only loop, on all threads at once | GFLOP/s |
//! | `read` | a sweep over memory larger than any cache, on all threads | GB/s |
//!
//! KIND is `lstm`, `gru` (reset after the product, as PyTorch has it), `gru0` (before) or `rnn`.

use std::io::{BufRead, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use batchmaker_cpu::{CpuConfig, CpuDevice, Isa};
use batchmaker_device::LoneWorker;
use batchmaker_graph::{
    Cell, CellGraphBuilder, CellRegistry, CellTypeId, ElementType, Join, ModelId, ModelPriority,
    RecurrentCell, RecurrentKind, RequestId, RnnActivation, RowSpec, Rows, RunIndex, Sink,
    SinkTime, SlotId, Tensor, TensorData, Work,
};
use batchmaker_kernels::peaks;
use core_affinity::CoreId;

/// The time that a limit of the machine is measured.
const PEAK: Duration = Duration::from_millis(20);

/// Floats that each thread sweeps over: 128 MiB, more than a last-level cache.
const SWEEP: usize = 32 << 20;

/// Those of the process, asked for before a thread is pinned.
static CORES: OnceLock<Vec<CoreId>> = OnceLock::new();

fn main() -> anyhow::Result<()> {
    CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default());
    let mut loaded: Option<Loaded> = None;
    let mut threads = 1;
    let mut memory = Vec::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let answer = match arguments[..] {
            ["load", kind, ref numbers @ ..] => {
                let numbers: Vec<usize> =
                    numbers.iter().map(|n| n.parse()).collect::<Result<_, _>>()?;
                let &[hidden, layers, batch, steps, with_threads] = &numbers[..] else {
                    bail!("load KIND HIDDEN LAYERS BATCH STEPS THREADS");
                };
                threads = with_threads;
                drop(loaded.take());
                loaded = Some(Loaded::new(kind, hidden, layers, batch, steps, threads)?);
                "ready".to_owned()
            }
            ["run", times] => {
                let loaded = loaded.as_mut().context("nothing is loaded")?;
                let start = Instant::now();
                for _ in 0..times.parse()? {
                    loaded.run();
                }
                start.elapsed().as_nanos().to_string()
            }
            ["multiply-adds"] => multiply_adds(threads)?.to_string(),
            ["read"] => {
                memory.resize(threads, Vec::new());
                memory.iter_mut().for_each(|part: &mut Vec<f32>| part.resize(SWEEP, 1.0));
                read(&memory)?.to_string()
            }
            _ => bail!("unknown line {line:?}"),
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// A batch of sequences of one length, through layers of one kind.
struct Loaded {
    worker: LoneWorker,
    layers: usize,
    batch: usize,
    steps: u32,
    has_run: bool,
}

impl Loaded {
    fn new(
        kind: &str,
        hidden: usize,
        layers: usize,
        batch: usize,
        steps: usize,
        threads: usize,
    ) -> anyhow::Result<Self> {
        let kind = match kind {
            "lstm" => RecurrentKind::Lstm { p: None, bytes: None },
            "gru" => RecurrentKind::Gru { linear_before_reset: true },
            "gru0" => RecurrentKind::Gru { linear_before_reset: false },
            "rnn" => RecurrentKind::Rnn { activation: RnnActivation::Tanh },
            _ => bail!("unknown kind {kind:?}: lstm, gru, gru0 or rnn"),
        };
        let mut random = Random(1);
        let mut registry = CellRegistry::default();
        let scale = 1.0 / (hidden as f32).sqrt();
        for layer in 0..layers {
            let gates = kind.gates();
            let cell = RecurrentCell {
                kind: kind.clone(),
                input_size: hidden,
                hidden_size: hidden,
                w: random.vec(gates * hidden * hidden, scale).into(),
                r: random.vec(gates * hidden * hidden, scale).into(),
                b: Some(random.vec(2 * gates * hidden, scale).into()),
                lookup: None,
            };
            let rank = ModelPriority { model: ModelId(0), priority: layer as i32 };
            registry.add("layer", Cell::recurrent(cell), batch as u32, rank);
        }
        let config =
            CpuConfig { threads_per_worker: threads, pin_threads: true, ..CpuConfig::default() };
        let worker = LoneWorker::with_cells(CpuDevice::new(config)?, registry.cell_types())?;
        for index in 0..batch {
            let x = random.vec(steps * hidden, 1.0);
            let (graph, x) = sequence(kind.states(), hidden, layers, steps as u32, x);
            worker.device().admit(request(index), Arc::new(graph), vec![x])?;
        }
        Ok(Self { worker, layers, batch, steps: steps as u32, has_run: false })
    }

    /// Every layer over the whole batch.
    fn run(&mut self) {
        let slot = |index: usize| SlotId { index: index as u32, generation: 0 };
        for layer in 0..self.layers {
            let join = |index| Join {
                request: request(index),
                run: RunIndex(layer as u32),
                slot: slot(index),
                step: 0,
                moved_from: None,
            };
            let work = Work::Roster {
                leaves: (0..self.batch).filter(|_| self.has_run).map(slot).collect(),
                joins: (0..self.batch).map(join).collect(),
                steps: self.steps,
            };
            let done = self.worker.run(CellTypeId(layer as u32), work);
            done.result.expect("fused kernels do not fail");
        }
        self.has_run = true;
    }
}

/// Layers one above the other: every step of the last, and the last states of each.
fn sequence(
    states: usize,
    hidden: usize,
    layers: usize,
    steps: u32,
    x: Vec<f32>,
) -> (batchmaker_graph::CellGraph, Tensor) {
    let row = || RowSpec::new(ElementType::F32, [hidden]);
    let mut graph = CellGraphBuilder::new();
    let mut below = graph.input(row(), steps);
    for layer in 0..layers {
        let (y, last) = (graph.value(row(), steps), graph.value(row(), states as u32));
        let mut sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) }];
        sinks.extend((0..states).map(|port| {
            let rows = Rows::one(last, port as u32);
            Sink { port, time: SinkTime::Last, rows }
        }));
        let cell_type = CellTypeId(layer as u32);
        graph.chain(cell_type, steps, vec![Rows::all(below)], vec![None; states], sinks);
        graph.output(last);
        below = y;
    }
    graph.output(below);
    let shape = vec![steps as usize, hidden];
    (graph.finish().unwrap(), Tensor::new(shape, TensorData::F32(x)))
}

fn request(index: usize) -> RequestId {
    RequestId { index: index as u32, generation: 0 }
}

/// GFLOP/s of all threads together.
fn multiply_adds(threads: usize) -> anyhow::Result<f64> {
    const TURNS: usize = 10_000;
    on_all(threads, |_| {
        let (mut operations, start) = (0.0, Instant::now());
        while start.elapsed() < PEAK {
            operations += peaks::multiply_adds(Isa::best(), TURNS)? as f64;
        }
        Ok(operations / start.elapsed().as_secs_f64() * 1e-9)
    })
}

/// GB/s of all threads together.
fn read(memory: &[Vec<f32>]) -> anyhow::Result<f64> {
    on_all(memory.len(), |thread| {
        let start = Instant::now();
        peaks::read_sweep(Isa::best(), &memory[thread])?;
        Ok(size_of_val(&memory[thread][..]) as f64 / start.elapsed().as_secs_f64() * 1e-9)
    })
}

/// The sum of what `measure` says on each of `threads` threads at once.
fn on_all(
    threads: usize,
    measure: impl Fn(usize) -> anyhow::Result<f64> + Sync,
) -> anyhow::Result<f64> {
    let cores = CORES.get().map_or(&[][..], Vec::as_slice);
    std::thread::scope(|scope| {
        let measure = &measure;
        let on_core = |at: usize| {
            scope.spawn(move || {
                cores.get(at).map(|&core| core_affinity::set_for_current(core));
                measure(at)
            })
        };
        let all: Vec<_> = (0..threads).map(on_core).collect();
        all.into_iter().map(|one| one.join().map_err(|_| anyhow!("a thread failed"))?).sum()
    })
}

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn vec(&mut self, len: usize, scale: f32) -> Vec<f32> {
        let mut next = || {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..len).map(|_| next() * scale).collect()
    }
}
