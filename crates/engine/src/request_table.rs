//! The engine's table of requests in flight: ids, and what their end needs.

use batchmaker_device::Read;
use batchmaker_graph::{
    Decision, DecisionIndex, EndOfSequence, RequestId, RunIndex, SessionId, TensorData, ValueIndex,
};
use batchmaker_manager::{Event, Failure, Outcome, Undecided};

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::reply::RequestTimes;
use crate::responder::{Ended, Responder};

/// Requests by the position of their ids.
#[derive(Debug, Default)]
pub(crate) struct RequestTable {
    generations: Vec<u32>,
    free: Vec<u32>,
    entries: Vec<Option<Entry>>,
    /// Requests whose steps are sent as they are computed.
    streamed: Vec<RequestId>,
    /// Reads that a lost worker was asked for, and that any other can do.
    orphans: Vec<Read>,
    is_closed: bool,
}

/// A request in flight, or one that ended and is being read.
#[derive(Debug)]
struct Entry {
    responder: Responder,
    /// Reads of its values that workers were asked for and that have not arrived.
    reads: u32,
    /// Those of them that are of decisions, by value and row.
    decisions: BTreeMap<(ValueIndex, u32), DecisionIndex>,
    /// The outcome, once the request has ended: it is answered when nothing is being read any more.
    end: Option<(Outcome, RequestTimes)>,
    values: Vec<TensorData>,
}

/// The next action for a request, which the worker that asks takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing yet.
    Nothing,
    /// Its outputs are to be read.
    Read(Read),
    /// It is to be retired and answered.
    Answer(RequestId),
}

/// The consequences of values that were read.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) due: Due,
    /// The event for the manager.
    pub(crate) decided: Option<Event>,
}

impl From<Due> for Arrived {
    fn from(due: Due) -> Self {
        Self { due, decided: None }
    }
}

/// The truth value in the row of a decision.
fn is_true(data: &[TensorData]) -> bool {
    matches!(data, [TensorData::Bool(truth)] if truth[..] == [true])
}

impl Due {
    /// Puts the action on its list.
    pub(crate) fn sort_into(self, reads: &mut Vec<Read>, answers: &mut Vec<RequestId>) {
        match self {
            Self::Nothing => {}
            Self::Read(read) => reads.push(read),
            Self::Answer(request) => answers.push(request),
        }
    }
}

