//! `kind = "encoder_decoder"`: the decoder feeds on its own output until it reaches its end of sequence.

use std::collections::BTreeMap;

use batchmaker_graph::{
    CellGraphBuilder, ElementType, InvalidRequest, NamedTensor, OutputTensor, Parameters, RowSpec,
    Rows, Sink, SinkTime, Stop, Tensor, TensorData, Unfold, UnfoldError, Unfolded,
};

use crate::data::direction::Direction;
use crate::data::layout::Axis;
use crate::data::named_cell::CellInput;
use crate::unfold::templates::row_tensor::{RowTensor, check_length, common_rows};
use crate::unfold::templates::template_cell::{StepOutput, TemplateCell, TemplateError};
use crate::unfold::unfolding::{ReplyTensor, RequestTensor};

/// A chain of an encoder's cell over the source, and an open chain of a decoder's cell that begins
/// with the encoder's last state (section 7.4 of the BatchMaker paper).
///
/// Request: a tensor `[T, ...row]` for each input of the encoder that is fed one row a step.
#[derive(Clone, Debug)]
pub struct EncoderDecoder {
    encoder: TemplateCell,
    direction: Direction,
    sequence: Vec<RowTensor>,
    /// The position in `sequence` of the tensor that feeds each input port of the encoder.
    feeds: Vec<usize>,
    decoder: TemplateCell,
    /// The first value of each of the decoder's states.
    first: Vec<First>,
    stop: Option<Stop>,
    max_steps: StepBound,
    outputs: Vec<Output>,
    max_length: usize,
}

/// The most steps that a decoder runs: `ceil(per_input * T + plus)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepBound {
    /// The steps for each row of the source.
    pub per_input: f64,
    /// The steps beside these.
    pub plus: u32,
}

/// The rules of a decoder besides its cell, by the names of the cell's inputs.
#[derive(Clone, Debug)]
pub struct DecoderRules<'a> {
    /// Inputs that are fed the output of the step before: their first rows, each an element.
    pub start: &'a BTreeMap<String, i64>,
    /// States that begin with an output of the encoder's last step.
    pub init: &'a BTreeMap<String, String>,
    /// The output, and its value, that end the chain.
    pub stop: Option<(&'a str, i64)>,
    /// The most steps.
    pub max_steps: StepBound,
}

/// A decoder's first state.
#[derive(Clone, Debug)]
enum First {
    Zeros,
    Start(RowSpec, TensorData),
    /// An output port of the encoder.
    Encoder(usize, RowSpec),
}

#[derive(Clone, Debug)]
struct Output {
    named: StepOutput,
    port: usize,
    row: RowSpec,
}

impl EncoderDecoder {
    /// Chains of `encoder` over the request's `sequence` tensors, in that direction, then of `decoder`;
    /// both cells as
    /// [`NamedCell::load_step`](crate::NamedCell::load_step) makes them. `outputs` are the
    /// decoder's.
    ///
    /// # Errors
    /// If names or rows do not fit.
    pub fn new(
        encoder: TemplateCell,
        (sequence, direction): (&[String], Direction),
        decoder: TemplateCell,
        rules: &DecoderRules<'_>,
        outputs: Vec<StepOutput>,
        max_length: usize,
    ) -> Result<Self, TemplateError> {
        let row = |name: &String| Ok(RowTensor::of(encoder.input(name)?));
        let sequence = sequence.iter().map(row).collect::<Result<Vec<_>, TemplateError>>()?;
        if sequence.is_empty() {
            return Err("unfold.encoder.sequence names no input".to_owned());
        }
        let is_state = |row: &&RowTensor| {
            encoder.cell.input(&row.name).is_some_and(|input| input.state.is_some())
        };
        if let Some(RowTensor { name, .. }) = sequence.iter().find(is_state) {
            return Err(format!("cell `{}`: its input `{name}` is fed twice", encoder.name));
        }
        let feeds = encoder.feeds(|name| sequence.iter().position(|row| row.name == name))?;
        decoder.feeds(|_| None::<()>)?;
        let first = first_states(&encoder, &decoder, rules)?;
        let stop = match rules.stop {
            None => None,
            Some((output, value)) => {
                let found = decoder.output(output)?;
                if (found.row.element, found.row.elements()) != (ElementType::I64, 1) {
                    return Err(format!("unfold.decoder.stop: output `{output}` is no one INT64"));
                }
                Some(Stop { port: found.port, value })
            }
        };
        let StepBound { per_input, plus } = rules.max_steps;
        if !(per_input.is_finite() && per_input >= 0.0) || (per_input == 0.0 && plus == 0) {
            return Err("unfold.decoder.max_steps: it allows no step".to_owned());
        }
        if outputs.is_empty() {
            return Err("the reply has no tensor: unfold.outputs is empty".to_owned());
        }
        let output = |named: StepOutput| {
            let name = named.from.strip_prefix("decoder.").ok_or_else(|| {
                format!("unfold.outputs: `{}` is no output `decoder.…`", named.from)
            })?;
            let from = decoder.output(name)?;
            Ok(Output { port: from.port, row: from.row.clone(), named })
        };
        let outputs = outputs.into_iter().map(output).collect::<Result<_, TemplateError>>()?;
        let max_steps = rules.max_steps;
        Ok(Self {
            encoder,
            direction,
            sequence,
            feeds,
            decoder,
            first,
            stop,
            max_steps,
            outputs,
            max_length,
        })
    }

