//! A scenario, which is drawn from a seed: the machine, the models, and all that will happen to them.

use std::sync::Arc;

use batchmaker_graph::{CellGraph, CellTypeId, ModelId, ModelPriority, RunKind, WorkerId};
use batchmaker_manager::{
    BatchSizes, CellTypeConfig, Config, Fairness, Merging, PadTo, Padding, Policy, Stages,
    StatePlacement, TaskForm,
};
use batchmaker_simulated::{CellCost, VirtualConfig};

use crate::arrival::Arrival;
use crate::checkers::Load;
use crate::graphs::{CellShape, Layout, Model};
use crate::rng::Rng;
use crate::session_plan::{self, SessionPlan};
use crate::stages::{self, StagedModel};

/// Separates the draw of the policy, so that a seed's workload is the same under each.
const POLICY_STREAM: u64 = 0x5bd1_e995_0000_0000;

/// Separates the draws of sessions, so that the rest of a seed's workload is the same without them.
const SESSION_STREAM: u64 = 0x27d4_eb2f_0000_0000;

/// Separates the draw of the submission window.
const WINDOW_STREAM: u64 = 0x1656_67b1_0000_0000;

/// Separates the draws of limits that change.
const LIMITS_STREAM: u64 = 0x85eb_ca77_0000_0000;

/// Separates the draw of the lookahead.
const LOOKAHEAD_STREAM: u64 = 0xc2b2_ae3d_0000_0000;

/// Separates the draw of the rounds of a turn.
const TURN_STREAM: u64 = 0x27d4_eb2f_0000_0000;

/// Separates the draws of a device's bounds: slots, and rows of a batch.
const BOUNDS_STREAM: u64 = 0x9e37_79b1_0000_0000;

/// Separates the draws of fairness and of deadlines.
const FAIRNESS_STREAM: u64 = 0xd6e8_feb8_0000_0000;

/// Separates the draws of scenarios under steady load.
const LOAD_STREAM: u64 = 0xa24b_aed4_0000_0000;

/// Separates the draws of steps that are reported before their task is over, and of rows that are read
/// then.
const PROGRESS_STREAM: u64 = 0x4cf5_ad43_0000_0000;

/// Separates the draws of scenarios in stages.
const STAGES_STREAM: u64 = 0x165f_35d9_0000_0000;

/// A simulation's machine, workload and faults, drawn from one seed.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) manager: Config,
    pub(crate) device: VirtualConfig,
    pub(crate) arrivals: Vec<Arrival>,
    /// Clients that send one request after the other, each the next one when the one before is answered:
    /// the time of the first is that of the client.
    pub(crate) clients: Vec<Vec<Arrival>>,
    /// Sessions; none but under the cellular policy.
    pub(crate) sessions: Vec<SessionPlan>,
    /// The faults, each with its time in nanoseconds.
    pub(crate) faults: Vec<(u64, Fault)>,
    /// The changes of limits, each with its time in nanoseconds. None for closed batches, which keep the
    /// limits that they began with.
    pub(crate) limits: Vec<(u64, Limits)>,
    pub(crate) disturbances: Disturbances,
    /// The time, in nanoseconds, from which on nothing arrives and nothing goes wrong.
    pub(crate) calm_ns: u64,
    /// The share of a roster's tasks, in percent, whose first steps are reported before the task is
    /// over.
    pub(crate) progress_percent: u64,
    /// The share of requests, in percent, whose rows are read as they come.
    pub(crate) streamed_percent: u64,
    /// The draws of the simulation itself.
    pub(crate) rng: Rng,
    /// The draws of progress and of rows that are read as they come.
    pub(crate) progress_rng: Rng,
}

/// Something that goes wrong from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Cancel(Target),
    Down { worker: WorkerId, for_ns: u64 },
}

/// New batch limits of all cell types, and a new submission window.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) batch_max: Vec<u32>,
    pub(crate) submission_window_ns: Option<u64>,
}

/// The kind of request that a cancellation names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// A request in flight.
    InFlight,
    /// A chunk of a session that runs.
    RunningChunk,
    /// A chunk that waits for an earlier one.
    WaitingChunk,
    /// A request that finished, whose position may be in use again.
    Finished,
    /// A request that never was.
    Unknown,
}