impl RequestTable {
    /// None once the table is closed.
    pub(crate) fn insert(&mut self, responder: Responder) -> Option<RequestId> {
        if self.is_closed {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.generations.push(0);
            self.entries.push(None);
            self.generations.len() as u32 - 1
        });
        let id = RequestId { index, generation: self.generations[index as usize] };
        if responder.streamed.is_some() {
            self.streamed.push(id);
        }
        let (reads, decisions, end, values) = (0, BTreeMap::new(), None, Vec::new());
        self.entries[index as usize] = Some(Entry { responder, reads, decisions, end, values });
        Some(id)
    }

    /// Adds to `reads` the reads of new steps of all streamed requests. `completed` gives the number of
    /// complete nodes of a run.
    pub(crate) fn ask_for_steps(
        &mut self,
        completed: impl Fn(RequestId, RunIndex) -> u32,
        reads: &mut Vec<Read>,
    ) {
        for &request in &self.streamed {
            let entry = self.entries[request.index as usize].as_mut();
            let entry = entry.expect("a request in flight has an entry");
            let Responder { streamed, ends, .. } = &mut entry.responder;
            let Some(streamed) = streamed.as_mut().filter(|_| entry.end.is_none()) else {
                continue;
            };
            let completed = completed(request, streamed.run());
            if let Some((values, rows)) = streamed.request(completed, ends) {
                entry.reads += 1;
                reads.push(Read::Rows { request, values, rows });
            }
        }
    }

    /// The read of a decision, unless its request has ended.
    pub(crate) fn ask_for_decision(&mut self, undecided: Undecided) -> Option<Read> {
        let Undecided { request, index, decision: Decision { value, row, .. } } = undecided;
        let entry = self.entry(request);
        if entry.end.is_some() {
            return None;
        }
        let read = Read::Rows { request, values: Arc::from([value]), rows: row..row + 1 };
        entry.reads += 1;
        entry.decisions.insert((value, row), index);
        Some(read)
    }

    /// Records the outcome of a request.
    pub(crate) fn end(&mut self, request: RequestId, outcome: Outcome, times: RequestTimes) -> Due {
        let entry = self.entry(request);
        entry.end = Some((outcome, times));
        entry.due(request, false)
    }

    /// Takes the values that were read of a request, or the reason why they could not be.
    pub(crate) fn arrived(
        &mut self,
        read: Read,
        data: Result<Vec<TensorData>, Arc<str>>,
    ) -> Arrived {
        let Some(request) = read.request() else { return Arrived::from(Due::Nothing) };
        let entry = self.entry(request);
        entry.reads -= 1;
        if let Read::Rows { values, rows, .. } = &read
            && let ([value], 1) = (&values[..], rows.len())
            && let Some(decision) = entry.decisions.remove(&(*value, rows.start))
        {
            let outcome = data.map(|data| is_true(&data));
            let decided =
                entry.end.is_none().then_some(Event::Decided { request, decision, outcome });
            return Arrived { due: entry.due(request, false), decided };
        }
        let has_outputs = matches!(read, Read::Outputs { .. });
        match (read, data) {
            (Read::Rows { rows, .. }, Ok(data)) => {
                if let Some(streamed) = &mut entry.responder.streamed {
                    streamed.arrived(rows, data);
                }
            }
            (Read::Outputs { .. }, Ok(data)) => {
                if let Some(streamed) = &mut entry.responder.streamed {
                    streamed.finish(&data, &entry.responder.ends);
                }
                entry.values = data;
            }
            // Steps that could not be read are sent with the outputs, if these can be.
            (Read::Rows { .. }, Err(_)) => {}
            (_, Err(reason)) => {
                if let Some((outcome, _)) = &mut entry.end {
                    *outcome = Outcome::Failed(Failure::WorkerLost(reason));
                }
            }
            (Read::State(_), Ok(_)) => unreachable!("a state is no request's"),
        }
        Arrived::from(entry.due(request, has_outputs))
    }

    /// Leaves reads to other workers.
    pub(crate) fn leave_orphans(&mut self, reads: &mut Vec<Read>) {
        self.orphans.append(reads);
    }

    /// Takes over the reads that lost workers left.
    pub(crate) fn take_orphans(&mut self, reads: &mut Vec<Read>) {
        reads.append(&mut self.orphans);
    }

    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Sets the session that a request in flight is a chunk of.
    pub(crate) fn set_session(&mut self, request: RequestId, session: SessionId) {
        self.entry(request).responder.session = Some(session);
    }

    /// The session that a request in flight is a chunk of.
    pub(crate) fn session(&mut self, request: RequestId) -> Option<SessionId> {
        self.entry(request).responder.session
    }

    /// Records that a chain of a request in flight reached its end of sequence.
    pub(crate) fn note_end_of_sequence(&mut self, end: EndOfSequence) {
        let index = end.request.index as usize;
        if self.generations[index] == end.request.generation
            && let Some(entry) = &mut self.entries[index]
        {
            entry.responder.ends.push(end);
        }
    }

    /// Takes out a request that the device has retired, or never took: its position is free for the
    /// next.
    fn take_out(&mut self, request: RequestId) -> Entry {
        let index = request.index as usize;
        assert_eq!(self.generations[index], request.generation, "{request:?} is not in flight");
        self.generations[index] = self.generations[index].wrapping_add(1);
        self.free.push(request.index);
        self.streamed.retain(|&streamed| streamed != request);
        self.entries[index].take().expect("a request in flight has an entry")
    }

    /// Takes out a request that the manager was not notified of.
    pub(crate) fn take_back(&mut self, request: RequestId) -> Responder {
        self.take_out(request).responder
    }

    /// Takes out a request that ended.
    pub(crate) fn take_ended(&mut self, request: RequestId) -> Ended {
        let Entry { responder, end, values, .. } = self.take_out(request);
        let (outcome, times) = end.expect("the request has ended");
        Ended { responder, outcome, values, times }
    }

    /// Takes no more requests.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// The requests that have not ended.
    pub(crate) fn unended(&self) -> Vec<RequestId> {
        let entries = (0..).zip(&self.entries).zip(&self.generations);
        let unended = entries
            .filter(|((_, entry), _)| entry.as_ref().is_some_and(|entry| entry.end.is_none()));
        unended.map(|((index, _), &generation)| RequestId { index, generation }).collect()
    }

    /// Takes out all requests, when no worker is left to answer them.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = (RequestId, Responder)> + '_ {
        let entries = (0..).zip(&mut self.entries).zip(&self.generations);
        entries.filter_map(|((index, entry), &generation)| {
            Some((RequestId { index, generation }, entry.take()?.responder))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.generations.len() - self.free.len()
    }

    fn entry(&mut self, request: RequestId) -> &mut Entry {
        let index = request.index as usize;
        assert_eq!(self.generations[index], request.generation, "{request:?} is not in flight");
        self.entries[index].as_mut().expect("a request in flight has an entry")
    }
}

impl Entry {
    /// The next action. `has_outputs` says that there is nothing more to read.
    fn due(&mut self, request: RequestId, has_outputs: bool) -> Due {
        match &self.end {
            Some(_) if self.reads > 0 => Due::Nothing,
            Some((Outcome::Succeeded, _)) if !has_outputs => {
                self.reads += 1;
                Due::Read(Read::Outputs { request })
            }
            Some(_) => Due::Answer(request),
            None => Due::Nothing,
        }
    }
}
