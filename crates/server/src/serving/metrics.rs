//! Prometheus metrics. Requests are counted as they end; the engine is asked for its counts when metrics
//! are read, so that the batching loop knows nothing of metrics.

use std::sync::Arc;

use batchmaker::device::Usage;
use batchmaker::{Model, Statistics};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use crate::serving::exposition::{Sizes, histogram, ordered};
use crate::serving::outcome::{Outcome, Phases};

const REQUESTS: &str = "batchmaker_requests_total";
const RESPONSES: &str = "batchmaker_http_responses_total";
const REQUEST_SECONDS: &str = "batchmaker_request_seconds";
const QUEUE_SECONDS: &str = "batchmaker_queue_seconds";
const COMPUTE_SECONDS: &str = "batchmaker_compute_seconds";
const PERMITS_IN_USE: &str = "batchmaker_permits_in_use";
const PERMITS: &str = "batchmaker_permits";
const MEMORY: &str = "batchmaker_memory_bytes";
const MEMORY_MAX: &str = "batchmaker_memory_bytes_max";
const WORKERS: &str = "batchmaker_workers";
const WORKERS_UP: &str = "batchmaker_workers_up";
const SLOTS_IN_USE: &str = "batchmaker_slots_in_use";
const WAITING: &str = "batchmaker_waiting_subgraphs";
const BATCHES: &str = "batchmaker_batches_total";
const BATCH_ROWS: &str = "batchmaker_batch_rows";
const NODES: &str = "batchmaker_nodes_total";
const PADDING: &str = "batchmaker_padding_rows_total";
const WASTED: &str = "batchmaker_wasted_steps_total";
const SESSIONS: &str = "batchmaker_sessions";
const SESSIONS_MAX: &str = "batchmaker_sessions_max";
const SESSIONS_BEGUN: &str = "batchmaker_sessions_begun_total";
const SESSIONS_ENDED: &str = "batchmaker_sessions_ended_total";
const WORKER_US: &str = "batchmaker_worker_microseconds_total";
const DEVICE_MEMORY: &str = "batchmaker_device_memory_bytes";
const DEVICE_MEMORY_MAX: &str = "batchmaker_device_memory_bytes_max";
const DEVICE_BUSY_US: &str = "batchmaker_device_busy_microseconds_total";
const DEVICE_COPIED: &str = "batchmaker_device_copied_bytes_total";
const DEVICE_STATES_MOVED: &str = "batchmaker_device_states_moved_total";
const BUILD_INFO: &str = "batchmaker_build_info";

const COUNTERS: [(&str, &str); 12] = [
    (REQUESTS, "Inference requests that ended, by model and outcome."),
    (RESPONSES, "Responses on the HTTP port, by status."),
    (BATCHES, "Batches of a cell type that were formed."),
    (NODES, "Cells in the batches of a cell type."),
    (PADDING, "Rows of padding in the batches of a cell type."),
    (WASTED, "Steps in the batches of a cell type of chains that had reached their end."),
    (WORKER_US, "Time of workers on tasks of a model, where several models share them."),
    (DEVICE_BUSY_US, "Time in which a worker's GPU had work."),
    (
        DEVICE_COPIED,
        "Bytes copied to a worker's GPU from the host (in) or from other GPUs (between), or to the host (out).",
    ),
    (
        DEVICE_STATES_MOVED,
        "States copied to a worker's GPU from others, of sequences that went on there.",
    ),
    (SESSIONS_BEGUN, "Sessions that began."),
    (SESSIONS_ENDED, "Sessions that took no more chunks: by their client, idle, or broken."),
];
const GAUGES: [(&str, &str); 13] = [
    (PERMITS_IN_USE, "Requests in flight."),
    (PERMITS, "The most requests that may be in flight."),
    (MEMORY, "Bytes that requests, replies, sessions and connections hold."),
    (MEMORY_MAX, "The most bytes that they may hold."),
    (WORKERS, "Workers that were started."),
    (WORKERS_UP, "Workers whose part of the device is not lost."),
    (DEVICE_MEMORY, "Bytes of the memory of a worker's GPU that are taken, by whomever."),
    (DEVICE_MEMORY_MAX, "All bytes of its memory."),
    (SLOTS_IN_USE, "State slots in use, by cell type."),
    (WAITING, "Subgraphs that wait with a ready cell, by cell type."),
    (SESSIONS, "Sessions that hold state."),
    (SESSIONS_MAX, "The most sessions that may hold state."),
    (BUILD_INFO, "1; the version is in the label."),
];
const HISTOGRAMS: [(&str, &str); 3] = [
    (REQUEST_SECONDS, "From a request's last byte to its reply, successful ones alone."),
    (QUEUE_SECONDS, "From admission to a request's first batch."),
    (COMPUTE_SECONDS, "From a request's first batch to its reply."),
];

