//! The report of one run of one policy, and its JSON line. Field order is the line's order; the
//! names are a contract (`model-format.md`, `batchmaker bench`). Nothing is measured here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;

/// One policy under one load. Figures that could not be measured are none, `null` in JSON: a server over HTTP does not
/// report its cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The batching policy: `cellular`, `padded:10`, `merged`; over HTTP, the server's
    /// name.
    pub policy: String,
    /// The workload, as on the command line.
    pub workload: String,
    /// The seed of lengths and arrivals.
    pub seed: u64,
    /// The offered rate, in requests a second; none when saturated.
    pub rate_rps: Option<f64>,
    /// Requests answered.
    pub requests: u64,
    /// Requests answered by an error, which count nowhere else.
    pub errors: u64,
    /// The delay of requests against their intended times: the load generator's own error. None when
    /// saturated.
    pub lateness_ms: Option<Lateness>,
    /// Requests answered a second.
    pub throughput_rps: f64,
    /// Steps of answered requests (their lengths) a second; padding is not counted.
    pub steps_per_s: f64,
    /// The time from the intended arrival to the answer.
    pub latency_ms: Distribution,
    /// The time from the arrival to the start of the first cell.
    pub queue_ms: Option<Distribution>,
    /// The time from the start of the first cell to the answer.
    pub compute_ms: Option<Distribution>,
    /// The batches of each cell, by its name.
    pub cells: Option<BTreeMap<String, CellReport>>,
    /// The share of wall time that workers spent in cells.
    pub busy: Option<f64>,
    /// The uses of the processor's time.
    pub cpu_s: Option<CpuSeconds>,
    /// The model's name.
    pub model: String,
    /// Requests before the measurement, which count nowhere else.
    pub warm_up: u64,
    /// The cost of scheduling.
    pub manager_ns: Option<ManagerNs>,
    /// The growth of batches over time.
    pub batch_over_time: Option<Vec<BatchSample>>,
    /// Processor time of the load generator itself, in seconds.
    pub client_cpu_s: Option<f64>,
    /// Whether the server kept up with the rate. Where it did not, the queue grew to the end, and
    /// latencies depend on how long the run was.
    pub sustained: bool,
    /// The share of the compute threads' time that went into cells at the kernels' own rate; absent
    /// unless it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelTime>,
}

/// The compute threads' time, in seconds over all of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelTime {
    /// The time that the batches of the run take at the kernels' own rate.
    pub cells_s: f64,
    /// Wall time by compute threads.
    pub threads_s: f64,
    /// The part of `threads_s` for which they waited for a core.
    pub descheduled_s: f64,
    /// `cells_s / (threads_s - descheduled_s)`.
    pub share: f64,
}

impl KernelTime {
    /// Computes the share from the others.
    pub fn new(cells_s: f64, threads_s: f64, descheduled_s: f64) -> Self {
        let share = cells_s / (threads_s - descheduled_s).max(1e-9);
        Self { cells_s, threads_s, descheduled_s, share }
    }
}

/// The delay of the load generator, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// The batches of one cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellReport {
    /// Batched tasks run.
    pub tasks: u64,
    /// The mean of their batch sizes.
    pub batch_mean: f64,
    /// The median batch size.
    pub batch_p50: u64,
    /// The largest batch size.
    pub batch_max: u64,
    /// The share of rows computed that belong to no request's own steps, from 0 to 1.
    pub padding_share: f64,
    /// The share of steps that came after a stop, which nobody computes, from 0 to 1.
    pub wasted_share: f64,
}

/// Processor time of the run by who took it, in seconds over all threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuSeconds {
    /// Workers, in cells and in gathering rows for them.
    pub compute: f64,
    /// The manager.
    pub manager: f64,
    /// Everything else.
    pub other: f64,
}

/// The cost of scheduling, in nanoseconds of the workers' threads inside the manager.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManagerNs {
    /// For each request.
    pub per_request: f64,
    /// For each node of a request's cell graph.
    pub per_node: f64,
}

