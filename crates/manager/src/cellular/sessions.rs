//! Sessions: sequences that come in chunks, each of which is a request.
//!
//! The chunks of a session run one after the other. The states of its chains stay in their slots from
//! chunk to chunk: a slot belongs to a subgraph while one runs, and to the session between. So
//! sessions and whole sequences are alike to the scheduler, and share batches.
//!
//! A chunk that is given up ends its sequence: those before it are answered, those after it fail. If it
//! was running, nobody knows how far its chains came, and nothing goes on from them.
//!
//! This file keeps the table of sessions and decides what happens next ([`SessionAction`]);
//! `request_processor` carries it out.

use std::collections::{HashMap, VecDeque};

use batchmaker_graph::{CellTypeId, Chunk, RequestId, RunIndex, SessionId, SlotId, WorkerId};

use crate::cellular::request_table::Arrival;

/// The table of sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    table: Vec<Session>,
    /// The sessions of chunks that wait for an earlier one.
    waiting_in: HashMap<RequestId, SessionId>,
    /// Sessions that may go on, or end, in the order in which they may.
    to_settle: VecDeque<SessionId>,
    /// Sessions that ended and were not taken yet.
    ended: Vec<SessionId>,
}

/// The next step in the life of a session.
#[derive(Debug)]
pub(super) enum SessionAction {
    /// The chunk starts to run.
    Start(Arrival),
    /// The chunk fails before it starts, since the session's state is lost.
    Fail(Arrival),
    /// The slots that no chunk goes on from are free.
    Release(Vec<Kept>),
}

#[derive(Debug, Default)]
struct Session {
    generation: u32,
    is_open: bool,
    /// The slot that the chain left, by run of each chunk's graph; empty while the first chunk runs.
    kept: Vec<Option<Kept>>,
    /// The chunk that runs.
    current: Option<RequestId>,
    /// The chunks after it, in their order.
    waiting: VecDeque<Arrival>,
    /// Whether no chunk comes any more.
    is_ending: bool,
    /// Whether a chunk was given up: none follows those that wait.
    is_cut: bool,
    /// Whether the state of its chains is lost: the chunks that wait cannot go on.
    is_broken: bool,
}

/// A chain's slot between two chunks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) cell_type: CellTypeId,
    pub(super) slot: SlotId,
    /// The worker that ran the chain last.
    pub(super) home: Option<WorkerId>,
}

impl Sessions {
    /// Takes a chunk of the session `id`, which starts when those before it have ended. Returns the
    /// chunk instead where the session lost one before it, so that it cannot run.
    pub(super) fn admit(&mut self, id: SessionId, chunk: Arrival) -> Result<(), Arrival> {
        match chunk.graph.chunk() {
            Chunk::First => self.open(id),
            Chunk::Next => assert!(self.is_open(id), "{id:?} goes on, but never began"),
            Chunk::Whole => panic!("{:?} is no chunk of {id:?}", chunk.request),
        }
        let session = self.session(id);
        assert!(!session.is_ending, "{id:?} goes on after its end");
        if session.is_cut {
            return Err(chunk);
        }
        self.waiting_in.insert(chunk.request, id);
        self.session(id).waiting.push_back(chunk);
        self.to_settle.push_back(id);
        Ok(())
    }

    /// Ends the session after the last chunk that arrived.
    pub(super) fn end(&mut self, id: SessionId) {
        assert!(self.is_open(id), "{id:?} ends, but never began");
        self.session(id).is_ending = true;
        self.to_settle.push_back(id);
    }

    /// Takes a chunk that waits for an earlier one, and all that follow it, out of their session. Empty
    /// if the request is no such chunk.
    pub(super) fn give_up_from(&mut self, request: RequestId) -> Vec<Arrival> {
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

    /// Breaks the sessions whose state is with `worker`, which is lost.
    pub(super) fn lose(&mut self, worker: WorkerId) {
        for (session, index) in self.table.iter_mut().zip(0..) {
            let is_lost = |kept: &Kept| kept.home == Some(worker);
            if session.is_open && session.kept.iter().flatten().any(is_lost) {
                (session.is_broken, session.is_cut) = (true, true);
                self.to_settle.push_back(SessionId { index, generation: session.generation });
            }
        }
    }

    /// Takes the slot that the run's chain left in the chunk before.
    pub(super) fn take_kept(&mut self, id: SessionId, run: RunIndex) -> Option<Kept> {
        self.session(id).kept.get_mut(run.index())?.take()
    }

    /// Keeps the slot of a chain that ran to the end of its chunk.
    pub(super) fn keep(&mut self, id: SessionId, run: RunIndex, left: Kept) {
        let kept = &mut self.session(id).kept;
        if kept.len() <= run.index() {
            kept.resize(run.index() + 1, None);
        }
        let before = kept[run.index()].replace(left);
        assert!(before.is_none(), "{id:?} kept two slots for {run}");
    }

    /// Notes that the session's chunk is over, and whether it succeeded.
    pub(super) fn chunk_ended(&mut self, id: SessionId, is_good: bool) {
        let session = self.session(id);
        session.current = None;
        session.is_broken |= !is_good;
        session.is_cut |= session.is_broken;
        self.to_settle.push_back(id);
    }

    /// The next action of any session, until there is none: to start a chunk, to fail one that cannot go
    /// on, or to free the slots of a session that ends or is cut.
    #[inline]
    pub(super) fn next_action(&mut self) -> Option<SessionAction> {
        while let Some(&id) = self.to_settle.front() {
            let action = self.is_open(id).then(|| self.next_action_of(id)).flatten();
            if action.is_some() {
                return action;
            }
            self.to_settle.pop_front();
        }
        None
    }

    fn next_action_of(&mut self, id: SessionId) -> Option<SessionAction> {
        let session = &mut self.table[id.index as usize];
        if session.is_broken
            && let Some(chunk) = session.waiting.pop_front()
        {
            self.waiting_in.remove(&chunk.request);
            return Some(SessionAction::Fail(chunk));
        }
        if session.current.is_some() {
            return None;
        }
        if let Some(chunk) = session.waiting.pop_front() {
            session.current = Some(chunk.request);
            self.waiting_in.remove(&chunk.request);
            return Some(SessionAction::Start(chunk));
        }
        if (session.is_ending || session.is_cut) && !session.kept.is_empty() {
            let kept = std::mem::take(&mut session.kept);
            return Some(SessionAction::Release(kept.into_iter().flatten().collect()));
        }
        if session.is_ending {
            session.is_open = false;
            self.ended.push(id);
        }
        None
    }

    /// The number of chunks that wait for earlier ones.
    pub(super) fn waiting_chunks(&self) -> usize {
        self.waiting_in.len()
    }

    /// Takes the sessions that ended since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.ended)
    }

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
}
