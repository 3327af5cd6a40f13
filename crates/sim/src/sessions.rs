//! The clients of sessions, with what the engine keeps of them: the id of a session, whether the manager
//! knows that it ends, and the states that its next chunk must begin with.

use std::collections::BTreeMap;

use batchmaker_graph::SessionId;

use crate::oracle::States;
use crate::rng::Rng;

/// All sessions. A session is named by its position in the scenario until it begins.
#[derive(Debug)]
pub(crate) struct Sessions {
    by_position: Vec<Progress>,
    positions: BTreeMap<SessionId, usize>,
    /// Ids' indices that a session has left, under the generation that comes next.
    free: Vec<SessionId>,
    indices: u32,
}

#[derive(Clone, Debug, Default)]
struct Progress {
    id: Option<SessionId>,
    is_ending: bool,
    /// The states after the last chunk that succeeded.
    states: States,
}

impl Sessions {
    pub(crate) fn new(sessions: usize) -> Self {
        let by_position = vec![Progress::default(); sessions];
        Self { by_position, positions: BTreeMap::new(), free: Vec::new(), indices: 0 }
    }

    /// Gives the session an id that none has had before.
    pub(crate) fn begin(&mut self, position: usize, rng: &mut Rng) -> SessionId {
        let id = match self.free.len() {
            0 => {
                self.indices += 1;
                SessionId { index: self.indices - 1, generation: 0 }
            }
            free => self.free.swap_remove(rng.index(free)),
        };
        self.by_position[position].id = Some(id);
        self.positions.insert(id, position);
        id
    }

    /// The id of a session that began and is not ending.
    pub(crate) fn going_on(&self, position: usize) -> Option<SessionId> {
        let Progress { id, is_ending, .. } = self.by_position[position];
        id.filter(|_| !is_ending)
    }

    /// Ends a session. Returns its id if it was [going on](Self::going_on).
    pub(crate) fn end(&mut self, position: usize) -> Option<SessionId> {
        let id = self.going_on(position);
        self.by_position[position].is_ending |= id.is_some();
        id
    }

    /// The session's position in the scenario.
    pub(crate) fn position(&self, id: SessionId) -> usize {
        self.positions[&id]
    }

    /// The states with which its next chunk begins.
    pub(crate) fn states(&self, id: SessionId) -> States {
        self.by_position[self.position(id)].states.clone()
    }

    /// Notes that a chunk succeeded, with these states at its end.
    pub(crate) fn leave(&mut self, id: SessionId, states: States) {
        let position = self.position(id);
        self.by_position[position].states = states;
    }

    /// Frees the id of a session whose end the manager reported.
    pub(crate) fn ended(&mut self, id: SessionId) {
        self.free.push(SessionId { generation: id.generation + 1, ..id });
    }
}