/// The chances of what goes wrong by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disturbances {
    pub(crate) failed_tasks_percent: u64,
    pub(crate) slow_tasks_percent: u64,
    /// The longest time from a completion to its report, in nanoseconds.
    pub(crate) reports_late_ns_max: u64,
    /// The chance that an idle worker asks for work only later.
    pub(crate) asks_late_percent: u64,
}

impl Disturbances {
    /// Nothing goes wrong.
    pub(crate) const NONE: Self = Self {
        failed_tasks_percent: 0,
        slow_tasks_percent: 0,
        reports_late_ns_max: 0,
        asks_late_percent: 0,
    };
}

impl Scenario {
    /// The scenario that is drawn from `seed`.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut load_rng = Rng::new(seed ^ LOAD_STREAM);
        if load_rng.chance(4) {
            return Self::loaded(&mut load_rng);
        }
        let mut fairness_rng = Rng::new(seed ^ FAIRNESS_STREAM);
        if fairness_rng.chance(8) {
            return Self::saturated(&mut fairness_rng);
        }
        let mut stages_rng = Rng::new(seed ^ STAGES_STREAM);
        if stages_rng.chance(15) {
            return Self::in_stages(&mut stages_rng);
        }
        if stages_rng.chance(8) {
            return Self::beside_stages(&mut stages_rng);
        }
        let mut rng = Rng::new(seed);
        let cells = cells(&mut rng);
        let models: Vec<Model> = (0..rng.within(1..=3) as u32)
            .map(|model| Model::draw(ModelId(model), &cells, &mut rng))
            .collect();
        let policy = policy(&mut Rng::new(seed ^ POLICY_STREAM));
        let submission_window_ns = submission_window_ns(&mut Rng::new(seed ^ WINDOW_STREAM));
        let lookahead = lookahead(&mut Rng::new(seed ^ LOOKAHEAD_STREAM));
        let rounds_of_a_turn = rounds_of_a_turn(&mut Rng::new(seed ^ TURN_STREAM));
        let mut manager = Config {
            policy,
            submission_window_ns,
            lookahead,
            rounds_of_a_turn,
            ..manager(&cells, models.len(), &mut rng)
        };
        let device = device(&manager, &mut rng);
        let arrivals = arrivals(&models, &mut rng);
        let last_ns = arrivals.last().map_or(0, |arrival| arrival.time_ns);
        let calm_ns = last_ns + rng.within(0..=work_ns(&arrivals, &device));
        let has_faults = rng.chance(80);
        let mut faults = if has_faults {
            faults(calm_ns, arrivals.len(), manager.workers, &mut rng)
        } else {
            Vec::new()
        };
        let disturbances = disturbances(has_faults, &mut rng);
        let (mut sessions, mut calm_ns) = (Vec::new(), calm_ns);
        if policy == Policy::Cellular {
            let mut rng = Rng::new(seed ^ SESSION_STREAM);
            sessions = session_plan::draw(&models, last_ns, &mut rng);
            let times = sessions.iter().flat_map(SessionPlan::times_ns);
            calm_ns = calm_ns.max(times.max().unwrap_or(0));
            if has_faults {
                faults.extend(cancelled_chunks(calm_ns, sessions.len(), &mut rng));
            }
        }
        let limits = match policy {
            Policy::Cellular => limits(calm_ns, cells.len(), &mut Rng::new(seed ^ LIMITS_STREAM)),
            _ => Vec::new(),
        };
        let rng = rng.fork();
        bound(&mut manager, &cells, &sessions, &mut Rng::new(seed ^ BOUNDS_STREAM));
        let mut progress_rng = Rng::new(seed ^ PROGRESS_STREAM);
        let (mut arrivals, mut sessions) = (arrivals, sessions);
        manager.fairness = fairness(models.len(), calm_ns, &mut fairness_rng);
        set_deadlines(&mut arrivals, &mut sessions, calm_ns, &mut fairness_rng);
        Self {
            manager,
            device,
            arrivals,
            clients: Vec::new(),
            sessions,
            faults,
            limits,
            disturbances,
            calm_ns,
            progress_percent: *progress_rng.pick(&[0, 30, 100]),
            streamed_percent: *progress_rng.pick(&[0, 30]),
            rng,
            progress_rng,
        }
    }
}

