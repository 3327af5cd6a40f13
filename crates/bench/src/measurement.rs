//! Measures one subject: takes answers and counters, and gives a report. Parts of a trace that are played one after the
//! other add up.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use batchmaker::{CellStatistics, Statistics};

use crate::cpu_time::CpuTime;
use crate::distribution::Recorder;
use crate::driver::{Answer, Sent};
use crate::report::{BatchSample, CellReport, CpuSeconds, ManagerNs, Report};

/// The share of a saturated run that is left out at its start and at its end, where it is not steady.
const SATURATED_MARGIN: f64 = 0.1;

/// A rate is sustained if no larger share of the requests waits when the last one comes.
const BACKLOG_SUSTAINED: f64 = 0.05;

/// Samples of a report.
const SAMPLES_MAX: usize = 60;

/// The parts of a report that are not measured.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) policy: String,
    pub(crate) model: String,
    pub(crate) workload: String,
    pub(crate) seed: u64,
    pub(crate) rate_rps: Option<f64>,
    /// None over a wire.
    pub(crate) workers: Option<u16>,
    pub(crate) warm_up: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Measurement {
    is_saturated: bool,
    latency: Recorder,
    queue: Recorder,
    compute: Recorder,
    lateness: Recorder,
    requests: u64,
    errors: u64,
    pub(crate) first_error: Option<String>,
    /// Requests without an answer when the last of their part should have been sent.
    backlog: u64,
    /// Requests that count for throughput, their steps, and in how long.
    counted: u64,
    counted_steps: u64,
    counted_time: Duration,
    wall: Duration,
    cpu: Option<CpuTime>,
    engine: Option<Statistics>,
    samples: Vec<BatchSample>,
    pub(crate) answers: Vec<AnswerTime>,
}

/// When a request that was answered should have been sent, and how long its answer took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnswerTime {
    /// In seconds since the start of the run, over its parts one after the other.
    pub at_s: f64,
    /// The time from then to the answer, in milliseconds.
    pub latency_ms: f64,
}

/// Counters at a moment of a run.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) engine: Option<Statistics>,
    pub(crate) cpu: Option<CpuTime>,
}

impl Measurement {
    pub(crate) fn new(is_saturated: bool) -> Self {
        Self { is_saturated, ..Self::default() }
    }

    /// Adds a run that began at `start`, with what was read before and after it.
    pub(crate) fn add(&mut self, start: Instant, sent: &[Sent], before: &Reading, after: &Reading) {
        for request in sent {
            self.requests += 1;
            self.lateness.record(nanoseconds(request.sent - request.intended));
            match &request.answer {
                Answer::Reply { at, queue_and_compute_ns } => {
                    let latency = *at - request.intended;
                    self.latency.record(nanoseconds(latency));
                    self.answers.push(AnswerTime {
                        at_s: (self.wall + (request.intended - start)).as_secs_f64(),
                        latency_ms: latency.as_secs_f64() * 1e3,
                    });
                    if let Some((queue_ns, compute_ns)) = *queue_and_compute_ns {
                        self.queue.record(queue_ns);
                        self.compute.record(compute_ns);
                    }
                }
                Answer::Error(error) => {
                    self.errors += 1;
                    self.first_error.get_or_insert_with(|| error.clone());
                }
            }
        }
        if let Some(cpu) = before.cpu.zip(after.cpu).map(|(before, after)| after.since(before)) {
            let so_far = self.cpu.unwrap_or_default();
            self.cpu = Some(so_far.and(cpu));
        }
        if let (Some(before), Some(after)) = (&before.engine, &after.engine) {
            let total = self.engine.get_or_insert_with(Statistics::default);
            add_difference(total, before, after);
        }
        self.count_throughput(start, sent);
    }

