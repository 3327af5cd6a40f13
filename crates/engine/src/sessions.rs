//! Sessions by the names that clients give them: who may go on, how many there are, and which have
//! been idle for too long.
//!
//! The order of chunks, and the slots with the states, are the manager's. It is told through the
//! inbox, always under the lock of this table, so that it hears of a session's chunks and of its
//! end in the order in which they were taken.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use batchmaker_graph::{Chunk, InvalidRequest, ModelId, NamedTensor, SessionId};
use batchmaker_manager::Event;

use crate::engine::{ServedModel, Shared, lock};
use crate::error::EngineError;
use crate::statistics::SessionStatistics;

/// The name of a session. Models have names of their own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SessionKey {
    /// A number.
    Number(u64),
    /// A text.
    Text(String),
}

impl std::fmt::Display for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// That a request brings a chunk of a session's sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionChunk {
    /// Which session.
    pub key: SessionKey,
    /// Whether it is the first. One that runs under this name ends, and another begins.
    pub start: bool,
    /// Whether it is the last.
    pub end: bool,
}

/// See the module's first lines.
#[derive(Debug)]
pub(crate) struct Sessions {
    table: Mutex<Table>,
    /// Signalled when the engine stops.
    stopping: Condvar,
    max: usize,
    idle: Duration,
}

#[derive(Debug, Default)]
struct Table {
    by_key: HashMap<(ModelId, SessionKey), SessionId>,
    /// By position of the id.
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Whether each session ends with the chunks that were taken.
    is_closing: bool,
    is_stopping: bool,
    statistics: SessionStatistics,
}

#[derive(Debug, Default)]
struct Entry {
    generation: u32,
    /// None once the manager was told that the session ends.
    key: Option<(ModelId, SessionKey)>,
    /// In flight.
    chunks: usize,
    last_chunk: Option<Instant>,
    said_once: Arc<[NamedTensor]>,
}

/// A chunk on its way to the manager.
#[derive(Debug)]
pub(crate) struct Entering {
    model: ModelId,
    part: SessionChunk,
    /// Of a later chunk: the session.
    id: Option<SessionId>,
    /// Of a first chunk: what it says for all.
    said_once: Arc<[NamedTensor]>,
}

impl Entering {
    pub(crate) fn chunk(&self) -> Chunk {
        if self.id.is_none() { Chunk::First } else { Chunk::Next }
    }
}

impl Sessions {
    pub(crate) fn new(max: usize, idle: Duration) -> Self {
        Self { table: Mutex::default(), stopping: Condvar::new(), max, idle }
    }

    /// Looks up where a chunk belongs; gives its tensors with those that the first chunk said for
    /// all.
    pub(crate) fn prepare(
        &self,
        served: &ServedModel,
        part: SessionChunk,
        tensors: Vec<NamedTensor>,
    ) -> Result<(Entering, Vec<NamedTensor>), EngineError> {
        let model = served.id;
        if part.start {
            let said_once = served.model.said_once(&tensors).into();
            return Ok((Entering { model, part, id: None, said_once }, tensors));
        }
        let table = lock(&self.table);
        let id = table.running(served, &part.key)?;
        let said_once = table.entries[id.index as usize].said_once.clone();
        drop(table);
        let tensors = served.model.later_chunk(tensors, &said_once)?;
        Ok((Entering { model, part, id: Some(id), said_once: Arc::default() }, tensors))
    }

    /// Takes a chunk, whose request is admitted: `tell` gives it to the manager.
    pub(crate) fn enter(
        &self,
        served: &ServedModel,
        entering: Entering,
        shared: &Shared,
        tell: impl FnOnce(SessionId),
    ) -> Result<(), EngineError> {
        let Entering { model, part, id, said_once } = entering;
        let mut table = lock(&self.table);
        let id = match id {
            // It may have ended since it was looked up.
            Some(id) if table.running(served, &part.key)? == id => id,
            Some(_) => return Err(not_running(served, &part.key)),
            None => {
                let key = (model, part.key);
                let before = table.by_key.get(&key).copied();
                // What was told to end and still runs is bounded as requests are.
                let others = table.by_key.len() - usize::from(before.is_some());
                if others >= self.max {
                    return Err(EngineError::TooManySessions { sessions: others });
                }
                if let Some(before) = before {
                    table.statistics.ended_by_client += 1;
                    table.end(before, shared);
                }
                table.begin(key, said_once)
            }
        };
        table.entries[id.index as usize].chunks += 1;
        tell(id);
        if part.end {
            table.statistics.ended_by_client += 1;
        }
        if part.end || table.is_closing {
            table.end(id, shared);
        }
        Ok(())
    }

