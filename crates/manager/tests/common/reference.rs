//! Algorithm 1 as the paper writes it: every node on its own, every queue scanned, a counter
//! of tasks in flight for every subgraph. Slow and plain; the oracle for the manager.
//!
//! The paper has no lookahead; here a worker may be given a round while tasks of it are
//! unfinished. The counter pins as before; a round is formed as if these tasks were over.
//!
//! Nor has it turns of several rounds: a cell type of chains whose turn is not over comes before line 5.
//!
//! The rules of fairness, which the paper does not have either, are in `fair_reference`.

use std::collections::{BTreeMap, BTreeSet};

use batchmaker_graph::{
    CellGraph, CellTypeId, ModelId, RequestId, Run, RunIndex, RunKind, WorkerId,
};
use batchmaker_manager::{CellTypeConfig, Config};

use super::Node;
use super::fair_reference::{Fair, Place};

struct Subgraph {
    request: RequestId,
    run: RunIndex,
    submitted: BTreeSet<u32>,
    completed: u32,
    pinned: Option<WorkerId>,
    tasks_in_flight: u32,
}

/// The nodes of `run` that write what its node `node` reads, found row by row.
fn own_producers(run: &Run, node: u32) -> impl Iterator<Item = u32> {
    let reads = run.inputs.iter().map(move |rows| (rows.value, rows.row(node)));
    reads.flat_map(move |read| {
        let writes = move |sink: &batchmaker_graph::Sink, node| {
            (sink.rows.value, sink.rows.row(node)) == read
        };
        (0..run.length).filter(move |&node| run.sinks.iter().any(|sink| writes(sink, node)))
    })
}

struct Task {
    cell_type: CellTypeId,
    nodes: Vec<Node>,
}

/// The oracle. A task here is one batch.
pub(crate) struct Reference {
    config: Config,
    graphs: BTreeMap<RequestId, CellGraph>,
    models: BTreeMap<RequestId, ModelId>,
    /// In the order of the queues once a round is formed.
    subgraphs: Vec<Subgraph>,
    in_flight: Vec<Vec<Task>>,
    /// The cell types of the rounds of each worker.
    rounds: Vec<Vec<CellTypeId>>,
    fair: Fair,
}

impl Reference {
    pub(crate) fn new(config: Config) -> Self {
        let in_flight = (0..config.workers).map(|_| Vec::new()).collect();
        let rounds = vec![Vec::new(); config.workers.into()];
        let fair = Fair::new(&config);
        let (graphs, models, subgraphs) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { config, graphs, models, subgraphs, in_flight, rounds, fair }
    }

    pub(crate) fn arrive(
        &mut self,
        now_ns: u64,
        request: RequestId,
        model: ModelId,
        priority: u32,
        graph: CellGraph,
    ) {
        let fills_a_batch = self.fills_a_batch(&graph);
        self.fair.arrive(now_ns, request, model, priority, graph.nodes(), fills_a_batch);
        for run in 0..graph.runs().len() as u32 {
            self.subgraphs.push(Subgraph {
                request,
                run: RunIndex(run),
                submitted: BTreeSet::new(),
                completed: 0,
                pinned: None,
                tasks_in_flight: 0,
            });
        }
        self.graphs.insert(request, graph);
        self.models.insert(request, model);
        self.note_ready_types();
    }

    /// Whether, of some cell type, the graph has as many chains, or nodes outside chains, as a batch may have.
    fn fills_a_batch(&self, graph: &CellGraph) -> bool {
        (0..).zip(&self.config.cell_types).any(|(index, config)| {
            let own = graph.runs().iter().filter(|run| run.cell_type == CellTypeId(index));
            let at_once = own.map(|run| if run.kind == RunKind::Chain { 1 } else { run.length });
            at_once.sum::<u32>() >= config.batch_sizes.max
        })
    }

    /// The place of a subgraph in its queue.
    fn place(&self, subgraph: &Subgraph) -> Place {
        self.fair.place(subgraph.request, subgraph.run, self.rows_before(subgraph))
    }

    /// The number of rows before the next node of a subgraph, if its request is large.
    fn rows_before(&self, subgraph: &Subgraph) -> u64 {
        let runs = self.graphs[&subgraph.request].runs();
        let cell_type = runs[subgraph.run.index()].cell_type;
        let is_before = |(index, run): &(usize, &Run)| {
            run.cell_type != cell_type || *index < subgraph.run.index()
        };
        let before = runs.iter().enumerate().filter(is_before);
        let before: u64 = before.map(|(_, run)| u64::from(run.length)).sum();
        before + subgraph.submitted.len() as u64
    }

