//! The bytes that a request needs while it is in flight.

use batchmaker_graph::{CellGraph, Chunk, RunKind};

/// The bytes that a request needs from its submission to its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// All of them.
    pub(crate) all: usize,
    /// Of these, those of the reply: its values, the tensors that are made of them, and what the caller encodes
    /// these to.
    pub(crate) reply: usize,
    /// Of these, what stays for the session that the request begins: the states of its chains and its static
    /// inputs.
    pub(crate) session: usize,
}

/// What the bytes of a request's reply follow from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyForm {
    /// The bytes of the reply's tensors.
    pub(crate) bytes: usize,
    /// The bytes that the caller holds for each of these.
    pub(crate) factor: usize,
    /// Whether steps are read as they are computed, and once more with the reply.
    pub(crate) is_stream: bool,
}

impl Needs {
    /// The needs of a request. `slot_bytes` has the bytes of a slot for each cell type; the session that it may
    /// begin has static inputs of `static_bytes`.
    pub(crate) fn of(
        graph: &CellGraph,
        slot_bytes: &[usize],
        static_bytes: usize,
        reply: ReplyForm,
    ) -> Self {
        let ReplyForm { bytes, factor, is_stream } = reply;
        let outputs = graph.outputs().iter().map(|value| graph.values()[value.index()].bytes());
        let outputs = outputs.sum::<usize>() * if is_stream { 2 } else { 1 };
        let reply = outputs + bytes.saturating_mul(1 + factor);
        let chains = graph.runs().iter().filter(|run| run.kind == RunKind::Chain);
        let states: usize = chains.map(|run| slot_bytes[run.cell_type.index()]).sum();
        let (states, session) = match graph.chunk() {
            Chunk::Whole => (states, 0),
            Chunk::First => (0, states + static_bytes),
            // The session has them.
            Chunk::Next => (0, 0),
        };
        // A device takes the tensors that the request brings as values.
        let values = graph.record_bytes() + graph.bytes() + states + session;
        Self { all: values.saturating_add(reply), reply, session }
    }
}
