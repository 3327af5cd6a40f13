//! The unfolder of a whole ONNX file: it walks the plan that was made at load ([`UnfoldPlan`]).
//!
//! A request brings B sequences of T steps. Each becomes a chain in every recurrent
//! operator and a run of rows in every row-wise segment, so that no sequence waits for
//! another. Rows of a value stand in the order of the request's or the reply's tensor
//! where there is one.

use std::collections::BTreeMap;

use batchmaker_graph::{
    CellGraphBuilder, Choice, Chunk, DecisionIndex, Guard, InvalidRequest, KeptSteps, NamedTensor,
    OutputTensor, Parameters, Rows, RunIndex, Sink, SinkTime, Tensor, TensorData, Unfold,
    UnfoldError, Unfolded, ValueCheck, ValueIndex,
};

use crate::data::direction::Direction;
use crate::data::symbol::{BATCH, Symbol};
use crate::unfold::integers::{check_computed, check_integers};
use crate::unfold::lengths::Lengths;
use crate::unfold::plan::{Extent, PlanCell, PlanGuard, PlanRead, UnfoldPlan};

impl UnfoldPlan {
    /// The rows of a sequence that a cell over `axis` reads or writes, from a step on.
    fn rows(
        &self,
        read: PlanRead,
        (axis, from): (Option<Symbol>, usize),
        b: usize,
        lengths: &Lengths,
    ) -> Rows {
        let value = &self.values[read.value];
        let steps = lengths.steps(value.domain.time);
        let (time_stride, batch_stride) = match (value.domain.time, value.domain.batch) {
            (Some(_), true) if value.time_major => (lengths.batch, 1),
            (Some(_), true) => (1, steps),
            (time, batch) => (usize::from(time.is_some()), usize::from(batch)),
        };
        let moves = value.domain.time.is_some() && axis.is_some() && read.at.is_none();
        let step = match read.at {
            Some(at) if at < 0 => (steps as i64 + at) as usize,
            Some(at) => at as usize,
            None if moves => from,
            None => 0,
        };
        let slot = read.slot * lengths.rows(value.domain);
        let first = slot + step * time_stride + b * batch_stride;
        let stride = if moves { time_stride as i32 } else { 0 };
        Rows::strided(ValueIndex(read.value as u32), first as u32, stride)
    }

    /// All rows of a sequence.
    fn span(&self, read: PlanRead, b: usize, lengths: &Lengths) -> Rows {
        let first = self.rows(read, (None, 0), b, lengths);
        let value = &self.values[read.value];
        let span = if read.at.is_none() { lengths.steps(value.domain.time) } else { 1 };
        Rows::spanning(first.value, first.row(0) as u32, span as u32)
    }
}

