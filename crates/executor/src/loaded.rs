//! A program in rten.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use batchmaker_graph::{ElementType, Program, TensorData};
use rten::{Model, ModelOptions, NodeId, RunOptions, Value};
use rten_onnx::onnx::ModelProto;

use crate::port::Port;
use crate::probe::{Probe, dims, shape_of};
use crate::single_row::{self, Alone, Check, Mended};
use crate::tensors::{from_value, to_value};
use crate::{ExecutorError, ExecutorThread};

/// The most lists of spans that are remembered; then it is begun anew.
const KNOWN_SPANS_MAX: usize = 4096;

/// A program that rten has loaded: its graph optimised, the weights of its products packed.
pub(crate) struct Loaded {
    model: Model,
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    input_ids: Vec<NodeId>,
    output_ids: Vec<NodeId>,
    alone: LoadedAlone,
    /// By the spans of one sequence, whether it has sensitive operators that are not mended: too few steps.
    known_spans: Mutex<BTreeMap<Vec<u32>, bool>>,
}

/// See [`Alone`].
enum LoadedAlone {
    Plain,
    Twice,
    Mended {
        /// Of the output ports.
        ids: Vec<NodeId>,
        /// Of the shapes that are checked, then of the output ports.
        checked_ids: Vec<NodeId>,
        checks: Vec<Check>,
        /// By output port.
        is_double: Vec<bool>,
    },
}

/// A shape and its elements.
type Shaped = (Vec<usize>, TensorData);

impl Loaded {
    /// Loads `program`, whose inputs are `in0`, `in1`, … and whose outputs are `out0`, `out1`, ….
    ///
    /// # Errors
    /// [`ExecutorError::Load`]
    pub(crate) fn new(
        program: &Program,
        inputs: Vec<Port>,
        outputs: Vec<Port>,
    ) -> Result<Self, ExecutorError> {
        let error =
            |reason: String| ExecutorError::Load { summary: program.summary.clone(), reason };
        let mut file =
            ModelProto::parse_buf(&program.bytes[..]).map_err(|e| error(e.to_string()))?;
        let is_batched = inputs.iter().chain(&outputs).all(|port| port.axes.batch);
        let (alone, span) = plan(&mut file, is_batched, &inputs);
        let bytes = match &alone {
            Alone::Mended(_) => file.write_buf().map_err(|e| error(e.to_string()))?,
            Alone::Plain | Alone::Twice => program.bytes.to_vec(),
        };
        drop(file);
        let model = ModelOptions::with_all_ops()
            .enable_optimization(true)
            .prepack_weights(true)
            .load(bytes)
            .map_err(|e| error(e.to_string()))?;
        let id = |name: &str| model.node_id(name).map_err(|e| error(e.to_string()));
        let ids = |prefix: &str, count: usize| -> Result<Vec<NodeId>, ExecutorError> {
            (0..count).map(|port| id(&format!("{prefix}{port}"))).collect()
        };
        let (input_ids, output_ids) = (ids("in", inputs.len())?, ids("out", outputs.len())?);
        let alone = LoadedAlone::new(&alone, id)?;
        let known_spans = Mutex::default();
        let mut loaded = Self { model, inputs, outputs, input_ids, output_ids, alone, known_spans };
        if !loaded.is_alone_right(span.unwrap_or(1)) {
            loaded.alone = LoadedAlone::Twice;
        }
        Ok(loaded)
    }

    /// Whether rows or sequences may run together.
    pub(crate) fn is_batched(&self) -> bool {
        self.inputs.iter().chain(&self.outputs).all(|port| port.axes.batch)
    }

    /// Whether one row or sequence is computed once, but for products that need it twice.
    pub(crate) fn is_alone_once(&self) -> bool {
        !matches!(self.alone, LoadedAlone::Twice)
    }