    /// Promotes a slice of each cell type of the large requests that have grown old.
    fn promote_slices(&mut self) {
        for id in self.fair.take_old_large() {
            let length = |sub: &Subgraph| self.graphs[&id].runs()[sub.run.index()].length as usize;
            let own = self.subgraphs.iter().filter(|sub| sub.request == id);
            let open = own.filter(|sub| sub.submitted.len() < length(sub));
            let slice = |sub: &Subgraph| self.fair.slice(self.rows_before(sub));
            let open = open.map(|sub| (self.cell_type(sub), slice(sub), sub.run));
            let open: Vec<_> = open.collect();
            for &(cell_type, slice, run) in &open {
                let of_type = open.iter().filter(|other| other.0 == cell_type);
                if of_type.map(|other| other.1).min() == Some(slice) {
                    self.fair.promote(id, run, slice);
                }
            }
        }
    }

    fn sort(&mut self) {
        let mut subgraphs = std::mem::take(&mut self.subgraphs);
        subgraphs.sort_by_key(|subgraph| self.place(subgraph));
        self.subgraphs = subgraphs;
    }

    /// Notes which cell types have ready nodes for any worker.
    fn note_ready_types(&mut self) {
        for cell_type in (0..self.config.cell_types.len() as u32).map(CellTypeId) {
            let mut workers = (0..u32::from(self.config.workers)).map(WorkerId);
            let is_ready = workers.any(|worker| self.ready_nodes(cell_type, worker) > 0);
            self.fair.note_ready(cell_type, is_ready);
        }
    }

    fn find(&self, request: RequestId, run: RunIndex) -> &Subgraph {
        self.subgraphs.iter().find(|sub| sub.request == request && sub.run == run).unwrap()
    }

    fn cell_type(&self, subgraph: &Subgraph) -> CellTypeId {
        self.graphs[&subgraph.request].runs()[subgraph.run.index()].cell_type
    }

    /// The nodes of `subgraph` that `worker` may run.
    fn ready(&self, subgraph: &Subgraph, worker: WorkerId) -> Vec<u32> {
        let runs = self.graphs[&subgraph.request].runs();
        let run = &runs[subgraph.run.index()];
        let mut available = run.length;
        for edge in &run.edges {
            let producer = self.find(subgraph.request, edge.producer);
            let progress = match producer.pinned {
                Some(pinned) if pinned == worker => producer.submitted.len() as u32,
                _ => producer.completed,
            };
            let producer_length = runs[edge.producer.index()].length;
            available = available.min(edge.need.available(progress, producer_length, run.length));
        }
        if subgraph.pinned.is_some_and(|pinned| pinned != worker) {
            return Vec::new();
        }
        let has_all = |&node: &u32| match run.kind {
            RunKind::Chain => node == 0 || subgraph.submitted.contains(&(node - 1)),
            RunKind::Rows => true,
            RunKind::Nodes => {
                own_producers(run, node).all(|node| subgraph.submitted.contains(&node))
            }
        };
        let waiting = (0..available).filter(|node| !subgraph.submitted.contains(node));
        waiting.filter(has_all).collect()
    }

    fn ready_nodes(&self, cell_type: CellTypeId, worker: WorkerId) -> usize {
        let own = self.subgraphs.iter().filter(|sub| self.cell_type(sub) == cell_type);
        own.map(|sub| self.ready(sub, worker).len()).sum()
    }

    /// The models of the subgraphs that have a ready node.
    fn ready_models(&self, cell_type: CellTypeId, worker: WorkerId) -> Vec<ModelId> {
        let own = self.subgraphs.iter().filter(|sub| self.cell_type(sub) == cell_type);
        let ready = own.filter(|sub| !self.ready(sub, worker).is_empty());
        ready.map(|sub| self.models[&sub.request]).collect()
    }

    /// Tasks that run on other workers than `worker` once all that it has now is complete.
    fn running_tasks(&self, cell_type: CellTypeId, worker: WorkerId) -> usize {
        let others = (0..).zip(&self.in_flight).filter(|&(other, _)| WorkerId(other) != worker);
        others.flat_map(|(_, tasks)| tasks).filter(|task| task.cell_type == cell_type).count()
    }