impl Scenario {
    /// The costs of the cell types, if the manager learns exactly how long tasks take.
    pub(crate) fn exact_costs(&self) -> Option<&[CellCost]> {
        let Disturbances { reports_late_ns_max, slow_tasks_percent, .. } = self.disturbances;
        let has_copies =
            self.manager.workers > 1 && self.manager.state_placement == StatePlacement::PerWorker;
        let is_exact = reports_late_ns_max == 0 && slow_tasks_percent == 0 && !has_copies;
        is_exact.then_some(&self.device.costs)
    }
}

impl Scenario {
    /// The pattern in which requests arrive.
    pub(crate) fn load(&self) -> Load {
        if self.clients.is_empty() { Load::Any } else { Load::Steady }
    }

    /// One or two models under steady load, for long: most clients of the first are urgent. The second has one
    /// client, and later as many as the first. Nothing goes wrong.
    fn loaded(rng: &mut Rng) -> Self {
        const CLIENTS: usize = 24;
        const REQUESTS: usize = 40;
        let Apart { mut manager, models } = Apart::draw(rng.within(1..=2) as u32, rng);
        let device = device(&manager, rng);
        let fixed_ns = device.costs.iter().map(|cost| cost.fixed_ns).max().unwrap_or(0);
        manager.fairness = Some(Fairness {
            shares: (models.len() > 1).then(|| vec![1; models.len()]),
            credit_ns: 4 * fixed_ns,
            aging_ns: Some(100 * fixed_ns),
            patience_ns: Some(10 * fixed_ns),
            round_ns: submission_window_ns(rng),
            large_rows: rng.chance(50).then_some(40),
            ..Fairness::default()
        });
        manager.max_tasks_to_submit = manager.max_tasks_to_submit.min(2);
        manager.lookahead = lookahead(rng).min(1);
        let request = |model: &Model, priority, time_ns, rng: &mut Rng| {
            let length = rng.within(1..=16) as u32;
            let graph = Arc::new(model.unfold(length, 1, Layout::TimeFirst, rng));
            Arrival { time_ns, model: model.id, priority, allowed_ns: None, graph }
        };
        let client = |model: &Model, priority, time_ns, rng: &mut Rng| {
            (0..REQUESTS).map(|_| request(model, priority, time_ns, rng)).collect::<Vec<_>>()
        };
        let is_urgent = |position| position >= CLIENTS / 8;
        let mut clients: Vec<Vec<Arrival>> = Vec::new();
        for position in 0..CLIENTS {
            clients.push(client(&models[0], u32::from(is_urgent(position)), 0, rng));
        }
        if let Some(second) = models.get(1) {
            clients.push(client(second, 0, 0, rng));
            let later_ns = clients.iter().map(|client| work_ns(client, &device)).sum::<u64>() / 2;
            clients.extend((1..CLIENTS).map(|_| client(second, 0, later_ns, rng)));
        }
        // A worker runs at any time until all is done, a node at a time at worst.
        let nodes: u64 = clients.iter().flatten().map(|arrival| arrival.graph.nodes()).sum();
        let row_ns = device.costs.iter().map(|cost| cost.row_ns).max().unwrap_or(0);
        let node_ns = fixed_ns + row_ns + 4 * device.copy_ns;
        let calm_ns =
            clients.iter().map(|client| client[0].time_ns).max().unwrap_or(0) + nodes * node_ns;
        Self { clients, ..Self::undisturbed(manager, device, Vec::new(), calm_ns, rng) }
    }

    /// A scenario in which nothing goes wrong.
    fn undisturbed(
        manager: Config,
        device: VirtualConfig,
        arrivals: Vec<Arrival>,
        calm_ns: u64,
        rng: &mut Rng,
    ) -> Self {
        let (rng, progress_rng) = (rng.fork(), rng.fork());
        Self {
            manager,
            device,
            arrivals,
            clients: Vec::new(),
            sessions: Vec::new(),
            faults: Vec::new(),
            limits: Vec::new(),
            disturbances: Disturbances::NONE,
            calm_ns,
            progress_percent: 0,
            streamed_percent: 0,
            rng,
            progress_rng,
        }
    }