    /// The tensors of a request.
    pub fn inputs(&self) -> Vec<RequestTensor> {
        self.sequence.iter().map(|row| row.described(Some(Axis::Time), false)).collect()
    }

    /// The tensors of a reply.
    pub fn reply(&self) -> Vec<ReplyTensor> {
        self.outputs.iter().map(|output| output.named.described(&output.row)).collect()
    }

    /// The most steps that the decoder runs, and the condition that ends it before.
    fn steps(
        &self,
        source: usize,
        parameters: &Parameters,
    ) -> Result<(u32, Option<Stop>), InvalidRequest> {
        let refuse = |name: &str, steps: u32| {
            let most = self.max_length;
            let text = format!("parameter '{name}': expected 1 to {most} steps, got {steps}");
            Err(InvalidRequest(text))
        };
        let allowed = 1..=self.max_length as u32;
        if let Some(steps) = parameters.force_steps {
            return match allowed.contains(&steps) {
                true => Ok((steps, None)),
                false => refuse("force_steps", steps),
            };
        }
        let StepBound { per_input, plus } = self.max_steps;
        let bound = (per_input * source as f64 + f64::from(plus)).ceil();
        let bound = (bound as u32).min(self.max_length as u32);
        match parameters.max_steps {
            Some(0) => refuse("max_steps", 0),
            most => Ok((bound.min(most.unwrap_or(bound)), self.stop)),
        }
    }
}

/// The first value of each state of the decoder.
fn first_states(
    encoder: &TemplateCell,
    decoder: &TemplateCell,
    rules: &DecoderRules<'_>,
) -> Result<Vec<First>, TemplateError> {
    let states = decoder.cell.cell.states.len();
    let mut first = vec![First::Zeros; states];
    let state_of = |name: &String| -> Result<(&CellInput, usize), TemplateError> {
        let input = decoder.input(name)?;
        let state = input.state.ok_or_else(|| {
            format!("cell `{}`: its input `{name}` is neither fed nor a state", decoder.name)
        })?;
        Ok((input, state))
    };
    for (name, &value) in rules.start {
        let (input, state) = state_of(name)?;
        if input.ids.is_some_and(|ids| !(0..ids as i64).contains(&value)) {
            return Err(format!("unfold.decoder.start: {value} is no id of input `{name}`"));
        }
        let (elements, is_narrow) = (input.row.elements(), i32::try_from(value).is_ok());
        let data = match input.row.element {
            ElementType::I32 if !is_narrow => {
                return Err(format!("unfold.decoder.start: {value} does not fit input `{name}`"));
            }
            ElementType::I64 if input.narrow && !is_narrow => {
                return Err(format!("unfold.decoder.start: {value} does not fit 32 bits"));
            }
            ElementType::F32 => TensorData::F32(vec![value as f32; elements]),
            ElementType::I64 => TensorData::I64(vec![value; elements]),
            ElementType::I32 => TensorData::I32(vec![value as i32; elements]),
            ElementType::Bool => TensorData::Bool(vec![value != 0; elements]),
            _ => unreachable!("cells have stored types"),
        };
        first[state] = First::Start(RowTensor::of(input).flat_row(), data);
    }
    for (name, from) in rules.init {
        let (input, state) = state_of(name)?;
        let Some(output) = from.strip_prefix("encoder.") else {
            return Err(format!("unfold.decoder.init: `{from}` is no output `encoder.…`"));
        };
        let output = encoder.output(output)?;
        output.check_feeds(input).map_err(|reason| format!("unfold.decoder.init: {reason}"))?;
        first[state] = First::Encoder(output.port, RowTensor::of(input).flat_row());
    }
    Ok(first)
}

