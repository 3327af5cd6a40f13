//! The books of sessions: which chunk runs, which wait for it, and the slots that its chains left.

use std::collections::{BTreeMap, VecDeque};

use batchmaker_graph::{CellTypeId, RequestId, RunIndex, SessionId, SlotId, WorkerId};

/// The sessions from their first chunk until the manager reports their end.
#[derive(Debug, Default)]
pub(crate) struct Sessions(BTreeMap<SessionId, Session>);

/// One session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The chunk that runs.
    current: Option<RequestId>,
    /// The chunks that wait for it, in their order.
    waiting: VecDeque<RequestId>,
    /// The slots that the next chunk begins with: by run, of chains that ran to their end before their
    /// chunk was given up.
    kept: BTreeMap<RunIndex, Kept>,
    /// Whether a chunk was given up: none follows those that wait.
    is_cut: bool,
    /// Whether a chunk that ran was given up, or the state that is kept was lost.
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

/// The consequences of a change of a session.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Chunks that are lost with the session.
    pub(super) lost: VecDeque<RequestId>,
    /// The chunk that starts, with the slots that it begins with.
    pub(super) started: Option<(RequestId, BTreeMap<RunIndex, Kept>)>,
}

impl Session {
    /// Whether nothing of it is left to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.is_ending && self.current.is_none() && self.waiting.is_empty()
    }

    /// Loses the chunks that wait, if the session is broken. Where no chunk runs, starts the next one,
    /// or frees the slots that are kept if there will be none.
    fn settle(&mut self) -> Settled {
        let mut settled = Settled::default();
        if self.is_broken {
            settled.lost = std::mem::take(&mut self.waiting);
        }
        if self.current.is_some() {
            return settled;
        }
        if let Some(next) = self.waiting.pop_front() {
            self.current = Some(next);
            settled.started = Some((next, std::mem::take(&mut self.kept)));
        } else if self.is_cut || self.is_ending {
            self.kept.clear();
        }
        settled
    }
}

impl Sessions {
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.0.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.0.iter().map(|(&id, session)| (id, session))
    }

    /// The chunk of the session that runs.
    pub(super) fn current(&self, id: SessionId) -> Option<RequestId> {
        self.get(id)?.current
    }

    /// Whether the slot of the run's chain is kept for the next chunk.
    pub(super) fn keeps(&self, id: SessionId, run: RunIndex) -> bool {
        self.get(id).is_some_and(|session| session.kept.contains_key(&run))
    }

    /// The slots that sessions keep between chunks.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Kept> {
        self.0.values().flat_map(|session| session.kept.values())
    }

    /// Lines a chunk up; the first one begins the session. None if the session is cut, so that the
    /// chunk is lost.
    pub(super) fn line_up(&mut self, id: SessionId, chunk: RequestId) -> Option<Settled> {
        let session = self.0.entry(id).or_default();
        if session.is_cut {
            return None;
        }
        session.waiting.push_back(chunk);
        Some(session.settle())
    }

    /// Gives up a chunk that waits: those after it are lost, those before it go on.
    pub(super) fn cut(&mut self, id: SessionId, chunk: RequestId) -> Settled {
        let Some(session) = self.0.get_mut(&id) else { return Settled::default() };
        session.is_cut = true;
        let position = session.waiting.iter().position(|&waiting| waiting == chunk);
        let later = position.map(|position| session.waiting.split_off(position));
        let mut settled = session.settle();
        settled.lost.extend(later.into_iter().flatten().skip(1));
        settled
    }

    /// Notes that no chunk of the session comes any more.
    pub(super) fn end(&mut self, id: SessionId) -> Settled {
        let Some(session) = self.0.get_mut(&id) else { return Settled::default() };
        session.is_ending = true;
        session.settle()
    }

    /// Notes that the chunk that ran is answered.
    pub(super) fn chunk_ended(&mut self, id: SessionId, succeeded: bool) -> Settled {
        let Some(session) = self.0.get_mut(&id) else { return Settled::default() };
        session.current = None;
        session.is_broken |= !succeeded;
        session.is_cut |= !succeeded;
        session.settle()
    }

    /// Keeps the slot of a chain that is complete.
    pub(super) fn keep(&mut self, id: SessionId, run: RunIndex, kept: Kept) {
        if let Some(session) = self.0.get_mut(&id) {
            session.kept.insert(run, kept);
        }
    }

    /// Breaks the sessions that keep a state with `worker`, which is lost.
    pub(super) fn lose(&mut self, worker: WorkerId) -> Vec<Settled> {
        let is_lost = |session: &Session| session.kept.values().any(|kept| kept.home == worker);
        let lost = self.0.values_mut().filter(|session| is_lost(session));
        let broken = lost.map(|session| {
            (session.is_broken, session.is_cut) = (true, true);
            session.settle()
        });
        broken.collect()
    }

    /// Takes out a session whose end the manager reported.
    pub(super) fn remove(&mut self, id: SessionId) {
        self.0.remove(&id);
    }
}
