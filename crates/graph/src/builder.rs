//! Builds cell graphs, and finds the dependencies between runs from the rows that they write and read.

use crate::cell::RowSpec;
use crate::cell_graph::{
    CellGraph, Chunk, Edge, Need, Run, RunKind, Sink, SinkTime, Stop, ValueSpec,
};
use crate::decision::{Choice, Decision, Guard};
use crate::ids::{CellTypeId, DecisionIndex, RunIndex, ValueIndex};
use crate::readiness::{order_of_readiness, own_producers};
use crate::record_bytes;
use crate::rows::{RowOrder, Rows};
use crate::tensor::ElementType;
use crate::unfold::{InvalidGraph, Parameters, UnfoldError};
use crate::writers::{Edges, Writer, Writers};

/// The most bytes of one value: what fits an allocation.
const VALUE_BYTES_MAX: usize = isize::MAX as usize;

/// Builds a [`CellGraph`], run by run, producers before consumers.
///
/// The first mistake (a row that does not exist, is written twice or is read before the run that writes
/// it; nodes that depend on each other in a circle) is what [`finish`](Self::finish) returns; what is
/// added after it is ignored.
#[derive(Clone, Debug, Default)]
pub struct CellGraphBuilder {
    graph: CellGraph,
    /// For each value, the runs that write it.
    writers: Vec<Writers>,
    /// Whether the request brings each value.
    is_input: Vec<bool>,
    /// Bytes of all values.
    bytes: usize,
    /// See [`Parameters::graph_bytes_max`].
    record_bytes_max: Option<usize>,
    error: Option<UnfoldError>,
}

/// A run as it is described, before its edges are known.
struct NewRun {
    cell_type: CellTypeId,
    kind: RunKind,
    length: u32,
    inputs: Vec<Rows>,
    initial: Vec<Option<Rows>>,
    sinks: Vec<Sink>,
    precedence: Vec<u32>,
    stop: Option<Stop>,
}

impl NewRun {
    fn record_bytes(&self) -> usize {
        let rows = self.inputs.iter().chain(self.initial.iter().flatten());
        let rows = rows.chain(self.sinks.iter().map(|sink| &sink.rows));
        let ports = self.inputs.len() + self.initial.len() + self.sinks.len();
        record_bytes::of_run(ports, rows, &self.precedence)
    }
}

impl CellGraphBuilder {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty graph for a request with these parameters, which bound its size and say which part of its
    /// sequence it is.
    pub fn for_request(parameters: &Parameters) -> Self {
        let mut builder = Self::of_chunk(parameters.chunk);
        builder.record_bytes_max = parameters.graph_bytes_max;
        builder
    }

    /// An empty graph for a chunk of a sequence.
    pub fn of_chunk(chunk: Chunk) -> Self {
        let mut builder = Self::new();
        builder.graph.chunk = chunk;
        builder
    }

    /// A value of `rows` rows, which cells write and cells read. Rows that nobody writes are zeros.
    pub fn value(&mut self, row: RowSpec, rows: u32) -> ValueIndex {
        if row.element == ElementType::Bytes {
            self.fail("no value holds byte strings".to_owned());
        }
        let bytes = row.bytes().and_then(|bytes| bytes.checked_mul(rows as usize));
        let sum = bytes.and_then(|bytes| self.bytes.checked_add(bytes));
        match sum.filter(|&sum| sum <= VALUE_BYTES_MAX) {
            Some(sum) => self.bytes = sum,
            None => self.fail(format!("{rows} rows of {row:?} do not fit the memory")),
        }
        if !self.count_records(record_bytes::of_value(&row)) {
            return ValueIndex(u32::MAX);
        }
        self.graph.values.push(ValueSpec { row, rows });
        self.writers.push(Writers::default());
        self.is_input.push(false);
        ValueIndex(self.graph.values.len() as u32 - 1)
    }

    /// A value of `rows` rows that the request brings.
    pub fn input(&mut self, row: RowSpec, rows: u32) -> ValueIndex {
        let value = self.value(row, rows);
        self.graph.inputs.push(value);
        if let Some(is_input) = self.is_input.get_mut(value.index()) {
            *is_input = true;
        }
        value
    }

