//! Sessions by the names that clients give them: which names run, how many there are, and which have
//! been idle for too long.
//!
//! The order of chunks, and the slots with the states, belong to the manager. Events reach it through
//! the inbox, and are sent while the table is locked, so that the manager handles a session's chunks
//! and its end in the order in which they were accepted.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use batchmaker_device::KeptStates;
use batchmaker_graph::{Chunk, InvalidRequest, KeptSteps, ModelId, NamedTensor, SessionId};
use batchmaker_manager::Event;

use crate::error::EngineError;
use crate::inbox::Inbox;
use crate::lock::lock;
use crate::memory::Reservation;
use crate::request::{SessionChunk, SessionKey};
use crate::served_model::ServedModel;
use crate::statistics::SessionStatistics;

/// The sessions of an engine.
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
    /// The sessions, by position of the id.
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Whether each session ends after the chunks that were accepted.
    is_closing: bool,
    is_stopping: bool,
    statistics: SessionStatistics,
}

/// A session, or a position for one.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    generation: u32,
    /// The session's name; none once the manager was notified of its end.
    key: Option<(ModelId, SessionKey)>,
    /// The number of its chunks in flight.
    chunks: usize,
    last_chunk: Option<Instant>,
    static_inputs: Arc<[NamedTensor]>,
    /// Whether a chunk with something to run has come: the manager has the session since then.
    has_begun: bool,
    /// The steps that its next chunk needs again.
    kept: Arc<KeptSteps>,
    /// The states that its chunks left.
    states: Vec<KeptStates>,
    /// The bytes of its states, its static inputs and its kept steps, free after these.
    memory: Vec<Reservation>,
}

/// A chunk on its way to the manager.
#[derive(Debug)]
pub(crate) struct Entering {
    model: ModelId,
    part: SessionChunk,
    /// The session, if the chunk is not its first.
    id: Option<SessionId>,
    /// The static inputs, which the first chunk brings for the whole session.
    static_inputs: Arc<[NamedTensor]>,
    /// Whether a chunk before it had something to run.
    has_begun: bool,
    /// The steps that were kept before it.
    kept: Arc<KeptSteps>,
    /// The steps that the chunk after it needs again.
    next_kept: Arc<KeptSteps>,
}

impl Entering {
    pub(crate) fn chunk(&self) -> Chunk {
        if self.has_begun { Chunk::Next } else { Chunk::First }
    }

    /// The bytes of the static inputs and the kept steps of a session that it begins.
    pub(crate) fn static_bytes(&self, served: &ServedModel) -> usize {
        let inputs = self.static_inputs.iter().map(|tensor| tensor.tensor.data().heap_bytes());
        let kept = if self.id.is_none() { served.model.kept_bytes_max() } else { 0 };
        inputs.fold(kept, usize::saturating_add)
    }

    /// The number of steps that earlier replies had, of those that kept steps make again.
    pub(crate) fn answered(&self) -> usize {
        self.kept.answered
    }
}

impl Sessions {
    pub(crate) fn new(max: usize, idle: Duration) -> Self {
        Self { table: Mutex::default(), stopping: Condvar::new(), max, idle }
    }

    /// Looks up the session of a chunk. Returns the chunk's tensors together with the static inputs
    /// that the session's first chunk brought, and after the steps that it kept.
    pub(crate) fn prepare(
        &self,
        served: &ServedModel,
        part: SessionChunk,
        tensors: Vec<NamedTensor>,
    ) -> Result<(Entering, Vec<NamedTensor>), EngineError> {
        let model = served.id;
        if part.start {
            let static_inputs = served.model.static_inputs(&tensors).into();
            let kept: Arc<KeptSteps> = Arc::default();
            let (tensors, next_kept) = served.model.after_kept(&kept, tensors);
            let (id, has_begun, next_kept) = (None, false, next_kept.into());
            let entering = Entering { model, part, id, static_inputs, has_begun, kept, next_kept };
            return Ok((entering, tensors));
        }
        let table = lock(&self.table);
        let id = table.running(served, &part.key)?;
        let entry = &table.entries[id.index as usize];
        let (has_begun, kept) = (entry.has_begun, entry.kept.clone());
        let static_inputs = entry.static_inputs.clone();
        drop(table);
        let (tensors, next_kept) = served.model.after_kept(&kept, tensors);
        let tensors = served.model.later_chunk(tensors, &static_inputs)?;
        let (id, static_inputs, next_kept) = (Some(id), Arc::default(), next_kept.into());
        Ok((Entering { model, part, id, static_inputs, has_begun, kept, next_kept }, tensors))
    }