    /// Lines 4 to 11. The tasks of the round: type and nodes of each. `unfinished` tasks of the
    /// worker are not complete, where what is one task to the worker may be several here.
    pub(crate) fn schedule(
        &mut self,
        worker: WorkerId,
        unfinished: usize,
    ) -> Vec<(CellTypeId, Vec<Node>)> {
        assert!(unfinished <= self.in_flight[worker.index()].len());
        if unfinished > self.config.lookahead as usize {
            return Vec::new();
        }
        self.sort();
        let all = (0..self.config.cell_types.len() as u32).map(CellTypeId);
        let models = all.clone().flat_map(|ct| self.ready_models(ct, worker));
        let models: Vec<ModelId> = models.collect();
        let model = self.fair.model(&models);
        let ready = |ct: CellTypeId| self.ready_nodes(ct, worker);
        let models_of = |ct: CellTypeId| self.ready_models(ct, worker);
        let is_of_model = |ct: &CellTypeId| model.is_none_or(|m| models_of(*ct).contains(&m));
        let all: Vec<CellTypeId> = all.filter(is_of_model).collect();
        let max = |ct: CellTypeId| self.config.cell_types[ct.index()].batch_sizes.max as usize;
        let any: Vec<_> = all.iter().copied().filter(|&ct| ready(ct) > 0).collect();
        if let Some(cell_type) = self.fair.most_overdue(&any) {
            return self.batch(cell_type, worker, model);
        }
        if let Some(cell_type) = self.in_turn(worker).filter(|ct| any.contains(ct)) {
            return self.batch(cell_type, worker, model);
        }
        let mut s: Vec<_> = all.iter().copied().filter(|&ct| ready(ct) >= max(ct)).collect();
        if s.is_empty() {
            let resting = |&ct: &CellTypeId| self.running_tasks(ct, worker) == 0 && ready(ct) > 0;
            s = all.iter().copied().filter(resting).collect();
        }
        if s.is_empty() {
            s = any;
        }
        match self.with_max_priority(&s, worker, model) {
            Some(cell_type) => self.batch(cell_type, worker, model),
            None => Vec::new(),
        }
    }

    /// The cell type of the worker's last rounds, if these are fewer than those of a turn.
    fn in_turn(&self, worker: WorkerId) -> Option<CellTypeId> {
        let rounds = &self.rounds[worker.index()];
        let last = *rounds.last()?;
        let had = rounds.iter().rev().take_while(|&&of| of == last).count();
        let kind = |sub: &Subgraph| self.graphs[&sub.request].runs()[sub.run.index()].kind;
        let mut own = self.subgraphs.iter().filter(|sub| self.cell_type(sub) == last);
        if !own.any(|sub| kind(sub) == RunKind::Chain) {
            return None;
        }
        (had < self.config.rounds_of_a_turn as usize).then_some(last)
    }

    /// The model of the oldest ready node decides, unless it is given; then the priority within it.
    fn with_max_priority(
        &self,
        cell_types: &[CellTypeId],
        worker: WorkerId,
        model: Option<ModelId>,
    ) -> Option<CellTypeId> {
        let is_candidate = |sub: &&Subgraph| {
            cell_types.contains(&self.cell_type(sub)) && !self.ready(sub, worker).is_empty()
        };
        let oldest = self.subgraphs.iter().find(is_candidate)?;
        let model = model.unwrap_or(self.models[&oldest.request]);
        let priority = |ct: CellTypeId| {
            let ranks = &self.config.cell_types[ct.index()].priorities;
            Some(ranks.iter().find(|rank| rank.model == model)?.priority)
        };
        let ranked = cell_types.iter().filter_map(|&ct| Some((priority(ct)?, ct)));
        ranked.max_by_key(|&(priority, ct)| (priority, std::cmp::Reverse(ct))).map(|(_, ct)| ct)
    }