    /// Marks a value as part of the reply.
    pub fn output(&mut self, value: ValueIndex) {
        if value.index() >= self.graph.values.len() {
            self.fail(format!("there is no {value}"));
        } else if !self.graph.outputs.contains(&value) {
            self.graph.outputs.push(value);
        }
    }

    /// Adds a chain of `length` steps. `initial` has an entry for each state of the cell: the row of the
    /// first state, or none for zeros. In a [`Chunk::Next`] no entry has a row.
    pub fn chain(
        &mut self,
        cell_type: CellTypeId,
        length: u32,
        inputs: Vec<Rows>,
        initial: Vec<Option<Rows>>,
        sinks: Vec<Sink>,
    ) -> RunIndex {
        let (kind, precedence, stop) = (RunKind::Chain, Vec::new(), None);
        self.run(NewRun { cell_type, kind, length, inputs, initial, sinks, precedence, stop })
    }

    /// Adds a chain as [`Self::chain`] does, of at most `bound` nodes: it ends with the first node whose
    /// output meets the condition `stop`. No run may depend on it.
    pub fn chain_until(
        &mut self,
        cell_type: CellTypeId,
        bound: u32,
        inputs: Vec<Rows>,
        initial: Vec<Option<Rows>>,
        sinks: Vec<Sink>,
        stop: Stop,
    ) -> RunIndex {
        let (kind, precedence, stop) = (RunKind::Chain, Vec::new(), Some(stop));
        let length = bound;
        self.run(NewRun { cell_type, kind, length, inputs, initial, sinks, precedence, stop })
    }

    /// Adds `length` independent rows through a row-wise cell.
    pub fn rows(
        &mut self,
        cell_type: CellTypeId,
        length: u32,
        inputs: Vec<Rows>,
        sinks: Vec<Sink>,
    ) -> RunIndex {
        let (kind, initial, precedence, stop) = (RunKind::Rows, Vec::new(), Vec::new(), None);
        self.run(NewRun { cell_type, kind, length, inputs, initial, sinks, precedence, stop })
    }

    /// Adds `length` nodes of a row-wise cell, which may read rows that other nodes of them write, in any
    /// acyclic way, as a tree's inner nodes do.
    ///
    /// In the graph the nodes are numbered anew, in the order in which they become ready when each
    /// node is submitted as soon as it can be.
    pub fn nodes(
        &mut self,
        cell_type: CellTypeId,
        length: u32,
        mut inputs: Vec<Rows>,
        mut sinks: Vec<Sink>,
    ) -> RunIndex {
        let checked = inputs.iter().chain(sinks.iter().map(|sink| &sink.rows));
        let checked = checked.into_iter().try_for_each(|rows| self.check_bounds(rows, length));
        if let Err(reason) = checked {
            return self.fail_run(reason);
        }
        let producers = own_producers(length, &inputs, &sinks);
        if producers.iter().all(Vec::is_empty) {
            return self.rows(cell_type, length, inputs, sinks);
        }
        if sinks.iter().any(|sink| sink.time != SinkTime::Every) {
            return self.fail_run("nodes that read each other have no last one".to_owned());
        }
        let Some((order, precedence)) = order_of_readiness(&producers) else {
            return self.fail_run("nodes depend on each other in a circle".to_owned());
        };
        let is_renumbered = !order.is_sorted();
        if is_renumbered {
            inputs.iter_mut().for_each(|rows| *rows = rows.renumbered(&order));
            sinks.iter_mut().for_each(|sink| sink.rows = sink.rows.renumbered(&order));
        }
        let (kind, initial, stop) = (RunKind::Nodes, Vec::new(), None);
        self.run(NewRun { cell_type, kind, length, inputs, initial, sinks, precedence, stop })
    }

    /// Names a row of one BOOL, which a run of rows has been added to write, as a decision.
    pub fn decision(&mut self, value: ValueIndex, row: u32) -> DecisionIndex {
        match self.decide(value, row) {
            _ if self.error.is_some() => DecisionIndex(u32::MAX),
            Ok(decision) => {
                self.graph.decisions.push(decision);
                DecisionIndex(self.graph.decisions.len() as u32 - 1)
            }
            Err(reason) => {
                self.fail(format!("row {row} of {value} decides nothing: {reason}"));
                DecisionIndex(u32::MAX)
            }
        }
    }

