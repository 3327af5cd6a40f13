//! The request processor: tracks which nodes of each request have run, which are ready,
//! and when the request is finished.

use batchmaker_graph::{
    CellTypeId, EndOfSequence, ModelId, RequestId, RunIndex, RunKind, SessionId, TaskId, WorkerId,
};

use crate::cellular::Cellular;
use crate::cellular::sessions::{Arrival, Kept};
use crate::cellular::subgraph::{Place, QueueKey, Subgraph, SubgraphEdge, SubgraphIndex};
use crate::config::StatePlacement;
use crate::event::{Finished, Outcome};

/// The tables of requests and of their subgraphs.
#[derive(Debug)]
pub(crate) struct RequestProcessor {
    requests: Vec<Request>,
    subgraphs: Vec<Subgraph>,
    free_subgraphs: Vec<SubgraphIndex>,
    /// Ready nodes of a subgraph in a queue, `[subgraph, worker]`.
    ready: Vec<u32>,
    workers: usize,
    arrivals: u64,
    pub(crate) live_requests: usize,
    pub(crate) finished: Vec<Finished>,
}

#[derive(Debug, Default)]
pub(super) struct Request {
    generation: u32,
    is_live: bool,
    model: Option<ModelId>,
    arrived_ns: u64,
    first_task_ns: Option<u64>,
    /// Of which it is a chunk.
    pub(super) session: Option<SessionId>,
    pub(super) subgraphs: Vec<SubgraphIndex>,
    /// Subgraphs that have not ended.
    unfinished: usize,
    /// The workers that ran any of its nodes, or hold its state, a bit each.
    workers: u64,
    /// Set once the request is given up: it ends so when nothing is in flight.
    ending: Option<Outcome>,
}

impl RequestProcessor {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            requests: Vec::new(),
            subgraphs: Vec::new(),
            free_subgraphs: Vec::new(),
            ready: Vec::new(),
            workers,
            arrivals: 0,
            live_requests: 0,
            finished: Vec::new(),
        }
    }

    pub(crate) fn is_live(&self, request: RequestId) -> bool {
        self.requests
            .get(request.index as usize)
            .is_some_and(|known| known.is_live && known.generation == request.generation)
    }

    /// The subgraph of a run of a request that started, has not finished and is not given up.
    pub(crate) fn subgraph_of(&self, request: RequestId, run: RunIndex) -> Option<SubgraphIndex> {
        let is_good = self.is_live(request) && self.request(request).ending.is_none();
        is_good.then(|| self.request(request).subgraphs[run.index()])
    }

    /// The requests that end when `worker` is lost.
    pub(crate) fn lost_with(
        &self,
        worker: WorkerId,
        placement: StatePlacement,
        is_pinned: impl Fn(SubgraphIndex) -> bool,
    ) -> Vec<RequestId> {
        let is_lost = |request: &Request| match placement {
            StatePlacement::PerWorker => request.workers & (1 << worker.0) != 0,
            StatePlacement::Shared => request.subgraphs.iter().any(|&sub| is_pinned(sub)),
        };
        let requests = (0..).zip(&self.requests);
        let lost = requests.filter(|(_, request)| request.is_live && is_lost(request));
        lost.map(|(index, request)| RequestId { index, generation: request.generation }).collect()
    }

    fn request_mut(&mut self, request: RequestId) -> &mut Request {
        &mut self.requests[request.index as usize]
    }

    pub(super) fn request(&self, request: RequestId) -> &Request {
        &self.requests[request.index as usize]
    }

    /// Takes a subgraph into the table. The lists of one that ended go on as its own, empty, so
    /// that steady traffic allocates none.
    fn new_subgraph(&mut self, subgraph: Subgraph) -> SubgraphIndex {
        match self.free_subgraphs.pop() {
            Some(index) => {
                let place = &mut self.subgraphs[index.0 as usize];
                let mut ended = std::mem::replace(place, subgraph);
                ended.edges.clear();
                ended.consumers.clear();
                ended.stays.clear();
                (place.edges, place.consumers) = (ended.edges, ended.consumers);
                place.stays = ended.stays;
                index
            }
            None => {
                self.subgraphs.push(subgraph);
                self.ready.resize(self.subgraphs.len() * self.workers, 0);
                SubgraphIndex(self.subgraphs.len() as u32 - 1)
            }
        }
    }

    /// Ready nodes of a subgraph in its type's queue, for `worker`.
    pub(crate) fn ready(&self, subgraph: SubgraphIndex, worker: WorkerId) -> u32 {
        self.ready[subgraph.0 as usize * self.workers + worker.index()]
    }
}