    /// Saturated, what counts are the replies of the middle of the time in which requests were
    /// sent; else all.
    fn count_throughput(&mut self, start: Instant, sent: &[Sent]) {
        let replies = || {
            sent.iter().filter_map(|request| match request.answer {
                Answer::Reply { at, .. } => Some((at, request.steps)),
                Answer::Error(_) => None,
            })
        };
        let last_intended = sent.iter().map(|request| request.intended).max().unwrap_or(start);
        let last_reply = replies().map(|reply| reply.0).max().unwrap_or(start);
        self.wall += last_reply - start;
        let late = replies().filter(|(at, _)| *at > last_intended).count();
        self.backlog += late as u64;
        let window = if self.is_saturated {
            let margin = (last_intended - start).mul_f64(SATURATED_MARGIN);
            start + margin..=last_intended - margin
        } else {
            start..=last_reply
        };
        self.counted_time += *window.end() - *window.start();
        for (_, steps) in replies().filter(|(at, _)| window.contains(at)) {
            self.counted += 1;
            self.counted_steps += u64::from(steps);
        }
    }

    /// Notes what batches are like now, `at` after the start of the part.
    pub(crate) fn sample(
        &mut self,
        at: Duration,
        in_flight: usize,
        since: &Statistics,
        now: &Statistics,
    ) {
        let mut between = Statistics::default();
        add_difference(&mut between, since, now);
        let busiest = between.cells.iter().max_by_key(|cell| cell.tasks);
        let batch_mean = busiest.map_or(0.0, batch_mean);
        let at_s = (self.wall + at).as_secs_f64();
        self.samples.push(BatchSample { at_s, batch_mean, in_flight: in_flight as u64 });
    }

    /// The engine's counters over all parts; none over HTTP.
    pub(crate) fn engine(&self) -> Option<&Statistics> {
        self.engine.as_ref()
    }

    /// The wall time, and the time that compute threads waited for a core, in seconds.
    pub(crate) fn wall_and_descheduled_s(&self) -> (f64, f64) {
        (self.wall.as_secs_f64(), self.cpu.map_or(0.0, |cpu| cpu.descheduled_s))
    }

    /// The distribution of queue time.
    pub(crate) fn queue_cdf(&self) -> Vec<(f64, f64)> {
        self.queue.cdf()
    }

    /// The distribution of compute time.
    pub(crate) fn compute_cdf(&self) -> Vec<(f64, f64)> {
        self.compute.cdf()
    }

    pub(crate) fn report(&self, subject: Subject) -> Report {
        let counted_s = self.counted_time.as_secs_f64().max(1e-9);
        let wall_s = self.wall.as_secs_f64().max(1e-9);
        let throughput_rps = self.counted as f64 / counted_s;
        let engine = self.engine.as_ref();
        let nodes: u64 =
            engine.map_or(0, |engine| engine.cells.iter().map(|cell| cell.nodes).sum());
        let seconds = |ns: u64| ns as f64 / 1e9;
        Report {
            throughput_rps,
            steps_per_s: self.counted_steps as f64 / counted_s,
            requests: self.requests - self.errors,
            errors: self.errors,
            lateness_ms: subject.rate_rps.map(|_| self.lateness.summary().into()),
            latency_ms: self.latency.summary(),
            queue_ms: engine.map(|_| self.queue.summary()),
            compute_ms: engine.map(|_| self.compute.summary()),
            cells: engine.map(|engine| cell_reports(&engine.cells)),
            busy: engine
                .zip(subject.workers)
                .map(|(engine, workers)| seconds(engine.device_ns) / (wall_s * f64::from(workers))),
            cpu_s: engine.zip(self.cpu).map(|(engine, cpu)| cpu_seconds(engine, cpu)),
            manager_ns: engine.map(|engine| ManagerNs {
                per_request: engine.manager_ns as f64 / self.requests.max(1) as f64,
                per_node: engine.manager_ns as f64 / nodes.max(1) as f64,
            }),
            batch_over_time: engine.map(|_| thinned(&self.samples)),
            client_cpu_s: self.cpu.filter(|_| engine.is_none()).map(|cpu| cpu.process_s),
            sustained: self.is_saturated
                || self.backlog as f64 <= BACKLOG_SUSTAINED * self.requests as f64,
            policy: subject.policy,
            workload: subject.workload,
            seed: subject.seed,
            rate_rps: subject.rate_rps,
            model: subject.model,
            warm_up: subject.warm_up,
            kernel: None,
        }
    }
}