    /// Models without recurrence, whose batches run in stages.
    fn in_stages(rng: &mut Rng) -> Self {
        let count = rng.within(1..=8) as u32;
        let kind = RunKind::Rows;
        let cells = (0..count).map(|id| CellShape { id: CellTypeId(id), kind, states: 0 });
        let cells: Vec<CellShape> = cells.collect();
        let models = (0..rng.within(1..=2) as u32).map(ModelId);
        let models: Vec<_> =
            models.map(|id| StagedModel::draw(id, (0..count).map(CellTypeId), rng)).collect();
        let mut manager = Config {
            stages: stages::stages(0..count, rng),
            policy: stages::policy(rng),
            ..manager(&cells, models.len(), rng)
        };
        bound(&mut manager, &cells, &[], rng);
        let device = device(&manager, rng);
        let unfold = |length_max, rng: &mut Rng| {
            let model = rng.pick(&models);
            (model.id, model.unfold(rng.log_within(1..=length_max) as u32))
        };
        let arrivals = arrivals_of(unfold, rng);
        Self::of_arrivals(manager, device, arrivals, Vec::new(), rng)
    }

    /// Models under the cellular policy beside models that run in stages of their own.
    fn beside_stages(rng: &mut Rng) -> Self {
        let mut cells = cells(rng);
        let common: Vec<Model> = (0..rng.within(1..=2) as u32)
            .map(|model| Model::draw(ModelId(model), &cells, rng))
            .collect();
        let first = cells.len() as u32;
        let own = first..first + rng.within(1..=5) as u32;
        let kind = RunKind::Rows;
        cells.extend(own.clone().map(|id| CellShape { id: CellTypeId(id), kind, states: 0 }));
        let ids = (0..rng.within(1..=2) as u32).map(|id| ModelId(common.len() as u32 + id));
        let staged: Vec<_> =
            ids.map(|id| StagedModel::draw(id, own.clone().map(CellTypeId), rng)).collect();
        // Models may share cell types, which are of one stage.
        let stages = stages::stages(own, rng);
        let staged_model = |model: &StagedModel| batchmaker_manager::StagedModel {
            model: model.id,
            staging: stages::staging(rng),
            stages: stages.clone(),
        };
        let staged_models = staged.iter().map(staged_model).collect();
        let models = common.len() + staged.len();
        let mut manager = Config { staged_models, ..manager(&cells, models, rng) };
        manager.lookahead = lookahead(rng);
        // The books give slices of large requests their places among the requests of all policies.
        let fairness = fairness(models, 1_000_000, rng);
        manager.fairness = fairness.map(|rules| Fairness { large_rows: None, ..rules });
        let device = device(&manager, rng);
        let mut arrivals = arrivals(&common, rng);
        let unfold = |length_max, rng: &mut Rng| {
            let model = rng.pick(&staged);
            (model.id, model.unfold(rng.log_within(1..=length_max) as u32))
        };
        arrivals.extend(arrivals_of(unfold, rng));
        arrivals.sort_by_key(|arrival| arrival.time_ns);
        let last_ns = arrivals.last().map_or(0, |arrival| arrival.time_ns);
        let sessions = session_plan::draw(&common, last_ns, rng);
        bound(&mut manager, &cells, &sessions, rng);
        Self::of_arrivals(manager, device, arrivals, sessions, rng)
    }

    /// A scenario with deadlines and, perhaps, faults and disturbances.
    fn of_arrivals(
        manager: Config,
        device: VirtualConfig,
        mut arrivals: Vec<Arrival>,
        mut sessions: Vec<SessionPlan>,
        rng: &mut Rng,
    ) -> Self {
        let times = sessions.iter().flat_map(SessionPlan::times_ns);
        let last_ns = arrivals.iter().map(|arrival| arrival.time_ns).chain(times).max();
        let calm_ns = last_ns.unwrap_or(0) + rng.within(0..=work_ns(&arrivals, &device));
        set_deadlines(&mut arrivals, &mut sessions, calm_ns, rng);
        let has_faults = rng.chance(80);
        let faults = match has_faults {
            true => faults(calm_ns, arrivals.len(), manager.workers, rng),
            false => Vec::new(),
        };
        let disturbances = disturbances(has_faults, rng);
        let undisturbed = Self::undisturbed(manager, device, arrivals, calm_ns, rng);
        Self { sessions, faults, disturbances, ..undisturbed }
    }