    /// Runs `count` rows or sequences, of which ports have `spans` steps: the input ports, then the output
    /// ports. `inputs` are the elements of each input port.
    ///
    /// # Errors
    /// Any but [`ExecutorError::Load`].
    pub(crate) fn run(
        &self,
        count: usize,
        spans: &[u32],
        inputs: Vec<TensorData>,
        thread: &ExecutorThread,
    ) -> Result<Vec<TensorData>, ExecutorError> {
        let (input_spans, output_spans) = spans.split_at(self.inputs.len());
        let shape = |(port, &span): (&Port, &u32)| port.shape(count, span as usize);
        let inputs = shaped(inputs, &self.inputs, self.inputs.iter().zip(input_spans).map(shape))?;
        let expected: Vec<_> = self.outputs.iter().zip(output_spans).map(shape).collect();
        match &self.alone {
            LoadedAlone::Mended { ids, checked_ids, checks, is_double } if count == 1 => {
                let is_short = if checks.is_empty() { Some(false) } else { self.is_short(spans) };
                let outputs = match is_short {
                    Some(true) => return self.run_twice(inputs, expected, thread),
                    Some(false) => self.call(ids, inputs, thread)?,
                    None => {
                        let mut values = self.call(checked_ids, inputs.clone(), thread)?;
                        let outputs = values.split_off(values.len() - self.outputs.len());
                        let is_short = is_sensitive(checks, values);
                        self.learn(spans, is_short);
                        if is_short {
                            return self.run_twice(inputs, expected, thread);
                        }
                        outputs
                    }
                };
                self.data(outputs, expected, is_double)
            }
            LoadedAlone::Twice if count == 1 && self.is_batched() => {
                self.run_twice(inputs, expected, thread)
            }
            _ => {
                let values = self.call(&self.output_ids, inputs, thread)?;
                self.data(values, expected, &vec![false; self.outputs.len()])
            }
        }
    }

    /// One row or sequence as a batch of two.
    fn run_twice(
        &self,
        mut inputs: Vec<Shaped>,
        expected: Vec<Vec<usize>>,
        thread: &ExecutorThread,
    ) -> Result<Vec<TensorData>, ExecutorError> {
        for (shape, data) in &mut inputs {
            shape[0] = 2;
            double(data);
        }
        let values = self.call(&self.output_ids, inputs, thread)?;
        self.data(values, expected, &vec![true; self.outputs.len()])
    }

    fn call(
        &self,
        outputs: &[NodeId],
        inputs: Vec<Shaped>,
        thread: &ExecutorThread,
    ) -> Result<Vec<Value>, ExecutorError> {
        let options = RunOptions::default().with_thread_pool(Some(thread.pool()));
        let values = inputs
            .into_iter()
            .zip(&self.input_ids)
            .map(|((shape, data), &id)| Ok((id, to_value(&shape, data)?)))
            .collect::<Result<Vec<_>, ExecutorError>>()?;
        let run = self.model.run(values, outputs, Some(options));
        run.map_err(|error| ExecutorError::Run(error.to_string()))
    }

    /// The elements of output ports, which must be of the shapes in `expected`; of those that are double, the
    /// first half, which must be of that shape.
    fn data(
        &self,
        values: Vec<Value>,
        expected: Vec<Vec<usize>>,
        is_double: &[bool],
    ) -> Result<Vec<TensorData>, ExecutorError> {
        let outputs = values.into_iter().zip(expected).zip(is_double).enumerate();
        let data = |(port, ((value, mut shape), &is_double)): (_, ((_, Vec<usize>), &bool))| {
            let count = shape.iter().product();
            if is_double {
                shape[0] *= 2;
            }
            let mut data = from_value(port, value, self.outputs[port].row.element, &shape)?;
            data.resize(count);
            Ok(data)
        };
        outputs.map(data).collect()
    }

    fn is_short(&self, spans: &[u32]) -> Option<bool> {
        let known_spans = self.known_spans.lock().unwrap_or_else(PoisonError::into_inner);
        known_spans.get(spans).copied()
    }

    fn learn(&self, spans: &[u32], is_short: bool) {
        let mut known_spans = self.known_spans.lock().unwrap_or_else(PoisonError::into_inner);
        if known_spans.len() == KNOWN_SPANS_MAX {
            known_spans.clear();
        }
        known_spans.insert(spans.to_vec(), is_short);
    }

    /// Whether one row or sequence, of `span` steps, gives the bits that it gives beside another. An
    /// optimisation of rten's that goes across the place where a row is doubled would be found here.
    fn is_alone_right(&self, span: usize) -> bool {
        let LoadedAlone::Mended { checked_ids, is_double, .. } = &self.alone else { return true };
        let thread = ExecutorThread::new();
        let inputs = |count: usize| -> Vec<Shaped> {
            let input = |port: &Port| {
                let (one, all) = (port.shape(1, span), port.shape(count, span));
                let mut data = numbers(port, one.iter().product());
                data.resize(all.iter().product());
                (all, data)
            };
            self.inputs.iter().map(input).collect()
        };
        let Ok(together) = self.call(&self.output_ids, inputs(2), &thread) else {
            // Nothing is known of the lengths that it takes: they are checked as they come.
            return self.inputs.iter().any(|port| port.axes.steps);
        };
        let Ok(mut alone) = self.call(checked_ids, inputs(1), &thread) else { return false };
        let alone = alone.split_off(alone.len() - self.outputs.len());
        let outputs = together.into_iter().zip(alone).zip(is_double);
        let mut pairs = outputs.map(|((together, alone), &is_double)| {
            let (together, alone) = (bits(together), bits(alone));
            let half = together.len() / 2;
            alone.len() == if is_double { 2 * half } else { half }
                && together[..half] == alone[..half]
        });
        pairs.all(|is_equal| is_equal)
    }
}

