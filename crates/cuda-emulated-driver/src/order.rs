//! The order of operations: which ones are over when another begins, whatever the devices' speed.
//!
//! Each operation is the next of its stream. What a stream's next operation follows is a vector clock: for each stream, how many of its
//! operations are over by then. Events carry it from stream to stream, and a host that waits carries it to all that it submits later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use batchmaker_cuda_emulator::History;

/// For each stream, by its number, how many of its operations are known to be over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(HashMap<u32, u32>);

impl Known {
    pub(crate) fn learn(&mut self, other: &Self) {
        for (&stream, &count) in &other.0 {
            let own = self.0.entry(stream).or_default();
            *own = count.max(*own);
        }
    }

    /// The first `count` operations of a stream are over.
    pub(crate) fn has(&mut self, stream: u32, count: u32) {
        self.0.insert(stream, count);
    }
}

/// Where operations stand, by their numbers, and what they are.
#[derive(Debug, Default)]
pub(crate) struct Operations(Mutex<Vec<(u32, u32, String)>>);

impl Operations {
    /// Numbers an operation: the one of place `place`, from 1 on, of its stream.
    pub(crate) fn add(&self, stream: u32, place: u32, what: String) -> u32 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((stream, place, what));
        all.len() as u32
    }

    /// An operation in words.
    pub(crate) fn name(&self, operation: u32) -> String {
        match self.get(operation) {
            Some((stream, place, what)) => format!("{what} (operation {place} of stream {stream})"),
            None => format!("operation {operation}"),
        }
    }

    fn get(&self, operation: u32) -> Option<(u32, u32, String)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(operation.checked_sub(1)? as usize).cloned()
    }
}

/// The operations that precede one operation, as its stream's vector clock has them.
#[derive(Clone, Debug)]
pub(crate) struct Preceding {
    pub(crate) operations: Arc<Operations>,
    pub(crate) known: Known,
}

impl Preceding {
    /// The operations that are known to be over once `operation` is over, which these precede: these and itself.
    pub(crate) fn and(&self, operation: u32) -> Known {
        let mut known = self.known.clone();
        if let Some((stream, place, _)) = self.operations.get(operation) {
            known.has(stream, place);
        }
        known
    }
}

impl History for Preceding {
    fn precedes(&self, operation: u32) -> bool {
        let Some((stream, place, _)) = self.operations.get(operation) else { return true };
        self.known.0.get(&stream).is_some_and(|&count| count >= place)
    }

    fn describe(&self, operation: u32) -> String {
        format!("{}, which no stream or event orders before it", self.operations.name(operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_follows_those_that_are_known() {
        let operations = Arc::new(Operations::default());
        let [first, second, other] = [(1, 1), (1, 2), (2, 1)]
            .map(|(stream, place)| operations.add(stream, place, "a copy".into()));
        let mut known = Known::default();
        known.has(1, 1);
        let preceding = Preceding { operations: operations.clone(), known: known.clone() };
        assert_eq!([first, second, other].map(|of| preceding.precedes(of)), [true, false, false]);
        let known_later = preceding.and(second);
        let later = Preceding { known: known_later, ..preceding };
        assert_eq!([first, second, other].map(|of| later.precedes(of)), [true, true, false]);
        let mut of_event = Known::default();
        of_event.has(2, 1);
        of_event.has(1, 0);
        known.learn(&of_event);
        let preceding = Preceding { operations, known };
        assert_eq!([first, second, other].map(|of| preceding.precedes(of)), [true, false, true]);
    }
}