    /// Lines 12 to 23.
    fn batch(
        &mut self,
        cell_type: CellTypeId,
        worker: WorkerId,
        model: Option<ModelId>,
    ) -> Vec<(CellTypeId, Vec<Node>)> {
        self.rounds[worker.index()].push(cell_type);
        let mut tasks = Vec::new();
        while (tasks.len() as u32) < self.config.max_tasks_to_submit {
            let nodes = self.form_batched_task(cell_type, worker, model);
            if nodes.is_empty() {
                break;
            }
            let members: BTreeSet<_> =
                nodes.iter().map(|&(request, run, _)| (request, run)).collect();
            for subgraph in &mut self.subgraphs {
                let member = (subgraph.request, subgraph.run);
                if members.contains(&member) {
                    let own = nodes.iter().filter(|node| (node.0, node.1) == member);
                    subgraph.submitted.extend(own.map(|node| node.2));
                    subgraph.pinned = Some(worker);
                    subgraph.tasks_in_flight += 1;
                }
            }
            self.in_flight[worker.index()].push(Task { cell_type, nodes: nodes.clone() });
            let models: Vec<ModelId> = nodes.iter().map(|node| self.models[&node.0]).collect();
            self.fair.formed(cell_type, &models);
            self.note_ready_types();
            self.sort();
            tasks.push((cell_type, nodes));
        }
        tasks
    }

    /// Lines 24 to 32. Where models share the type, the first nodes of each, as many as its seats.
    fn form_batched_task(
        &self,
        cell_type: CellTypeId,
        worker: WorkerId,
        model: Option<ModelId>,
    ) -> Vec<Node> {
        let CellTypeConfig { batch_sizes, priorities, .. } =
            &self.config.cell_types[cell_type.index()];
        let mut ready = Vec::new();
        for subgraph in self.subgraphs.iter().filter(|sub| self.cell_type(sub) == cell_type) {
            let nodes = self.ready(subgraph, worker).into_iter();
            ready.extend(nodes.map(|node| (subgraph.request, subgraph.run, node)));
        }
        let models: Vec<ModelId> = match model {
            Some(_) if priorities.len() > 1 => priorities.iter().map(|rank| rank.model).collect(),
            _ => Vec::new(),
        };
        let model_of = |node: &Node| self.models[&node.0];
        let mut seats: BTreeMap<ModelId, u32> = models.iter().map(|&model| (model, 0)).collect();
        let has_nodes_left = |seats: &BTreeMap<_, _>, model: ModelId| {
            let own = ready.iter().filter(|node| model_of(node) == model).count();
            seats[&model] < own as u32
        };
        for _ in 0..batch_sizes.max {
            let models = models.iter().copied().filter(|&model| has_nodes_left(&seats, model));
            if let Some(model) = self.fair.next_seat(models, &seats, model) {
                *seats.get_mut(&model).unwrap() += 1;
            }
        }
        ready.retain(|node| match seats.get_mut(&model_of(node)) {
            Some(left) => std::mem::replace(left, left.saturating_sub(1)) > 0,
            None => true,
        });
        ready.truncate(batch_sizes.max as usize);
        ready
    }

    /// The manager submitted these batches of `worker` as one task.
    pub(crate) fn submitted(&mut self, worker: WorkerId, batches: &[(CellTypeId, Vec<Node>)]) {
        let models = batches[0].1.iter().map(|node| self.models[&node.0]);
        self.fair.submitted(worker, batches[0].0, batches.len(), models);
    }

    /// It is `now_ns`.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.fair.advance(now_ns);
        self.promote_slices();
    }

    /// The oldest task of `worker` is complete.
    pub(crate) fn complete(&mut self, worker: WorkerId) {
        let task = self.in_flight[worker.index()].remove(0);
        self.fair.batch_complete(worker);
        for subgraph in &mut self.subgraphs {
            let nodes =
                task.nodes.iter().filter(|n| (n.0, n.1) == (subgraph.request, subgraph.run));
            let count = nodes.count() as u32;
            subgraph.completed += count;
            if count > 0 {
                subgraph.tasks_in_flight -= 1;
                if subgraph.tasks_in_flight == 0 {
                    subgraph.pinned = None;
                }
            }
        }
        let graphs = &self.graphs;
        let is_done =
            |sub: &Subgraph| sub.completed == graphs[&sub.request].runs()[sub.run.index()].length;
        let open: BTreeSet<RequestId> =
            self.subgraphs.iter().filter(|sub| !is_done(sub)).map(|sub| sub.request).collect();
        self.subgraphs.retain(|sub| open.contains(&sub.request));
        self.fair.retain(|request| open.contains(&request));
        self.note_ready_types();
    }
}
