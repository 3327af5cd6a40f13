//! The rules of fairness for the reference: whatever can be computed anew each time, is.

use std::collections::{BTreeMap, BTreeSet};

use batchmaker_graph::{CellTypeId, ModelId, RequestId, RunIndex, WorkerId};
use batchmaker_manager::{Config, Fairness};

/// The order of a queue: level, tag, arrival, run.
pub(crate) type Place = (u32, u64, u64, RunIndex);

struct Request {
    arrival: u64,
    arrived_ns: u64,
    model: ModelId,
    priority: u32,
    nodes: u64,
    /// Whether as many of its nodes may be ready at once as a batch has.
    fills_a_batch: bool,
    /// Virtual time on arrival.
    virtual_time: u128,
    /// Of a large request: the slices that were promoted, and since when it ages.
    promoted: BTreeSet<(RunIndex, u64)>,
    ages_since_ns: u64,
}

/// A task as the manager submitted it.
struct Task {
    cell_type: CellTypeId,
    batches: u32,
    batches_left: u32,
    /// The models of the rows of each batch.
    models: Vec<ModelId>,
    estimate_ns: u64,
}

/// The state that rules of fairness need.
pub(crate) struct Fair {
    fairness: Fairness,
    now_ns: u64,
    arrivals: u64,
    requests: BTreeMap<RequestId, Request>,
    /// Of rows, for large requests, in units of 2^-32 rows: by model, where models have shares.
    virtual_times: BTreeMap<ModelId, u128>,
    /// Of worker time, by model.
    shares: BTreeMap<ModelId, i128>,
    /// The greatest of these at which a model was chosen.
    system_time: i128,
    /// The models that were ready at the last choice.
    ready_models: Vec<ModelId>,
    /// The recent time of a batch, by cell type.
    batch_ns: BTreeMap<CellTypeId, u64>,
    unserved_since_ns: BTreeMap<CellTypeId, u64>,
    ready: BTreeMap<CellTypeId, bool>,
    /// Per worker, oldest first.
    tasks: Vec<Vec<Task>>,
    /// Per worker, the time at which its oldest task began.
    since_ns: Vec<u64>,
}

impl Fair {
    pub(crate) fn new(config: &Config) -> Self {
        let workers = usize::from(config.workers);
        Self {
            fairness: config.fairness.clone().unwrap_or_default(),
            now_ns: 0,
            arrivals: 0,
            requests: BTreeMap::new(),
            virtual_times: BTreeMap::new(),
            shares: BTreeMap::new(),
            system_time: 0,
            ready_models: Vec::new(),
            batch_ns: BTreeMap::new(),
            unserved_since_ns: BTreeMap::new(),
            ready: BTreeMap::new(),
            tasks: (0..workers).map(|_| Vec::new()).collect(),
            since_ns: vec![0; workers],
        }
    }

    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    pub(crate) fn arrive(
        &mut self,
        now_ns: u64,
        id: RequestId,
        model: ModelId,
        priority: u32,
        nodes: u64,
        fills_a_batch: bool,
    ) {
        self.now_ns = now_ns;
        self.shares.entry(model).or_insert(0);
        let clock = self.clock_of(model);
        let others = self.requests.values().map(|request| self.clock_of(request.model));
        let others: BTreeSet<ModelId> = others.collect();
        let own = self.virtual_times.get(&clock).copied().unwrap_or(0);
        let earliest = others.iter().filter_map(|model| self.virtual_times.get(model)).min();
        let earliest = earliest.copied().filter(|_| !others.contains(&clock));
        let virtual_time = own.max(earliest.unwrap_or(0));
        self.virtual_times.insert(clock, virtual_time);
        let arrival = self.arrivals;
        let request = Request {
            arrival,
            arrived_ns: now_ns,
            model,
            priority,
            nodes,
            fills_a_batch,
            virtual_time,
            promoted: BTreeSet::new(),
            ages_since_ns: now_ns,
        };
        self.requests.insert(id, request);
        self.arrivals += 1;
    }

