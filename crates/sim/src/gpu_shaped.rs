//! DVABatch's comparison (section 8.2 of the paper) in virtual time, on a device whose time grows with the size of a batch as a GPU's does.
//!
//! A stage takes the same time for any batch up to the one that fills the device, its preferred size, and beyond that in proportion
//! (Figure 5 of the paper). The shapes below follow what its text says of each network, since the points of its Figures 5 and 6 are not
//! printed; the time of one image alone is set so that a batch of 64 nearly takes the 200 ms of the paper's QoS target. They were settled
//! before the first run, and are not fitted to the results; a device that runs one batch at a time, which was the first, showed no gain.
//!
//! BERT's requests have lengths. ZeroBatch and DelayBatch pad them to the longest of a batch. Batches in stages pad nothing, while the paper's DVABatch
//! clusters lengths and pads within a cluster: so DelayBatch is measured without padding, too. By Figure 5, a product fills the device once it has
//! 200,000 outputs. A token has 768 outputs in BERT base and 1,024 in BERT large, so 261 and 196 tokens fill it. Their time is that of
//! their multiplications at 11 TFLOP/s, two thirds of the Titan RTX's peak. That attention takes time with the square of a length is left
//! out. The lengths are those of sentence pairs such as RTE's, as a log-normal of 70 tokens in the mean; Figure 4 has no numbers.
//!
//! A batch below the preferred size fills its share of the device, and leaves the rest to others: batches that run at once, in executors of their
//! own, slow each other down only where together they need more than there is. ZeroBatch and DelayBatch have one executor, as in the paper, and the most
//! requests of a batch with which their peak is highest: padded batches of 64 would be slower than smaller ones. Batches
//! in stages have an executor for each stage, with two buffer pairs (the parallel manner).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, CellGraphBuilder, CellTypeId, ElementType, Item, ModelId, ModelPriority, RequestId,
    RowSpec, Rows, Sink, SinkTime, TaskId, Work, WorkerId,
};
use batchmaker_manager::{
    CellTypeConfig, Config, Delay, Event, Manager, Policy, Stages, Staging, StatePlacement,
    TaskForm,
};

use crate::rng::Rng;

/// The most requests of a batch, and the time in which 99 % of the requests must be answered at the peak, as in the paper.
const BATCH_MAX: u32 = 64;
/// The most requests of a batch that ZeroBatch and DelayBatch are tried with.
const BATCHES: [u32; 5] = [4, 8, 16, 32, BATCH_MAX];
const QOS_NS: u64 = 200_000_000;

/// The loads that are compared, as shares of the peak: low, medium and high.
pub const SHARES: [f64; 3] = [0.25, 0.6, 0.9];

/// The windows that DelayBatch is tried with, in milliseconds.
const WINDOWS_MS: [u64; 5] = [2, 5, 10, 20, 40];

/// A network: the time of one request alone in nanoseconds, and the preferred size of each stage, in tokens where it has lengths, else in
/// requests. All stages take the same share of the time.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    alone_ns: u64,
    preferred: &'static [u32],
    lengths: Option<Lengths>,
}

/// Lengths of requests: a log-normal of this median and this deviation of the logarithm, from 1 to the most.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    median: f64,
    sigma: f64,
    max: u32,
}

