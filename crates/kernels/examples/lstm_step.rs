//! Times one fused LSTM step in one thread: microseconds a step and GFLOP/s, as medians.
//!
//! ```sh
//! cargo run --release -p batchmaker-kernels --example lstm_step
//! ```
//! Arguments, if any, are the instruction sets to time. The input size equals the hidden size;
//! only the products are counted, `2 * 4 * hidden * (input + hidden)` operations a row. Weights
//! stay as warm as the caches allow, since the same step is repeated.

use std::hint::black_box;
use std::time::{Duration, Instant};

use batchmaker_kernels::{Isa, KernelError, LstmParameters, PackedLstm, step_dense};

/// Samples are taken until both are reached (or a single sample takes longer).
const SAMPLES_MIN: usize = 15;
const SAMPLING: Duration = Duration::from_millis(300);
/// A sample repeats the step for about this long, so that the clock does not matter.
const SAMPLE: Duration = Duration::from_micros(500);

fn main() -> Result<(), KernelError> {
    let mut isas =
        std::env::args().skip(1).map(|name| name.parse()).collect::<Result<Vec<Isa>, _>>()?;
    if isas.is_empty() {
        isas = Isa::ALL.into_iter().filter(|i| i.is_available()).collect();
    }
    println!("isa     hidden  batch    us/step   GFLOP/s");
    for isa in isas {
        for hidden_size in list("HIDDEN", "64 128 256 512 1024") {
            for batch in list("BATCH", "1 2 4 8 16 64 256") {
                let flops = (2 * 4 * hidden_size * 2 * hidden_size * batch) as f64;
                if isa == Isa::Scalar && flops > 3e8 {
                    continue; // Seconds a step, and nobody would choose it.
                }
                let seconds = time_step(isa, hidden_size, batch)?;
                println!(
                    "{isa:<7} {hidden_size:>6} {batch:>6} {:>10.1} {:>9.1}",
                    seconds * 1e6,
                    flops / seconds * 1e-9,
                );
            }
        }
    }
    Ok(())
}

fn list(name: &str, default: &str) -> Vec<usize> {
    let text = std::env::var(name).unwrap_or(default.to_owned());
    text.split(' ').map(|n| n.parse().unwrap()).collect()
}

/// The median of seconds a step.
fn time_step(isa: Isa, hidden_size: usize, batch: usize) -> Result<f64, KernelError> {
    let mut seed = 1_u32;
    let mut random = |len: usize, scale: f32| -> Vec<f32> {
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((seed >> 8) as f32 / (1 << 23) as f32 - 1.0) * scale
        };
        (0..len).map(|_| next()).collect()
    };
    let scale = 1.0 / (hidden_size as f32).sqrt();
    let lstm = PackedLstm::new(
        isa,
        LstmParameters {
            input_size: hidden_size,
            hidden_size,
            w: &random(4 * hidden_size * hidden_size, scale),
            r: &random(4 * hidden_size * hidden_size, scale),
            b: Some(&random(8 * hidden_size, scale)),
            p: None,
        },
    )?;
    let x = random(batch * hidden_size, 1.0);
    let mut h = random(batch * hidden_size, 1.0);
    let mut h_out = h.clone();
    let mut c = random(batch * hidden_size, 1.0);
    let mut run = |steps: usize| -> Result<Duration, KernelError> {
        let start = Instant::now();
        for _ in 0..steps {
            step_dense(&lstm, batch, black_box(&x), &h, &mut h_out, &mut c)?;
            std::mem::swap(&mut h, &mut h_out);
        }
        black_box(&mut h);
        Ok(start.elapsed())
    };

    let once = run(1)?.min(run(1)?);
    let steps = (SAMPLE.as_secs_f64() / once.as_secs_f64()).ceil() as usize;
    let mut samples = Vec::new();
    let start = Instant::now();
    let mut peaks = Vec::new();
    while samples.len() < SAMPLES_MIN || start.elapsed() < SAMPLING {
        samples.push(run(steps)?.as_secs_f64() / steps as f64);
        let s = Instant::now();
        let f = batchmaker_kernels::peaks::multiply_adds(isa, 30_000)? as f64;
        peaks.push(f / s.elapsed().as_secs_f64() * 1e-9);
    }
    samples.sort_by(f64::total_cmp);
    peaks.sort_by(f64::total_cmp);
    let fl = (2 * 4 * hidden_size * 2 * hidden_size * batch) as f64 * 1e-9;
    print!(
        "peak {:.1} share {:.3}  ",
        peaks[peaks.len() / 2],
        fl / samples[samples.len() / 2] / peaks[peaks.len() / 2]
    );
    Ok(samples[samples.len() / 2])
}
