//! Models in stages beside other models: each policy has the requests of its models, and all share the workers.
//!
//! A worker that may have a new round takes it of the policy that had the least of the workers' time, for the weights of those of its
//! models that have requests (`shares.rs`). Nothing of another policy comes between the tasks of a round. Each policy numbers its tasks
//! itself, so they get other numbers here.
//!
//! A policy takes the time of a task to begin when its own task before it ended. With [`Config::lookahead`], that includes what is left of
//! another policy's task.

use std::collections::VecDeque;

use batchmaker_graph::{
    BatchedTask, CellTypeId, ModelId, RequestId, RunIndex, SessionId, TaskId, WorkerId,
};

use crate::batching::Batching;
use crate::config::Config;
use crate::counters::BatchCounters;
use crate::discarded::Discarded;
use crate::event::{Event, Finished, Undecided};
use crate::shares::{Charge, Shares};

/// The policy of the models that have none of their own.
const COMMON: usize = 0;

/// Several policies at work.
#[derive(Debug)]
pub(crate) struct PolicyPerModel {
    now: u64,
    /// See [`Config::lookahead`].
    lookahead: usize,
    policies: Vec<PolicyAtWork>,
    models: Vec<ModelEntry>,
    /// The weights of models, by id; 1 for those past the end.
    weights: Vec<u32>,
    /// The model of each request in flight, by the position of its id.
    of_requests: Vec<ModelId>,
    workers: Vec<Worker>,
    /// The shares of the policies, which take the place of models there. Their weights differ from time to time, so they are charged
    /// the time that they take for their weight.
    shares: Shares,
    finished: Vec<Finished>,
    discarded: Discarded,
}

#[derive(Debug)]
struct PolicyAtWork {
    batching: Box<dyn Batching>,
    /// The time that its tasks took of late, in nanoseconds.
    task_ns: u64,
    /// The sum of the weights of its models that have requests in flight.
    weight: u32,
    /// The time that its tasks took, in nanoseconds.
    worker_ns: u64,
}

#[derive(Clone, Debug)]
struct ModelEntry {
    policy: usize,
    weight: u32,
    /// The number of its requests in flight.
    requests: usize,
}

#[derive(Debug, Default)]
struct Worker {
    last_task: u64,
    /// The policy whose round it is being given.
    round: Option<usize>,
    in_flight: VecDeque<TaskInFlight>,
    /// When its oldest task in flight began.
    since_ns: u64,
}

#[derive(Debug)]
struct TaskInFlight {
    id: TaskId,
    policy: usize,
    /// Its number in the policy.
    of_policy: TaskId,
    charge: Charge,
}

impl PolicyPerModel {
    /// The policy of most models, which may have states, and the policies of one model each, which have none.
    pub(crate) fn new(
        config: &Config,
        common: Box<dyn Batching>,
        of_one: Vec<(ModelId, Box<dyn Batching>)>,
    ) -> Self {
        let fairness = config.fairness.clone().unwrap_or_default();
        let weights = fairness.shares.unwrap_or_default();
        let mut models = Vec::new();
        let at_work = |batching| PolicyAtWork { batching, task_ns: 0, weight: 0, worker_ns: 0 };
        let mut policies = vec![at_work(common)];
        for (model, batching) in of_one {
            make_room(&mut models, model, &weights);
            models[model.index()].policy = policies.len();
            policies.push(at_work(batching));
        }
        // The credit is time for weight as well: nobody has more of it than it says.
        let of_common: u32 = (0..weights.len())
            .filter(|&model| of(&models, model) == COMMON)
            .map(|model| weights[model])
            .sum();
        let of_others = models.iter().filter(|model| model.policy != COMMON);
        let most = of_others.map(|model| model.weight).chain([of_common, 1]).max().unwrap_or(1);
        let shares = Shares::equal(policies.len(), fairness.credit_ns / u64::from(most));
        Self {
            now: 0,
            lookahead: config.lookahead as usize,
            policies,
            models,
            weights,
            of_requests: Vec::new(),
            workers: (0..config.workers).map(|_| Worker::default()).collect(),
            shares,
            finished: Vec::new(),
            discarded: Discarded::default(),
        }
    }

    fn policy_of_request(&self, request: RequestId) -> Option<usize> {
        let model = self.of_requests.get(request.index as usize)?;
        Some(self.models[model.index()].policy)
    }

    /// The policies that have a new round for `worker`, if it may have one.
    fn candidates(&self, worker: WorkerId) -> impl Iterator<Item = usize> {
        let takes_round = self.workers[worker.index()].in_flight.len() <= self.lookahead;
        let all = self.policies.iter().enumerate().filter(move |_| takes_round);
        let ready = all.filter(move |(_, of)| of.batching.has_work_for(worker));
        ready.map(|(policy, _)| policy)
    }