    /// Two or three models with shares and no cell type in common, all of whose requests come before
    /// any can be served. Nothing goes wrong.
    fn saturated(rng: &mut Rng) -> Self {
        let Apart { mut manager, models } = Apart::draw(rng.within(2..=3) as u32, rng);
        manager.fairness = Some(Fairness {
            shares: Some(models.iter().map(|_| rng.within(1..=4) as u32).collect()),
            ..fairness(models.len(), 1_000_000, rng).unwrap_or_default()
        });
        manager.lookahead = lookahead(rng);
        let device = device(&manager, rng);
        let arrivals = (0..400).map(|_| {
            let model = rng.pick(&models);
            let length = rng.within(1..=16) as u32;
            let graph = Arc::new(model.unfold(length, 1, Layout::TimeFirst, rng));
            Arrival { time_ns: 0, model: model.id, priority: 0, allowed_ns: None, graph }
        });
        let arrivals = arrivals.collect();
        Self::undisturbed(manager, device, arrivals, 1, rng)
    }
}

/// Models with no cell type in common, and a manager of them.
struct Apart {
    manager: Config,
    models: Vec<Model>,
}

impl Apart {
    fn draw(models: u32, rng: &mut Rng) -> Self {
        let cell = |id, kind, states| CellShape { id: CellTypeId(id), kind, states };
        let cells: Vec<CellShape> = (0..models)
            .flat_map(|model| {
                [cell(2 * model, RunKind::Chain, 1), cell(2 * model + 1, RunKind::Rows, 0)]
            })
            .collect();
        let drawn = cells.chunks(2).zip((0..).map(ModelId));
        let models: Vec<Model> = drawn.map(|(cells, id)| Model::draw(id, cells, rng)).collect();
        let mut manager = manager(&cells, models.len(), rng);
        for (cell, id) in manager.cell_types.iter_mut().zip(0..) {
            cell.priorities.retain(|rank| rank.model == ModelId(id / 2));
            cell.batch_sizes.max = cell.batch_sizes.max.min(8);
            cell.batch_sizes.min = 1;
        }
        Self { manager, models }
    }
}

fn fairness(models: usize, until_ns: u64, rng: &mut Rng) -> Option<Fairness> {
    if rng.chance(40) {
        return None;
    }
    let weights = (0..models).map(|_| rng.within(1..=4) as u32).collect();
    let [aging_ns, patience_ns, large_patience_ns] =
        [0, 0, 0].map(|_| rng.log_within(1_000..=until_ns.max(2_000)));
    let large_rows = rng.log_within(1..=200) as u32;
    Some(Fairness {
        shares: rng.chance(50).then_some(weights),
        credit_ns: if rng.chance(50) { 0 } else { aging_ns / 4 },
        aging_ns: rng.chance(50).then_some(aging_ns),
        patience_ns: rng.chance(50).then_some(patience_ns),
        large_patience_ns: rng.chance(50).then_some(large_patience_ns),
        round_ns: submission_window_ns(rng),
        large_rows: rng.chance(50).then_some(large_rows),
    })
}

/// Gives some requests and chunks a deadline.
fn set_deadlines(
    arrivals: &mut [Arrival],
    sessions: &mut [SessionPlan],
    until_ns: u64,
    rng: &mut Rng,
) {
    let percent = *rng.pick(&[0, 0, 10, 80]);
    let allowed_ns_max = rng.log_within(10_000..=until_ns.max(20_000));
    let chunks = sessions.iter_mut().flat_map(|session| &mut session.chunks);
    for arrival in arrivals.iter_mut().chain(chunks) {
        let allowed_ns = rng.within(0..=allowed_ns_max);
        arrival.allowed_ns = rng.chance(percent).then_some(allowed_ns);
    }
}

fn submission_window_ns(rng: &mut Rng) -> Option<u64> {
    rng.chance(30).then(|| rng.log_within(1_000..=1_000_000))
}

fn lookahead(rng: &mut Rng) -> u32 {
    if rng.chance(50) { 0 } else { rng.within(1..=3) as u32 }
}

fn rounds_of_a_turn(rng: &mut Rng) -> u32 {
    if rng.chance(70) { 1 } else { rng.within(2..=4) as u32 }
}