    fn decide(&self, value: ValueIndex, row: u32) -> Result<Decision, String> {
        let spec = self.graph.values.get(value.index());
        let row_spec = &spec.ok_or("there is no such value")?.row;
        if row_spec.element != ElementType::Bool || row_spec.elements() != 1 {
            return Err("it is not one BOOL".to_owned());
        }
        let written = self.writers[value.index()].writer_of(row as usize);
        let (run, nodes) = written.ok_or("no run before writes it")?;
        match self.graph.runs[run.index()].kind {
            RunKind::Rows => Ok(Decision { value, row, run, nodes }),
            _ => Err(format!("{run} is no run of rows")),
        }
    }

    /// Leaves the last run that was added, one of rows, out where a decision falls otherwise than its guard says. The run comes
    /// after the one that decides.
    pub fn guard(&mut self, run: RunIndex, guard: Guard) {
        if self.error.is_some() {
            return;
        }
        let decision = self.graph.decisions.get(guard.decision.index()).copied();
        let decision = decision.filter(|decision| decision.run < run);
        let is_last = run.index() + 1 == self.graph.runs.len();
        let is_free = |of: &&mut Run| of.kind == RunKind::Rows && of.guard.is_none();
        let guarded = self.graph.runs.last_mut().filter(|of| is_last && is_free(of));
        match (decision, guarded) {
            (Some(decision), Some(guarded)) => {
                let need = Need::First { nodes: decision.nodes };
                let edge = Edge { producer: decision.run, need };
                if !guarded.edges.contains(&edge) {
                    guarded.edges.push(edge);
                }
                guarded.guard = Some(guard);
            }
            (None, _) => self.fail(format!("{run}: there is no {} before it", guard.decision)),
            (_, None) => {
                self.fail(format!("{run}: only the last run, one of rows, gets a guard, and one"))
            }
        }
    }

    /// Lets rows of an output be those of another value where a truth value says so. The reply is made of all three, so they become
    /// outputs.
    pub fn choose(&mut self, choice: Choice) {
        let Choice { output, condition, other } = choice;
        for value in [output, condition, other] {
            self.output(value);
        }
        if self.error.is_some() {
            return;
        }
        let [of_output, of_condition, of_other] =
            [output, condition, other].map(|value| &self.graph.values[value.index()]);
        let is_truth = of_condition.row.element == ElementType::Bool;
        let is_alike = |other: &ValueSpec| {
            other.rows == of_output.rows && other.row.element == of_output.row.element
        };
        let fits = is_truth
            && is_alike(of_other)
            && of_other.row.elements() == of_output.row.elements()
            && of_condition.row.elements() == 1
            && of_condition.rows == of_output.rows;
        match fits {
            true => self.graph.choices.push(choice),
            false => self.fail(format!("{other} does not take the place of {output}")),
        }
    }

    /// The graph.
    ///
    /// # Errors
    /// The first mistake that was made, or that the graph is too large.
    pub fn finish(self) -> Result<CellGraph, UnfoldError> {
        match self.error {
            None => Ok(self.graph),
            Some(error) => Err(error),
        }
    }

    /// Whether a mistake was made, or the graph is too large: nothing is added to it any more.
    pub fn is_given_up(&self) -> bool {
        self.error.is_some()
    }

    /// Records a mistake that a caller of the builder found.
    pub(crate) fn fail(&mut self, reason: String) {
        self.error.get_or_insert(InvalidGraph(reason).into());
    }

    /// Counts bytes of records. Returns whether they are within the bound; if they are not, the graph is given up.
    fn count_records(&mut self, bytes: usize) -> bool {
        self.graph.record_bytes += bytes;
        match self.record_bytes_max {
            Some(bytes_max) if self.graph.record_bytes > bytes_max => {
                self.error.get_or_insert(UnfoldError::TooLarge { bytes_max });
                false
            }
            _ => true,
        }
    }

    /// Records a mistake in a run; its index stands for no run.
    fn fail_run(&mut self, reason: String) -> RunIndex {
        self.fail(reason);
        RunIndex(u32::MAX)
    }