impl Unfold for UnfoldPlan {
    fn unfold(
        &self,
        tensors: Vec<NamedTensor>,
        parameters: &Parameters,
    ) -> Result<Unfolded, UnfoldError> {
        parameters.refuse_steps()?;
        let chunk = parameters.chunk;
        let overlap = self.overlap.as_ref().ok().and_then(Option::as_ref);
        let overlap = overlap.filter(|_| chunk != Chunk::Whole);
        let lengths = self.lengths(&tensors, overlap.is_some())?;
        if chunk != Chunk::Whole && lengths.batch > 1 {
            let text = format!("a session is one sequence, got a batch of {}", lengths.batch);
            return Err(InvalidRequest(text).into());
        }
        // The steps along an axis that are answered already.
        let answered = |axis: Option<Symbol>| match overlap {
            Some(overlap) if axis == Some(overlap.replied) => parameters.answered_steps,
            _ => 0,
        };
        // Whether no window is complete that was not before.
        let waits = overlap.is_some_and(|overlap| {
            self.reply_steps(overlap, &lengths.steps) <= parameters.answered_steps
        });
        if waits && overlap.is_some_and(|overlap| overlap.has_totals) {
            let text = "the chunk's steps are too few for another window of the model, whose output for all steps so \
                        far stays as it is";
            return Err(InvalidRequest(text.to_owned()).into());
        }
        let steps: Vec<Vec<u32>> = self
            .cells
            .iter()
            .map(|cell| self.chain_lengths(cell, &tensors, &lengths))
            .collect::<Result<_, _>>()?;
        let mut graph = CellGraphBuilder::for_request(parameters);
        let mut inputs = Vec::new();
        let derived = self.derived(&tensors, &lengths)?;
        let tensors = tensors.into_iter().map(|named| Some(named.tensor)).chain(derived);
        for (input, tensor) in self.inputs.iter().zip(tensors) {
            let Some(tensor) = tensor else { continue };
            if input.derived.is_none() {
                let limits = (input.ids, input.narrow.then_some(31));
                check_integers(&input.name, limits, tensor.data())?;
            } else if input.narrow {
                check_computed(&input.name, tensor.data())?;
            }
            let Some(value) = input.value else { continue };
            let tensor = match &input.permutation {
                Some(permutation) => tensor.permuted(permutation),
                None => tensor,
            };
            let added = self.add_input(&mut graph, value, tensor, &lengths);
            inputs.push(added);
        }
        for (value, data) in &self.constants {
            let row = &self.values[*value].row;
            let rows = data.len() / row.elements();
            let tensor = Tensor::new(vec![rows, row.elements()], data.clone());
            inputs.push(self.add_input(&mut graph, *value, tensor, &lengths));
        }
        for &(value, axis) in &self.lengths {
            let length = match axis {
                BATCH => lengths.batch,
                axis => lengths.steps(Some(axis)),
            };
            let length = TensorData::I64(vec![length as i64]);
            let tensor = Tensor::new(vec![1], length);
            inputs.push(self.add_input(&mut graph, value, tensor, &lengths));
        }
        for value in &self.values[inputs.len()..] {
            graph.value(value.row.clone(), (value.slots * lengths.rows(value.domain)) as u32);
        }
        let mut decisions: BTreeMap<(usize, u32), DecisionIndex> = BTreeMap::new();
        let cells = self.cells.iter().zip(steps).enumerate();
        for (index, (cell, steps)) in cells.filter(|_| !waits) {
            let is_again = overlap.is_some_and(|overlap| overlap.is_again[index]);
            let from = if is_again { 0 } else { answered(cell.domain.time) };
            let over_all = (lengths.steps(cell.domain.time) - from) as u32;
            let sequences = if cell.domain.batch { lengths.batch } else { 1 };
            for b in 0..sequences {
                let length = if steps.is_empty() { over_all } else { steps[b % steps.len()] };
                if length == 0 {
                    continue;
                }
                let ordered = |rows: Rows, direction: Option<Direction>| match direction {
                    Some(Direction::Reverse) => rows.reversed(length),
                    _ => rows,
                };
                let reads = |port: usize| cell.chain.as_ref().map(|order| order.reads[port]);
                let writes = |port: usize| cell.chain.as_ref().map(|order| order.writes[port]);
                if cell.is_sequence_level {
                    let reads = cell.inputs.iter().map(|&read| self.span(read, b, &lengths));
                    let sinks = cell.sinks.iter().map(|sink| {
                        let to = PlanRead { value: sink.value, at: None, slot: sink.slot };
                        Sink { port: sink.port, time: sink.time, rows: self.span(to, b, &lengths) }
                    });
                    let (reads, sinks) = (reads.collect(), sinks.collect());
                    let run = graph.rows(cell.cell_type, 1, reads, sinks);
                    self.guard(&mut graph, run, cell, b, &mut decisions, &lengths);
                    continue;
                }
                let read = |(port, read): (usize, &PlanRead)| {
                    ordered(self.rows(*read, (cell.domain.time, from), b, &lengths), reads(port))
                };
                let reads = cell.inputs.iter().enumerate().map(read).collect();
                let sinks = cell.sinks.iter().map(|sink| {
                    let to = PlanRead { value: sink.value, at: None, slot: sink.slot };
                    let over_time = cell.domain.time.filter(|_| sink.time == SinkTime::Every);
                    let rows = self.rows(to, (over_time, from), b, &lengths);
                    let rows = ordered(rows, writes(sink.port));
                    Sink { port: sink.port, time: sink.time, rows }
                });
                let sinks = sinks.collect();
                if cell.chain.as_ref().is_some_and(|order| order.keeps_state) {
                    let first = |state: &Option<PlanRead>| {
                        let read = state.filter(|_| chunk != Chunk::Next)?;
                        Some(self.rows(read, (None, 0), b, &lengths))
                    };
                    let initial = cell.initial.iter().map(first).collect();
                    graph.chain(cell.cell_type, length, reads, initial, sinks);
                } else {
                    let run = graph.rows(cell.cell_type, length, reads, sinks);
                    self.guard(&mut graph, run, cell, b, &mut decisions, &lengths);
                }
            }
        }
        let outputs: Vec<OutputTensor> = self
            .outputs
            .iter()
            .map(|output| {
                let time = self.values[output.value].domain.time;
                let to = lengths.steps(time);
                let from = if waits { to } else { answered(time) };
                let length = |&axis: &Extent| match axis {
                    Extent::Steps(_) | Extent::Both(_) if waits => 0,
                    Extent::Steps(_) | Extent::Both(_) => lengths.of(axis) - from,
                    _ => lengths.of(axis),
                };
                OutputTensor {
                    name: output.name.clone(),
                    value: ValueIndex(output.value as u32),
                    rows: (from > 0).then_some(from..to),
                    shape: output.axes.iter().map(length).collect(),
                    until: None,
                    permutation: output.permutation.clone(),
                }
            })
            .collect();
        let checks = self.checks.iter().map(|check| ValueCheck {
            value: ValueIndex(check.value as u32),
            low: lengths.int(&check.low),
            high: lengths.int(&check.high),
            reason: check.reason.clone(),
        });
        let checks: Vec<ValueCheck> = checks.collect();
        let values = outputs.iter().map(|output| output.value);
        values.chain(checks.iter().map(|check| check.value)).for_each(|value| graph.output(value));
        for output in &self.outputs {
            let value = |value: usize| ValueIndex(value as u32);
            for &(condition, other) in &output.choices {
                let (output, condition, other) =
                    (value(output.value), value(condition), value(other));
                graph.choose(Choice { output, condition, other });
            }
        }
        Ok(Unfolded { graph: graph.finish()?, inputs, outputs, checks })
    }

