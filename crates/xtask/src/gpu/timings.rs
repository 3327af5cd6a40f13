//! Steps of recurrent operators beside PyTorch's, which run in cuDNN.

use std::process::Command;

use anyhow::{Context, ensure};
use batchmaker_cuda::CudaConfig;
use batchmaker_graph::RecurrentKind;
use serde_json::Value;

use super::own;

/// Hidden and input size, and rows of a batch: those of the GRNN paper's Table 1, and two of a busy server.
const SIZES: [(usize, usize); 11] = [
    (64, 1),
    (64, 10),
    (64, 20),
    (256, 1),
    (256, 10),
    (256, 20),
    (1024, 1),
    (1024, 10),
    (1024, 20),
    (1024, 64),
    (1024, 512),
];

/// Steps of a sequence.
const STEPS: u32 = 100;

/// Times PyTorch: reads the sizes as JSON, prints the microseconds of a step for each.
const SCRIPT: &str = include_str!("cudnn.py");

/// Prints a table of times, and returns their summary.
pub(super) fn run(config: &CudaConfig, python: &str) -> anyhow::Result<String> {
    let mut rows = Vec::new();
    for kind in ["lstm", "gru"] {
        for (hidden, batch) in SIZES {
            let times = own::step_us(config, (&kind_of(kind), hidden), &[batch], STEPS)?;
            rows.push((kind, hidden, batch, times[0]));
        }
    }
    let peers = peer_us(python, rows.iter().map(|&(kind, hidden, batch, _)| (kind, hidden, batch)));
    let peers = peers.map_err(|error| format!("{error:#}"));
    println!("| cell | hidden | batch | us a step | cuDNN | ratio |\n|---|---|---|---|---|---|");
    let mut logarithms = Vec::new();
    for (at, (kind, hidden, batch, own)) in rows.iter().enumerate() {
        let peer = peers.as_ref().ok().map(|peers| peers[at]);
        logarithms.extend(peer.map(|peer| (peer / own).ln()));
        let [peer, ratio] = [peer, peer.map(|peer| peer / own)]
            .map(|of| of.map_or("-".to_owned(), |of| format!("{of:.2}")));
        println!("| {kind} | {hidden} | {batch} | {own:.2} | {peer} | {ratio} |");
    }
    Ok(match peers {
        Ok(_) => {
            let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
            format!(
                "{} sizes; {:.2} times as fast as cuDNN, geometric mean",
                rows.len(),
                mean.exp()
            )
        }
        Err(error) => format!("{} sizes; PyTorch left out: {error}", rows.len()),
    })
}

fn kind_of(name: &str) -> RecurrentKind {
    match name {
        "lstm" => RecurrentKind::Lstm { p: None, bytes: None },
        _ => RecurrentKind::Gru { linear_before_reset: true },
    }
}

/// The microseconds of a step in PyTorch, for each size.
fn peer_us<'a>(
    python: &str,
    sizes: impl Iterator<Item = (&'a str, usize, usize)>,
) -> anyhow::Result<Vec<f64>> {
    let sizes: Vec<Value> =
        sizes.map(|(kind, hidden, batch)| serde_json::json!([kind, hidden, batch])).collect();
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT, &STEPS.to_string(), &Value::from(sizes.clone()).to_string()]);
    let output = command.output().with_context(|| format!("{python} does not start"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", errors.lines().last().unwrap_or("it failed"));
    let times: Vec<f64> = serde_json::from_slice(&output.stdout).context("PyTorch's times")?;
    ensure!(times.len() == sizes.len(), "{} times of PyTorch", times.len());
    Ok(times)
}
