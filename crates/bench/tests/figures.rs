//! Draws both figures from made-up runs of simple queues, into `target/tmp`, for looking at.
//! It asserts only that there is something to look at; figures are judged by eye.

use std::error::Error;
use std::fs;
use std::path::Path;

use batchmaker_bench::{Recorder, Report, Trace, Workload, latency_against_throughput, time_cdf};

/// One server with a fixed cost a request and a step: queueing times and computation times.
fn run(trace: &Trace, request_ns: u64, step_ns: u64) -> (Recorder, Recorder, Recorder, u64) {
    let (mut latency, mut queue, mut compute) = <(Recorder, Recorder, Recorder)>::default();
    let mut free_ns = 0;
    for arrival in &trace.arrivals {
        let at_ns = arrival.at_ns.expect("the trace has times");
        let start_ns = at_ns.max(free_ns);
        free_ns = start_ns + request_ns + step_ns * u64::from(arrival.shape.length());
        queue.record(start_ns - at_ns);
        compute.record(free_ns - start_ns);
        latency.record(free_ns - at_ns);
    }
    (latency, queue, compute, free_ns)
}

#[test]
fn figures_can_be_drawn() -> Result<(), Box<dyn Error>> {
    const REQUESTS: usize = 20_000;
    let policies =
        [("cellular", 20_000, 2_000), ("padded:10", 50_000, 4_500), ("merged", 120_000, 3_000)];
    let (mut reports, mut cdfs) = (Vec::new(), Vec::new());
    for rate_rps in [1000.0, 3000.0, 4500.0, 6000.0, 9000.0, 12_000.0, 14_000.0] {
        let shapes = "europarl".parse::<Workload>()?.shapes(None, REQUESTS, 1)?;
        let trace = Trace::poisson(shapes, rate_rps, 1);
        for (policy, request_ns, step_ns) in policies {
            let (latency, queue, compute, end_ns) = run(&trace, request_ns, step_ns);
            let throughput_rps = REQUESTS as f64 / (end_ns as f64 / 1e9);
            let mut report: Report = serde_json::from_value(serde_json::json!({
                "policy": policy, "workload": "europarl", "seed": 1, "rate_rps": rate_rps,
                "requests": REQUESTS, "errors": 0, "throughput_rps": throughput_rps,
                "steps_per_s": 24.0 * throughput_rps, "latency_ms": latency.summary(),
                "model": "queue", "warm_up": 0, "sustained": throughput_rps > 0.97 * rate_rps,
            }))?;
            report.queue_ms = Some(queue.summary());
            report.compute_ms = Some(compute.summary());
            reports.push(report);
            if rate_rps == 4500.0 {
                cdfs.push((format!("{policy} queue"), queue.cdf()));
                cdfs.push((format!("{policy} compute"), compute.cdf()));
            }
        }
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let latency = latency_against_throughput(&reports, "Simple queues, Europarl lengths")?;
    let times = time_cdf(&cdfs, "Simple queues at 4500 req/s", "time (ms)")?;
    for (name, svg) in [("latency_against_throughput.svg", latency), ("time_cdf.svg", times)] {
        assert!(svg.starts_with("<svg") && svg.contains("cellular"));
        fs::write(folder.join(name), svg)?;
    }
    fs::write(folder.join("table.txt"), batchmaker_bench::table(&reports))?;
    Ok(())
}
