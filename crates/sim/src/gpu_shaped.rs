//! DVABatch's comparison (section 8.2 of the paper) in virtual time, on a device whose time grows with the size of a batch as a GPU's does.
//!
//! A stage takes the same time for any batch up to the one that fills the device, its preferred size, and beyond that in proportion
//! (Figure 5 of the paper). The shapes below follow what its text says of each network, since the points of its Figures 5 and 6 are not
//! printed; the time of one request alone is set so that a batch of 64 nearly takes the 200 ms of the paper's QoS target. They were settled
//! before the first run, and are not fitted to the results; a device that runs one batch at a time, which was the first, showed no gain.
//!
//! A batch below the preferred size fills its share of the device, and leaves the rest to others: batches that run at once, in executors of their
//! own, slow each other down only where together they need more than there is. ZeroBatch and DelayBatch have one executor, as in the paper; batches
//! in stages have one for each stage, with two buffer pairs (the parallel manner).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, CellGraphBuilder, CellTypeId, ElementType, ModelId, ModelPriority, RequestId,
    RowSpec, Rows, Sink, SinkTime, TaskId, Work, WorkerId,
};
use batchmaker_manager::{
    CellTypeConfig, Config, Delay, Event, Manager, Policy, Stages, Staging, StatePlacement,
    TaskForm,
};

use crate::rng::Rng;

/// The most requests of a batch, and the time in which 99 % of the requests must be answered at the peak, as in the paper.
const BATCH_MAX: u32 = 64;
const QOS_NS: u64 = 200_000_000;

/// The loads that are compared, as shares of the peak: low, medium and high.
pub const SHARES: [f64; 3] = [0.25, 0.6, 0.9];

/// The windows of which the one with the highest peak is DelayBatch's, in milliseconds.
const WINDOWS_MS: [u64; 5] = [2, 5, 10, 20, 40];

/// A network: the time of one request alone in nanoseconds, and the preferred size of each stage, which all take the same share of it.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    alone_ns: u64,
    preferred: &'static [u32],
}

/// Unet's former operators gain up to batches of 32 and its latter ones up to 8 (section 3.2); LinkNet has operator diversity, too, and four
/// stages (section 8.7); ResNet-152 and VGG19 have operators alike, which batches of 8 fill.
pub const SHAPES: [Shape; 4] = [
    Shape { name: "Unet", alone_ns: 20_000_000, preferred: &[32, 8] },
    Shape { name: "LinkNet", alone_ns: 20_000_000, preferred: &[32, 32, 8, 8] },
    Shape { name: "ResNet152", alone_ns: 16_000_000, preferred: &[8, 8, 8, 8] },
    Shape { name: "VGG19", alone_ns: 16_000_000, preferred: &[8, 8] },
];

/// The latencies of a policy at a load, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// The mean.
    pub mean_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
}

/// A network at one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Requests a second.
    pub rate_rps: f64,
    /// ZeroBatch: those that wait when the device is idle become a batch.
    pub zero: Latency,
    /// DelayBatch: the first of a batch waits for others.
    pub delay: Latency,
    /// Batches in stages, which are stretched and split.
    pub staged: Latency,
}

/// A network at all loads.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// ZeroBatch's, DelayBatch's and DVABatch's peaks, in requests a second.
    pub peaks_rps: [f64; 3],
    /// DelayBatch's window, in milliseconds.
    pub window_ms: u64,
    /// Ages in milliseconds up to which batches may be stretched, with the mean latency at the medium load in milliseconds. The one with the
    /// lowest is compared.
    pub stretches_ms: [(u64, f64); 5],
    /// The loads, which are shares of the first peak.
    pub loads: Vec<Compared>,
}

/// A device that its batches share.
struct Device {
    /// The batch of each executor, if it runs one.
    running: Vec<Option<Running>>,
    at_ns: u64,
}

#[derive(Clone, Copy)]
struct Running {
    task: TaskId,
    /// The time that is left if nobody else ran.
    left_ns: f64,
    /// The share of the device that it fills.
    share: f64,
}

impl Device {
    /// The factor by which its batches are slowed down.
    fn slowness(&self) -> f64 {
        self.running.iter().flatten().map(|running| running.share).sum::<f64>().max(1.0)
    }

    /// Runs until `now_ns`, and returns what ended.
    fn advance(&mut self, now_ns: u64) -> Vec<(WorkerId, TaskId)> {
        let done_ns = (now_ns - self.at_ns) as f64 / self.slowness();
        self.at_ns = now_ns;
        let mut over = Vec::new();
        for (worker, place) in (0..).map(WorkerId).zip(&mut self.running) {
            if let Some(running) = place {
                running.left_ns -= done_ns;
                if running.left_ns < 0.5 {
                    over.push((worker, running.task));
                    *place = None;
                }
            }
        }
        over
    }