/// Gives some cell types a bound on rows, and some chains one on slots: enough for each session. Some chains borrow cores.
fn bound(manager: &mut Config, cells: &[CellShape], sessions: &[SessionPlan], rng: &mut Rng) {
    let (has_slots, has_rows) = (rng.chance(35), rng.chance(35));
    for (cell, config) in cells.iter().zip(&mut manager.cell_types) {
        if has_rows && rng.chance(60) {
            config.rows_max = Some(config.batch_sizes.max + rng.within(0..=8) as u32);
        }
        let is_bounded = has_slots && rng.chance(60) && cell.kind == RunKind::Chain;
        if is_bounded && manager.policy == Policy::Cellular {
            let chunks = sessions.iter().flat_map(|session| &session.chunks);
            let chains = chunks.map(|chunk| {
                chunk.graph.runs().iter().filter(|run| run.cell_type == cell.id).count() as u32
            });
            let least = chains.max().unwrap_or(0).max(1);
            config.slots_max = Some(least.max(rng.log_within(1..=64) as u32));
        }
    }
    let borrow = rng.chance(35) && manager.staged_models.is_empty();
    for (cell, config) in cells.iter().zip(&mut manager.cell_types) {
        if borrow && rng.chance(60) && cell.kind == RunKind::Chain {
            config.workers_of_a_row = rng.within(1..=4) as u32;
        }
    }
}

fn limits(until_ns: u64, cells: usize, rng: &mut Rng) -> Vec<(u64, Limits)> {
    let changes = (0..*rng.pick(&[0, 0, 1, 4])).map(|_| {
        let batch_max = (0..cells).map(|_| rng.log_within(1..=64) as u32).collect();
        let submission_window_ns = submission_window_ns(rng);
        (rng.within(0..=until_ns), Limits { batch_max, submission_window_ns })
    });
    changes.collect()
}

fn policy(rng: &mut Rng) -> Policy {
    if rng.chance(80) {
        return Policy::Cellular;
    }
    if rng.chance(40) {
        return Policy::Merged(Merging { graphs: *rng.pick(&[1, 3, 16, 64]) });
    }
    let to = *rng.pick(&[PadTo::Bucket, PadTo::Longest]);
    Policy::Padded(Padding { width: *rng.pick(&[1, 4, 10, 40]), to })
}

fn cells(rng: &mut Rng) -> Vec<CellShape> {
    let (chains, rows) = (rng.within(1..=4) as u32, rng.within(1..=2) as u32);
    let chains = (0..chains).map(|id| CellShape {
        id: CellTypeId(id),
        kind: RunKind::Chain,
        states: rng.within(1..=2) as usize,
    });
    let mut cells: Vec<CellShape> = chains.collect();
    let first_rows = cells.len() as u32;
    cells.extend((0..rows).map(|id| CellShape {
        id: CellTypeId(first_rows + id),
        kind: RunKind::Rows,
        states: 0,
    }));
    cells
}

fn manager(cells: &[CellShape], models: usize, rng: &mut Rng) -> Config {
    let cell_types = cells.iter().map(|_| {
        let max = rng.log_within(1..=64) as u32;
        let min = if rng.chance(80) { 1 } else { rng.within(1..=u64::from(max)) as u32 };
        let rank =
            |model| ModelPriority { model: ModelId(model), priority: rng.within(0..=5) as i32 };
        let priorities = (0..models as u32).map(rank).collect();
        let batch_sizes = BatchSizes { min, max };
        CellTypeConfig { batch_sizes, ..CellTypeConfig::up_to(max, priorities) }
    });
    Config {
        cell_types: cell_types.collect(),
        workers: rng.within(1..=4) as u16,
        lookahead: 0,
        fairness: None,
        stages: Stages::default(),
        staged_models: Vec::new(),
        policy: Policy::Cellular,
        max_tasks_to_submit: rng.within(1..=8) as u32,
        rounds_of_a_turn: 1,
        submission_window_ns: None,
        task_form: *rng.pick(&[TaskForm::Roster, TaskForm::Rows]),
        state_placement: *rng.pick(&[StatePlacement::Shared, StatePlacement::PerWorker]),
    }
}

