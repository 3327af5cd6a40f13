//! Puts the reply to a request together from the values of its cell graph: planned when the
//! request is unfolded, carried out by whoever waits for the reply.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, Choice, EndOfSequence, InvalidRequest, NamedTensor, OutputTensor, RowOrder, Run,
    RunIndex, RunKind, SinkTime, Tensor, TensorData, ValueCheck, ValueIndex,
};

use crate::loading::text::Labels;

/// Why the values that the graph computed make no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A value does not fit the model's tables; the model's fault.
    #[error("{0}")]
    Model(String),
    /// The request made the model compute an index that is out of range; the client must change it.
    #[error(transparent)]
    Request(#[from] InvalidRequest),
}

/// The plan of the reply to one request.
#[derive(Clone, Debug)]
pub struct ReplyPlan {
    outputs: Vec<PlannedTensor>,
    /// Checks, each with the position of its value among the graph's outputs.
    checks: Vec<(usize, ValueCheck)>,
    choices: Vec<PlannedChoice>,
}

/// A [`Choice`], by the positions of its values among the graph's outputs.
#[derive(Clone, Copy, Debug)]
struct PlannedChoice {
    output: usize,
    condition: usize,
    other: usize,
}

/// A tensor of the reply.
#[derive(Clone, Debug)]
pub(crate) enum PlannedTensor {
    Computed(PlannedOutput),
    /// The request's own.
    Passed(NamedTensor),
}

impl PlannedTensor {
    /// The name that clients see.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Computed(output) => &output.name,
            Self::Passed(tensor) => &tensor.name,
        }
    }

    fn computed(&self) -> Option<&PlannedOutput> {
        match self {
            Self::Computed(output) => Some(output),
            Self::Passed(_) => None,
        }
    }
}

/// A tensor of the reply that is made of a value.
#[derive(Clone, Debug)]
pub(crate) struct PlannedOutput {
    /// The name that clients see.
    pub(crate) name: String,
    /// The position of the value among the graph's outputs.
    pub(crate) position: usize,
    /// The rows of the value, and their shape and order of axes.
    pub(crate) tensor: OutputTensor,
    /// An axis of length 1 that is left out.
    pub(crate) dropped_axis: Option<usize>,
    /// The text that ids or scores become.
    pub(crate) labels: Option<Arc<Labels>>,
}

/// The tensors of a reply that have a row for each step of one chain: they can be sent while the chain
/// runs.
#[derive(Debug)]
pub struct StepPlan {
    run: RunIndex,
    /// The most steps of the chain.
    length: u32,
    outputs: Vec<StepOutput>,
    /// The value of each output.
    values: Arc<[ValueIndex]>,
}

/// A tensor of the reply with a row for each step.
#[derive(Debug)]
struct StepOutput {
    name: String,
    /// The position of the value among the graph's outputs.
    position: usize,
    /// The shape of a step's row.
    row: Vec<usize>,
    labels: Option<Arc<Labels>>,
}

impl ReplyPlan {
    pub(crate) fn new(outputs: Vec<PlannedTensor>) -> Self {
        Self { outputs, checks: Vec::new(), choices: Vec::new() }
    }

    /// The plan with checks, each with the position of its value among the graph's outputs.
    pub(crate) fn with_checks(self, checks: Vec<(usize, ValueCheck)>) -> Self {
        Self { checks, ..self }
    }

    /// The plan with the choices of `graph`.
    pub(crate) fn with_choices_of(self, graph: &CellGraph) -> Self {
        let position = |value: ValueIndex| {
            let position = graph.outputs().iter().position(|&output| output == value);
            position.expect("a choice is between outputs")
        };
        let planned = |&Choice { output, condition, other }: &Choice| PlannedChoice {
            output: position(output),
            condition: position(condition),
            other: position(other),
        };
        Self { choices: graph.choices().iter().map(planned).collect(), ..self }
    }