/// Upper bounds of the histograms' buckets, in seconds: 1, 2, 5 to a decade.
const BUCKETS_S: [f64; 18] = [
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0,
    10.0, 20.0, 50.0,
];

const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// The metrics of one server.
#[derive(Debug)]
pub(crate) struct Metrics {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let builder = PrometheusBuilder::new().set_buckets(&BUCKETS_S);
        let recorder = builder.expect("there are buckets").build_recorder();
        for (name, help) in COUNTERS {
            recorder.describe_counter(KeyName::from(name), None, help.into());
        }
        for (name, help) in GAUGES {
            recorder.describe_gauge(KeyName::from(name), None, help.into());
        }
        for (name, help) in HISTOGRAMS {
            recorder.describe_histogram(KeyName::from(name), None, help.into());
        }
        let handle = recorder.handle();
        let metrics = Self { recorder: Arc::new(recorder), handle };
        metrics.gauge(BUILD_INFO, vec![label("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
        metrics
    }

    /// The metrics of one model.
    pub(crate) fn of_model(&self, model: &str) -> ModelMetrics {
        let by_model = || vec![label("model", model)];
        ModelMetrics {
            requests: Outcome::ALL.map(|outcome| {
                let labels = vec![label("model", model), label("outcome", outcome.name())];
                self.counter(REQUESTS, labels)
            }),
            request_seconds: self.histogram(REQUEST_SECONDS, by_model()),
            queue_seconds: self.histogram(QUEUE_SECONDS, by_model()),
            compute_seconds: self.histogram(COMPUTE_SECONDS, by_model()),
        }
    }

    /// Counts a response of the HTTP port.
    pub(crate) fn count_response(&self, status: &str) {
        self.counter(RESPONSES, vec![label("status", status)]).increment(1);
    }

    /// Folds samples into histograms, which else happens when somebody looks.
    pub(crate) fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The text of all, with what the engine, whose models these are, holds now.
    pub(crate) fn render(&self, statistics: &Statistics, models: &[&Model]) -> String {
        self.gauge(PERMITS_IN_USE, vec![]).set(statistics.permits_in_use as f64);
        self.gauge(PERMITS, vec![]).set(statistics.permits as f64);
        self.gauge(MEMORY, vec![]).set(statistics.memory_bytes as f64);
        self.gauge(MEMORY_MAX, vec![]).set(statistics.memory_bytes_max as f64);
        self.gauge(WORKERS, vec![]).set(statistics.workers as f64);
        self.gauge(WORKERS_UP, vec![]).set(statistics.workers_up as f64);
        for (worker, usage) in statistics.devices.iter().enumerate() {
            self.set_usage(&worker.to_string(), usage);
        }
        let users = users_of_cells(statistics.cells.len(), models);
        for (cell, users) in statistics.cells.iter().zip(&users) {
            let labels = || vec![label("model", users), label("cell", &cell.name)];
            self.gauge(SLOTS_IN_USE, labels()).set(cell.slots_in_use as f64);
            self.gauge(WAITING, labels()).set(cell.waiting as f64);
            self.counter(BATCHES, labels()).absolute(cell.tasks);
            self.counter(NODES, labels()).absolute(cell.nodes);
            self.counter(PADDING, labels()).absolute(cell.padding);
            self.counter(WASTED, labels()).absolute(cell.past_end_of_sequence);
        }
        for (model, ns) in &statistics.worker_ns_of_models {
            self.counter(WORKER_US, vec![label("model", model)]).absolute(ns / 1000);
        }
        let sessions = &statistics.sessions;
        self.gauge(SESSIONS, vec![]).set(sessions.open as f64);
        self.gauge(SESSIONS_MAX, vec![]).set(sessions.max as f64);
        self.counter(SESSIONS_BEGUN, vec![]).absolute(sessions.begun);
        let ended = [
            ("client", sessions.ended_by_client),
            ("idle", sessions.reaped),
            ("broken", sessions.broken),
        ];
        for (by, count) in ended {
            self.counter(SESSIONS_ENDED, vec![label("by", by)]).absolute(count);
        }
        let sizes = statistics.cells.iter().zip(users).map(|(cell, users)| Sizes {
            labels: vec![("model", users), ("cell", cell.name.clone())],
            counts: &cell.batches_by_size,
        });
        let rows = histogram(BATCH_ROWS, "Rows of the batches of a cell type.", sizes);
        ordered(&format!("{}\n\n{rows}", self.handle.render()))
    }

    /// The use of a worker's own processor and memory.
    fn set_usage(&self, worker: &str, usage: &Usage) {
        let labels = || vec![label("worker", worker)];
        self.gauge(DEVICE_MEMORY, labels()).set(usage.memory_bytes as f64);
        self.gauge(DEVICE_MEMORY_MAX, labels()).set(usage.memory_bytes_max as f64);
        self.counter(DEVICE_BUSY_US, labels()).absolute(usage.busy.as_micros() as u64);
        let copied =
            [("in", usage.copied_in), ("out", usage.copied_out), ("between", usage.copied_between)];
        for (direction, bytes) in copied {
            let labels = vec![label("worker", worker), label("direction", direction)];
            self.counter(DEVICE_COPIED, labels).absolute(bytes);
        }
        self.counter(DEVICE_STATES_MOVED, labels()).absolute(usage.states_moved);
    }

    fn counter(&self, name: &'static str, labels: Vec<Label>) -> Counter {
        self.recorder.register_counter(&Key::from_parts(name, labels), &METADATA)
    }

    fn gauge(&self, name: &'static str, labels: Vec<Label>) -> Gauge {
        self.recorder.register_gauge(&Key::from_parts(name, labels), &METADATA)
    }

    fn histogram(&self, name: &'static str, labels: Vec<Label>) -> Histogram {
        self.recorder.register_histogram(&Key::from_parts(name, labels), &METADATA)
    }
}

/// The names of the models that have each cell, with commas between: cells of several models may have one name, and several models one cell.
fn users_of_cells(cells: usize, models: &[&Model]) -> Vec<String> {
    let mut users: Vec<Vec<&str>> = vec![Vec::new(); cells];
    for model in models {
        for cell in &model.cells {
            let users = &mut users[cell.cell_type.index()];
            if users.last() != Some(&&*model.name) {
                users.push(&model.name);
            }
        }
    }
    users.into_iter().map(|users| users.join(",")).collect()
}

fn label(name: &'static str, value: &str) -> Label {
    Label::new(name, value.to_owned())
}

/// The metrics of one model.
pub(crate) struct ModelMetrics {
    /// In the order of [`Outcome::ALL`].
    requests: [Counter; Outcome::ALL.len()],
    request_seconds: Histogram,
    queue_seconds: Histogram,
    compute_seconds: Histogram,
}

impl std::fmt::Debug for ModelMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelMetrics").finish_non_exhaustive()
    }
}

impl ModelMetrics {
    /// Counts a request that ended; `phases` of those that were answered.
    pub(crate) fn count(&self, outcome: Outcome, total_ns: u64, phases: Option<Phases>) {
        let known = self.requests.iter().zip(Outcome::ALL);
        known.filter(|(_, known)| *known == outcome).for_each(|(counter, _)| counter.increment(1));
        if let Some(phases) = phases {
            self.request_seconds.record(seconds(total_ns));
            self.queue_seconds.record(seconds(phases.queue_ns));
            self.compute_seconds.record(seconds(phases.compute_ns));
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
