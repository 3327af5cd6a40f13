//! The cell graph of one request, in compact form.
//!
//! A graph is a list of **runs** over **values**. A value is a matrix of rows that a
//! request brings, that stands between cells, or that becomes part of the reply.
//! A run is many nodes in one record: a *chain* of steps of one cell, each fed by the one
//! before; independent *rows* through one cell; or *nodes* of one cell that feed each other in any
//! acyclic way. A chain reads and writes rows at a regular stride ([`Rows`]), so one of 330 steps
//! costs as much to describe as one of 3.
//!
//! A run is one subgraph in the sense of section 4.3 of the BatchMaker paper: connected nodes of
//! one cell type (rows, which nothing connects, are one record all the same). Where the paper
//! releases a subgraph once all that it depends on has run, an [`Edge`] releases its nodes one by
//! one, as the producer makes progress.
//!
//! The nodes of a run are numbered such that those that are ready are always the next ones: what
//! has been submitted is a prefix, and so is what may be ([`Run::reach`]).

use std::ops::Range;
use std::sync::Arc;

use crate::{CellTypeId, Choice, Decision, Guard, RowSpec, Rows, RunIndex, ValueIndex};

/// A matrix of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// One row.
    pub row: RowSpec,
    /// The number of rows.
    pub rows: u32,
}

impl ValueSpec {
    /// The bytes of all rows.
    pub fn bytes(&self) -> usize {
        self.rows as usize * self.row.elements() * self.row.element.bytes()
    }
}

/// When a run writes an output port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkTime {
    /// After every node, into that node's row.
    Every,
    /// After the last node, into the row of node 0.
    Last,
}

/// The rows that a run writes from one output port of its cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink {
    /// The cell's output port.
    pub port: usize,
    /// When it is written.
    pub time: SinkTime,
    /// The rows.
    pub rows: Rows,
}

/// The dependencies between the nodes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// Node `i + 1` takes the state that node `i` leaves.
    Chain,
    /// No node depends on another: one splittable node of `length` rows.
    Rows,
    /// Nodes read rows that others of the run write ([`Run::precedence`]).
    Nodes,
}

/// The nodes of a producer that a node of a consumer waits for: the rule of the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Node `i` needs the first `i + 1 + offset` nodes (as many as there are).
    Lockstep {
        /// The number of nodes by which the producer must lead.
        offset: i64,
    },
    /// Every node needs the first `nodes` nodes.
    First {
        /// The number of nodes.
        nodes: u32,
    },
}

/// A dependency of a run on another run of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The run that must make progress.
    pub producer: RunIndex,
    /// The nodes of the producer that each node waits for.
    pub need: Need,
}

impl Need {
    /// The watermark: the number of the consumer's `length` nodes that may run once the producer has run the
    /// first `progress` of its `producer_length` nodes.
    #[inline]
    pub fn available(self, progress: u32, producer_length: u32, length: u32) -> u32 {
        match self {
            _ if progress >= producer_length => length,
            Need::Lockstep { offset } => {
                (i64::from(progress) - offset).clamp(0, i64::from(length)) as u32
            }
            Need::First { nodes } if progress >= nodes => length,
            Need::First { .. } => 0,
        }
    }
}

/// Many nodes of one cell type in one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The type of the nodes.
    pub cell_type: CellTypeId,
    /// The dependencies between the nodes.
    pub kind: RunKind,
    /// The number of nodes, at least 1; the most nodes of a chain with a stop.
    pub length: u32,
    /// The rows that feed each input port.
    pub inputs: Vec<Rows>,
    /// A chain's first state for each state of the cell: a row, or zeros.
    pub initial: Vec<Option<Rows>>,
    /// The rows that the output ports write.
    pub sinks: Vec<Sink>,
    /// The runs that this one waits for.
    pub edges: Vec<Edge>,
    /// For each node of a run of [`RunKind::Nodes`], the number of the run's first nodes that must run
    /// before it, which never falls from one node to the next. Empty for other kinds.
    pub precedence: Arc<[u32]>,
    /// The condition that ends a chain before its bound. The node whose output meets it writes nothing, even
    /// if it is the last node.
    pub stop: Option<Stop>,
    /// The decision on which the run depends: it is left out where the decision falls otherwise. None: it runs always.
    pub guard: Option<Guard>,
}