/// The batches of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchSample {
    /// When, in seconds since the start.
    pub at_s: f64,
    /// The mean batch size of the tasks since the sample before.
    pub batch_mean: f64,
    /// Requests sent and not answered yet.
    pub in_flight: u64,
}

impl Report {
    /// The report as one line of JSON, without a line break.
    pub fn json_line(&self) -> String {
        self.debug_assert_finite();
        serde_json::to_string(self).expect("a report has no map but those keyed by strings")
    }

    /// The cell with most tasks, the first by name of equals.
    pub fn busiest_cell(&self) -> Option<(&str, &CellReport)> {
        // `max_by_key` gives the last of equals.
        let cells = self.cells.as_ref()?.iter().rev();
        cells.max_by_key(|(_, cell)| cell.tasks).map(|(name, cell)| (name.as_str(), cell))
    }

    /// JSON has no NaN (it would become `null`, "not measured"), so one is a bug of the driver.
    pub(crate) fn debug_assert_finite(&self) {
        debug_assert!(self.floats().iter().all(|float| float.is_finite()), "not finite: {self:?}");
    }

    fn floats(&self) -> Vec<f64> {
        let mut floats = vec![self.throughput_rps, self.steps_per_s];
        floats.extend([self.rate_rps, self.busy, self.client_cpu_s].into_iter().flatten());
        for times in [Some(self.latency_ms), self.queue_ms, self.compute_ms].into_iter().flatten() {
            floats.extend([times.mean, times.p50, times.p90, times.p99, times.max]);
        }
        floats.extend(self.lateness_ms.iter().flat_map(|late| [late.p50, late.p99, late.max]));
        for cell in self.cells.iter().flat_map(BTreeMap::values) {
            floats.extend([cell.batch_mean, cell.padding_share, cell.wasted_share]);
        }
        floats.extend(self.cpu_s.iter().flat_map(|cpu| [cpu.compute, cpu.manager, cpu.other]));
        floats.extend(self.manager_ns.iter().flat_map(|ns| [ns.per_request, ns.per_node]));
        for kernel in self.kernel.iter() {
            floats.extend([kernel.cells_s, kernel.threads_s, kernel.descheduled_s, kernel.share]);
        }
        for sample in self.batch_over_time.iter().flatten() {
            floats.extend([sample.at_s, sample.batch_mean]);
        }
        floats
    }
}

