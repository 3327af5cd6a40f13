//! `cargo xtask dvabatch`: the paper's comparison of batches in stages, in virtual time on a device shaped like a GPU.

use batchmaker_sim::gpu_shaped::{Compared, Comparison, Latency, Peak, SHAPES, SHARES};
use serde_json::json;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Requests at each load
    #[arg(long, default_value_t = 10_000)]
    requests: usize,
    /// The seed of their arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object a network, each on a line, instead of tables: for `bench/stages/figures.py --simulated`
    #[arg(long)]
    json: bool,
}

/// The mean and 99th percentile that the paper's DVABatch takes off those of ZeroBatch and DelayBatch, in percent, at each load (section
/// 8.2).
const PAPER: [[f64; 4]; 3] =
    [[16.1, 17.0, 35.4, 45.0], [39.0, 27.0, 47.3, 45.0], [57.7, 54.0, 48.5, 29.0]];

/// The paper's figure for a network's peak beside DelayBatch's, where it has one (section 8.3).
fn paper_peak(network: &str) -> &'static str {
    match network {
        "BertBase" => " (the paper: 1.47 times)",
        "BertLarge" => " (the paper: 1.37 times)",
        _ => "",
    }
}

/// Prints a table for each network, and the means over all beside the paper's.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { requests, seed, json } = *arguments;
    if json {
        for shape in SHAPES {
            println!("{}", line(shape.name, &shape.compare(requests.max(100), seed)));
        }
        return Ok(());
    }
    let mut sums = [[0.0; 4]; SHARES.len()];
    for shape in SHAPES {
        let compared = shape.compare(requests.max(100), seed);
        let Comparison { zero, delay, unpadded, staged_rps, .. } = &compared;
        let show =
            |of: &Peak| format!("{:.0}/s (up to {}, {} ms)", of.rps, of.batch_max, of.window_ms);
        println!(
            "\n{}: peaks under p99 of 200 ms, with the most requests of a batch and the window: ZeroBatch {}, DelayBatch {}, staged {staged_rps:.0}/s, {:.2} times DelayBatch's{}",
            shape.name,
            show(zero),
            show(delay),
            staged_rps / delay.rps,
            paper_peak(shape.name),
        );
        if let Some(unpadded) = unpadded {
            println!("without padding, DelayBatch's is {}", show(unpadded));
        }
        let stretches = compared.stretches_ms.iter();
        let stretches: Vec<String> =
            stretches.map(|(age, mean)| format!("{age} ms: {mean:.1}")).collect();
        println!(
            "mean latency at the medium load by the age up to which batches are stretched: {}",
            stretches.join(", ")
        );
        println!(
            "| share | requests/s | ZeroBatch, mean / p99 ms | DelayBatch | staged | less than ZeroBatch, mean / p99 | less than DelayBatch |\n|---|---|---|---|---|---|---|"
        );
        for ((load, share), sums) in compared.loads.iter().zip(SHARES).zip(&mut sums) {
            let Compared { rate_rps, zero, delay, staged } = load;
            let show = |of: &Latency| format!("{:.1} / {:.1}", of.mean_ms, of.p99_ms);
            let less = less(zero, delay, staged);
            println!(
                "| {share} | {rate_rps:.0} | {} | {} | {} | {:.0}% / {:.0}% | {:.0}% / {:.0}% |",
                show(zero),
                show(delay),
                show(staged),
                less[0],
                less[1],
                less[2],
                less[3],
            );
            sums.iter_mut().zip(less).for_each(|(sum, less)| *sum += less / SHAPES.len() as f64);
        }
    }
    println!("\nAll networks (the paper): less than ZeroBatch and than DelayBatch, mean / p99");
    for ((share, [a, b, c, d]), paper) in SHARES.iter().zip(sums).zip(PAPER) {
        let [e, f, g, h] = paper;
        println!(
            "{share}: {a:.0}% ({e:.0}%) / {b:.0}% ({f:.0}%); {c:.0}% ({g:.0}%) / {d:.0}% ({h:.0}%)"
        );
    }
    Ok(())
}

/// A network's figures as JSON.
fn line(name: &str, compared: &Comparison) -> serde_json::Value {
    let peak =
        |of: &Peak| json!({ "rps": of.rps, "batch_max": of.batch_max, "window_ms": of.window_ms });
    let latency = |of: &Latency| json!({ "mean_ms": of.mean_ms, "p99_ms": of.p99_ms });
    let loads = compared.loads.iter().zip(SHARES).map(|(load, share)| {
        json!({
            "share": share,
            "rate_rps": load.rate_rps,
            "zero": latency(&load.zero),
            "delay": latency(&load.delay),
            "staged": latency(&load.staged),
        })
    });
    json!({
        "name": name,
        "zero_peak": peak(&compared.zero),
        "delay_peak": peak(&compared.delay),
        "unpadded_peak": compared.unpadded.as_ref().map(peak),
        "staged_peak_rps": compared.staged_rps,
        "loads": loads.collect::<Vec<_>>(),
    })
}

/// The percentages by which mean and 99th percentile of `staged` are below those of the others.
fn less(zero: &Latency, delay: &Latency, staged: &Latency) -> [f64; 4] {
    let of = |staged: f64, other: f64| 100.0 * (1.0 - staged / other);
    [
        of(staged.mean_ms, zero.mean_ms),
        of(staged.p99_ms, zero.p99_ms),
        of(staged.mean_ms, delay.mean_ms),
        of(staged.p99_ms, delay.p99_ms),
    ]
}