    /// The tensors that are made of values.
    fn computed(&self) -> impl Iterator<Item = &PlannedOutput> {
        self.outputs.iter().filter_map(PlannedTensor::computed)
    }

    /// The reply's tensors. `values` holds the elements of the graph's output values, in the order of
    /// [`CellGraph::outputs`]; `ends` the chains that reached their end of sequence.
    ///
    /// # Errors
    /// A value holds an id that its vocabulary has no line for, or an index that is out of range.
    pub fn reply(
        self,
        mut values: Vec<TensorData>,
        ends: &[EndOfSequence],
    ) -> Result<Vec<NamedTensor>, ReplyError> {
        self.checks.iter().try_for_each(|(at, check)| check_integers(check, &values[*at]))?;
        let mut chosen: BTreeMap<usize, TensorData> = BTreeMap::new();
        // The first choice that is true for a row holds.
        for &PlannedChoice { output, condition, other } in self.choices.iter().rev() {
            if let TensorData::Bool(is_other) = &values[condition]
                && is_other.contains(&true)
            {
                let so_far = chosen.get(&output).unwrap_or(&values[output]);
                let rows = so_far.choose_rows(&values[other], is_other);
                chosen.insert(output, rows);
            }
        }
        chosen.into_iter().for_each(|(output, rows)| values[output] = rows);
        let mut readers = vec![0; values.len()];
        self.computed().for_each(|output| readers[output.position] += 1);
        let tensor = |output: PlannedTensor| {
            let PlannedOutput { name, position, mut tensor, dropped_axis, labels } = match output {
                PlannedTensor::Computed(output) => output,
                PlannedTensor::Passed(tensor) => return Ok(tensor),
            };
            readers[position] -= 1;
            let end = ends.iter().find(|end| Some(end.run) == tensor.until);
            if let Some(end) = end {
                // The node that ended the chain is no step of the reply.
                tensor.shape[0] = end.nodes as usize - 1;
                tensor.rows = Some(0..tensor.shape[0]);
            }
            let data = match (tensor.rows, readers[position]) {
                (Some(rows), _) => {
                    let all = tensor.shape.iter().product::<usize>();
                    let row = all.checked_div(rows.len()).unwrap_or(0);
                    values[position].slice(rows.start * row..rows.end * row)
                }
                (None, 0) => std::mem::replace(&mut values[position], TensorData::F32(Vec::new())),
                (None, _) => values[position].clone(),
            };
            let mut value = Tensor::new(tensor.shape, data);
            if let Some(permutation) = &tensor.permutation {
                value = value.permuted(permutation);
            }
            if let Some(axis) = dropped_axis {
                let mut shape = value.shape().to_vec();
                shape.remove(axis);
                value = value.reshaped(shape);
            }
            let tensor = match labels {
                Some(labels) => labels.apply(value).map_err(ReplyError::Model)?,
                None => value,
            };
            Ok(NamedTensor { name, tensor })
        };
        self.outputs.into_iter().map(tensor).collect()
    }

    /// An upper bound of the bytes of the reply's tensors.
    pub fn bytes(&self, graph: &CellGraph) -> usize {
        let bytes = |output: &PlannedOutput| {
            let elements = output.tensor.shape.iter().product::<usize>();
            let element = graph.values()[output.tensor.value.index()].row.element;
            elements * output.labels.as_ref().map_or(element.bytes(), |labels| labels.text_bytes())
        };
        let passed = self.outputs.iter().map(|output| match output {
            PlannedTensor::Computed(output) => bytes(output),
            PlannedTensor::Passed(of) => of.tensor.data().heap_bytes(),
        });
        passed.sum()
    }