/// The workers' own threads share their time out as their turns do.
fn cpu_seconds(engine: &Statistics, cpu: CpuTime) -> CpuSeconds {
    let turns_ns = engine.manager_ns + engine.replies_ns + engine.device_ns;
    let share = |ns: u64| cpu.workers_s * ns as f64 / turns_ns.max(1) as f64;
    let compute = share(engine.device_ns) + cpu.helpers_s;
    let manager = share(engine.manager_ns);
    // Ticks of a hundredth of a second may fall behind.
    CpuSeconds { compute, manager, other: (cpu.process_s - compute - manager).max(0.0) }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Adds to `total` what was counted from `before` to `after`.
fn add_difference(total: &mut Statistics, before: &Statistics, after: &Statistics) {
    total.manager_ns += after.manager_ns - before.manager_ns;
    total.replies_ns += after.replies_ns - before.replies_ns;
    total.device_ns += after.device_ns - before.device_ns;
    total.cells.resize_with(after.cells.len(), CellStatistics::default);
    for ((total, before), after) in total.cells.iter_mut().zip(&before.cells).zip(&after.cells) {
        total.name.clone_from(&after.name);
        total.tasks += after.tasks - before.tasks;
        total.nodes += after.nodes - before.nodes;
        total.padding += after.padding - before.padding;
        total.past_end_of_sequence += after.past_end_of_sequence - before.past_end_of_sequence;
        let sizes = total.batches_by_size.len().max(after.batches_by_size.len());
        total.batches_by_size.resize(sizes, 0);
        let earlier = before.batches_by_size.iter().copied().chain(std::iter::repeat(0));
        let batches = after.batches_by_size.iter().zip(earlier);
        for (total, (after, before)) in total.batches_by_size.iter_mut().zip(batches) {
            *total += after - before;
        }
    }
}

fn batch_mean(cell: &CellStatistics) -> f64 {
    (cell.nodes + cell.padding) as f64 / cell.tasks.max(1) as f64
}

/// The report of each cell type by its name. A name that several cell types have gets their numbers after it.
fn cell_reports(cells: &[CellStatistics]) -> BTreeMap<String, CellReport> {
    let is_unique = |name: &str| cells.iter().filter(|cell| cell.name == name).count() == 1;
    let name = |(number, cell): (usize, &CellStatistics)| match is_unique(&cell.name) {
        true => cell.name.clone(),
        false => format!("{}#{number}", cell.name),
    };
    cells.iter().enumerate().map(|cell| (name(cell), cell_report(cell.1))).collect()
}

fn cell_report(cell: &CellStatistics) -> CellReport {
    let sizes = || cell.batches_by_size.iter().enumerate().filter(|(_, batches)| **batches > 0);
    let mut smaller = 0;
    let median = sizes().find(|(_, batches)| {
        smaller += **batches;
        2 * smaller >= cell.tasks
    });
    CellReport {
        tasks: cell.tasks,
        batch_mean: batch_mean(cell),
        batch_p50: median.map_or(0, |(size, _)| size as u64),
        batch_max: sizes().next_back().map_or(0, |(size, _)| size as u64),
        padding_share: cell.padding as f64 / (cell.nodes + cell.padding).max(1) as f64,
        wasted_share: cell.past_end_of_sequence as f64 / cell.nodes.max(1) as f64,
    }
}

/// Some of the samples, evenly spread.
fn thinned(samples: &[BatchSample]) -> Vec<BatchSample> {
    let every = samples.len().div_ceil(SAMPLES_MAX).max(1);
    samples.iter().step_by(every).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(rate_rps: Option<f64>) -> Subject {
        Subject {
            policy: "cellular".to_owned(),
            model: "lstm".to_owned(),
            workload: "fixed:4".to_owned(),
            seed: 1,
            rate_rps,
            workers: Some(2),
            warm_up: 0,
        }
    }

    fn cell(tasks: u64, nodes: u64, padding: u64, batches_by_size: &[u64]) -> CellStatistics {
        let batches_by_size = batches_by_size.to_vec();
        let name = "lstm".to_owned();
        CellStatistics { name, tasks, nodes, padding, batches_by_size, ..Default::default() }
    }

    fn reading(cell: CellStatistics, device_ns: u64) -> Reading {
        let engine = Statistics { cells: vec![cell], device_ns, ..Default::default() };
        Reading { engine: Some(engine), cpu: None }
    }

    /// Ten requests of four steps, intended and answered a millisecond apart.
    fn requests(start: Instant, late: Duration) -> Vec<Sent> {
        let request = |index| {
            let intended = start + Duration::from_millis(index);
            let at = intended + Duration::from_millis(2);
            let queue_and_compute_ns = Some((500_000, 1_000_000));
            let answer = Answer::Reply { at, queue_and_compute_ns };
            Sent { steps: 4, intended, sent: intended + late, answer }
        };
        (1..=10).map(request).collect()
    }

    #[test]
    fn parts_add_up() {
        let (mut measurement, start) = (Measurement::new(false), Instant::now());
        let readings = [
            reading(cell(10, 40, 2, &[0, 4, 6]), 1_000_000),
            reading(cell(20, 90, 2, &[0, 4, 12, 4]), 7_000_000),
        ];
        let sent = requests(start, Duration::from_micros(100));
        measurement.add(start, &sent, &readings[0], &readings[1]);
        measurement.add(start, &sent, &readings[0], &readings[1]);
        let report = measurement.report(subject(Some(1000.0)));
        assert_eq!((report.requests, report.errors), (20, 0));
        assert!((report.throughput_rps - 20.0 / 0.024).abs() < 1e-6, "{report:?}");
        assert!((report.steps_per_s - 80.0 / 0.024).abs() < 1e-6, "{report:?}");
        assert!(!report.sustained, "3 of 10 wait when the last one comes, twice");
        assert!((report.latency_ms.p50 - 2.0).abs() < 0.01, "{report:?}");
        assert!((report.queue_ms.unwrap().p50 - 0.5).abs() < 0.01, "{report:?}");
        assert!((report.lateness_ms.unwrap().max - 0.1).abs() < 1e-9, "{report:?}");
        let lstm = report.cells.unwrap()["lstm"];
        assert_eq!((lstm.tasks, lstm.batch_p50, lstm.batch_max), (20, 2, 3));
        assert!((lstm.batch_mean - 5.0).abs() < 1e-9 && lstm.padding_share == 0.0);
        // Two workers for 24 ms, 12 ms of it in batches.
        assert!((report.busy.unwrap() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn saturation_counts_the_middle() {
        let (mut measurement, start) = (Measurement::new(true), Instant::now());
        let none = || Reading { engine: None, cpu: None };
        let sent = requests(start, Duration::ZERO);
        measurement.add(start, &sent, &none(), &none());
        let report = measurement.report(subject(None));
        // Sent from 1 to 10 ms, answered 2 ms later; from 1 to 9 ms counts.
        assert!((report.throughput_rps - 7.0 / 0.008).abs() < 1e-6, "{report:?}");
        assert_eq!((report.requests, report.cells, report.lateness_ms), (10, None, None));
        assert!(report.sustained);
    }

    #[test]
    fn a_short_backlog_is_sustained() {
        let (mut measurement, start) = (Measurement::new(false), Instant::now());
        let mut sent = requests(start, Duration::ZERO);
        sent.truncate(8);
        let more = (0..100).flat_map(|_| sent.clone()).collect::<Vec<_>>();
        let mut last = requests(start, Duration::ZERO);
        last.drain(..9);
        let none = || Reading { engine: None, cpu: None };
        measurement.add(start, &[more, last].concat(), &none(), &none());
        assert!(measurement.report(subject(Some(1000.0))).sustained);
    }

    #[test]
    fn cells_of_one_name_are_told_apart() {
        let cells = [cell(1, 2, 0, &[0, 0, 1]), cell(5, 5, 0, &[0, 5])];
        let reports = cell_reports(&cells);
        assert_eq!((reports["lstm#0"].tasks, reports["lstm#1"].batch_max), (1, 1));
    }

    #[test]
    fn errors_count_apart() {
        let (mut measurement, start) = (Measurement::new(false), Instant::now());
        let mut sent = requests(start, Duration::ZERO);
        sent[0].answer = Answer::Error("first".to_owned());
        sent[5].answer = Answer::Error("second".to_owned());
        let none = || Reading { engine: None, cpu: None };
        measurement.add(start, &sent, &none(), &none());
        assert_eq!(measurement.first_error.as_deref(), Some("first"));
        let report = measurement.report(subject(Some(10.0)));
        assert_eq!((report.requests, report.errors), (8, 2));
    }
}