    /// Ends all sessions, those to come as well, after the chunks that were taken.
    pub(crate) fn end_all(&self, shared: &Shared) {
        let mut table = lock(&self.table);
        table.is_closing = true;
        let ids: Vec<SessionId> = table.by_key.values().copied().collect();
        ids.into_iter().for_each(|id| table.end(id, shared));
    }

    /// Ends a session that runs, after the chunks that were taken.
    pub(crate) fn end(
        &self,
        served: &ServedModel,
        key: &SessionKey,
        shared: &Shared,
    ) -> Result<(), EngineError> {
        let mut table = lock(&self.table);
        let id = table.running(served, key)?;
        table.statistics.ended_by_client += 1;
        table.end(id, shared);
        Ok(())
    }

    /// Notes that a chunk of the session has ended. One that was given up ends the session.
    pub(crate) fn chunk_over(&self, id: SessionId, is_done: bool, shared: &Shared) {
        let mut table = lock(&self.table);
        let entry = &mut table.entries[id.index as usize];
        entry.chunks -= 1;
        entry.last_chunk = Some(Instant::now());
        if !is_done && entry.key.is_some() {
            table.statistics.broken += 1;
            table.end(id, shared);
        }
    }

    /// The manager has ended these: their positions are free.
    pub(crate) fn release(&self, ended: &[SessionId]) {
        if ended.is_empty() {
            return;
        }
        let mut table = lock(&self.table);
        for id in ended {
            let entry = &mut table.entries[id.index as usize];
            *entry = Entry { generation: id.generation.wrapping_add(1), ..Entry::default() };
            table.free.push(id.index);
        }
    }

    pub(crate) fn statistics(&self) -> SessionStatistics {
        let table = lock(&self.table);
        let open = table.entries.len() - table.free.len();
        SessionStatistics { open, max: self.max, ..table.statistics }
    }

    /// Ends sessions that have been idle for too long, until the engine stops.
    pub(crate) fn reap(&self, shared: &Shared) {
        // Not more often than is worth it, however the sessions' times are spread.
        let pause = (self.idle / 16).clamp(Duration::from_millis(1), Duration::from_secs(1));
        let mut table = lock(&self.table);
        while !table.is_stopping {
            let now = Instant::now();
            let idle_since = |entry: &Entry| {
                let is_idle = entry.key.is_some() && entry.chunks == 0;
                entry.last_chunk.filter(|_| is_idle)
            };
            let too_long = |entry: &Entry| {
                idle_since(entry).is_some_and(|since| now.duration_since(since) >= self.idle)
            };
            for index in 0..table.entries.len() {
                if too_long(&table.entries[index]) {
                    let generation = table.entries[index].generation;
                    table.statistics.reaped += 1;
                    table.end(SessionId { index: index as u32, generation }, shared);
                }
            }
            let waited = self.stopping.wait_timeout(table, pause);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets [`Self::reap`] return.
    pub(crate) fn stop(&self) {
        lock(&self.table).is_stopping = true;
        self.stopping.notify_all();
    }
}

impl Table {
    fn running(&self, served: &ServedModel, key: &SessionKey) -> Result<SessionId, EngineError> {
        let found = self.by_key.get(&(served.id, key.clone())).copied();
        found.ok_or_else(|| not_running(served, key))
    }

    fn begin(&mut self, key: (ModelId, SessionKey), said_once: Arc<[NamedTensor]>) -> SessionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        entry.key = Some(key.clone());
        entry.said_once = said_once;
        let id = SessionId { index, generation: entry.generation };
        self.by_key.insert(key, id);
        self.statistics.begun += 1;
        id
    }

    /// No chunk is taken any more.
    fn end(&mut self, id: SessionId, shared: &Shared) {
        if let Some(key) = self.entries[id.index as usize].key.take() {
            self.by_key.remove(&key);
            shared.tell(Event::EndSession { session: id });
        }
    }
}

fn not_running(served: &ServedModel, key: &SessionKey) -> EngineError {
    let text = format!(
        "sequence_id '{key}': no such sequence of model '{}' is running; the first chunk of one has \
         sequence_start",
        served.model.name
    );
    InvalidRequest(text).into()
}