impl Unfold for EncoderDecoder {
    fn unfold(
        &self,
        tensors: Vec<NamedTensor>,
        parameters: &Parameters,
    ) -> Result<Unfolded, UnfoldError> {
        let (source, name) = common_rows(&self.sequence, &tensors)?.expect("there is a sequence");
        check_length(name, source, self.max_length)?;
        let (bound, stop) = self.steps(source, parameters)?;
        let (mut graph, mut inputs) = (CellGraphBuilder::for_request(parameters), Vec::new());
        let fed: Vec<_> = self
            .sequence
            .iter()
            .zip(tensors)
            .map(|(row, tensor)| row.add_to(&mut graph, &mut inputs, tensor.tensor))
            .collect();
        let directed = |rows: Rows| self.direction.of(rows, source as u32);
        let feeds = self.feeds.iter().map(|&position| directed(Rows::all(fed[position])));
        let feeds = feeds.collect();
        let mut handed_on = Vec::new();
        let mut initial = Vec::new();
        for first in &self.first {
            initial.push(match first {
                First::Zeros => None,
                First::Start(row, data) => {
                    inputs.push(Tensor::new(vec![data.len()], data.clone()));
                    Some(Rows::one(graph.input(row.clone(), 1), 0))
                }
                First::Encoder(port, row) => {
                    let rows = Rows::one(graph.value(row.clone(), 1), 0);
                    let time = SinkTime::Last;
                    handed_on.push(Sink { port: *port, time, rows: rows.clone() });
                    Some(rows)
                }
            });
        }
        let encoder_states = self.encoder.cell.cell.states.len();
        let (cell_type, length) = (self.encoder.cell_type, source as u32);
        match encoder_states {
            0 => graph.rows(cell_type, length, feeds, handed_on),
            _ => graph.chain(cell_type, length, feeds, vec![None; encoder_states], handed_on),
        };

        let (mut sinks, mut outputs) = (Vec::new(), Vec::new());
        for output in &self.outputs {
            let row = RowSpec::flat(output.row.element, output.row.elements());
            let (time, value, all) = match output.named.every_step {
                true => (SinkTime::Every, graph.value(row, bound), Some(bound as usize)),
                false => (SinkTime::Last, graph.value(row, 1), None),
            };
            sinks.push(Sink { port: output.port, time, rows: Rows::all(value) });
            let shape = all.into_iter().chain(output.row.shape.iter().copied()).collect();
            outputs.push((output, value, shape));
            graph.output(value);
        }
        let cell_type = self.decoder.cell_type;
        let decoder = match stop {
            Some(stop) => graph.chain_until(cell_type, bound, Vec::new(), initial, sinks, stop),
            None => graph.chain(cell_type, bound, Vec::new(), initial, sinks),
        };
        let outputs = outputs.into_iter().map(|(output, value, shape)| OutputTensor {
            name: output.named.name.clone(),
            value,
            rows: None,
            shape,
            until: output.named.every_step.then_some(decoder),
            permutation: None,
        });
        let outputs = outputs.collect();
        Ok(Unfolded { graph: graph.finish()?, inputs, outputs, checks: Vec::new() })
    }

    fn refuses_chunks(&self) -> Option<&str> {
        Some("its decoder begins when the whole sequence is there")
    }
}
