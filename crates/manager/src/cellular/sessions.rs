//! Sessions: sequences that come in chunks, each of which is a request.
//!
//! The chunks of a session run one after the other. What its chains leave in their slots stays there
//! from chunk to chunk: a slot belongs to a subgraph while one runs, and to the session between. So
//! sessions and whole sequences are alike to the scheduler, and share batches.
//!
//! A chunk that is given up ends its sequence: those before it are answered, those after it fail. If it
//! was running, nobody knows how far its chains came, and nothing goes on from them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, CellTypeId, Chunk, ModelId, RequestId, RunIndex, SessionId, SlotId, WorkerId,
};

use crate::cellular::Cellular;
use crate::config::StatePlacement;
use crate::event::{Failure, Finished, Outcome};

/// The table of sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    table: Vec<Session>,
    /// The sessions of chunks that wait for an earlier one.
    waiting_in: HashMap<RequestId, SessionId>,
    /// Sessions that may go on, or end, in the order in which they may.
    to_settle: VecDeque<SessionId>,
    pub(crate) ended: Vec<SessionId>,
}

#[derive(Debug, Default)]
struct Session {
    generation: u32,
    is_open: bool,
    /// By run of each chunk's graph, what its chain left; empty while the first chunk runs.
    kept: Vec<Option<Kept>>,
    /// The chunk that runs.
    current: Option<RequestId>,
    /// Those after it, in their order.
    waiting: VecDeque<Arrival>,
    /// Whether no chunk comes any more.
    is_ending: bool,
    /// Whether a chunk was given up: none follows those that wait.
    is_cut: bool,
    /// Whether what its chains left is lost: those that wait cannot go on.
    is_broken: bool,
}

/// A chain's slot between two chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) cell_type: CellTypeId,
    pub(crate) slot: SlotId,
    /// The worker that ran the chain last.
    pub(crate) home: Option<WorkerId>,
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) request: RequestId,
    pub(crate) model: ModelId,
    pub(crate) priority: u32,
    pub(crate) graph: Arc<CellGraph>,
    pub(crate) session: Option<SessionId>,
    pub(crate) at_ns: u64,
}

impl Sessions {
    fn session(&mut self, id: SessionId) -> &mut Session {
        &mut self.table[id.index as usize]
    }

    fn open(&mut self, id: SessionId) {
        let index = id.index as usize;
        if self.table.len() <= index {
            self.table.resize_with(index + 1, Session::default);
        }
        assert!(!self.table[index].is_open, "{id:?} began while its position was in use");
        let generation = id.generation;
        self.table[index] = Session { generation, is_open: true, ..Session::default() };
    }

    fn is_open(&self, id: SessionId) -> bool {
        let known = self.table.get(id.index as usize);
        known.is_some_and(|known| known.is_open && known.generation == id.generation)
    }

    /// What the run's chain left in the chunk before, for the one that arrives.
    pub(crate) fn take_kept(&mut self, id: SessionId, run: RunIndex) -> Option<Kept> {
        self.session(id).kept.get_mut(run.index())?.take()
    }

    /// Keeps the slot of a chain that ran to the end of its chunk.
    pub(crate) fn keep(&mut self, id: SessionId, run: RunIndex, left: Kept) {
        let kept = &mut self.session(id).kept;
        if kept.len() <= run.index() {
            kept.resize(run.index() + 1, None);
        }
        let before = kept[run.index()].replace(left);
        assert!(before.is_none(), "{id:?} kept two slots for {run}");
    }

    /// Notes that the session's chunk is over, and whether it succeeded.
    pub(crate) fn chunk_ended(&mut self, id: SessionId, is_good: bool) {
        let session = self.session(id);
        session.current = None;
        session.is_broken |= !is_good;
        session.is_cut |= session.is_broken;
        self.to_settle.push_back(id);
    }

    /// Takes a chunk that waits, and all that follow it, out of their session.
    fn give_up_from(&mut self, request: RequestId) -> Vec<Arrival> {
        let Some(&id) = self.waiting_in.get(&request) else { return Vec::new() };
        let session = self.session(id);
        let position = session.waiting.iter().position(|chunk| chunk.request == request);
        let given_up: Vec<Arrival> = match position {
            Some(position) => session.waiting.drain(position..).collect(),
            None => Vec::new(),
        };
        session.is_cut = true;
        for chunk in &given_up {
            self.waiting_in.remove(&chunk.request);
        }
        self.to_settle.push_back(id);
        given_up
    }
}

