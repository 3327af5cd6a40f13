//! The books of sessions: whose chunk runs, which wait for it, and what its chains left in slots.

use std::collections::{BTreeMap, VecDeque};

use batchmaker_graph::{CellTypeId, RequestId, RunIndex, SessionId, SlotId, WorkerId};
use batchmaker_manager::{Failure, Outcome, StatePlacement};

use super::Ledger;

/// From its first chunk until it is told of as ended.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The chunk that runs.
    pub(crate) current: Option<RequestId>,
    /// Those that wait for it, in their order.
    waiting: VecDeque<RequestId>,
    /// What the next chunk begins with: by run, what a chain left that ran to its end before its
    /// chunk was given up.
    pub(super) kept: BTreeMap<RunIndex, Kept>,
    /// Whether a chunk was given up: none follows those that wait.
    is_cut: bool,
    /// Whether a chunk that ran was given up, or what is kept was lost.
    is_broken: bool,
    /// Whether no chunk comes any more.
    is_ending: bool,
}

/// A chain's slot at the end of its chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) cell_type: CellTypeId,
    pub(super) slot: SlotId,
    /// The worker that ran the chain last.
    pub(super) home: WorkerId,
}

impl Session {
    /// Whether nothing of it is left to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending && self.current.is_none() && self.waiting.is_empty()
    }
}

impl Ledger {
    /// Whether the slot of the session's chain is the session's still.
    pub(crate) fn session_holds(&self, id: SessionId, run: RunIndex) -> bool {
        let Some(session) = self.sessions.get(&id) else { return false };
        let current = session.current.and_then(|chunk| self.requests.get(&chunk));
        session.kept.contains_key(&run) || current.is_some_and(|chunk| chunk.holds(run))
    }

    /// A chunk lines up; the first one begins the session.
    pub(super) fn line_up(&mut self, id: SessionId, chunk: RequestId) {
        let session = self.sessions.entry(id).or_default();
        if session.is_cut {
            return self.give_up(chunk, Outcome::Failed(Failure::SessionLost));
        }
        session.waiting.push_back(chunk);
        self.settle_session(id);
    }

    /// A chunk that waits is given up: those after it are lost, those before it go on.
    pub(super) fn cut_session(&mut self, id: SessionId, chunk: RequestId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.is_cut = true;
        if let Some(position) = session.waiting.iter().position(|&waiting| waiting == chunk) {
            for later in session.waiting.split_off(position).into_iter().skip(1) {
                self.give_up(later, Outcome::Failed(Failure::SessionLost));
            }
        }
        self.settle_session(id);
    }

    pub(super) fn end_session(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.is_ending = true;
            self.settle_session(id);
        }
    }

    fn break_session(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            (session.is_broken, session.is_cut) = (true, true);
            self.settle_session(id);
        }
    }

    /// The chunk that ran is answered.
    pub(super) fn chunk_ended(&mut self, id: SessionId, outcome: &Outcome) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.current = None;
            if *outcome != Outcome::Succeeded {
                return self.break_session(id);
            }
            self.settle_session(id);
        }
    }

    /// What is kept with a lost worker is lost.
    pub(super) fn lose_kept(&mut self, worker: WorkerId) {
        if self.placement == StatePlacement::Shared {
            return;
        }
        let is_lost = |session: &Session| session.kept.values().any(|kept| kept.home == worker);
        let sessions = self.sessions.iter().filter(|(_, session)| is_lost(session));
        for id in sessions.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.break_session(id);
        }
    }

    /// Of a broken session, those that wait are lost. Where no chunk runs, the next one starts, or
    /// what is kept is free if there will be none.
    fn settle_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.is_broken {
            for chunk in std::mem::take(&mut session.waiting) {
                self.give_up(chunk, Outcome::Failed(Failure::SessionLost));
            }
        }
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.current.is_some() {
            return;
        }
        if let Some(next) = session.waiting.pop_front() {
            session.current = Some(next);
            let kept = std::mem::take(&mut session.kept);
            self.start(next, &kept);
        } else if session.is_cut || session.is_ending {
            session.kept.clear();
        }
    }
}