impl Cellular {
    pub(crate) fn subgraph(&self, index: SubgraphIndex) -> &Subgraph {
        &self.processor.subgraphs[index.0 as usize]
    }

    pub(crate) fn subgraph_mut(&mut self, index: SubgraphIndex) -> &mut Subgraph {
        &mut self.processor.subgraphs[index.0 as usize]
    }

    pub(crate) fn model_of(&self, subgraph: SubgraphIndex) -> ModelId {
        let request = self.processor.request(self.subgraph(subgraph).request);
        request.model.expect("a live request has a model")
    }

    /// Cuts a request into subgraphs and hands those with ready nodes to their queues.
    pub(crate) fn arrive(&mut self, arrived: &Arrival) {
        let Arrival { request: id, model, priority, ref graph, session, at_ns } = *arrived;
        assert!(!graph.runs().is_empty(), "{id:?} has nothing to run");
        let arrival = self.processor.arrivals;
        self.processor.arrivals += 1;
        let priority = if priority == 0 { u32::MAX } else { priority };
        let table = &mut self.processor.requests;
        if table.len() <= id.index as usize {
            table.resize_with(id.index as usize + 1, Request::default);
        }
        let mut subgraphs = std::mem::take(&mut self.processor.request_mut(id).subgraphs);
        let mut workers = 0;
        for (run, index) in graph.runs().iter().zip(0..) {
            self.check_kind(run.cell_type, run.kind);
            self.queues[run.cell_type.index()].is_open |= run.stop.is_some();
            let run_index = RunIndex(index);
            let kept = session.and_then(|session| self.sessions.take_kept(session, run_index));
            let home = kept.and_then(|kept| kept.home);
            workers |= home.map_or(0, |home| 1 << home.0);
            let subgraph = Subgraph {
                request: id,
                run: run_index,
                cell_type: run.cell_type,
                kind: run.kind,
                length: run.length,
                is_stopped: false,
                precedence: run.precedence.clone(),
                key: QueueKey { priority, arrival, run: run_index },
                edges: Vec::new(),
                consumers: Vec::new(),
                place: Place::Blocked,
                submitted: 0,
                completed: 0,
                stays: Default::default(),
                pin: None,
                last_task: TaskId(0),
                home,
                slot: kept.map(|kept| kept.slot),
            };
            let subgraph = self.processor.new_subgraph(subgraph);
            for edge in &run.edges {
                let producer = subgraphs[edge.producer.index()];
                let edge = SubgraphEdge { producer, need: edge.need };
                self.subgraph_mut(subgraph).edges.push(edge);
                let consumers = &mut self.subgraph_mut(producer).consumers;
                // Edges come consumer by consumer, so a repeated one is the last.
                if consumers.last() != Some(&subgraph) {
                    consumers.push(subgraph);
                }
            }
            subgraphs.push(subgraph);
        }
        let request = self.processor.request_mut(id);
        assert!(!request.is_live, "{id:?} arrived while its position was in use");
        *request = Request {
            generation: id.generation,
            is_live: true,
            model: Some(model),
            arrived_ns: at_ns,
            session,
            workers,
            unfinished: subgraphs.len(),
            subgraphs,
            ..Request::default()
        };
        self.processor.live_requests += 1;
        if session.is_some() {
            self.check_slots(id);
        }
        for index in 0..self.processor.request(id).subgraphs.len() {
            self.refresh(self.processor.request(id).subgraphs[index]);
        }
    }