    /// Submits a task of a policy.
    fn submit(&mut self, policy: usize, worker: WorkerId, task: BatchedTask) -> BatchedTask {
        let estimate_ns = self.for_weight(policy, self.policies[policy].task_ns);
        let charge = self.shares.charge(estimate_ns, &[(share_of(policy), 1)]);
        let state = &mut self.workers[worker.index()];
        if state.in_flight.is_empty() {
            state.since_ns = self.now;
        }
        state.last_task += 1;
        let (id, of_policy) = (TaskId(state.last_task), task.id);
        state.in_flight.push_back(TaskInFlight { id, policy, of_policy, charge });
        BatchedTask { id, ..task }
    }

    /// A time that a policy took, for its weight now. Without requests, it has that of one model.
    fn for_weight(&self, policy: usize, ns: u64) -> u64 {
        ns / u64::from(self.policies[policy].weight.max(1))
    }

    /// The policy that an event is for, and the event as that policy knows it; none if it is for all, or for none any more.
    fn addressed(&mut self, event: Event) -> Result<(usize, Event), Option<Event>> {
        match event {
            Event::Arrive { request, model, .. } => Ok((self.note_arrival(request, model), event)),
            Event::EndSession { .. } => Ok((COMMON, event)),
            Event::Complete { worker, task } => {
                let (policy, task) = self.task_over(worker, task);
                Ok((policy, Event::Complete { worker, task }))
            }
            Event::TaskFailed { worker, task, reason } => {
                let (policy, task) = self.task_over(worker, task);
                Ok((policy, Event::TaskFailed { worker, task, reason }))
            }
            Event::Progress { worker, task, steps } => {
                let oldest = self.workers[worker.index()].in_flight.front();
                let oldest = oldest.filter(|oldest| oldest.id == task);
                let oldest = oldest.unwrap_or_else(|| panic!("{worker} runs no {task}"));
                let task = oldest.of_policy;
                Ok((oldest.policy, Event::Progress { worker, task, steps }))
            }
            Event::EndOfSequence { chain } => {
                self.policy_of_request(chain.request).map(|policy| (policy, event)).ok_or(None)
            }
            Event::Cancel { request } => {
                self.policy_of_request(request).map(|policy| (policy, event)).ok_or(None)
            }
            Event::Decided { request, .. } => {
                self.policy_of_request(request).map(|policy| (policy, event)).ok_or(None)
            }
            Event::WorkerDown { worker, .. } => {
                // What these took nobody knows.
                self.workers[worker.index()].in_flight.clear();
                Err(Some(event))
            }
            Event::Limits { .. } | Event::WorkerUp { .. } => Err(Some(event)),
        }
    }

    fn note_arrival(&mut self, request: RequestId, model: ModelId) -> usize {
        make_room(&mut self.models, model, &self.weights);
        let position = request.index as usize;
        if self.of_requests.len() <= position {
            self.of_requests.resize(position + 1, model);
        }
        self.of_requests[position] = model;
        self.count_requests(model, |requests| requests + 1);
        self.models[model.index()].policy
    }

    /// Changes the number of a model's requests in flight, and the weight of its policy with it.
    fn count_requests(&mut self, model: ModelId, change: impl FnOnce(usize) -> usize) {
        let ModelEntry { policy, weight, requests } = &mut self.models[model.index()];
        let had_some = *requests > 0;
        *requests = change(*requests);
        let of_policy = &mut self.policies[*policy].weight;
        match (had_some, *requests > 0) {
            (false, true) => *of_policy += *weight,
            (true, false) => *of_policy -= *weight,
            _ => {}
        }
    }

    /// Takes a worker's oldest task from those in flight: its policy, and its number there.
    fn task_over(&mut self, worker: WorkerId, task: TaskId) -> (usize, TaskId) {
        let state = &mut self.workers[worker.index()];
        let since_ns = std::mem::replace(&mut state.since_ns, self.now);
        let over = state.in_flight.pop_front().filter(|over| over.id == task);
        let over = over.unwrap_or_else(|| panic!("{worker} completed {task}, which is not next"));
        let took_ns = self.now - since_ns;
        self.shares.correct(over.charge, self.for_weight(over.policy, took_ns));
        let PolicyAtWork { task_ns: of_late, worker_ns, .. } = &mut self.policies[over.policy];
        *of_late = if *of_late == 0 { took_ns } else { (3 * *of_late + took_ns) / 4 };
        *worker_ns += took_ns;
        (over.policy, over.of_policy)
    }