impl Lengths {
    fn draw(self, rng: &mut Rng) -> u32 {
        // Box and Muller.
        let (radius, angle) = (unit(rng), unit(rng));
        let normal = (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let length = self.median * (self.sigma * normal).exp();
        (length.round() as u32).clamp(1, self.max)
    }

    /// The mean of the log-normal, before lengths are clamped.
    fn mean(self) -> u32 {
        (self.median * (self.sigma * self.sigma / 2.0).exp()).round() as u32
    }
}

/// From 0 to 1, without 1.
fn unit(rng: &mut Rng) -> f64 {
    (rng.next() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Unet's former operators gain up to batches of 32 and its latter ones up to 8 (section 3.2); LinkNet has operator diversity, too, and four
/// stages (section 8.7); ResNet-152 and VGG19 have operators alike, which batches of 8 fill. BERT has two stages (section 8.7).
pub const SHAPES: [Shape; 6] = [
    Shape { name: "Unet", alone_ns: 20_000_000, preferred: &[32, 8], lengths: None },
    Shape { name: "LinkNet", alone_ns: 20_000_000, preferred: &[32, 32, 8, 8], lengths: None },
    Shape { name: "ResNet152", alone_ns: 16_000_000, preferred: &[8, 8, 8, 8], lengths: None },
    Shape { name: "VGG19", alone_ns: 16_000_000, preferred: &[8, 8], lengths: None },
    Shape { name: "BertBase", alone_ns: 4_000_000, preferred: &[261, 261], lengths: Some(RTE) },
    Shape { name: "BertLarge", alone_ns: 11_000_000, preferred: &[196, 196], lengths: Some(RTE) },
];

const RTE: Lengths = Lengths { median: 58.0, sigma: 0.6, max: 289 };

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

/// The peak of a policy, which is the highest rate at which it meets the QoS target, and the batch size and window that reach it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// The rate, in requests a second.
    pub rps: f64,
    /// The most requests of a batch.
    pub batch_max: u32,
    /// The time that the first request of a batch waits for others, in milliseconds.
    pub window_ms: u64,
}

/// A network at all loads.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// ZeroBatch's peak.
    pub zero: Peak,
    /// DelayBatch's peak.
    pub delay: Peak,
    /// DelayBatch's peak without padding, where requests have lengths.
    pub unpadded: Option<Peak>,
    /// The peak of batches in stages, in requests a second.
    pub staged_rps: f64,
    /// Ages in milliseconds up to which batches may be stretched, with the mean latency at the medium load in milliseconds. The one with the
    /// lowest is compared.
    pub stretches_ms: Vec<(u64, f64)>,
    /// The loads, which are shares of ZeroBatch's peak.
    pub loads: Vec<Compared>,
}

/// A policy, and whether its batches are padded.
#[derive(Clone, Copy)]
struct Batches {
    policy: Policy,
    /// Whether each request of a batch has as many rows as the longest.
    is_padded: bool,
}

impl Batches {
    fn delayed(batch_max: u32, window_ms: u64, is_padded: bool) -> Self {
        let delay = Delay { batch_max, window_ns: window_ms * 1_000_000 };
        Self { policy: Policy::Delayed(delay), is_padded }
    }

    /// The rows that a batch computes.
    fn rows_of(self, items: &[Item]) -> u32 {
        let rows = items.iter().map(|item| item.count);
        match self.is_padded {
            true => items.len() as u32 * rows.max().unwrap_or(0),
            false => rows.sum(),
        }
    }
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
    /// The time of a batch of `rows` in a stage: tokens, or requests.
    fn stage_ns(&self, stage: usize, rows: u32) -> u64 {
        let of_stage = self.alone_ns / self.preferred.len() as u64;
        let preferred = u64::from(self.preferred[stage]);
        of_stage * u64::from(rows).max(preferred) / preferred
    }

    /// The rows of a request, on average.
    fn rows_mean(&self) -> u32 {
        self.lengths.map_or(1, Lengths::mean)
    }

    /// The most rows of a batch.
    fn rows_max(&self) -> u32 {
        BATCH_MAX * self.lengths.map_or(1, |lengths| lengths.max)
    }

    fn stages(&self) -> Stages {
        let count = self.preferred.len();
        let sizes = || (0..=BATCH_MAX.ilog2()).map(|power| 1 << power);
        let time = |stage: usize, size: u32| self.stage_ns(stage, size * self.rows_mean());
        let times = |stage: usize| sizes().map(|size| (size, time(stage, size))).collect();
        Stages::new((0..count).collect(), (0..count).map(times).collect())
    }

    fn graph(&self, rows: u32) -> Arc<CellGraph> {
        let row = || RowSpec::new(ElementType::F32, [1]);
        let mut graph = CellGraphBuilder::new();
        let mut x = graph.input(row(), rows);
        for cell in 0..self.preferred.len() as u32 {
            let y = graph.value(row(), rows);
            let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
            graph.rows(CellTypeId(cell), rows, vec![Rows::all(x)], vec![sink]);
            x = y;
        }
        Arc::new(graph.finish().expect("cells one after the other"))
    }

