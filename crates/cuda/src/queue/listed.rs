//! A run of a request whose values are on the GPU, as rows and ports of a batch.

use std::sync::Arc;

use batchmaker_graph::{RequestId, Run, RunIndex, SinkTime};

use crate::kernels::batch::{NO_OUTPUT, Port, Row};
use crate::memory::{Base, RequestMemory};

/// A run of a request, with what a batch needs of it.
#[derive(Clone)]
pub(super) struct Listed {
    pub(super) memory: Arc<RequestMemory>,
    pub(super) request: RequestId,
    pub(super) run: RunIndex,
    /// Where the values of its request begin.
    pub(super) base: Base,
}

impl Listed {
    pub(super) fn of(&self) -> &Run {
        &self.memory.graph.runs()[self.run.index()]
    }

    /// Its row at node `node` when the time is `time`, without its ports and its slot.
    pub(super) fn row(&self, node: u32, time: u32) -> Row {
        let run = self.of();
        Row {
            stop: run.stop.map_or(0, |stop| stop.value),
            request: [self.request.index, self.request.generation],
            run: self.run.0,
            slot: 0,
            first: time.wrapping_sub(node),
            half: 0,
            length: run.length,
            ports: 0,
            sinks: run.sinks.len() as u32,
            stop_output: run.stop.map_or(NO_OUTPUT, |stop| stop.port as u32),
        }
    }

    /// Its ports: inputs, then sinks.
    pub(super) fn ports(&self) -> Vec<Port> {
        let run = self.of();
        let inputs = run.inputs.iter().map(|rows| self.memory.port(self.base, rows));
        let sinks = run
            .sinks
            .iter()
            .map(|sink| self.memory.sink(self.base, &sink.rows, sink.port, sink.time));
        inputs.chain(sinks).collect()
    }

    /// Whether it writes rows after `node`, or may end with it.
    pub(super) fn finishes(&self, node: u32) -> bool {
        let run = self.of();
        let writes_last = || node + 1 == run.length && !run.sinks.is_empty();
        node < run.length && (self.finishes_each() || writes_last())
    }

    /// Whether it writes rows after each node, or may end with each.
    pub(super) fn finishes_each(&self) -> bool {
        let run = self.of();
        run.stop.is_some() || run.sinks.iter().any(|sink| sink.time == SinkTime::Every)
    }
}