    /// Accepts a chunk whose request is admitted: `arrive` sends it to the manager; none if it has nothing to run. A
    /// session that begins holds `memory` to its end.
    pub(crate) fn enter(
        &self,
        served: &ServedModel,
        entering: Entering,
        memory: Reservation,
        inbox: &Inbox,
        arrive: Option<impl FnOnce(SessionId)>,
    ) -> Result<(), EngineError> {
        let Entering { model, part, id, static_inputs, has_begun, kept, next_kept } = entering;
        let mut table = lock(&self.table);
        let id = match id {
            // It may have ended since it was looked up.
            Some(id) if table.running(served, &part.key)? == id => {
                let entry = &table.entries[id.index as usize];
                if !Arc::ptr_eq(&entry.kept, &kept) || entry.has_begun != has_begun {
                    return Err(overtaken(&part.key));
                }
                id
            }
            Some(_) => return Err(not_running(served, &part.key)),
            None => {
                let key = (model, part.key);
                let before = table.by_key.get(&key).copied();
                // Sessions that end and still have chunks in flight are bounded as requests are.
                let others = table.by_key.len() - usize::from(before.is_some());
                if others >= self.max {
                    return Err(EngineError::TooManySessions { sessions: others });
                }
                if let Some(before) = before {
                    table.statistics.ended_by_client += 1;
                    table.end(before, inbox);
                }
                table.begin(key, static_inputs)
            }
        };
        let entry = &mut table.entries[id.index as usize];
        if memory.bytes() > 0 {
            entry.memory.push(memory);
        }
        if served.model.kept_bytes_max() > 0 {
            entry.kept = next_kept;
        }
        match arrive {
            Some(arrive) => {
                (entry.has_begun, entry.chunks) = (true, entry.chunks + 1);
                arrive(id);
            }
            None => entry.last_chunk = Some(Instant::now()),
        }
        if part.end {
            table.statistics.ended_by_client += 1;
        }
        if part.end || table.is_closing {
            table.end(id, inbox);
        }
        Ok(())
    }

    /// Ends all sessions, later ones as well, after the chunks that were accepted.
    pub(crate) fn end_all(&self, inbox: &Inbox) {
        let mut table = lock(&self.table);
        table.is_closing = true;
        let ids: Vec<SessionId> = table.by_key.values().copied().collect();
        ids.into_iter().for_each(|id| table.end(id, inbox));
    }

    /// Ends a session that runs, after the chunks that were accepted.
    pub(crate) fn end(
        &self,
        served: &ServedModel,
        key: &SessionKey,
        inbox: &Inbox,
    ) -> Result<(), EngineError> {
        let mut table = lock(&self.table);
        let id = table.running(served, key)?;
        table.statistics.ended_by_client += 1;
        table.end(id, inbox);
        Ok(())
    }

    /// Records that a chunk of the session has ended, and the states that it left. A chunk that did not succeed ends
    /// the session.
    pub(crate) fn chunk_over(
        &self,
        id: SessionId,
        is_done: bool,
        states: Option<KeptStates>,
        inbox: &Inbox,
    ) {
        let mut table = lock(&self.table);
        let entry = &mut table.entries[id.index as usize];
        entry.chunks -= 1;
        entry.states.extend(states);
        entry.last_chunk = Some(Instant::now());
        if !is_done && entry.key.is_some() {
            table.statistics.broken += 1;
            table.end(id, inbox);
        }
    }

    /// Frees the positions of sessions that the manager has ended. Returns what they held: dropping it may take
    /// long.
    pub(crate) fn release(&self, ended: &[SessionId]) -> Vec<Entry> {
        if ended.is_empty() {
            return Vec::new();
        }
        let mut table = lock(&self.table);
        ended.iter().map(|&id| table.free(id)).collect()
    }

    pub(crate) fn statistics(&self) -> SessionStatistics {
        let table = lock(&self.table);
        let open = table.entries.len() - table.free.len();
        SessionStatistics { open, max: self.max, ..table.statistics }
    }

    /// The time that a session may be idle before it ends.
    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// Ends sessions that have been idle for too long, until the engine stops.
    pub(crate) fn reap(&self, inbox: &Inbox) {
        // Often enough for short idle times, and not so often that looking costs anything.
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
                    table.end(SessionId { index: index as u32, generation }, inbox);
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

    fn begin(
        &mut self,
        key: (ModelId, SessionKey),
        static_inputs: Arc<[NamedTensor]>,
    ) -> SessionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        entry.key = Some(key.clone());
        entry.static_inputs = static_inputs;
        let id = SessionId { index, generation: entry.generation };
        self.by_key.insert(key, id);
        self.statistics.begun += 1;
        id
    }

    /// Ends a session: it accepts no more chunks.
    fn end(&mut self, id: SessionId, inbox: &Inbox) {
        if let Some(key) = self.entries[id.index as usize].key.take() {
            self.by_key.remove(&key);
            if self.entries[id.index as usize].has_begun {
                inbox.send(Event::EndSession { session: id });
            } else {
                self.free(id);
            }
        }
    }

    /// Frees the position of a session. Returns what it held: dropping it may take long.
    fn free(&mut self, id: SessionId) -> Entry {
        self.free.push(id.index);
        let generation = id.generation.wrapping_add(1);
        let free = Entry { generation, ..Entry::default() };
        std::mem::replace(&mut self.entries[id.index as usize], free)
    }
}

fn overtaken(key: &SessionKey) -> EngineError {
    let text = format!(
        "sequence_id '{key}': another chunk of the sequence was accepted meanwhile; the model takes windows of its \
         steps, so that each chunk must be sent after the reply to the one before"
    );
    InvalidRequest(text).into()
}

fn not_running(served: &ServedModel, key: &SessionKey) -> EngineError {
    let text = format!(
        "sequence_id '{key}': no such sequence of model '{}' is running; the first chunk of one has \
         sequence_start",
        served.model.name
    );
    InvalidRequest(text).into()
}