    /// The worker that alone may run the subgraph, because tasks with nodes of it are in
    /// flight there.
    pub(crate) fn pinned_to(&self, index: SubgraphIndex) -> Option<WorkerId> {
        let subgraph = self.subgraph(index);
        match subgraph.place {
            Place::Roster(worker) => {
                let roster = self.queues[subgraph.cell_type.index()].roster(worker);
                (!roster.is_idle()).then_some(worker)
            }
            _ => subgraph.pin,
        }
    }

    /// Nodes submitted so far.
    #[inline]
    pub(crate) fn submitted(&self, index: SubgraphIndex) -> u32 {
        let subgraph = self.subgraph(index);
        match (subgraph.place, subgraph.stays.back()) {
            (Place::Roster(worker), Some(stay)) => {
                let roster = self.queues[subgraph.cell_type.index()].roster(worker);
                stay.node + (roster.submitted_steps - stay.join_step) as u32
            }
            _ => subgraph.submitted,
        }
    }

    /// Nodes completed so far.
    pub(crate) fn completed(&self, index: SubgraphIndex) -> u32 {
        let subgraph = self.subgraph(index);
        let worker = match subgraph.place {
            Place::Roster(worker) => Some(worker),
            _ => subgraph.pin,
        };
        let Some(worker) = worker else { return subgraph.completed };
        let steps = self.queues[subgraph.cell_type.index()].roster(worker).completed_steps;
        let mut completed = subgraph.completed;
        for stay in &subgraph.stays {
            if steps > stay.join_step {
                completed = stay.node + (steps.min(stay.leave_step) - stay.join_step) as u32;
            }
        }
        completed
    }

    /// The number of nodes, from the first on, whose dependencies `worker` can rely on.
    pub(crate) fn available(&self, index: SubgraphIndex, worker: WorkerId) -> u32 {
        let subgraph = self.subgraph(index);
        let watermark = |edge: &SubgraphEdge| {
            let progress = if self.pinned_to(edge.producer) == Some(worker) {
                self.submitted(edge.producer)
            } else {
                self.completed(edge.producer)
            };
            let producer_length = self.subgraph(edge.producer).length;
            edge.need.available(progress, producer_length, subgraph.length)
        };
        subgraph.edges.iter().map(watermark).min().unwrap_or(subgraph.length)
    }

    /// Nodes that `worker` may run now.
    pub(crate) fn ready_for(&self, index: SubgraphIndex, worker: WorkerId) -> u32 {
        if self.pinned_to(index).is_some_and(|pin| pin != worker) {
            return 0;
        }
        let (subgraph, submitted) = (self.subgraph(index), self.submitted(index));
        let reach = subgraph.kind.reach(submitted, subgraph.length, &subgraph.precedence);
        self.available(index, worker).min(reach).saturating_sub(submitted)
    }