impl LoadedAlone {
    fn new(
        alone: &Alone,
        id: impl Fn(&str) -> Result<NodeId, ExecutorError>,
    ) -> Result<Self, ExecutorError> {
        let Mended { outputs, shapes, checks } = match alone {
            Alone::Plain => return Ok(Self::Plain),
            Alone::Twice => return Ok(Self::Twice),
            Alone::Mended(mended) => mended,
        };
        let shapes = shapes.iter().map(|name| id(&shape_of(name)));
        let shapes: Vec<NodeId> = shapes.collect::<Result<_, _>>()?;
        let ids = outputs.iter().map(|output| id(&output.name));
        let ids: Vec<NodeId> = ids.collect::<Result<_, _>>()?;
        Ok(Self::Mended {
            checked_ids: [&shapes[..], &ids].concat(),
            ids,
            checks: checks.clone(),
            is_double: outputs.iter().map(|output| output.is_double).collect(),
        })
    }
}

/// How one row or sequence of the program in `file` is run, and the steps that sequences had to find that.
fn plan(file: &mut ModelProto, is_batched: bool, inputs: &[Port]) -> (Alone, Option<usize>) {
    let is_plain = !file.graph.as_ref().is_some_and(single_row::may_be_sensitive);
    if !is_batched || is_plain {
        return (Alone::Plain, None);
    }
    let probe = Probe::run(file, inputs);
    let span = probe.as_ref().map(|probe| probe.span);
    let has_lengths = inputs.iter().any(|port| port.axes.steps);
    let graph = file.graph.as_mut().expect("it has operators");
    (single_row::plan(graph, probe.as_ref(), has_lengths), span)
}

/// Whether an operator among `checks` is sensitive, by the shapes of its operands.
fn is_sensitive(checks: &[Check], shapes: Vec<Value>) -> bool {
    let shapes: Option<Vec<_>> = shapes.into_iter().map(dims).collect();
    let Some(shapes) = shapes else { return true };
    checks.iter().any(|check| check.is_sensitive(&shapes))
}

/// Checks that there is a tensor for each input port, of the port's type, with as many elements as its
/// shape in `shapes` has; and gives each its shape.
///
/// # Errors
/// [`ExecutorError::Input`], [`ExecutorError::InputCount`]
fn shaped(
    inputs: Vec<TensorData>,
    ports: &[Port],
    shapes: impl Iterator<Item = Vec<usize>>,
) -> Result<Vec<Shaped>, ExecutorError> {
    if inputs.len() != ports.len() {
        return Err(ExecutorError::InputCount { count: inputs.len(), expected: ports.len() });
    }
    let inputs = inputs.into_iter().zip(ports).zip(shapes).enumerate();
    let shaped =
        |(port, ((data, Port { row, .. }), shape)): (_, ((TensorData, &Port), Vec<usize>))| {
            let expected_count = shape.iter().product();
            if data.element() != row.element || data.len() != expected_count {
                let (element, count, expected) = (data.element(), data.len(), row.element);
                return Err(ExecutorError::Input {
                    port,
                    count,
                    element,
                    expected_count,
                    expected,
                });
            }
            Ok((shape, data))
        };
    inputs.map(shaped).collect()
}

/// Repeats the data.
fn double(data: &mut TensorData) {
    match data {
        TensorData::F32(data) => data.extend_from_within(..),
        TensorData::I32(data) => data.extend_from_within(..),
        TensorData::I64(data) => data.extend_from_within(..),
        TensorData::Bool(data) => data.extend_from_within(..),
        TensorData::Bytes(_) => {}
    }
}

/// `count` elements that a program can be tried with: numbers from -1 to 1, ids of 0.
fn numbers(port: &Port, count: usize) -> TensorData {
    match port.row.element {
        ElementType::F32 => {
            let mut state = 1u32;
            let number = |_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            };
            TensorData::F32((0..count).map(number).collect())
        }
        element => TensorData::zeros(element, count),
    }
}

fn bits(value: Value) -> Vec<u32> {
    match value {
        Value::FloatTensor(tensor) => tensor.into_data().into_iter().map(f32::to_bits).collect(),
        Value::Int32Tensor(tensor) => tensor.into_data().into_iter().map(|n| n as u32).collect(),
        _ => Vec::new(),
    }
}