impl Cellular {
    /// Starts a request, or lets it wait for the chunks before it.
    pub(crate) fn admit(&mut self, arrival: Arrival) {
        let Some(id) = arrival.session else {
            return self.arrive(&arrival);
        };
        let sessions = &mut self.sessions;
        match arrival.graph.chunk() {
            Chunk::First => sessions.open(id),
            Chunk::Next => assert!(sessions.is_open(id), "{id:?} goes on, but never began"),
            Chunk::Whole => panic!("{:?} is no chunk of {id:?}", arrival.request),
        }
        let session = sessions.session(id);
        assert!(!session.is_ending, "{id:?} goes on after its end");
        if session.is_cut {
            return self.end_unstarted(&arrival, Outcome::Failed(Failure::SessionLost));
        }
        sessions.waiting_in.insert(arrival.request, id);
        sessions.session(id).waiting.push_back(arrival);
        sessions.to_settle.push_back(id);
    }

    /// Gives up a chunk that waits for an earlier one. Tells whether the request is such a one.
    pub(crate) fn cancel_waiting(&mut self, request: RequestId) -> bool {
        let given_up = self.sessions.give_up_from(request);
        for chunk in &given_up {
            let is_it = chunk.request == request;
            let later = Outcome::Failed(Failure::SessionLost);
            self.end_unstarted(chunk, if is_it { Outcome::Cancelled } else { later });
        }
        !given_up.is_empty()
    }

    /// After the last chunk that arrived, the session ends.
    pub(crate) fn end_session(&mut self, id: SessionId) {
        assert!(self.sessions.is_open(id), "{id:?} ends, but never began");
        self.sessions.session(id).is_ending = true;
        self.sessions.to_settle.push_back(id);
    }

    /// Sessions whose state was with a worker that is lost are broken.
    pub(crate) fn lose_sessions(&mut self, worker: WorkerId) {
        if self.config.state_placement == StatePlacement::Shared {
            return;
        }
        for index in 0..self.sessions.table.len() {
            let session = &mut self.sessions.table[index];
            let is_lost = |kept: &Kept| kept.home == Some(worker);
            if session.is_open && session.kept.iter().flatten().any(is_lost) {
                (session.is_broken, session.is_cut) = (true, true);
                let id = SessionId { index: index as u32, generation: session.generation };
                self.sessions.to_settle.push_back(id);
            }
        }
    }

    /// Starts the next chunks, frees what nobody goes on from, and ends what is to end.
    pub(crate) fn settle_sessions(&mut self) {
        while let Some(id) = self.sessions.to_settle.pop_front() {
            if !self.sessions.is_open(id) {
                continue;
            }
            let session = self.sessions.session(id);
            if session.is_broken {
                let waiting = std::mem::take(&mut session.waiting);
                for chunk in &waiting {
                    self.sessions.waiting_in.remove(&chunk.request);
                    self.end_unstarted(chunk, Outcome::Failed(Failure::SessionLost));
                }
            }
            let session = self.sessions.session(id);
            if session.current.is_some() {
                continue;
            }
            if let Some(chunk) = session.waiting.pop_front() {
                session.current = Some(chunk.request);
                self.sessions.waiting_in.remove(&chunk.request);
                self.arrive(&chunk);
                continue;
            }
            let is_ending = session.is_ending;
            if is_ending || session.is_cut {
                for kept in std::mem::take(&mut session.kept).into_iter().flatten() {
                    self.release_slot(kept.cell_type, kept.slot, true);
                }
            }
            if is_ending {
                self.sessions.session(id).is_open = false;
                self.sessions.ended.push(id);
            }
        }
    }

    /// Ends a chunk of which nothing ran.
    fn end_unstarted(&mut self, chunk: &Arrival, outcome: Outcome) {
        let waited_ns = self.now - chunk.at_ns;
        let request = chunk.request;
        let finished = Finished { request, outcome, queue_ns: waited_ns, total_ns: waited_ns };
        self.processor.finished.push(finished);
    }

    /// Requests that wait for earlier chunks of their sessions.
    pub(crate) fn waiting_chunks(&self) -> usize {
        self.sessions.waiting_in.len()
    }
}