    /// Counts the ready nodes of a subgraph outside rosters anew, and puts it into or
    /// takes it out of its queue accordingly. A chain that has none of the slots that its type has
    /// lines up for one instead.
    pub(crate) fn refresh(&mut self, index: SubgraphIndex) {
        let subgraph = self.subgraph(index);
        if matches!(subgraph.place, Place::Roster(_) | Place::Ended) {
            return;
        }
        let (key, was_waiting) = (subgraph.key, subgraph.place == Place::Waiting);
        let cell_type = subgraph.cell_type;
        let is_given_up = self.processor.request(subgraph.request).ending.is_some();
        if self.lacks_slot(index) {
            let mut workers = (0..self.processor.workers as u32).map(WorkerId);
            if !is_given_up && workers.any(|worker| self.ready_for(index, worker) > 0) {
                self.line_up_for_slot(index);
            }
            return;
        }
        let mut is_ready = false;
        for worker in (0..self.processor.workers as u32).map(WorkerId) {
            let ready = if is_given_up { 0 } else { self.ready_for(index, worker) };
            is_ready |= ready > 0;
            let position = index.0 as usize * self.processor.workers + worker.index();
            let known = std::mem::replace(&mut self.processor.ready[position], ready);
            let nodes = &mut self.queues[cell_type.index()].waiting_nodes[worker.index()];
            *nodes = *nodes + u64::from(ready) - u64::from(known);
        }
        if is_ready != was_waiting {
            let waiting = &mut self.queues[cell_type.index()].waiting;
            if is_ready {
                waiting.insert(key, index);
            } else {
                waiting.remove(&key);
            }
        }
        self.subgraph_mut(index).place = if is_ready { Place::Waiting } else { Place::Blocked };
    }

    /// Takes a waiting subgraph out of its queue, since it joins a roster or ends.
    pub(crate) fn take_from_queue(&mut self, index: SubgraphIndex) {
        let Subgraph { key, cell_type, place, .. } = *self.subgraph(index);
        if place != Place::Waiting {
            return;
        }
        let workers = self.processor.workers;
        let queue = &mut self.queues[cell_type.index()];
        let ready = &mut self.processor.ready[index.0 as usize * workers..][..workers];
        for (nodes, ready) in queue.waiting_nodes.iter_mut().zip(ready) {
            *nodes -= u64::from(std::mem::take(ready));
        }
        queue.waiting.remove(&key);
        self.subgraph_mut(index).place = Place::Blocked;
    }

    /// Looks again at those that depend on `index`.
    pub(crate) fn wake_consumers(&mut self, index: SubgraphIndex) {
        for position in 0..self.subgraph(index).consumers.len() {
            self.refresh(self.subgraph(index).consumers[position]);
        }
    }

    /// Notes that nodes of the subgraph are about to be submitted to `worker`.
    pub(crate) fn note_first_task(&mut self, index: SubgraphIndex, worker: WorkerId) {
        let now = self.now;
        let request = self.subgraph(index).request;
        let request = self.processor.request_mut(request);
        request.first_task_ns.get_or_insert(now);
        request.workers |= 1 << worker.0;
    }

    /// Rows of a row-wise subgraph ran: its first `completed` are done.
    pub(crate) fn rows_completed(&mut self, index: SubgraphIndex, completed: u32, task: TaskId) {
        let subgraph = self.subgraph_mut(index);
        subgraph.completed = subgraph.completed.max(completed);
        if subgraph.last_task == task {
            self.settle(index);
        } else {
            self.wake_consumers(index);
        }
    }

    /// Nothing of the subgraph is in flight any more: unpin it, and end it if it is used up.
    pub(crate) fn settle(&mut self, index: SubgraphIndex) {
        let subgraph = self.subgraph_mut(index);
        subgraph.pin = None;
        subgraph.stays.clear();
        subgraph.completed = subgraph.submitted;
        let request = subgraph.request;
        if subgraph.is_exhausted() || self.processor.request(request).ending.is_some() {
            self.end_subgraph(index);
        } else {
            self.refresh(index);
        }
        if self.processor.is_live(request) {
            self.wake_consumers(index);
        }
    }

    /// An open chain said stop: it ends with what was submitted of it.
    pub(crate) fn stopped(&mut self, chain: EndOfSequence) {
        if !self.processor.is_live(chain.request) {
            return;
        }
        let index = self.processor.request(chain.request).subgraphs[chain.run.index()];
        let Subgraph { place, cell_type, .. } = *self.subgraph(index);
        if place == Place::Ended {
            return;
        }
        let wasted = self.submitted(index) - chain.nodes;
        self.queues[cell_type.index()].tally.wasted += u64::from(wasted);
        if let Place::Roster(worker) = place {
            self.leave_roster(index, worker);
        }
        self.take_from_queue(index);
        let subgraph = self.subgraph_mut(index);
        subgraph.length = subgraph.submitted;
        subgraph.is_stopped = true;
        if subgraph.pin.is_none() {
            self.settle(index);
        }
    }