/// The condition that ends an open chain, which else runs to its bound (the paper's section 7.4:
/// a decoder, up to its `<eos>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// An output port of one I64 element.
    pub port: usize,
    /// The element that ends the chain.
    pub value: i64,
}

impl Run {
    /// The number of nodes, from the first on, that wait for nothing more of their own run once its first
    /// `submitted` nodes are submitted.
    pub fn reach(&self, submitted: u32) -> u32 {
        self.kind.reach(submitted, self.length, &self.precedence)
    }

    /// The node into whose row a sink of this time writes what `node` yields, if it writes it. Chains follow a
    /// rule of their own: one that may end early writes its last row after every step.
    pub fn sink_node(&self, time: SinkTime, node: u32) -> Option<u32> {
        match time {
            SinkTime::Every => Some(node),
            SinkTime::Last => (node + 1 == self.length).then_some(0),
        }
    }

    /// The nodes that may run together if the rest of the graph is no hindrance: each part needs
    /// nothing of the run but the parts before.
    pub fn waves(&self) -> impl Iterator<Item = Range<u32>> {
        let mut first = 0;
        std::iter::from_fn(move || {
            let wave = first..self.reach(first);
            first = wave.end;
            (!wave.is_empty()).then_some(wave)
        })
    }
}

impl RunKind {
    /// [`Run::reach`] of a run of this kind.
    #[inline]
    pub fn reach(self, submitted: u32, length: u32, precedence: &[u32]) -> u32 {
        match self {
            Self::Chain => submitted.saturating_add(1).min(length),
            Self::Rows => length,
            Self::Nodes => {
                submitted + count_up_to(submitted, precedence, submitted as usize) as u32
            }
        }
    }
}

/// The number of elements of `ascending`, from position `first` on, that are at most `bound`. The search widens
/// from `first` on, since the nodes that wait for nothing are few beside a large run.
fn count_up_to(bound: u32, ascending: &[u32], first: usize) -> usize {
    let rest = ascending.get(first..).unwrap_or_default();
    let mut end = 1;
    while rest.get(end).is_some_and(|&value| value <= bound) {
        end *= 2;
    }
    rest[..rest.len().min(end + 1)].partition_point(|&value| value <= bound)
}

/// The part of its sequence that a request brings. A client may send a sequence in chunks, which make a *session*:
/// the states of its chains stay in their slots from chunk to chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chunk {
    /// All of it.
    #[default]
    Whole,
    /// Its first rows. Where its chains end, they leave their states.
    First,
    /// The rows that follow. Its chains, run by run those of the chunk before, begin with what
    /// these left, and leave theirs.
    Next,
}

/// The graph of one request. Acyclic: every edge points to an earlier run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellGraph {
    pub(crate) chunk: Chunk,
    pub(crate) values: Vec<ValueSpec>,
    pub(crate) inputs: Vec<ValueIndex>,
    pub(crate) outputs: Vec<ValueIndex>,
    pub(crate) runs: Vec<Run>,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) choices: Vec<Choice>,
    pub(crate) record_bytes: usize,
}

impl CellGraph {
    /// The part of its sequence that the request brings.
    pub fn chunk(&self) -> Chunk {
        self.chunk
    }

    /// All values.
    pub fn values(&self) -> &[ValueSpec] {
        &self.values
    }

    /// The values that the request brings.
    pub fn inputs(&self) -> &[ValueIndex] {
        &self.inputs
    }

    /// The values that the reply reads.
    pub fn outputs(&self) -> &[ValueIndex] {
        &self.outputs
    }

    /// The runs, producers before consumers.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The decisions that guards of runs name, by [`DecisionIndex`](crate::DecisionIndex).
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// The outputs of which some rows are other values'. Of several for one output, the first that is true for a row holds.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// Chains that hold a state slot while they run.
    pub fn chains(&self) -> usize {
        self.runs.iter().filter(|run| run.kind == RunKind::Chain).count()
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> usize {
        self.values.iter().map(ValueSpec::bytes).sum()
    }

    /// An upper bound of the bytes that the graph itself takes while its request is in flight: its runs and their
    /// rows, and what the manager and a device keep for each.
    pub fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// The number of nodes: cells to run, if no decision leaves any out.
    pub fn nodes(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.length)).sum()
    }
}
