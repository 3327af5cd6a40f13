//! `kind = "chain"`: one cell applied along a sequence.

use batchmaker_graph::{
    CellGraphBuilder, Chunk, InvalidRequest, NamedTensor, OutputTensor, Parameters, RowSpec, Rows,
    Sink, SinkTime, Unfold, UnfoldError, Unfolded, ValueIndex,
};

use crate::data::direction::Direction;
use crate::data::layout::Axis;
use crate::unfold::templates::row_tensor::{RowTensor, check_length, common_rows};
use crate::unfold::templates::template_cell::{StepOutput, TemplateCell, TemplateError};
use crate::unfold::unfolding::{ReplyTensor, RequestTensor};

/// Chains of one cell whose states pass from step to step.
///
/// Request: a tensor `[T, ...row]` for each input that is fed one row a step, `[...row]` for each
/// that is fed the same row every step, and, if the client has them, first states, `[...row]`.
#[derive(Clone, Debug)]
pub struct Chain {
    step: TemplateCell,
    direction: Direction,
    sequence: Vec<RowTensor>,
    constant: Vec<RowTensor>,
    states: Vec<State>,
    /// The feed of each of the cell's input ports.
    feeds: Vec<Feed>,
    outputs: Vec<Output>,
    max_length: usize,
}

#[derive(Clone, Debug)]
struct State {
    /// The tensor of the first state.
    first: RowTensor,
    /// The index of the cell's state.
    state: usize,
}

/// The tensor that feeds an input port: a position in the list of sequences or of constants.
#[derive(Clone, Copy, Debug)]
enum Feed {
    Sequence(usize),
    Constant(usize),
}

#[derive(Clone, Debug)]
struct Output {
    named: StepOutput,
    port: usize,
    row: RowSpec,
}

impl Chain {
    /// Chains of `step` (see [`NamedCell::load_step`](crate::NamedCell::load_step)), over the
    /// request's `sequence` and `constant` tensors.
    ///
    /// # Errors
    /// If names or rows do not fit.
    pub fn new(
        step: TemplateCell,
        direction: Direction,
        [sequence, constant]: [&[String]; 2],
        outputs: Vec<StepOutput>,
        max_length: usize,
    ) -> Result<Self, TemplateError> {
        let rows_of = |names: &[String]| {
            let row = |name: &String| Ok(RowTensor::of(step.input(name)?));
            names.iter().map(row).collect::<Result<Vec<_>, TemplateError>>()
        };
        let (sequence, constant) = (rows_of(sequence)?, rows_of(constant)?);
        if sequence.is_empty() {
            return Err("unfold.sequence names no input: nothing says how long a chain is".into());
        }
        let states = step.cell.inputs.iter().filter_map(|input| {
            input.state.map(|state| State { first: RowTensor::of(input), state })
        });
        let states: Vec<State> = states.collect();
        let at = |list: &[RowTensor], name: &str| list.iter().position(|row| row.name == name);
        for input in &step.cell.inputs {
            let name = &input.name;
            let fed = [
                at(&sequence, name).is_some(),
                at(&constant, name).is_some(),
                input.state.is_some(),
            ];
            if fed.into_iter().filter(|&fed| fed).count() > 1 {
                return Err(format!("cell `{}`: its input `{name}` is fed twice", step.name));
            }
        }
        let feeds = step.feeds(|name| {
            at(&sequence, name)
                .map(Feed::Sequence)
                .or_else(|| at(&constant, name).map(Feed::Constant))
        })?;
        if outputs.is_empty() {
            return Err("the reply has no tensor: unfold.outputs is empty".to_owned());
        }
        let output = |named: StepOutput| {
            let from = step.output(&named.from)?;
            Ok(Output { port: from.port, row: from.row.clone(), named })
        };
        let outputs = outputs.into_iter().map(output).collect::<Result<_, TemplateError>>()?;
        Ok(Self { direction, sequence, constant, states, feeds, outputs, max_length, step })
    }