    /// Forgets the requests that ended.
    pub(crate) fn retain(&mut self, is_open: impl Fn(RequestId) -> bool) {
        self.requests.retain(|&request, _| is_open(request));
    }

    /// The large requests that have grown old, which age again from now on.
    pub(crate) fn take_old_large(&mut self) -> Vec<RequestId> {
        let large = self.fairness.large_rows.map_or(u64::MAX, u64::from);
        let (now_ns, bound_ns) = (self.now_ns, self.fairness.aging_ns.unwrap_or(u64::MAX));
        let is_old =
            |request: &Request| request.nodes >= large && now_ns - request.ages_since_ns > bound_ns;
        let old = self.requests.iter_mut().filter(|(_, request)| is_old(request));
        old.map(|(&id, request)| {
            request.ages_since_ns = now_ns;
            id
        })
        .collect()
    }

    /// The slice of a large request that has its row number `row`.
    pub(crate) fn slice(&self, row: u64) -> u64 {
        row / self.fairness.large_rows.map_or(u64::MAX, u64::from)
    }

    /// A slice of a run of a large request is promoted.
    pub(crate) fn promote(&mut self, request: RequestId, run: RunIndex, slice: u64) {
        self.requests.get_mut(&request).unwrap().promoted.insert((run, slice));
    }

    /// The place of a run's next node. The request has `rows_before` nodes of other cell types, and
    /// before it of the same.
    pub(crate) fn place(&self, request: RequestId, run: RunIndex, rows_before: u64) -> Place {
        let request = &self.requests[&request];
        let age_ns = self.now_ns - request.arrived_ns;
        let is_large = self.fairness.large_rows.is_some_and(|rows| request.nodes >= rows.into());
        let is_promoted = match self.fairness.aging_ns {
            _ if is_large => request.promoted.contains(&(run, self.slice(rows_before))),
            bound_ns => bound_ns.is_some_and(|bound_ns| age_ns > bound_ns),
        };
        let level = match is_promoted {
            true => 0,
            _ if request.priority == 0 => u32::MAX,
            _ => request.priority,
        };
        // In units of 2^-8 rows.
        let start = |request: &Request| (request.virtual_time >> 24) as u64;
        let tag = match self.fairness.large_rows.map(u64::from) {
            Some(large) if request.nodes >= large => {
                start(request) + 256 * (rows_before / large + 2) * large
            }
            Some(_) => start(request),
            None => 0,
        };
        (level, tag, request.arrival, run)
    }

    /// Whose turn it is of the `ready` models, if models have shares.
    pub(crate) fn model(&mut self, ready: &[ModelId]) -> Option<ModelId> {
        let weights = self.fairness.shares.as_ref()?;
        for model in ready.iter().filter(|model| !self.ready_models.contains(model)) {
            let weight = i128::from(weights.get(model.index()).copied().unwrap_or(1));
            let credit = (i128::from(self.fairness.credit_ns) << 32) / weight;
            let own = self.shares.get_mut(model).unwrap();
            *own = (self.system_time - credit).max(*own);
        }
        let model = ready.iter().copied().min_by_key(|model| (self.shares[model], *model))?;
        self.system_time = self.system_time.max(self.shares[&model]);
        self.ready_models = ready.to_vec();
        Some(model)
    }

    /// The model that has the next seat of a batch: the one that has the fewest `seats` for its weight;
    /// of several, the one whose turn the round is, else the first.
    pub(crate) fn next_seat(
        &self,
        models: impl Iterator<Item = ModelId>,
        seats: &BTreeMap<ModelId, u32>,
        turn: Option<ModelId>,
    ) -> Option<ModelId> {
        let weights = self.fairness.shares.as_ref()?;
        let weight = |model: ModelId| weights.get(model.index()).copied().unwrap_or(1);
        models.min_by_key(|&model| {
            ((u64::from(seats[&model]) << 32) / u64::from(weight(model)), Some(model) != turn)
        })
    }