fn device(manager: &Config, rng: &mut Rng) -> VirtualConfig {
    let cost = |_| CellCost {
        fixed_ns: rng.log_within(1_000..=100_000),
        row_ns: rng.log_within(10..=5_000),
    };
    VirtualConfig {
        costs: manager.cell_types.iter().map(cost).collect(),
        workers: usize::from(manager.workers),
        memory: manager.state_placement,
        copy_ns: rng.log_within(10..=20_000),
        // The checkers watch these, which differ from type to type.
        slots_max: None,
        rows_max: None,
    }
}

fn arrivals(models: &[Model], rng: &mut Rng) -> Vec<Arrival> {
    let unfold = |length_max, rng: &mut Rng| {
        let model = rng.pick(models);
        let length = rng.log_within(1..=length_max) as u32;
        let sequences = if rng.chance(75) { 1 } else { rng.within(2..=4) as u32 };
        let layout = *rng.pick(&[Layout::TimeFirst, Layout::SequenceFirst]);
        (model.id, model.unfold(length, sequences, layout, rng))
    };
    arrivals_of(unfold, rng)
}

/// Draws the requests of a scenario. `unfold` draws a model and the graph of one request; its argument is the greatest number of steps.
fn arrivals_of(
    unfold: impl Fn(u64, &mut Rng) -> (ModelId, CellGraph),
    rng: &mut Rng,
) -> Vec<Arrival> {
    let gap_ns_max = rng.log_within(1_000..=2_000_000);
    let burst_percent = *rng.pick(&[0, 20, 80, 100]);
    let has_priorities = rng.chance(30);
    let length_max = *rng.pick(&[4, 16, 16, 60, 330]);
    let mut time_ns = 0;
    let arrivals = (0..rng.within(20..=220)).map(|_| {
        if !rng.chance(burst_percent) {
            time_ns += rng.within(0..=gap_ns_max);
        }
        let (model, graph) = unfold(length_max, rng);
        let priority = if has_priorities { rng.within(0..=3) as u32 } else { 0 };
        Arrival { time_ns, model, priority, allowed_ns: None, graph: Arc::new(graph) }
    });
    arrivals.collect()
}

/// About how long the work takes.
fn work_ns(arrivals: &[Arrival], device: &VirtualConfig) -> u64 {
    let runs = arrivals.iter().flat_map(|arrival| arrival.graph.runs());
    let cost = |run: &batchmaker_graph::Run| {
        let cost = device.costs[run.cell_type.index()];
        u64::from(run.length) * (cost.row_ns + cost.fixed_ns / 8)
    };
    runs.map(cost).sum::<u64>() / device.workers as u64
}

fn faults(until_ns: u64, arrivals: usize, workers: u16, rng: &mut Rng) -> Vec<(u64, Fault)> {
    let mut faults = Vec::new();
    let cancellations = arrivals as u64 * *rng.pick(&[0, 5, 20, 60]) / 100;
    for _ in 0..cancellations {
        let target = match rng.within(0..=9) {
            0 => Target::Unknown,
            1 | 2 => Target::Finished,
            _ => Target::InFlight,
        };
        faults.push((rng.within(0..=until_ns), Fault::Cancel(target)));
    }
    for _ in 0..*rng.pick(&[0, 0, 1, 2, 6]) {
        let worker = WorkerId(rng.index(usize::from(workers)) as u32);
        let for_ns = rng.within(0..=1 + until_ns / 4);
        faults.push((rng.within(0..=until_ns), Fault::Down { worker, for_ns }));
    }
    faults
}

fn cancelled_chunks(until_ns: u64, sessions: usize, rng: &mut Rng) -> Vec<(u64, Fault)> {
    let cancellations = sessions as u64 * *rng.pick(&[0, 0, 20, 60]) / 100;
    let cancellation = |_| {
        let target = *rng.pick(&[Target::RunningChunk, Target::WaitingChunk]);
        (rng.within(0..=until_ns), Fault::Cancel(target))
    };
    (0..cancellations).map(cancellation).collect()
}

fn disturbances(has_faults: bool, rng: &mut Rng) -> Disturbances {
    let failed = *rng.pick(&[0, 0, 1, 4]);
    Disturbances {
        failed_tasks_percent: if has_faults { failed } else { 0 },
        slow_tasks_percent: *rng.pick(&[0, 3, 20]),
        reports_late_ns_max: *rng.pick(&[0, 0, 10_000, 1_000_000]),
        asks_late_percent: *rng.pick(&[0, 0, 20, 70]),
    }
}