    /// The plan of the reply's steps; none where no chain writes a tensor of the reply row by row.
    pub fn steps(&self, graph: &CellGraph) -> Option<StepPlan> {
        let runs = graph.runs().iter().enumerate().rev();
        let mut chains = runs.filter(|(_, run)| run.kind == RunKind::Chain);
        chains.find_map(|(index, run)| {
            let is_step = |output: &&PlannedOutput| is_row_a_step(&output.tensor, run, graph);
            let steps: Vec<&PlannedOutput> = self.computed().filter(is_step).collect();
            let step = |output: &&PlannedOutput| StepOutput {
                name: output.name.clone(),
                position: output.position,
                row: output.tensor.shape[1..].to_vec(),
                labels: output.labels.clone(),
            };
            (!steps.is_empty()).then(|| StepPlan {
                run: RunIndex(index as u32),
                length: run.length,
                outputs: steps.iter().map(step).collect(),
                values: steps.iter().map(|output| output.tensor.value).collect(),
            })
        })
    }
}

fn check_integers(check: &ValueCheck, data: &TensorData) -> Result<(), InvalidRequest> {
    let is_bad = |n: &i64| !(check.low..=check.high).contains(n);
    let bad = match data {
        TensorData::I64(data) => data.iter().copied().find(is_bad),
        TensorData::I32(data) => data.iter().map(|&n| i64::from(n)).find(is_bad),
        _ => None,
    };
    let ValueCheck { low, high, reason, .. } = check;
    bad.map_or(Ok(()), |bad| {
        Err(InvalidRequest(match low == high {
            true => reason.clone(),
            false => format!("{reason}: expected {low}..={high}, got {bad}"),
        }))
    })
}

/// Whether row `i` of the tensor is what step `i` of the chain writes.
fn is_row_a_step(output: &OutputTensor, run: &Run, graph: &CellGraph) -> bool {
    let in_order = RowOrder::Strided { first: 0, stride: 1 };
    let is_written = run.sinks.iter().any(|sink| {
        sink.time == SinkTime::Every
            && sink.rows.value == output.value
            && sink.rows.order == in_order
    });
    let elements = graph.values()[output.value.index()].row.elements();
    is_written
        && output.rows.is_none()
        && output.permutation.is_none()
        && output.shape.first() == Some(&(run.length as usize))
        && output.shape[1..].iter().product::<usize>() == elements
}

impl StepPlan {
    /// The chain that computes the steps.
    pub fn run(&self) -> RunIndex {
        self.run
    }

    /// The values whose rows are the steps, one for each tensor.
    pub fn values(&self) -> &Arc<[ValueIndex]> {
        &self.values
    }

    /// The number of steps of the reply, where the chains in `ends` reached their end of sequence: the
    /// node that ended the chain is no step.
    pub fn steps(&self, ends: &[EndOfSequence]) -> u32 {
        let end = ends.iter().find(|end| end.run == self.run);
        end.map_or(self.length, |end| end.nodes - 1)
    }

    /// The rows of the steps in `steps` for each of [`Self::values`], from the elements of the graph's
    /// output values.
    pub fn rows_of(&self, outputs: &[TensorData], steps: Range<u32>) -> Vec<TensorData> {
        let rows = |output: &StepOutput| {
            let row: usize = output.row.iter().product();
            outputs[output.position].slice(steps.start as usize * row..steps.end as usize * row)
        };
        self.outputs.iter().map(rows).collect()
    }