    /// The tensors of a request.
    pub fn inputs(&self) -> Vec<RequestTensor> {
        let sequence = self.sequence.iter().map(|row| row.described(Some(Axis::Time), false));
        let constant = self.constant.iter().map(|row| row.described(None, false));
        let states = self.states.iter().map(|state| state.first.described(None, true));
        sequence.chain(constant).chain(states).collect()
    }

    /// The tensors of a reply.
    pub fn reply(&self) -> Vec<ReplyTensor> {
        self.outputs.iter().map(|output| output.named.described(&output.row)).collect()
    }

    /// The number of steps of the sequences.
    fn steps(&self, tensors: &[NamedTensor]) -> Result<usize, InvalidRequest> {
        let (steps, name) = common_rows(&self.sequence, tensors)?.expect("a chain has a sequence");
        check_length(name, steps, self.max_length)?;
        Ok(steps)
    }
}

impl Unfold for Chain {
    fn unfold(
        &self,
        tensors: Vec<NamedTensor>,
        parameters: &Parameters,
    ) -> Result<Unfolded, UnfoldError> {
        parameters.refuse_steps()?;
        let steps = self.steps(&tensors)?;
        let (mut graph, mut inputs) = (CellGraphBuilder::for_request(parameters), Vec::new());
        let mut tensors = tensors.into_iter().peekable();
        let directed = |value: ValueIndex| self.direction.of(Rows::all(value), steps as u32);
        let mut sequence = Vec::new();
        for row in &self.sequence {
            let tensor = tensors.next().expect("sequences are there").tensor;
            sequence.push(row.add_to(&mut graph, &mut inputs, tensor));
        }
        let mut constant = Vec::new();
        for row in &self.constant {
            let tensor = tensors.next().expect("constants are there").tensor;
            row.check_row(&tensor)?;
            constant.push(row.add_to(&mut graph, &mut inputs, tensor));
        }
        let mut initial = vec![None; self.states.len()];
        for State { first, state } in &self.states {
            if let Some(tensor) = tensors.next_if(|tensor| tensor.name == first.name) {
                if parameters.chunk == Chunk::Next {
                    continue;
                }
                first.check_row(&tensor.tensor)?;
                inputs.push(tensor.tensor);
                initial[*state] = Some(Rows::one(graph.input(first.flat_row(), 1), 0));
            }
        }
        let mut sinks: Vec<Sink> = Vec::new();
        let mut outputs = Vec::new();
        for output in &self.outputs {
            let row = RowSpec::flat(output.row.element, output.row.elements());
            let (time, rows, all) = match output.named.every_step {
                true => {
                    let rows = directed(graph.value(row, steps as u32));
                    (SinkTime::Every, rows, Some(steps))
                }
                false => (SinkTime::Last, Rows::one(graph.value(row, 1), 0), None),
            };
            let value = rows.value;
            sinks.push(Sink { port: output.port, time, rows });
            let shape = all.into_iter().chain(output.row.shape.iter().copied()).collect();
            let name = output.named.name.clone();
            outputs.push(OutputTensor {
                name,
                value,
                rows: None,
                shape,
                until: None,
                permutation: None,
            });
            graph.output(value);
        }
        let feeds = self.feeds.iter().map(|feed| match *feed {
            Feed::Sequence(position) => directed(sequence[position]),
            Feed::Constant(position) => Rows::one(constant[position], 0),
        });
        let (cell_type, feeds) = (self.step.cell_type, feeds.collect());
        match self.states.is_empty() {
            true => graph.rows(cell_type, steps as u32, feeds, sinks),
            false => graph.chain(cell_type, steps as u32, feeds, initial, sinks),
        };
        Ok(Unfolded { graph: graph.finish()?, inputs, outputs, checks: Vec::new() })
    }

    fn refuses_chunks(&self) -> Option<&str> {
        (self.direction == Direction::Reverse).then_some("it reads its sequence backwards")
    }
}