impl From<Distribution> for Lateness {
    fn from(times: Distribution) -> Self {
        Self { p50: times.p50, p99: times.p99, max: times.max }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use expect_test::expect;

    /// A run with everything measured.
    pub(crate) fn measured(policy: &str, rate_rps: f64, latency: f64) -> Report {
        let times = |p90| Distribution {
            mean: p90 * 0.625,
            p50: p90 * 0.5,
            p90,
            p99: p90 * 2.0,
            max: p90 * 4.0,
        };
        let cell = |tasks, batch_mean| CellReport {
            tasks,
            batch_mean,
            batch_p50: 16,
            batch_max: 64,
            padding_share: 0.125,
            wasted_share: 0.0,
        };
        let sample = |i| BatchSample { at_s: f64::from(i) * 0.5, batch_mean: 12.25, in_flight: 40 };
        Report {
            policy: policy.into(),
            workload: "europarl".into(),
            seed: 1,
            rate_rps: Some(rate_rps),
            requests: 1000,
            errors: 0,
            lateness_ms: Some(Lateness { p50: 0.01, p99: 0.2, max: 1.5 }),
            throughput_rps: rate_rps * 0.99,
            steps_per_s: rate_rps * 24.0,
            latency_ms: times(latency),
            queue_ms: Some(times(latency * 0.25)),
            compute_ms: Some(times(latency * 0.75)),
            cells: Some(
                [("embed".into(), cell(90, 20.0)), ("lstm".into(), cell(2000, 12.5))].into(),
            ),
            busy: Some(0.75),
            cpu_s: Some(CpuSeconds { compute: 8.0, manager: 1.5, other: 0.5 }),
            model: "lstm".into(),
            warm_up: 256,
            manager_ns: Some(ManagerNs { per_request: 5000.0, per_node: 123.4 }),
            batch_over_time: Some((0..3).map(sample).collect()),
            client_cpu_s: Some(0.25),
            sustained: true,
            kernel: None,
        }
    }

    /// A saturated run at the end of a wire.
    pub(crate) fn unmeasured(policy: &str) -> Report {
        Report {
            rate_rps: None,
            lateness_ms: None,
            queue_ms: None,
            compute_ms: None,
            cells: None,
            busy: None,
            cpu_s: None,
            manager_ns: None,
            batch_over_time: None,
            client_cpu_s: None,
            ..measured(policy, 1000.0, 100.0)
        }
    }

    /// The line, broken after objects to be read here.
    fn broken_line(report: &Report) -> String {
        report.json_line().replace("},", "},\n")
    }

    #[test]
    fn a_line_has_the_contracts_keys_in_order() {
        expect![[r#"
            {"policy":"cellular","workload":"europarl","seed":1,"rate_rps":500.0,"requests":1000,"errors":0,"lateness_ms":{"p50":0.01,"p99":0.2,"max":1.5},
            "throughput_rps":495.0,"steps_per_s":12000.0,"latency_ms":{"mean":5.0,"p50":4.0,"p90":8.0,"p99":16.0,"max":32.0},
            "queue_ms":{"mean":1.25,"p50":1.0,"p90":2.0,"p99":4.0,"max":8.0},
            "compute_ms":{"mean":3.75,"p50":3.0,"p90":6.0,"p99":12.0,"max":24.0},
            "cells":{"embed":{"tasks":90,"batch_mean":20.0,"batch_p50":16,"batch_max":64,"padding_share":0.125,"wasted_share":0.0},
            "lstm":{"tasks":2000,"batch_mean":12.5,"batch_p50":16,"batch_max":64,"padding_share":0.125,"wasted_share":0.0}},
            "busy":0.75,"cpu_s":{"compute":8.0,"manager":1.5,"other":0.5},
            "model":"lstm","warm_up":256,"manager_ns":{"per_request":5000.0,"per_node":123.4},
            "batch_over_time":[{"at_s":0.0,"batch_mean":12.25,"in_flight":40},
            {"at_s":0.5,"batch_mean":12.25,"in_flight":40},
            {"at_s":1.0,"batch_mean":12.25,"in_flight":40}],"client_cpu_s":0.25,"sustained":true}"#]].assert_eq(&broken_line(&measured("cellular", 500.0, 8.0)));
    }

    #[test]
    fn what_was_not_measured_is_null() {
        expect![[r#"
            {"policy":"cellular","workload":"europarl","seed":1,"rate_rps":null,"requests":1000,"errors":0,"lateness_ms":null,"throughput_rps":990.0,"steps_per_s":24000.0,"latency_ms":{"mean":62.5,"p50":50.0,"p90":100.0,"p99":200.0,"max":400.0},
            "queue_ms":null,"compute_ms":null,"cells":null,"busy":null,"cpu_s":null,"model":"lstm","warm_up":256,"manager_ns":null,"batch_over_time":null,"client_cpu_s":null,"sustained":true}"#]].assert_eq(&broken_line(&unmeasured("cellular")));
    }

    #[test]
    fn a_line_reads_back() {
        for report in [measured("padded:10", 1.0 / 3.0, 0.1), unmeasured("merged")] {
            let line = report.json_line();
            assert_eq!(serde_json::from_str::<Report>(&line).unwrap(), report);
        }
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "a debug assertion")]
    #[should_panic(expected = "not finite")]
    fn a_nan_is_a_bug() {
        let mut report = measured("cellular", 500.0, 8.0);
        report.cells.as_mut().unwrap().get_mut("lstm").unwrap().batch_mean = f64::NAN;
        report.json_line();
    }

    #[test]
    fn the_busiest_cell_has_most_tasks() {
        let mut report = measured("cellular", 500.0, 8.0);
        assert_eq!(report.busiest_cell().unwrap().0, "lstm");
        report.cells.as_mut().unwrap().get_mut("embed").unwrap().tasks = 2000;
        assert_eq!(report.busiest_cell().unwrap().0, "embed");
        assert_eq!(unmeasured("cellular").busiest_cell(), None);
    }
}