    /// When the next batch ends if no other begins.
    fn next_end_ns(&self) -> Option<u64> {
        let least = self.running.iter().flatten().map(|running| running.left_ns);
        let least = least.min_by(f64::total_cmp)?;
        Some(self.at_ns + (least * self.slowness()).ceil() as u64)
    }
}

impl Shape {
    fn stage_ns(&self, stage: usize, size: u32) -> u64 {
        let of_stage = self.alone_ns / self.preferred.len() as u64;
        let preferred = u64::from(self.preferred[stage]);
        of_stage * u64::from(size).max(preferred) / preferred
    }

    fn stages(&self) -> Stages {
        let count = self.preferred.len();
        let sizes = || (0..=BATCH_MAX.ilog2()).map(|power| 1 << power);
        let times = |stage: usize| sizes().map(|size| (size, self.stage_ns(stage, size))).collect();
        Stages::new((0..count).collect(), (0..count).map(times).collect())
    }

    fn graph(&self) -> Arc<CellGraph> {
        let row = || RowSpec::new(ElementType::F32, [1]);
        let mut graph = CellGraphBuilder::new();
        let mut x = graph.input(row(), 1);
        for cell in 0..self.preferred.len() as u32 {
            let y = graph.value(row(), 1);
            let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
            graph.rows(CellTypeId(cell), 1, vec![Rows::all(x)], vec![sink]);
            x = y;
        }
        Arc::new(graph.finish().expect("cells one after the other"))
    }

    /// Batches in stages: stretched while the newest is younger than `stretch_ns`, and split where halves take no longer.
    fn staged(&self, stretch_ns: u64) -> Policy {
        let staging = Staging {
            // The parallel manner.
            pairs: 2,
            pipelines: Some(1),
            batch_max: BATCH_MAX,
            active_max: u32::MAX,
            window_ns: 0,
            stretch_ns,
            split_margin_percent: Some(0),
        };
        Policy::Staged(staging.into())
    }

    /// The ages up to which a batch may be stretched: not at all, up to shares of one request's time alone, and as long as the QoS target
    /// allows after the longest batch, as in the paper (section 7.4).
    fn stretches_ns(&self) -> [u64; 5] {
        let longest_ns: u64 =
            (0..self.preferred.len()).map(|stage| self.stage_ns(stage, BATCH_MAX)).sum();
        let alone_ns = self.alone_ns;
        [0, alone_ns / 4, alone_ns / 2, alone_ns, QOS_NS.saturating_sub(longest_ns)]
    }

    /// The sorted latencies of `count` requests, in nanoseconds.
    fn latencies(&self, policy: Policy, rate_rps: f64, count: usize, seed: u64) -> Vec<u64> {
        let mut rng = Rng::new(seed);
        let mut at_ns = 0.0;
        let mut arrivals: VecDeque<u64> = (0..count)
            .map(|_| {
                let uniform = (rng.next() >> 11) as f64 / (1_u64 << 53) as f64;
                at_ns += -(1.0 - uniform).ln() / rate_rps * 1e9;
                at_ns as u64
            })
            .collect();
        let (graph, mut manager) = (self.graph(), Manager::new(self.config(policy)));
        let (mut now, mut index) = (0, 0);
        let mut device =
            Device { running: vec![None; usize::from(self.executors(&policy))], at_ns: 0 };
        let mut latencies = Vec::with_capacity(count);
        loop {
            while let Some(arrived_ns) = arrivals.pop_front_if(|at| *at <= now) {
                let request = RequestId { index, generation: 0 };
                index += 1;
                let event = Event::Arrive {
                    request,
                    model: ModelId(0),
                    priority: 0,
                    deadline_ns: None,
                    graph: graph.clone(),
                    session: None,
                };
                manager.handle(arrived_ns, event);
            }
            for (worker, task) in device.advance(now) {
                manager.handle(now, Event::Complete { worker, task });
            }
            manager.advance(now);
            for at in 0..device.running.len() {
                let worker = WorkerId(at as u32);
                if device.running[at].is_none()
                    && let Some(task) = manager.next_task(worker)
                {
                    let Work::Rows(items) = &task.work else { unreachable!("rows alone") };
                    let size: u32 = items.iter().map(|item| item.count).sum();
                    let stage = task.cell_type.index();
                    let share = (f64::from(size) / f64::from(self.preferred[stage])).min(1.0);
                    let left_ns = self.stage_ns(stage, size) as f64;
                    device.running[at] = Some(Running { task: task.id, left_ns, share });
                }
            }
            latencies.extend(manager.drain_finished().map(|finished| finished.total_ns));
            let next = device.next_end_ns().into_iter();
            let next = next.chain(arrivals.front().copied()).chain(manager.next_deadline()).min();
            match next {
                Some(next) => now = next.max(now),
                None => break,
            }
        }
        latencies.sort_unstable();
        latencies
    }

