//! How near to its ideal a GPU comes whose launches run task after task of a roster: the real manager in virtual time, over the costs of an H200 for an
//! LSTM of 1,024 units in f32.
//!
//! A GPU does one thing after the other. A task's steps take time in proportion to the roster, and each ends at a barrier. While they run, a courier brings
//! the next task from memory of the host. Before its steps, block 0 reads it, and blocks make the copies that change the roster. Where a task comes too
//! late for the barrier of the step before, block 0 looks until it is there. A launch gives way to a task of another cell, and ends with its quantum or
//! when no task comes for a while. The host does one thing after the other, too: it hears of completed tasks a while later, and takes time for each task
//! and each chain that joins.
//!
//! x is an id: numbers of more than a few KiB would take longer to bring.
//!
//! The ideal is a GPU that does nothing but steps, whose rows are all nodes of chains.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, ElementType, ModelId, ModelPriority,
    RequestId, RowSpec, Rows, Sink, SinkTime, SlotId, TaskId, Work, WorkerId,
};
use batchmaker_manager::{
    CellTypeConfig, Config, Event, Manager, Policy, Stages, StatePlacement, TaskForm,
};

use crate::rng::Rng;

/// Lengths of sentences: any of these is as likely. The mean is 24, as that of the paper's.
const LENGTHS: std::ops::RangeInclusive<u64> = 4..=44;

/// The first and the last requests are left out of the figures: each one part in `EDGES` of all.
const EDGES: usize = 10;

/// What things take, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A step for each row of the roster: 16 us for 64 rows at the peak of f32, weights of x included.
    pub row: u64,
    /// A barrier of all blocks.
    pub barrier: u64,
    /// A read of memory of the host by the GPU.
    pub bus_read: u64,
    /// A read of its own memory that others have written.
    pub read: u64,
    /// From the end of one kernel to the begin of the next, which was submitted before.
    pub between_kernels: u64,
    /// From a launch by the host to its begin on an idle GPU.
    pub launch: u64,
    /// The load of the weights into registers.
    pub weights: u64,
    /// From a store by the GPU to a worker that knows of it.
    pub notice: u64,
    /// The time for which a launch waits for a task.
    pub idle: u64,
    /// The host's time for a task.
    pub host_task: u64,
    /// The host's time for a chain that joins, and later leaves.
    pub host_join: u64,
    /// The host's time for a launch.
    pub host_launch: u64,
}

impl Costs {
    /// Costs of an H200 by arithmetic and estimate; those of the host as measured without one (`host_work.rs` of the device of GPUs).
    pub const H200: Self = Self {
        row: 250,
        barrier: 750,
        bus_read: 1300,
        read: 350,
        between_kernels: 1500,
        launch: 4000,
        weights: 3000,
        notice: 3000,
        idle: 1_000_000,
        host_task: 3600,
        host_join: 3500,
        host_launch: 3900,
    };
}

/// How tasks come to the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launches {
    /// Each by launches of its own: copies, products of x, the steps, the signal.
    OfTasks,
    /// By a launch that takes task after task, until it has run `steps_max` steps.
    OfQuanta {
        /// The most steps of a launch.
        steps_max: u32,
    },
}

/// Sentences that are always there: one that ends makes room for another.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The most chains of a batch.
    pub chains: u32,
    /// The requests in flight.
    pub in_flight: usize,
    /// The requests in all.
    pub requests: usize,
    /// Layers, each a cell type of its own, whose steps read those of the layer below.
    pub layers: u32,
    /// [`Config::lookahead`].
    pub lookahead: u32,
    /// [`Config::rounds_of_a_turn`].
    pub rounds_of_a_turn: u32,
}

/// The figures of a played load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// The time of the ideal as a part of the time that it took.
    pub share: f64,
    /// Steps of a launch, in the mean.
    pub steps_of_launch: f64,
    /// Chains that joined or left in a launch, in the mean.
    pub changes_of_launch: f64,
    /// The part of the time in which the host worked.
    pub host: f64,
    /// The rows of a step that were no node of a chain, as a part of all.
    pub padding: f64,
}

/// The GPU's time.
struct Gpu {
    costs: Costs,
    launches: Launches,
    /// When it is done with all that it was given.
    end: u64,
    /// The cell type whose launch takes tasks, and its steps so far.
    running: Option<(CellTypeId, u32)>,
    count: Counts,
}

/// Sums over some time.
#[derive(Clone, Copy, Default)]
struct Counts {
    launches: u64,
    steps: u64,
    changes: u64,
    rows: u64,
    nodes: u64,
    host: u64,
}

/// A task that comes to the GPU.
struct Given {
    cell_type: CellTypeId,
    /// When the GPU can see it.
    at: u64,
    steps: u32,
    rows: u64,
    changes: u64,
}

