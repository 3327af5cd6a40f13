//! The table of the requests in flight and of their subgraphs.

use std::cell::Cell;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use batchmaker_graph::{CellGraph, ModelId, RequestId, RunIndex, SessionId, WorkerId};

use crate::cellular::subgraph::{Subgraph, SubgraphIndex};
use crate::config::StatePlacement;
use crate::decisions::Decisions;
use crate::discarded::Discarded;
use crate::event::Outcome;

/// The number of subgraphs that there is room for from the start: more than a request of 65,536
/// sequences has. The system gives memory when it is first written, and a table that does not grow is
/// not copied while all workers wait.
const SUBGRAPHS: usize = 1 << 18;

/// Requests by the position of their id, and subgraphs by their index.
#[derive(Debug)]
pub(super) struct RequestTable {
    requests: Vec<Request>,
    subgraphs: Vec<Subgraph>,
    free_subgraphs: Vec<SubgraphIndex>,
    /// The number of ready nodes of each subgraph in a queue, `[subgraph, worker]`.
    ready: Vec<u32>,
    /// The number of first edges of each subgraph that are known to be met, `[subgraph, worker]`: they
    /// leave all of its nodes available to the worker.
    edges_met: Vec<Cell<u32>>,
    workers: usize,
    arrivals: u64,
    live_requests: usize,
    /// The live requests that can fill a batch by themselves.
    live_batch_fillers: usize,
    /// Whether there is one live request, which has been alone since it arrived and is best computed on one worker at a time.
    is_for_one_worker: bool,
    /// What takes long to free.
    pub(super) discarded: Discarded,
}

/// A request that arrived, or a chunk of a session, before it is cut into subgraphs.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) request: RequestId,
    pub(super) model: ModelId,
    /// 1 is served first, then 2, …; 0, the default, comes after all of them.
    pub(super) priority: u32,
    pub(super) deadline_ns: Option<u64>,
    pub(super) graph: Arc<CellGraph>,
    pub(super) session: Option<SessionId>,
    pub(super) at_ns: u64,
}

/// A request from its start to its end.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) generation: u32,
    pub(super) is_live: bool,
    pub(super) model: Option<ModelId>,
    /// 0 is none.
    pub(super) priority: u32,
    pub(super) arrived_ns: u64,
    pub(super) deadline_ns: Option<u64>,
    /// The tag of its first rows, if it is large.
    pub(super) large_tag: Option<u64>,
    /// Whether it is large, and as many of its nodes may be ready at once as a batch has.
    pub(super) fills_batches: bool,
    /// When the first task with a node of the request was formed.
    pub(super) first_task_ns: Option<u64>,
    /// The session that the request is a chunk of.
    pub(super) session: Option<SessionId>,
    /// Its subgraphs, by run.
    pub(super) subgraphs: Vec<SubgraphIndex>,
    /// The number of subgraphs that have not ended.
    pub(super) unfinished: usize,
    /// The workers that ran any of its nodes or hold its state: one bit each.
    pub(super) workers: u64,
    /// Which of its runs it needs, where its own data decides that.
    pub(super) decisions: Option<Box<Decisions>>,
    /// The outcome of a request that is given up, which it has once nothing of it is in flight.
    pub(super) ending: Option<Outcome>,
}

impl Request {
    /// Whether the request was cancelled or failed, so that nothing of it is submitted any more.
    pub(super) fn is_given_up(&self) -> bool {
        self.ending.is_some()
    }
}

impl RequestTable {
    /// An empty table for a manager with that number of `workers`.
    pub(super) fn new(workers: usize) -> Self {
        Self {
            requests: Vec::new(),
            subgraphs: Vec::with_capacity(SUBGRAPHS),
            free_subgraphs: Vec::new(),
            ready: Vec::with_capacity(SUBGRAPHS * workers),
            edges_met: Vec::with_capacity(SUBGRAPHS * workers),
            workers,
            arrivals: 0,
            live_requests: 0,
            live_batch_fillers: 0,
            is_for_one_worker: false,
            discarded: Discarded::default(),
        }
    }

    /// All workers, in order.
    pub(super) fn workers(&self) -> impl Iterator<Item = WorkerId> + use<> {
        (0..self.workers as u32).map(WorkerId)
    }

    /// Makes room for a request's id and numbers its arrival. Returns the number, and the empty list
    /// of the request that had the position before.
    pub(super) fn next_arrival(&mut self, id: RequestId) -> (u64, Vec<SubgraphIndex>) {
        let arrival = self.arrivals;
        self.arrivals += 1;
        if self.requests.len() <= id.index as usize {
            self.requests.resize_with(id.index as usize + 1, Request::default);
        }
        (arrival, std::mem::take(&mut self.requests[id.index as usize].subgraphs))
    }

    /// Takes a request that arrived into the table, which `is_best_on_one_worker` or not, while it is alone.
    ///
    /// # Panics
    /// If another request has the position of `id`.
    pub(super) fn insert(&mut self, id: RequestId, arrived: Request, is_best_on_one_worker: bool) {
        let request = &mut self.requests[id.index as usize];
        assert!(!request.is_live, "{id:?} arrived while its position was in use");
        *request = arrived;
        self.is_for_one_worker = is_best_on_one_worker && self.live_requests == 0;
        self.live_requests += 1;
        self.live_batch_fillers += usize::from(request.fills_batches);
    }

