//! The performance model against exhaustive search: over cells, hidden sizes and batches, how much
//! slower than the best of all configurations the model's first choice is, and the best of the
//! five that are run.
//!
//! `cargo run --release -p batchmaker-cpu --example ranking -- [--precision P] [--seed S]`
//!
//! The cases are drawn at random from the seed. All configurations are measured; then those in
//! question, the model's first five and the five that were the fastest, are measured again in turns,
//! and these times are compared.

use std::time::{Duration, Instant};

use batchmaker_cpu::Isa;
use batchmaker_cpu::tuning::{
    CANDIDATES, Configuration, MachineModel, Packing, PerformanceModel, Precision, Probe, Trial,
    candidates, rank, search,
};
use batchmaker_graph::{RecurrentCell, RecurrentKind, RnnActivation};

const CASES: usize = 36;
const HIDDEN: [usize; 8] = [48, 64, 128, 200, 256, 384, 512, 1024];
const BATCH: [usize; 12] = [1, 2, 3, 4, 7, 10, 16, 20, 32, 64, 100, 256];

const TIME: Duration = Duration::from_micros(800);
const TURNS: usize = 3;
const FINAL_TIME: Duration = Duration::from_millis(2);
const FINAL_TURNS: usize = 9;

/// A small generator of numbers (Numerical Recipes).
struct Random(u32);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) as usize % bound
    }
}

fn cell(kind: RecurrentKind, hidden: usize) -> RecurrentCell {
    let gates = kind.gates();
    let scale = 1.0 / (hidden as f32).sqrt();
    let numbers =
        |len: usize| (0..len).map(|at| ((at * 7919 % 1013) as f32 / 506.0 - 1.0) * scale).collect();
    RecurrentCell {
        kind,
        input_size: hidden,
        hidden_size: hidden,
        w: numbers(gates * hidden * hidden),
        r: numbers(gates * hidden * hidden),
        b: None,
        lookup: None,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut precision, mut seed) = (Precision::F32, 1);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().unwrap_or_default();
        match (arg.as_str(), value.as_str()) {
            ("--precision", "f32") => precision = Precision::F32,
            ("--precision", "bf16") => precision = Precision::Bf16,
            ("--precision", "int8") => precision = Precision::Int8,
            ("--seed", seed_) => seed = seed_.parse()?,
            _ => return Err(format!("unknown argument {arg}").into()),
        }
    }
    let (isa, threads) = (Isa::best(), std::thread::available_parallelism()?.get());
    let packing = Packing { isa, precision };
    let start = Instant::now();
    let machine = MachineModel::measure(isa, threads)?;
    println!(
        "{precision:?}, {isa}, {threads} threads; machine measured in {:.1?}",
        start.elapsed()
    );
    println!(
        "  cell            batch  strategies  best us  first  of five  search  the model's first choice"
    );
    let mut random = Random(seed);
    let (mut firsts, mut fives, mut searching) = (Vec::new(), Vec::new(), Duration::ZERO);
    for _ in 0..CASES {
        let (name, kind) = match random.below(4) {
            0 => ("GRU", RecurrentKind::Gru { linear_before_reset: true }),
            1 => ("GRU before", RecurrentKind::Gru { linear_before_reset: false }),
            2 => ("RNN", RecurrentKind::Rnn { activation: RnnActivation::Tanh }),
            _ => ("LSTM", RecurrentKind::Lstm { p: None, bytes: None }),
        };
        let (hidden, batch) = (HIDDEN[random.below(8)], BATCH[random.below(12)]);
        let cell = cell(kind, hidden);
        let mut trial = Trial::new(packing, &cell)?;
        let shape = trial.shape();
        let start = Instant::now();
        let probe = Probe::measure(packing, &cell)?;
        let model = PerformanceModel { machine: &machine, probe: &probe, shape: &shape };
        search(&model, &mut trial, batch, threads)?;
        let searched = start.elapsed();
        searching += searched;

        let ranked = rank(&model, batch, threads);
        let chosen = candidates(&ranked);
        let place = |configuration: &Configuration| {
            chosen.iter().position(|known| known == configuration).unwrap_or(usize::MAX - 1)
        };
        let mut measured: Vec<(usize, Configuration, f64)> =
            ranked.iter().map(|known| (place(&known.0), known.0, f64::MAX)).collect();
        for _ in 0..TURNS {
            for (_, configuration, least) in &mut measured {
                *least = least.min(trial.step_ns(configuration, batch, TIME)?);
            }
        }
        measured.sort_by(|a, b| a.2.total_cmp(&b.2));
        let mut fast = 0;
        measured.retain(|&(place, ..)| {
            fast += 1;
            place < CANDIDATES || fast <= CANDIDATES
        });
        measured.iter_mut().for_each(|known| known.2 = f64::MAX);
        for _ in 0..FINAL_TURNS {
            for (_, configuration, least) in &mut measured {
                *least = least.min(trial.step_ns(configuration, batch, FINAL_TIME)?);
            }
        }
        let least = |places: usize| {
            let of_places = measured.iter().filter(|known| known.0 < places);
            of_places.map(|known| known.2).fold(f64::INFINITY, f64::min)
        };
        let best = least(usize::MAX);
        let (first, five) = (least(1) / best, least(CANDIDATES) / best);
        println!(
            "  {name:<10} {hidden:>4} {batch:>6} {:>5} {:>8.1}  {first:>5.2}  {five:>7.2}  {:>5.0?}  {:?} {}{}",
            ranked.len(),
            best / 1e3,
            searched,
            ranked[0].0.strategy.split,
            if ranked[0].0.strategy.pre_projection { "pre-projected " } else { "" },
            ranked[0].0.tiling.map_or(String::new(), |tiling| format!("{tiling:?}")),
        );
        firsts.push(first);
        fives.push(five);
    }
    let worst = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    println!(
        "first choice: {:.3} in the worst case, {:.3} in the mean; best of {CANDIDATES}: {:.3}, {:.3}; \
         {:.1?} of search in all",
        worst(&firsts),
        mean(&firsts),
        worst(&fives),
        mean(&fives),
        searching,
    );
    Ok(())
}