impl Gpu {
    /// Runs a task, and returns when it is done.
    fn run(&mut self, task: &Given) -> u64 {
        let Costs { bus_read, read, barrier, between_kernels, launch, weights, .. } = self.costs;
        let Costs { notice, idle, host_launch, .. } = self.costs;
        let Launches::OfQuanta { steps_max } = self.launches else {
            self.count.launches += 1;
            let begin = (self.end + between_kernels).max(task.at + launch);
            // Copies, which read their descriptions and then what these name, products, weights.
            let before = 2 * bus_read + 2 * between_kernels + weights;
            return self.steps(begin + before, task);
        };
        let is_running = |&(of, steps): &(CellTypeId, u32)| {
            of == task.cell_type && steps + task.steps <= steps_max && task.at <= self.end + idle
        };
        // It sees the number, reads the rest, the description of copies and what these name. A launch has the first task with it.
        let brought = |at: u64| at + bus_read / 2 + 3 * bus_read;
        let brought_first = |begin: u64| begin + 2 * bus_read;
        let begin = match self.running.filter(is_running) {
            // At the end of the step before, block 0 looks and reads; all read it behind the barrier.
            Some(_) if brought(task.at) <= self.end => self.end + 3 * read,
            // The others wait at a barrier of its own.
            Some(_) => brought(task.at).max(self.end + read) + 3 * read + barrier,
            None => {
                self.count.launches += 1;
                let load =
                    |begin: u64| brought_first(begin).max(begin + weights) + 3 * read + barrier;
                let begin = match self.running.take() {
                    // The host hears that the launch has ended, and launches it again; the launch reads which task is left, and looks for it.
                    Some((of, _)) if of == task.cell_type => {
                        (self.end + notice + host_launch).max(task.at) + launch + 3 * bus_read
                    }
                    // The launch sees that it is to end; another one reads that no tasks are left.
                    Some(_) => {
                        let end = self.end + 3 * read + between_kernels + bus_read;
                        (end + between_kernels).max(task.at + launch)
                    }
                    None => task.at.max(self.end) + launch,
                };
                load(begin)
            }
        };
        // A description, and what it names.
        let changes = if task.changes > 0 { 2 * read + barrier } else { 0 };
        let steps = self.running.map_or(0, |(_, steps)| steps);
        self.running = Some((task.cell_type, steps + task.steps));
        self.steps(begin + changes, task)
    }

    fn steps(&mut self, begin: u64, task: &Given) -> u64 {
        let steps = u64::from(task.steps);
        self.count.steps += steps;
        self.count.changes += task.changes;
        self.count.rows += steps * task.rows;
        self.end = begin + steps * (task.rows * self.costs.row + self.costs.barrier);
        self.end
    }
}

/// The steps that each chain of a roster has left.
type Rosters = HashMap<(CellTypeId, SlotId), u32>;

/// Plays a load.
pub fn play(costs: Costs, launches: Launches, load: Load, seed: u64) -> Outcome {
    let mut rng = Rng::new(seed);
    let mut manager = Manager::new(config(load));
    let count = Counts::default();
    let mut gpu = Gpu { costs, launches, end: 0, running: None, count };
    let mut rosters = Rosters::new();
    let mut lengths: HashMap<RequestId, u32> = HashMap::new();
    let mut notices: VecDeque<(u64, TaskId)> = VecDeque::new();
    let (mut now, mut sent, mut finished) = (0, 0, 0);
    let edge = load.requests / EDGES;
    let mut begin = None;
    while finished < load.requests {
        while sent < load.requests && sent - finished < load.in_flight {
            let request = RequestId { index: sent as u32, generation: 0 };
            let length = rng.within(LENGTHS) as u32;
            lengths.insert(request, length);
            let graph = graph(length, load.layers);
            let (model, deadline_ns) = (ModelId(0), None);
            let arrive =
                Event::Arrive { request, model, priority: 0, deadline_ns, graph, session: None };
            manager.handle(now, arrive);
            sent += 1;
        }
        while let Some((_, task)) = notices.pop_front_if(|(at, _)| *at <= now) {
            manager.handle(now, Event::Complete { worker: WorkerId(0), task });
        }
        manager.advance(now);
        let mut is_idle = true;
        while let Some(task) = manager.next_task(WorkerId(0)) {
            is_idle = false;
            let launched = gpu.count.launches;
            let (mut given, nodes, joins) = given(&task, &mut rosters, &lengths, load.layers);
            gpu.count.nodes += nodes;
            let host = costs.host_task + joins * costs.host_join;
            given.at = now + host + costs.bus_read / 2;
            let end = gpu.run(&given);
            let launches_now = match launches {
                Launches::OfTasks => 4,
                // Two where the launch before is to end.
                Launches::OfQuanta { .. } if load.layers > 1 => 2 * (gpu.count.launches - launched),
                Launches::OfQuanta { .. } => gpu.count.launches - launched,
            };
            let host = host + launches_now * costs.host_launch;
            gpu.count.host += host;
            now += host;
            notices.push_back((end + costs.notice, task.id));
        }
        let before = finished;
        finished += manager.drain_finished().count();
        if finished >= edge && begin.is_none() {
            begin = Some((gpu.end, gpu.count));
        }
        if finished >= load.requests - edge {
            break;
        }
        if is_idle && finished == before {
            now = notices.front().expect("some work is in flight").0.max(now);
        }
    }
    let (begin, from) = begin.expect("there are requests");
    let of = gpu.count;
    let time = (gpu.end - begin) as f64;
    let per_launch = |count: u64| count as f64 / (of.launches - from.launches).max(1) as f64;
    let nodes = (of.nodes - from.nodes) as f64;
    Outcome {
        share: nodes * costs.row as f64 / time,
        steps_of_launch: per_launch(of.steps - from.steps),
        changes_of_launch: per_launch(of.changes - from.changes),
        host: (of.host - from.host) as f64 / time,
        padding: 1.0 - nodes / (of.rows - from.rows) as f64,
    }
}

