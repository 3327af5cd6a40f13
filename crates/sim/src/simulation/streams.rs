//! Rows of requests that somebody reads as they come: those that a chain writes after each node.

use std::collections::BTreeMap;

use batchmaker_graph::{
    CellGraph, EndOfSequence, RequestId, Run, RunIndex, RunKind, Sink, SinkTime,
};
use batchmaker_manager::Manager;
use batchmaker_simulated::{Datum, Hashes, VirtualDevice};

use crate::ledger::Ledger;
use crate::simulation::broken::{Broken, broken};

/// The requests whose rows are read as they come.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: BTreeMap<RequestId, Stream>,
    /// The number of nodes that chains ran which reached their end of sequence.
    ended: BTreeMap<(RequestId, RunIndex), u32>,
}

/// The rows of one request.
#[derive(Debug)]
struct Stream {
    run: RunIndex,
    /// The rows read so far.
    rows: Vec<Datum<u64>>,
}

impl Streams {
    /// Reads the rows of the request's last chain that writes any from now on.
    pub(super) fn begin(&mut self, request: RequestId, graph: &CellGraph) {
        let writes = |run: &Run| run.kind == RunKind::Chain && every_sink(run).is_some();
        if let Some(run) = graph.runs().iter().rposition(writes) {
            let run = RunIndex(run as u32);
            self.streams.insert(request, Stream { run, rows: Vec::new() });
        }
    }

    /// Ends the rows of a chain that reached its end of sequence.
    pub(super) fn end_of_sequence(&mut self, chain: EndOfSequence) {
        self.ended.insert((chain.request, chain.run), chain.nodes);
    }

    /// Reads the rows that are new, and `early` more than the manager says are complete. Returns the
    /// number of rows read.
    pub(super) fn read(
        &mut self,
        manager: &Manager,
        ledger: &Ledger,
        device: &VirtualDevice<Hashes>,
        early: u32,
    ) -> Result<u64, Broken> {
        let mut read = 0;
        for (&id, Stream { run, rows }) in &mut self.streams {
            let request = &ledger.requests[&id];
            let completed = manager.completed_nodes(id, *run);
            let known = request.run(*run).completed;
            let expected = if request.given_up.is_none() { known } else { 0 };
            if completed != expected {
                let what = format!("{id:?} {run} has {completed} nodes complete, not {expected}");
                return Err(broken("streaming", what));
            }
            let shape = &request.graph.runs()[run.index()];
            // The node that ends the sequence writes nothing.
            let length = self.ended.get(&(id, *run)).map_or(shape.length, |nodes| nodes - 1);
            let written = (completed + early).min(length).min(shape.length);
            let sink = every_sink(shape).expect("a streamed chain has one");
            for node in rows.len() as u32..written {
                let row = device.peek(id, sink.rows.value, sink.rows.row(node));
                rows.push(row.map_err(|misuse| broken("device", misuse))?);
                read += 1;
            }
        }
        Ok(read)
    }

    /// Compares the rows of a request that succeeded with those of the reply, if the reply has them.
    /// `expected` are its outputs.
    pub(super) fn compare(
        &self,
        id: RequestId,
        graph: &CellGraph,
        expected: &[Vec<Datum<u64>>],
    ) -> Result<(), Broken> {
        let Some(stream) = self.streams.get(&id) else { return Ok(()) };
        let sink = every_sink(&graph.runs()[stream.run.index()]).expect("it was streamed");
        let output = graph.outputs().iter().position(|&output| output == sink.rows.value);
        let Some(output) = output.map(|output| &expected[output]) else { return Ok(()) };
        for (node, row) in (0..).zip(&stream.rows) {
            let expected = output[sink.rows.row(node)];
            if *row != expected {
                let what = format!("{id:?} node {node} as it came: {row:x?}, alone {expected:x?}");
                return Err(broken("streaming", what));
            }
        }
        Ok(())
    }

    /// Forgets a request that ended.
    pub(super) fn end(&mut self, request: RequestId) {
        self.streams.remove(&request);
    }
}

/// The sink that a run writes after every node.
fn every_sink(run: &Run) -> Option<&Sink> {
    run.sinks.iter().find(|sink| sink.time == SinkTime::Every)
}