    /// Takes a request that ended out of the table, with the indices of its subgraphs. Returns its
    /// last state.
    pub(super) fn remove(&mut self, id: RequestId) -> &mut Request {
        let request = &mut self.requests[id.index as usize];
        self.free_subgraphs.append(&mut request.subgraphs);
        self.discarded.clear(&mut request.subgraphs);
        request.is_live = false;
        if let Some(decisions) = request.decisions.take() {
            self.discarded.add_graph(decisions.into_graph());
        }
        self.is_for_one_worker = false;
        self.live_requests -= 1;
        self.live_batch_fillers -= usize::from(request.fills_batches);
        request
    }

    /// The number of requests that have arrived and not ended.
    pub(super) fn live_requests(&self) -> usize {
        self.live_requests
    }

    /// Whether there is one live request, which has been alone since it arrived and is best computed on one worker at a time.
    pub(super) fn is_for_one_worker(&self) -> bool {
        self.is_for_one_worker
    }

    /// Whether a large request that can fill a batch by itself has arrived and not ended.
    pub(super) fn has_batch_filler(&self) -> bool {
        self.live_batch_fillers > 0
    }

    /// Whether the request has arrived and not ended.
    pub(super) fn is_live(&self, request: RequestId) -> bool {
        self.requests
            .get(request.index as usize)
            .is_some_and(|known| known.is_live && known.generation == request.generation)
    }

    /// The subgraph of a run of a request that has arrived, has not ended and is not given up.
    pub(super) fn subgraph_of(&self, request: RequestId, run: RunIndex) -> Option<SubgraphIndex> {
        let is_good = self.is_live(request) && !self[request].is_given_up();
        is_good.then(|| self[request].subgraphs[run.index()])
    }

    /// The requests that end when `worker` is lost: with state that workers share those for which
    /// `is_pinned` holds for a subgraph, otherwise all that have state or ran nodes there.
    pub(super) fn lost_with(
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

    /// Takes a subgraph into the table. The lists of one that ended go on as its own, empty, so
    /// that steady traffic allocates none; large ones are discarded.
    pub(super) fn new_subgraph(&mut self, subgraph: Subgraph) -> SubgraphIndex {
        match self.free_subgraphs.pop() {
            Some(index) => {
                let place = &mut self.subgraphs[index.0 as usize];
                let mut ended = std::mem::replace(place, subgraph);
                self.discarded.clear(&mut ended.edges);
                self.discarded.clear(&mut ended.consumers);
                ended.stays.clear();
                (place.edges, place.consumers) = (ended.edges, ended.consumers);
                place.stays = ended.stays;
                index
            }
            None => {
                self.subgraphs.push(subgraph);
                self.ready.resize(self.subgraphs.len() * self.workers, 0);
                self.edges_met.resize(self.subgraphs.len() * self.workers, Cell::new(0));
                SubgraphIndex(self.subgraphs.len() as u32 - 1)
            }
        }
    }

    /// The number of ready nodes of a subgraph in its type's queue, for `worker`.
    pub(super) fn ready(&self, subgraph: SubgraphIndex, worker: WorkerId) -> u32 {
        self.ready[subgraph.0 as usize * self.workers + worker.index()]
    }

    /// Forgets which edges are met, for a subgraph that takes the place of one that ended.
    pub(super) fn forget_edges_met(&mut self, subgraph: SubgraphIndex) {
        let first = subgraph.0 as usize * self.workers;
        self.edges_met[first..first + self.workers].fill(Cell::new(0));
    }

    /// The number of first edges of a subgraph that are known to be met for `worker`.
    #[inline]
    pub(super) fn edges_met(&self, subgraph: SubgraphIndex, worker: WorkerId) -> &Cell<u32> {
        &self.edges_met[subgraph.0 as usize * self.workers + worker.index()]
    }

    /// Notes the number of ready nodes for `worker`, and returns the one noted before.
    pub(super) fn replace_ready(
        &mut self,
        subgraph: SubgraphIndex,
        worker: WorkerId,
        nodes: u32,
    ) -> u32 {
        let position = subgraph.0 as usize * self.workers + worker.index();
        std::mem::replace(&mut self.ready[position], nodes)
    }
}

impl Index<RequestId> for RequestTable {
    type Output = Request;

    fn index(&self, request: RequestId) -> &Request {
        &self.requests[request.index as usize]
    }
}

impl IndexMut<RequestId> for RequestTable {
    fn index_mut(&mut self, request: RequestId) -> &mut Request {
        &mut self.requests[request.index as usize]
    }
}

impl Index<SubgraphIndex> for RequestTable {
    type Output = Subgraph;

    #[inline]
    fn index(&self, subgraph: SubgraphIndex) -> &Subgraph {
        &self.subgraphs[subgraph.0 as usize]
    }
}

impl IndexMut<SubgraphIndex> for RequestTable {
    #[inline]
    fn index_mut(&mut self, subgraph: SubgraphIndex) -> &mut Subgraph {
        &mut self.subgraphs[subgraph.0 as usize]
    }
}
