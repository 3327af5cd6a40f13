//! The order of operations: which ones are over when another begins, whatever the devices' speed.
//!
//! Each operation is the next of its stream. What a stream's next operation follows is a vector clock: for each stream, how many of its
//! operations are over by then. Events carry it from stream to stream, and a host that waits carries it to all that it submits later.
//!
//! A graph is one operation of its stream, and its nodes have its place there: whoever knows that the graph is over knows that all nodes are. Before that,
//! nodes are known one by one, to the nodes that depend on them, and to a host to which they publish.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use batchmaker_cuda_emulator::History;

/// The operations that are known to be over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// For each stream, by its number, how many of its operations are over.
    streams: HashMap<u32, u32>,
    /// Nodes that are over, of graphs that may not be.
    nodes: BTreeSet<Standing>,
}

impl Known {
    pub(crate) fn learn(&mut self, other: &Self) {
        for (&stream, &count) in &other.streams {
            let own = self.streams.entry(stream).or_default();
            *own = count.max(*own);
        }
        self.nodes.extend(&other.nodes);
        self.forget_nodes();
    }

    /// The first `count` operations of a stream are over.
    pub(crate) fn has(&mut self, stream: u32, count: u32) {
        self.streams.insert(stream, count);
        self.forget_nodes();
    }

    /// Forgets the nodes of graphs that are over.
    fn forget_nodes(&mut self) {
        let Self { streams, nodes } = self;
        nodes.retain(|of| streams.get(&of.stream).is_none_or(|&count| count < of.place));
    }
}

/// The place of an operation among those of all streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Standing {
    stream: u32,
    /// Its place in the stream, from 1 on: for a node, the place of its graph.
    place: u32,
    /// The number of a node in its graph, from 1 on.
    node: Option<u32>,
}

/// Where operations stand, by their numbers, and what they are.
#[derive(Debug, Default)]
pub(crate) struct Operations(Mutex<Vec<(Standing, Arc<str>)>>);

impl Operations {
    /// Numbers an operation: the one of place `place`, from 1 on, of its stream. The nodes of a graph have the numbers after its own.
    pub(crate) fn add(&self, stream: u32, place: u32, what: Arc<str>, nodes: &[Arc<str>]) -> u32 {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((Standing { stream, place, node: None }, what));
        let number = all.len() as u32;
        let standing = |node| Standing { stream, place, node: Some(node) };
        all.extend((1..).map(standing).zip(nodes.iter().cloned()));
        number
    }

    /// An operation in words.
    pub(crate) fn name(&self, operation: u32) -> String {
        let Some((Standing { stream, place, node }, what)) = self.get(operation) else {
            return format!("operation {operation}");
        };
        let node = node.map_or_else(String::new, |node| format!("node {node} of "));
        format!("{what} ({node}operation {place} of stream {stream})")
    }

    fn get(&self, operation: u32) -> Option<(Standing, Arc<str>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(operation.checked_sub(1)? as usize).cloned()
    }
}

/// The operations that precede one operation, as its stream's vector clock and the dependencies of its graph have them.
#[derive(Clone, Debug)]
pub(crate) struct Preceding {
    pub(crate) operations: Arc<Operations>,
    pub(crate) known: Known,
}

impl Preceding {
    /// The operations that are known to be over once `operation` is over, which these precede: these and itself.
    pub(crate) fn and(&self, operation: u32) -> Known {
        let mut known = self.known.clone();
        match self.operations.get(operation) {
            Some((Standing { stream, place, node: None }, _)) => known.has(stream, place),
            Some((node, _)) => drop(known.nodes.insert(node)),
            None => {}
        }
        known
    }
}

impl History for Preceding {
    fn precedes(&self, operation: u32) -> bool {
        let Some((standing, _)) = self.operations.get(operation) else { return true };
        let Known { streams, nodes } = &self.known;
        let is_over = streams.get(&standing.stream).is_some_and(|&count| count >= standing.place);
        is_over || nodes.contains(&standing)
    }

    fn describe(&self, operation: u32) -> String {
        let name = self.operations.name(operation);
        format!("{name}, which no stream, event or dependency orders before it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_follows_those_that_are_known() {
        let operations = Arc::new(Operations::default());
        let [first, second, other] = [(1, 1), (1, 2), (2, 1)]
            .map(|(stream, place)| operations.add(stream, place, "a copy".into(), &[]));
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

    /// A graph of two nodes, and what follows it.
    #[test]
    fn a_node_is_over_alone_or_with_its_graph() {
        let operations = Arc::new(Operations::default());
        let graph = operations.add(1, 1, "a graph".into(), &["a".into(), "b".into()]);
        let [one, other] = [graph + 1, graph + 2];
        let next = operations.add(1, 2, "a copy".into(), &[]);
        assert_eq!(operations.name(other), "b (node 2 of operation 1 of stream 1)");
        let first = Preceding { operations: operations.clone(), known: Known::default() };
        let preceded = |known: &Known| {
            let known = known.clone();
            let of = Preceding { operations: operations.clone(), known };
            [graph, one, other, next].map(|operation| of.precedes(operation))
        };
        let mut known = first.and(one);
        assert_eq!(preceded(&known), [false, true, false, false]);
        let mut host = Known::default();
        host.learn(&known);
        assert_eq!(preceded(&host), [false, true, false, false]);
        known.learn(&first.and(graph));
        assert_eq!(preceded(&known), [true, true, true, false]);
        assert!(known.nodes.is_empty(), "{known:?}");
        host.learn(&known);
        assert!(host.nodes.is_empty(), "{host:?}");
    }
}