    /// Takes what the policies are done with.
    fn collect(&mut self) {
        let before = self.finished.len();
        for policy in &mut self.policies {
            self.finished.append(policy.batching.finished());
            self.discarded.append(policy.batching.take_discarded());
        }
        for at in before..self.finished.len() {
            let model = self.of_requests[self.finished[at].request.index as usize];
            self.count_requests(model, |requests| requests - 1);
        }
    }
}

/// The place of a policy among the shares.
fn share_of(policy: usize) -> ModelId {
    ModelId(policy as u32)
}

/// The policy of a model.
fn of(models: &[ModelEntry], model: usize) -> usize {
    models.get(model).map_or(COMMON, |model| model.policy)
}

fn make_room(models: &mut Vec<ModelEntry>, model: ModelId, weights: &[u32]) {
    for of in models.len()..=model.index() {
        let weight = weights.get(of).copied().unwrap_or(1);
        models.push(ModelEntry { policy: COMMON, weight, requests: 0 });
    }
}

impl Batching for PolicyPerModel {
    fn handle(&mut self, now: u64, event: Event) {
        self.now = now;
        match self.addressed(event) {
            Ok((policy, event)) => {
                self.policies[policy].batching.handle(now, event);
                let others = self.policies.iter_mut().enumerate().filter(|(of, _)| *of != policy);
                others.for_each(|(_, other)| other.batching.advance(now));
            }
            Err(Some(event)) => {
                for policy in &mut self.policies {
                    policy.batching.handle(now, event.clone());
                }
            }
            Err(None) => return self.advance(now),
        }
        self.collect();
    }

    fn advance(&mut self, now: u64) {
        self.now = now;
        self.policies.iter_mut().for_each(|policy| policy.batching.advance(now));
        self.collect();
    }

    fn next_task(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        if let Some(task) = self.next_of_round(worker) {
            return Some(task);
        }
        let candidates: Vec<ModelId> = self.candidates(worker).map(share_of).collect();
        let policy = self.shares.choose(candidates.into_iter())?.index();
        let task = self.policies[policy].batching.next_task(worker)?;
        self.workers[worker.index()].round = Some(policy);
        Some(self.submit(policy, worker, task))
    }

    fn next_of_round(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        let policy = self.workers[worker.index()].round.take()?;
        let task = self.policies[policy].batching.next_of_round(worker)?;
        self.workers[worker.index()].round = Some(policy);
        Some(self.submit(policy, worker, task))
    }

    fn has_rest_of_round(&self, worker: WorkerId) -> bool {
        let round = self.workers[worker.index()].round;
        round.is_some_and(|policy| self.policies[policy].batching.has_rest_of_round(worker))
    }

    fn finished(&mut self) -> &mut Vec<Finished> {
        self.collect();
        &mut self.finished
    }

    fn completed_nodes(&self, request: RequestId, run: RunIndex) -> u32 {
        let policy = self.policy_of_request(request);
        policy.map_or(0, |policy| self.policies[policy].batching.completed_nodes(request, run))
    }

    fn take_undecided(&mut self) -> Vec<Undecided> {
        self.policies.iter_mut().flat_map(|policy| policy.batching.take_undecided()).collect()
    }

    fn take_ended_sessions(&mut self) -> Vec<SessionId> {
        self.policies[COMMON].batching.take_ended_sessions()
    }

    fn take_discarded(&mut self) -> Discarded {
        self.collect();
        std::mem::take(&mut self.discarded)
    }

    fn requests(&self) -> usize {
        self.policies.iter().map(|policy| policy.batching.requests()).sum()
    }

    fn is_busy(&self, worker: WorkerId) -> bool {
        !self.workers[worker.index()].in_flight.is_empty()
    }

    fn has_work_for(&self, worker: WorkerId) -> bool {
        self.has_rest_of_round(worker) || self.candidates(worker).next().is_some()
    }

    fn next_deadline(&self) -> Option<u64> {
        self.policies.iter().filter_map(|policy| policy.batching.next_deadline()).min()
    }

    fn counters(&self, cell_type: CellTypeId) -> BatchCounters {
        let mut all = BatchCounters::default();
        self.policies.iter().for_each(|policy| all.add(&policy.batching.counters(cell_type)));
        all
    }

    fn worker_ns(&self, model: ModelId) -> Option<u64> {
        match of(&self.models, model.index()) {
            COMMON => self.policies[COMMON].batching.worker_ns(model),
            own => Some(self.policies[own].worker_ns),
        }
    }

    fn slots_in_use(&self, cell_type: CellTypeId) -> usize {
        self.policies.iter().map(|policy| policy.batching.slots_in_use(cell_type)).sum()
    }

    fn waiting(&self, cell_type: CellTypeId) -> usize {
        self.policies.iter().map(|policy| policy.batching.waiting(cell_type)).sum()
    }
}