    /// The tensors of the steps in `steps`, `[steps, ...row]` each. `rows` holds their rows for each of
    /// [`Self::values`]. Ids become their labels one by one.
    ///
    /// # Errors
    /// A row holds an id that its vocabulary has no line for.
    pub fn tensors(
        &self,
        steps: Range<u32>,
        rows: Vec<TensorData>,
    ) -> Result<Vec<NamedTensor>, ReplyError> {
        let tensor = |(output, data): (&StepOutput, TensorData)| {
            let shape = [steps.len()].into_iter().chain(output.row.iter().copied()).collect();
            let tensor = Tensor::new(shape, data);
            let tensor = match &output.labels {
                Some(labels) => labels.apply_apart(tensor).map_err(ReplyError::Model)?,
                None => tensor,
            };
            Ok(NamedTensor { name: output.name.clone(), tensor })
        };
        self.outputs.iter().zip(rows).map(tensor).collect()
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{CellGraphBuilder, CellTypeId, ElementType, RowSpec, Rows, Sink};

    use super::*;

    const STEPS: u32 = 3;

    /// `layers` chains over each of `sequences` sequences. The outputs of each layer are a tensor of the
    /// reply, `[sequences, steps, 2]`, or `[steps, 2]` of one sequence.
    fn stacked(layers: u32, sequences: u32) -> (CellGraph, ReplyPlan) {
        let mut graph = CellGraphBuilder::new();
        let row = || RowSpec::flat(ElementType::F32, 2);
        let mut below = graph.input(row(), sequences * STEPS);
        let mut outputs = Vec::new();
        for layer in 0..layers {
            let value = graph.value(row(), sequences * STEPS);
            for first in (0..sequences).map(|sequence| sequence * STEPS) {
                let rows = Rows::strided(value, first, 1);
                let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows }];
                let inputs = vec![Rows::strided(below, first, 1)];
                graph.chain(CellTypeId(layer), STEPS, inputs, vec![None], sinks);
            }
            graph.output(value);
            let steps = [STEPS as usize, 2];
            let shape = match sequences {
                1 => steps.to_vec(),
                n => [&[n as usize][..], &steps].concat(),
            };
            let name = format!("y{layer}");
            let tensor = OutputTensor {
                name: name.clone(),
                value,
                rows: None,
                shape,
                until: None,
                permutation: None,
            };
            let position = layer as usize;
            let output = PlannedOutput { name, position, tensor, dropped_axis: None, labels: None };
            outputs.push(PlannedTensor::Computed(output));
            below = value;
        }
        (graph.finish().unwrap(), ReplyPlan::new(outputs))
    }

    fn floats(rows: impl IntoIterator<Item = f32>) -> TensorData {
        TensorData::F32(rows.into_iter().flat_map(|row| [row; 2]).collect())
    }

    #[test]
    fn the_steps_are_those_of_the_last_chain() {
        let (graph, plan) = stacked(2, 1);
        let steps = plan.steps(&graph).unwrap();
        assert_eq!((steps.run(), &**steps.values()), (RunIndex(1), &[ValueIndex(2)][..]));
        let values = [floats([0.0, 1.0, 2.0]), floats([10.0, 11.0, 12.0])];
        let rows = steps.rows_of(&values, 1..3);
        let tensors = steps.tensors(1..3, rows).unwrap();
        let [NamedTensor { name, tensor }] = &tensors[..] else { panic!("{tensors:?}") };
        assert_eq!((&**name, tensor.shape()), ("y1", &[2, 2][..]));
        assert_eq!(*tensor.data(), floats([11.0, 12.0]));
    }

    #[test]
    fn the_node_that_ends_a_chain_is_no_step() {
        let (graph, plan) = stacked(1, 1);
        let request = batchmaker_graph::RequestId { index: 0, generation: 0 };
        let end = EndOfSequence { request, run: RunIndex(0), nodes: 2 };
        assert_eq!(plan.steps(&graph).unwrap().steps(&[end]), 1);
    }

    /// There are as many sequences as steps: the first axis is not that of steps all the same.
    #[test]
    fn several_sequences_have_no_steps() {
        let (graph, plan) = stacked(1, STEPS);
        assert!(plan.steps(&graph).is_none());
    }

    #[test]
    fn a_value_that_several_tensors_read_is_copied_for_all_but_the_last() {
        let (_, plan) = stacked(1, 1);
        let mut outputs = plan.outputs;
        let output = outputs[0].computed().unwrap().clone();
        let again = PlannedOutput { name: "again".to_owned(), ..output };
        outputs.push(PlannedTensor::Computed(again));
        let reply = ReplyPlan::new(outputs).reply(vec![floats([0.0, 1.0, 2.0])], &[]).unwrap();
        assert_eq!(reply[0].tensor, reply[1].tensor);
        assert_eq!(*reply[1].tensor.data(), floats([0.0, 1.0, 2.0]));
    }
}