    /// Batches in stages: stretched while the newest is younger than `stretch_ns`, and split where halves take no longer.
    fn staged(&self, stretch_ns: u64) -> Batches {
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
        Batches { policy: Policy::Staged(staging.into()), is_padded: false }
    }

    /// The ages up to which a batch may be stretched: not at all, up to shares of one request's time alone, and as long as the QoS target
    /// allows after the longest batch, as in the paper (section 7.4).
    fn stretches_ns(&self) -> BTreeSet<u64> {
        let longest_ns: u64 = (0..self.preferred.len())
            .map(|stage| self.stage_ns(stage, BATCH_MAX * self.rows_mean()))
            .sum();
        let alone_ns = self.alone_ns;
        [0, alone_ns / 4, alone_ns / 2, alone_ns, QOS_NS.saturating_sub(longest_ns)].into()
    }

    /// The sorted latencies of `count` requests, in nanoseconds.
    fn latencies(&self, batches: Batches, rate_rps: f64, count: usize, seed: u64) -> Vec<u64> {
        let mut rng = Rng::new(seed);
        let mut at_ns = 0.0;
        let mut arrivals: VecDeque<u64> = (0..count)
            .map(|_| {
                at_ns += -(1.0 - unit(&mut rng)).ln() / rate_rps * 1e9;
                at_ns as u64
            })
            .collect();
        let mut graphs: BTreeMap<u32, Arc<CellGraph>> = BTreeMap::new();
        let mut manager = Manager::new(self.config(batches.policy));
        let (mut now, mut index) = (0, 0);
        let mut device =
            Device { running: vec![None; usize::from(self.executors(&batches.policy))], at_ns: 0 };
        let mut latencies = Vec::with_capacity(count);
        loop {
            while let Some(arrived_ns) = arrivals.pop_front_if(|at| *at <= now) {
                let request = RequestId { index, generation: 0 };
                index += 1;
                let rows = self.lengths.map_or(1, |lengths| lengths.draw(&mut rng));
                let graph = graphs.entry(rows).or_insert_with(|| self.graph(rows)).clone();
                let event = Event::Arrive {
                    request,
                    model: ModelId(0),
                    priority: 0,
                    deadline_ns: None,
                    graph,
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
                    let rows = batches.rows_of(items);
                    let stage = task.cell_type.index();
                    let share = (f64::from(rows) / f64::from(self.preferred[stage])).min(1.0);
                    let left_ns = self.stage_ns(stage, rows) as f64;
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
                .map(|cell| CellTypeConfig::up_to(self.rows_max(), priority(cell as i32)))
                .collect(),
            workers: self.executors(&policy),
            lookahead: 0,
            fairness: None,
            stages: self.stages(),
            staged_models: Vec::new(),
            policy,
            max_tasks_to_submit: 1,
            rounds_of_a_turn: 1,
            submission_window_ns: None,
            task_form: TaskForm::Roster,
            state_placement: StatePlacement::Shared,
        }
    }

    fn latency(&self, batches: Batches, rate_rps: f64, count: usize, seed: u64) -> Latency {
        let all = self.latencies(batches, rate_rps, count, seed);
        let ms = |ns: u64| ns as f64 / 1e6;
        Latency {
            mean_ms: ms(all.iter().sum::<u64>()) / all.len() as f64,
            p99_ms: ms(all[(all.len() * 99).div_ceil(100) - 1]),
        }
    }

    /// The highest rate at which the QoS target is met, to a hundredth.
    fn peak_rps(&self, batches: Batches, count: usize, seed: u64) -> f64 {
        let (mut low, mut high) = (0.0, 1e10 / self.alone_ns as f64 * f64::from(BATCH_MAX));
        while high > 1.01 * low {
            let rate = if low == 0.0 { high / 2.0 } else { (low + high) / 2.0 };
            match self.latency(batches, rate, count, seed).p99_ms <= QOS_NS as f64 / 1e6 {
                true => low = rate,
                false => high = rate,
            }
            if high < 1e-3 {
                break;
            }
        }
        low
    }

    /// The highest peak of batches that run as a whole, with any of `windows_ms`.
    fn best(&self, windows_ms: &[u64], is_padded: bool, count: usize, seed: u64) -> Peak {
        let settings =
            BATCHES.iter().flat_map(|&batch| windows_ms.iter().map(move |&ms| (batch, ms)));
        let peaks = settings.map(|(batch_max, window_ms)| {
            let batches = Batches::delayed(batch_max, window_ms, is_padded);
            Peak { rps: self.peak_rps(batches, count, seed), batch_max, window_ms }
        });
        peaks.max_by(|a, b| a.rps.total_cmp(&b.rps)).expect("there are windows")
    }

    /// Compares the policies, with `count` requests at each load.
    pub fn compare(&self, count: usize, seed: u64) -> Comparison {
        let zero = self.best(&[0], true, count, seed);
        let delay = self.best(&WINDOWS_MS, true, count, seed);
        let unpadded = self.lengths.map(|_| self.best(&WINDOWS_MS, false, count, seed));
        let mean_ms = |stretch_ns: u64| {
            self.latency(self.staged(stretch_ns), SHARES[1] * zero.rps, count, seed).mean_ms
        };
        let stretches: Vec<(u64, f64)> =
            self.stretches_ns().into_iter().map(|age_ns| (age_ns, mean_ms(age_ns))).collect();
        let best = stretches.iter().min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are some");
        let staged = self.staged(best.0);
        let load = |share: f64| {
            let rate_rps = share * zero.rps;
            let latency = |batches| self.latency(batches, rate_rps, count, seed);
            let whole = |of: Peak| latency(Batches::delayed(of.batch_max, of.window_ms, true));
            Compared { rate_rps, zero: whole(zero), delay: whole(delay), staged: latency(staged) }
        };
        Comparison {
            zero,
            delay,
            unpadded,
            staged_rps: self.peak_rps(staged, count, seed),
            stretches_ms: stretches
                .iter()
                .map(|&(age_ns, mean)| (age_ns / 1_000_000, mean))
                .collect(),
            loads: SHARES.map(load).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::RunIndex;

    use super::*;

    const WHOLE: Batches = Batches {
        policy: Policy::Delayed(Delay { batch_max: BATCH_MAX, window_ns: 0 }),
        is_padded: true,
    };

    /// Requests that are all of 200 tokens.
    fn of_200_tokens() -> Shape {
        let lengths = Some(Lengths { median: 200.0, sigma: 0.0, max: 200 });
        Shape { name: "of 200 tokens", alone_ns: 4_000_000, preferred: &[100, 100], lengths }
    }

    /// One request finds the device idle: it takes the time of each stage alone, whatever the policy.
    #[test]
    fn a_request_alone_takes_its_time() {
        for shape in SHAPES.into_iter().filter(|shape| shape.lengths.is_none()) {
            for batches in [shape.staged(0), WHOLE] {
                assert_eq!(shape.latencies(batches, 0.1, 1, 7), [shape.alone_ns]);
            }
        }
        let shape = of_200_tokens();
        for batches in [shape.staged(0), WHOLE] {
            assert_eq!(shape.latencies(batches, 0.1, 1, 7), [2 * shape.alone_ns]);
        }
    }

    #[test]
    fn lengths_are_those_of_the_log_normal() {
        let mut rng = Rng::new(7);
        let mut lengths: Vec<u32> = (0..10_000).map(|_| RTE.draw(&mut rng)).collect();
        lengths.sort_unstable();
        let mean = lengths.iter().sum::<u32>() / 10_000;
        assert!((56..=60).contains(&lengths[5_000]) && (67..=71).contains(&mean), "{mean}");
        assert!(lengths[0] >= 1 && lengths[9_999] <= RTE.max);
    }

    #[test]
    fn batches_as_a_whole_are_padded() {
        let item = |count| Item {
            request: RequestId { index: 0, generation: 0 },
            run: RunIndex(0),
            first: 0,
            count,
            slot: None,
            moved_from: None,
        };
        let items = [item(10), item(200)];
        assert_eq!(WHOLE.rows_of(&items), 400);
        assert_eq!(of_200_tokens().staged(0).rows_of(&items), 210);
    }
}