    pub(crate) fn most_overdue(&self, cell_types: &[CellTypeId]) -> Option<CellTypeId> {
        let large = self.fairness.large_rows.map_or(u64::MAX, u64::from);
        let fills_batches = |request: &Request| request.nodes >= large && request.fills_a_batch;
        let has_filler = self.requests.values().any(fills_batches);
        let of_large = self.fairness.large_patience_ns.filter(|_| has_filler);
        let patience_ns = self.fairness.patience_ns.into_iter().chain(of_large).min()?;
        let since_ns = |ct: &CellTypeId| self.unserved_since_ns.get(ct).copied().unwrap_or(0);
        let is_overdue = |ct: &CellTypeId| self.now_ns - since_ns(ct) > patience_ns;
        let overdue = cell_types.iter().copied().filter(is_overdue);
        overdue.min_by_key(|ct| (since_ns(ct), *ct))
    }

    /// Notes whether any node of a cell type is ready for any worker.
    pub(crate) fn note_ready(&mut self, cell_type: CellTypeId, is_ready: bool) {
        let was_ready = self.ready.insert(cell_type, is_ready).unwrap_or(false);
        if is_ready && !was_ready {
            self.unserved_since_ns.insert(cell_type, self.now_ns);
        }
    }

    /// A batch was formed of rows of `models`.
    pub(crate) fn formed(&mut self, cell_type: CellTypeId, models: &[ModelId]) {
        self.unserved_since_ns.insert(cell_type, self.now_ns);
        let clocks: Vec<ModelId> = models.iter().map(|&model| self.clock_of(model)).collect();
        for clock in clocks.iter().copied().collect::<BTreeSet<_>>() {
            let rows = clocks.iter().filter(|&&of| of == clock).count() as u128;
            let requests = self.requests.values();
            let live = requests.filter(|request| self.clock_of(request.model) == clock).count();
            *self.virtual_times.get_mut(&clock).unwrap() += (rows << 32) / live as u128;
        }
    }

    /// The model whose clock a model's requests have: its own, where models have shares.
    fn clock_of(&self, model: ModelId) -> ModelId {
        if self.fairness.shares.is_some() { model } else { ModelId(0) }
    }

    /// Batches were submitted as one task, of which each has rows of `models`.
    pub(crate) fn submitted(
        &mut self,
        worker: WorkerId,
        cell_type: CellTypeId,
        batches: usize,
        models: impl Iterator<Item = ModelId>,
    ) {
        if self.tasks[worker.index()].is_empty() {
            self.since_ns[worker.index()] = self.now_ns;
        }
        let recent_ns = self.batch_ns.get(&cell_type).copied().unwrap_or(0);
        let (models, estimate_ns) = (models.collect::<Vec<_>>(), recent_ns * batches as u64);
        self.charge(&models, estimate_ns.into());
        let batches = batches as u32;
        let task = Task { cell_type, batches, batches_left: batches, models, estimate_ns };
        self.tasks[worker.index()].push(task);
    }

    /// The worker's oldest batch is complete.
    pub(crate) fn batch_complete(&mut self, worker: WorkerId) {
        let tasks = &mut self.tasks[worker.index()];
        tasks[0].batches_left -= 1;
        if tasks[0].batches_left > 0 {
            return;
        }
        let task = tasks.remove(0);
        let since_ns = std::mem::replace(&mut self.since_ns[worker.index()], self.now_ns);
        let took_ns = self.now_ns - since_ns;
        let batch_ns = took_ns / u64::from(task.batches);
        let recent_ns = self.batch_ns.entry(task.cell_type).or_insert(batch_ns);
        *recent_ns = (3 * *recent_ns + batch_ns) / 4;
        self.charge(&task.models, -i128::from(task.estimate_ns));
        self.charge(&task.models, took_ns.into());
    }

    /// Charges worker time to the models of rows, each for its part.
    fn charge(&mut self, rows: &[ModelId], ns: i128) {
        let weights = self.fairness.shares.clone().unwrap_or_default();
        for (model, virtual_time) in &mut self.shares {
            let own = rows.iter().filter(|of| *of == model).count() as i128;
            let weight = i128::from(weights.get(model.index()).copied().unwrap_or(1));
            *virtual_time += ((ns * own) << 32) / (rows.len() as i128 * weight);
        }
    }
}