    /// Frees a subgraph's slot; ends the request with its last one.
    #[inline]
    fn end_subgraph(&mut self, index: SubgraphIndex) {
        self.take_from_queue(index);
        self.leave_slot_waiters(index);
        let subgraph = self.subgraph_mut(index);
        assert!(subgraph.place == Place::Blocked && subgraph.pin.is_none());
        subgraph.place = Place::Ended;
        let Subgraph { request: id, run, cell_type, home, .. } = *subgraph;
        if let Some(slot) = subgraph.slot.take() {
            let request = self.processor.request(id);
            match request.session.filter(|_| request.ending.is_none()) {
                Some(session) => self.sessions.keep(session, run, Kept { cell_type, slot, home }),
                None => self.release_slot(cell_type, slot, request.session.is_some()),
            }
        }
        let request = self.processor.request_mut(id);
        request.unfinished -= 1;
        if request.unfinished == 0 {
            self.finish(id);
        }
    }

    fn finish(&mut self, id: RequestId) {
        let now = self.now;
        let processor = &mut self.processor;
        let request = &mut processor.requests[id.index as usize];
        processor.free_subgraphs.append(&mut request.subgraphs);
        request.is_live = false;
        processor.live_requests -= 1;
        let first_task_ns = request.first_task_ns.unwrap_or(now);
        let outcome = request.ending.take().unwrap_or(Outcome::Succeeded);
        let session = request.session.map(|session| (session, outcome == Outcome::Succeeded));
        processor.finished.push(Finished {
            request: id,
            outcome,
            queue_ns: first_task_ns - request.arrived_ns,
            total_ns: now - request.arrived_ns,
        });
        if let Some((session, is_good)) = session {
            self.sessions.chunk_ended(session, is_good);
        }
    }

    /// Gives a request up: at once what is not in flight, the rest when it completes.
    pub(crate) fn abort(&mut self, id: RequestId, outcome: Outcome) {
        if !self.processor.is_live(id) {
            return;
        }
        let request = self.processor.request_mut(id);
        if request.ending.is_some() {
            return;
        }
        request.ending = Some(outcome);
        // Consumers before producers. The table is empty once the last one has ended.
        for position in (0..request.subgraphs.len()).rev() {
            let Some(&index) = self.processor.request(id).subgraphs.get(position) else { return };
            if let Place::Roster(worker) = self.subgraph(index).place {
                self.leave_roster(index, worker);
            }
            self.take_from_queue(index);
            let subgraph = self.subgraph(index);
            if subgraph.place != Place::Ended && subgraph.pin.is_none() {
                self.end_subgraph(index);
            }
        }
    }

    /// What was in flight on `worker`, which is lost, is in flight no more.
    pub(crate) fn unpin_all(&mut self, id: RequestId, worker: WorkerId) {
        let is_given_up = self.processor.request(id).ending.is_some();
        for position in (0..self.processor.request(id).subgraphs.len()).rev() {
            let Some(&index) = self.processor.request(id).subgraphs.get(position) else { return };
            let subgraph = self.subgraph_mut(index);
            if subgraph.pin == Some(worker) {
                subgraph.pin = None;
                subgraph.stays.clear();
                if is_given_up {
                    self.end_subgraph(index);
                }
            }
        }
    }

    /// All runs of a cell type are chains, or none is.
    fn check_kind(&mut self, cell_type: CellTypeId, kind: RunKind) {
        let is_chain = kind == RunKind::Chain;
        let known = self.queues[cell_type.index()].is_chain.get_or_insert(is_chain);
        assert_eq!(*known, is_chain, "{cell_type} is used both as a chain and row by row");
    }
}