    /// The executors that run at once.
    fn executors(&self, policy: &Policy) -> u16 {
        match policy {
            Policy::Staged(_) => self.preferred.len() as u16,
            _ => 1,
        }
    }

    fn config(&self, policy: Policy) -> Config {
        let cells = 0..self.preferred.len();
        let priority = |priority| vec![ModelPriority { model: ModelId(0), priority }];
        Config {
            cell_types: cells
                .map(|cell| CellTypeConfig::up_to(BATCH_MAX, priority(cell as i32)))
                .collect(),
            workers: self.executors(&policy),
            lookahead: 0,
            fairness: None,
            stages: self.stages(),
            staged_models: Vec::new(),
            policy,
            max_tasks_to_submit: 1,
            submission_window_ns: None,
            task_form: TaskForm::Roster,
            state_placement: StatePlacement::Shared,
        }
    }

    fn latency(&self, policy: Policy, rate_rps: f64, count: usize, seed: u64) -> Latency {
        let all = self.latencies(policy, rate_rps, count, seed);
        let ms = |ns: u64| ns as f64 / 1e6;
        Latency {
            mean_ms: ms(all.iter().sum::<u64>()) / all.len() as f64,
            p99_ms: ms(all[(all.len() * 99).div_ceil(100) - 1]),
        }
    }

    /// The highest rate at which the QoS target is met, to a hundredth.
    fn peak_rps(&self, policy: Policy, count: usize, seed: u64) -> f64 {
        let (mut low, mut high) = (0.0, 1e10 / self.alone_ns as f64 * f64::from(BATCH_MAX));
        while high > 1.01 * low {
            let rate = if low == 0.0 { high / 2.0 } else { (low + high) / 2.0 };
            match self.latency(policy, rate, count, seed).p99_ms <= QOS_NS as f64 / 1e6 {
                true => low = rate,
                false => high = rate,
            }
            if high < 1e-3 {
                break;
            }
        }
        low
    }

    /// Compares the policies, with `count` requests at each load.
    pub fn compare(&self, count: usize, seed: u64) -> Comparison {
        let delay =
            |ms: u64| Policy::Delayed(Delay { batch_max: BATCH_MAX, window_ns: ms * 1_000_000 });
        let peaks: BTreeMap<u64, f64> =
            WINDOWS_MS.map(|ms| (ms, self.peak_rps(delay(ms), count, seed))).into();
        let (&window_ms, &delay_rps) =
            peaks.iter().max_by(|a, b| a.1.total_cmp(b.1)).expect("there are windows");
        let zero = delay(0);
        let zero_rps = self.peak_rps(zero, count, seed);
        let mean_ms = |stretch_ns: u64| {
            self.latency(self.staged(stretch_ns), SHARES[1] * zero_rps, count, seed).mean_ms
        };
        let stretches = self.stretches_ns().map(|stretch_ns| (stretch_ns, mean_ms(stretch_ns)));
        let best = stretches.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are some");
        let staged = self.staged(best.0);
        let load = |share: f64| {
            let rate_rps = share * zero_rps;
            let latency = |policy| self.latency(policy, rate_rps, count, seed);
            Compared {
                rate_rps,
                zero: latency(zero),
                delay: latency(delay(window_ms)),
                staged: latency(staged),
            }
        };
        Comparison {
            peaks_rps: [zero_rps, delay_rps, self.peak_rps(staged, count, seed)],
            window_ms,
            stretches_ms: stretches.map(|(stretch_ns, mean_ms)| (stretch_ns / 1_000_000, mean_ms)),
            loads: SHARES.map(load).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One request finds the device idle: it takes the time of each stage alone, whatever the policy.
    #[test]
    fn a_request_alone_takes_its_time() {
        for shape in SHAPES {
            for policy in [shape.staged(0), Policy::Delayed(Delay { batch_max: 64, window_ns: 0 })]
            {
                assert_eq!(shape.latencies(policy, 0.1, 1, 7), [shape.alone_ns]);
            }
        }
    }
}