    fn refuses_chunks(&self) -> Option<&str> {
        self.refuses_chunks
    }

    fn keep(&self, tensors: &[NamedTensor], answered: usize) -> KeptSteps {
        self.steps_to_keep(tensors, answered)
    }

    fn join(&self, kept: &KeptSteps, chunk: Vec<NamedTensor>) -> Vec<NamedTensor> {
        self.after_kept(kept, chunk)
    }

    fn kept_bytes_max(&self) -> usize {
        self.kept_bytes()
    }
}

impl UnfoldPlan {
    /// Lets sequence `b` go without the run of a cell that it may not need.
    fn guard(
        &self,
        graph: &mut CellGraphBuilder,
        run: RunIndex,
        cell: &PlanCell,
        b: usize,
        decisions: &mut BTreeMap<(usize, u32), DecisionIndex>,
        lengths: &Lengths,
    ) {
        let Some(PlanGuard { condition, when }) = cell.guard else { return };
        let read = PlanRead { value: condition, at: None, slot: 0 };
        let row = self.rows(read, (None, 0), b, lengths).row(0) as u32;
        let decision = *decisions
            .entry((condition, row))
            .or_insert_with(|| graph.decision(ValueIndex(condition as u32), row));
        graph.guard(run, Guard { decision, when });
    }

    /// Adds a value that the request brings; its tensor as rows.
    fn add_input(
        &self,
        graph: &mut CellGraphBuilder,
        value: usize,
        tensor: Tensor,
        lengths: &Lengths,
    ) -> Tensor {
        let planned = &self.values[value];
        let rows = planned.slots * lengths.rows(planned.domain);
        let added = graph.input(planned.row.clone(), rows as u32);
        assert!(graph.is_given_up() || added.index() == value, "inputs come first, in order");
        let mut shape = vec![rows];
        shape.extend(&planned.row.shape);
        tensor.reshaped(shape)
    }
}
