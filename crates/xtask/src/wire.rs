//! `cargo xtask wire`: the cost of HTTP. A saturated server, asked by a second process over HTTP
//! with binary tensors, beside the same engine in one process; in turns.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

use crate::batchmaker::{batchmaker, build, median, output};
use crate::peers::systems::Kit;
use crate::server::Server;

pub(crate) const EXAMPLES: &str = "\
Examples:
  cargo xtask wire                                  an LSTM of hidden size 256, as in cargo xtask peers
  cargo xtask wire --model models/langid --seconds 5

Nothing else should run meanwhile.";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// An ONNX file or a model directory [default: an LSTM that is made]
    #[arg(long)]
    model: Option<PathBuf>,
    /// Hidden and input size of the LSTM that is made
    #[arg(long, default_value_t = 256)]
    hidden: u32,
    /// The lengths of sequences
    #[arg(long, default_value = "europarl")]
    workload: String,
    /// Requests in flight
    #[arg(long, default_value_t = 256)]
    in_flight: u32,
    /// The number of times that each is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// Seconds for each measurement
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
}

/// Throughput, and processor time a request.
#[derive(Clone, Copy, Debug)]
struct Run {
    throughput_rps: f64,
    client_us: f64,
    server_us: f64,
}

/// Builds, measures and prints.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    build()?;
    let model = match &arguments.model {
        Some(model) => model.clone(),
        None => Kit::install(Path::new("target/peers"))?.model(arguments.hidden, None, false)?,
    };
    let (mut alone, mut wired) = (Vec::new(), Vec::new());
    println!(
        "{:>22} {:>22} {:>8} {:>18} {:>18}",
        "in process, req/s",
        "over HTTP, req/s",
        "share",
        "client CPU, µs/req",
        "server CPU, µs/req"
    );
    for repeat in 0..u64::from(arguments.repeats) {
        // Neither is always the first.
        let (here, there) = if repeat % 2 == 0 {
            let here = in_process(arguments, &model, repeat)?;
            (here, over_http(arguments, &model, repeat)?)
        } else {
            let there = over_http(arguments, &model, repeat)?;
            (in_process(arguments, &model, repeat)?, there)
        };
        print_row(here, there);
        alone.push(here);
        wired.push(there);
    }
    println!("medians");
    print_row(medians(&alone), medians(&wired));
    Ok(())
}

fn print_row(here: Run, there: Run) {
    println!(
        "{:>22.0} {:>22.0} {:>8.2} {:>18.1} {:>18.1}",
        here.throughput_rps,
        there.throughput_rps,
        there.throughput_rps / here.throughput_rps,
        there.client_us,
        there.server_us,
    );
}

fn medians(runs: &[Run]) -> Run {
    Run {
        throughput_rps: median(runs.iter().map(|run| run.throughput_rps)),
        client_us: median(runs.iter().map(|run| run.client_us)),
        server_us: median(runs.iter().map(|run| run.server_us)),
    }
}

/// `batchmaker bench`, saturated.
fn bench(arguments: &Arguments, model: &str, repeat: u64, more: &[&str]) -> anyhow::Result<Value> {
    let mut command = batchmaker();
    command.args(["bench", model, "--saturate", "--json", "--workload", &arguments.workload]);
    command.args(["--seconds", &arguments.seconds.to_string()]);
    command.args(["--in-flight", &arguments.in_flight.to_string()]);
    command.args(["--seed", &(repeat + 1).to_string()]).args(more);
    Ok(serde_json::from_str(&output(&mut command)?)?)
}

fn in_process(arguments: &Arguments, model: &Path, repeat: u64) -> anyhow::Result<Run> {
    let report = bench(arguments, &model.to_string_lossy(), repeat, &[])?;
    Ok(Run { throughput_rps: number(&report, "throughput_rps")?, client_us: 0.0, server_us: 0.0 })
}

fn over_http(arguments: &Arguments, model: &Path, repeat: u64) -> anyhow::Result<Run> {
    let server = Server::start(batchmaker().arg("serve").arg(model))?;
    let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let before_s = server.cpu_s()?;
    let report = bench(arguments, &name, repeat, &["--url", server.url()])?;
    let server_s = server.cpu_s()? - before_s;
    let (requests, warm_up) = (number(&report, "requests")?, number(&report, "warm_up")?);
    Ok(Run {
        throughput_rps: number(&report, "throughput_rps")?,
        client_us: 1e6 * number(&report, "client_cpu_s")? / requests,
        server_us: 1e6 * server_s / (requests + warm_up),
    })
}

fn number(report: &Value, name: &str) -> anyhow::Result<f64> {
    report[name].as_f64().with_context(|| format!("no {name} in {report}"))
}
