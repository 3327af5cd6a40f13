//! A step of an LSTM in each precision beside f32, in one thread: the median of turns in which each
//! is measured once.
//!
//! `cargo run --release -p batchmaker-kernels --example precision -- [ISA]`

use std::time::{Duration, Instant};

use batchmaker_kernels::{
    Isa, LstmParameters, PackedLstm, Packing, Precision, Recurrence, StepRow, XPart,
};

const HIDDEN: [usize; 4] = [256, 512, 1024, 1536];
const BATCH: [usize; 7] = [1, 2, 4, 16, 64, 128, 512];
const TURNS: usize = 9;
const AT_LEAST: Duration = Duration::from_millis(10);

/// Numbers in `-scale..scale`.
fn numbers(len: usize, scale: f32) -> Vec<f32> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 8) as f32 / (1 << 23) as f32 - 1.0) * scale
    };
    (0..len).map(|_| next()).collect()
}

fn seconds_a_step(lstm: &PackedLstm, rows: &[StepRow]) -> f64 {
    let start = Instant::now();
    let mut steps = 0;
    while start.elapsed() < AT_LEAST {
        // SAFETY: rows of the cell's lengths that nobody else uses.
        unsafe { lstm.step(0, rows, 0..lstm.panels(0)) };
        steps += 1;
    }
    start.elapsed().as_secs_f64() / f64::from(steps)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let isa = std::env::args().nth(1).map_or(Ok(Isa::best()), |name| name.parse())?;
    println!(
        "LSTM, input = hidden, {isa}, one thread; microseconds a step, and times as fast as f32"
    );
    println!("{:>6} {:>6} {:>10} {:>18} {:>18}", "hidden", "batch", "f32", "bf16", "int8");
    for hidden in HIDDEN {
        let w = numbers(4 * hidden * hidden, 1.0 / (hidden as f32).sqrt());
        let parameters = LstmParameters {
            input_size: hidden,
            hidden_size: hidden,
            w: &w,
            r: &w,
            b: None,
            p: None,
            bytes: None,
        };
        let pack = |precision| PackedLstm::new(Packing { isa, precision }, parameters);
        let cells = Precision::ALL.into_iter().map(pack).collect::<Result<Vec<_>, _>>()?;
        for batch in BATCH {
            let mut memory = [(); 4].map(|()| numbers(batch * hidden, 1.0));
            let [x, h, h_out, c] = memory.each_mut().map(|part| part.as_mut_ptr());
            let row = |row: usize| StepRow {
                x: x.wrapping_add(row * hidden),
                x_part: XPart::Given,
                h_in: h.wrapping_add(row * hidden),
                h_out: h_out.wrapping_add(row * hidden),
                c: c.wrapping_add(row * hidden),
                y: std::ptr::null_mut(),
            };
            let rows: Vec<StepRow> = (0..batch).map(row).collect();
            let mut times = vec![Vec::new(); cells.len()];
            for _ in 0..TURNS {
                for (cell, times) in cells.iter().zip(&mut times) {
                    times.push(seconds_a_step(cell, &rows));
                }
            }
            let medians: Vec<f64> = times
                .into_iter()
                .map(|mut times| {
                    times.sort_by(f64::total_cmp);
                    times[TURNS / 2]
                })
                .collect();
            print!("{hidden:>6} {batch:>6} {:>10.1}", medians[0] * 1e6);
            for &time in &medians[1..] {
                print!(" {:>10.1} {:>6.2}x", time * 1e6, medians[0] / time);
            }
            println!();
        }
    }
    Ok(())
}