/// What a task gives the GPU, the nodes of chains in its steps, and the chains of first layers that join.
fn given(
    task: &BatchedTask,
    rosters: &mut Rosters,
    lengths: &HashMap<RequestId, u32>,
    layers: u32,
) -> (Given, u64, u64) {
    let Work::Roster { leaves, joins, steps } = &task.work else {
        unreachable!("all chains are on rosters")
    };
    let cell_type = task.cell_type;
    for &slot in leaves {
        rosters.remove(&(cell_type, slot));
    }
    for join in joins {
        rosters.insert((cell_type, join.slot), lengths[&join.request] - join.step);
    }
    let (mut rows, mut nodes) = (0, 0);
    for ((of, _), left) in rosters.iter_mut() {
        if *of == cell_type {
            rows += 1;
            nodes += u64::from((*left).min(*steps));
            *left = left.saturating_sub(*steps);
        }
    }
    let changes = (leaves.len() + joins.len()) as u64;
    let given = Given { cell_type, at: 0, steps: *steps, rows, changes };
    // A request's own work counts once.
    let joins = joins.iter().filter(|join| join.step == 0).count() as u64;
    (given, nodes, joins.div_ceil(u64::from(layers)))
}

/// A chain of each layer over a sentence.
fn graph(length: u32, layers: u32) -> Arc<CellGraph> {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let mut x = graph.input(row(), length);
    for layer in 0..layers {
        let y = graph.value(row(), length);
        let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
        graph.chain(CellTypeId(layer), length, vec![Rows::all(x)], vec![None; 2], vec![sink]);
        x = y;
    }
    graph.output(x);
    Arc::new(graph.finish().expect("chains one above the other"))
}

fn config(load: Load) -> Config {
    let priority = |layer: u32| vec![ModelPriority { model: ModelId(0), priority: layer as i32 }];
    Config {
        cell_types: (0..load.layers)
            .map(|layer| CellTypeConfig::up_to(load.chains, priority(layer)))
            .collect(),
        workers: 1,
        lookahead: load.lookahead,
        fairness: None,
        stages: Stages::default(),
        staged_models: Vec::new(),
        policy: Policy::Cellular,
        max_tasks_to_submit: Config::MAX_TASKS_TO_SUBMIT,
        rounds_of_a_turn: load.rounds_of_a_turn,
        submission_window_ns: None,
        task_form: TaskForm::Roster,
        state_placement: StatePlacement::PerWorker,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUANTA: Launches = Launches::OfQuanta { steps_max: 256 };

    fn load(chains: u32, layers: u32) -> Load {
        let in_flight = chains as usize * 3 / 2;
        Load {
            chains,
            in_flight,
            requests: 20 * chains as usize,
            layers,
            lookahead: 2,
            rounds_of_a_turn: 2,
        }
    }

    /// The goal for one launch after the other of a single cell, whose batch changes at every step.
    #[test]
    fn launches_keep_the_gpu_at_steps() {
        for chains in [64, 512] {
            let of_tasks = play(Costs::H200, Launches::OfTasks, load(chains, 1), 1);
            let of_quanta = play(Costs::H200, QUANTA, load(chains, 1), 1);
            assert!(of_quanta.share >= 0.8 && of_quanta.share < 1.0, "{chains}: {of_quanta:?}");
            assert!(of_quanta.share > of_tasks.share, "{chains}: {of_quanta:?} {of_tasks:?}");
            assert!(of_quanta.steps_of_launch > 200.0, "{chains}: {of_quanta:?}");
            assert_eq!(of_quanta.padding, 0.0);
        }
    }

    /// Layers take turns: a launch runs the tasks of two rounds.
    #[test]
    fn layers_take_turns() {
        for chains in [64, 512] {
            let outcome = play(Costs::H200, QUANTA, load(chains, 2), 1);
            assert!(outcome.steps_of_launch < 20.0, "{chains}: {outcome:?}");
            assert!(outcome.share >= 0.79, "{chains}: {outcome:?}");
        }
    }

    /// Without costs but those of rows, nothing is lost.
    #[test]
    fn steps_alone_are_the_ideal() {
        let none = Costs {
            barrier: 0,
            bus_read: 0,
            read: 0,
            between_kernels: 0,
            launch: 0,
            weights: 0,
            notice: 0,
            host_task: 0,
            host_join: 0,
            host_launch: 0,
            ..Costs::H200
        };
        for launches in [Launches::OfTasks, QUANTA] {
            let outcome = play(none, launches, load(64, 1), 1);
            assert!((outcome.share - 1.0).abs() < 1e-9, "{outcome:?}");
        }
    }
}