    fn run(&mut self, new: NewRun) -> RunIndex {
        if self.error.is_some() || !self.count_records(new.record_bytes()) {
            return RunIndex(u32::MAX);
        }
        let index = RunIndex(self.graph.runs.len() as u32);
        match self.connect(index, &new) {
            Ok(edges) => {
                let NewRun { cell_type, kind, length, inputs, initial, sinks, precedence, stop } =
                    new;
                let precedence = precedence.into();
                let run = Run {
                    cell_type,
                    kind,
                    length,
                    inputs,
                    initial,
                    sinks,
                    edges,
                    precedence,
                    stop,
                    guard: None,
                };
                self.graph.runs.push(run);
                index
            }
            Err(reason) => self.fail_run(format!("{index}: {reason}")),
        }
    }

    /// Checks a run, records the rows that it writes, and returns its edges.
    fn connect(&mut self, run: RunIndex, new: &NewRun) -> Result<Vec<Edge>, String> {
        let length = new.length;
        if length == 0 {
            return Err("it has no nodes".to_owned());
        }
        if self.graph.chunk == Chunk::Next && new.initial.iter().any(Option::is_some) {
            return Err("a later chunk's chain begins with the state that it finds".to_owned());
        }
        let written = |sink: &Sink| if sink.time == SinkTime::Every { length } else { 1 };
        new.inputs.iter().try_for_each(|rows| self.check_bounds(rows, length))?;
        new.initial.iter().flatten().try_for_each(|rows| self.check_bounds(rows, 1))?;
        new.sinks.iter().try_for_each(|sink| self.check_bounds(&sink.rows, written(sink)))?;
        // Nodes read rows of their own run, which are no edges; any other run must not.
        let reads_own = new.kind == RunKind::Nodes;
        let mut edges = Edges::default();
        if reads_own {
            self.add_writers(run, new, written)?;
        }
        for (rows, length) in new
            .inputs
            .iter()
            .map(|rows| (rows, length))
            .chain(new.initial.iter().flatten().map(|rows| (rows, 1)))
        {
            if !self.is_input[rows.value.index()] {
                self.writers[rows.value.index()].add_edges(run, rows, length, &mut edges)?;
            }
        }
        if !reads_own {
            self.add_writers(run, new, written)?;
        }
        Ok(edges.finish())
    }

    fn add_writers(
        &mut self,
        run: RunIndex,
        new: &NewRun,
        written: impl Fn(&Sink) -> u32,
    ) -> Result<(), String> {
        for sink in &new.sinks {
            let Sink { time, rows, .. } = sink;
            let value = rows.value.index();
            if self.is_input[value] {
                return Err(format!("{} is what the request brings: no run writes it", rows.value));
            }
            let (length, is_open) = (new.length, new.stop.is_some());
            let writer = Writer { run, time: *time, rows: rows.clone(), length, is_open };
            let count = self.graph.values[value].rows as usize;
            if self.writers[value].is_empty()
                && !self.count_records(record_bytes::of_writers(count))
            {
                return Err("its rows are too many".to_owned());
            }
            self.writers[value].add(writer, written(sink), count)?;
        }
        Ok(())
    }

    /// Checks that the rows of `length` nodes are rows of their value.
    fn check_bounds(&self, rows: &Rows, length: u32) -> Result<(), String> {
        let value = self.graph.values.get(rows.value.index());
        let count = value.ok_or_else(|| format!("there is no {}", rows.value))?.rows;
        let span = i64::from(rows.span);
        if span == 0 || (span > 1 && length > 1) {
            return Err("a span of several rows belongs to a run of one node".to_owned());
        }
        let check = |row: i64| match row >= 0 && row + span <= i64::from(count) {
            true => Ok(()),
            false => Err(format!("row {row} of {}, which has {count}", rows.value)),
        };
        match &rows.order {
            RowOrder::Strided { first, stride } => {
                let last = i64::from(length.saturating_sub(1)) * i64::from(*stride);
                check(i64::from(*first))?;
                check(i64::from(*first) + last)
            }
            RowOrder::Listed(listed) if listed.len() != length as usize => {
                Err(format!("{} rows are listed for {length} nodes", listed.len()))
            }
            RowOrder::Listed(listed) => listed.iter().try_for_each(|&row| check(row.into())),
        }
    }
}

#[cfg(test)]
#[path = "builder_tests.rs"]
mod tests;
