//! A program in one of the executors.

mod choosing;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use batchmaker_graph::{Program, TensorData};
use batchmaker_kernels::Packing;
use rten::{Model, ModelOptions, NodeId, RunOptions, Value};
use rten_onnx::onnx::ModelProto;

use crate::error::ExecutorError;
use crate::executor_choice::{Executor, ProgramOptions};
use crate::made_up::{made_up, numbers};
use crate::onnx_runtime::OnnxRuntimeProgram;
use crate::port::Port;
use crate::probe::{Probe, dims, shape_of, steps_of};
use crate::program_file::{OPERATORS_OF_THREAD, on_large_stack};
use crate::row_count::may_be_sensitive;
use crate::sections::{Cut, SectionedProgram, cut};
use crate::shape_check::ShapeCheck;
use crate::single_row::{self, SingleRow, SingleRowBranch};
use crate::tensors::{Shaped, checked, from_value, to_value};
use crate::threads::ExecutorThreads;
use crate::working_bytes::WorkingBytes;

/// The most lists of spans that are remembered. The memory is cleared when it is full.
const KNOWN_SPANS_MAX: usize = 4096;

/// A program that is loaded: its graph optimised, the weights of its products packed.
pub(crate) struct Loaded {
    engine: Engine,
    pub(crate) inputs: Vec<Port>,
    pub(crate) outputs: Vec<Port>,
    output_ids: Vec<NodeId>,
    single_row: LoadedSingleRow,
    /// For each list of spans that one sequence had, whether the branch for a single sequence cannot run it: so few
    /// steps make operators sensitive that the branch runs once.
    known_spans: Mutex<BTreeMap<Vec<u32>, bool>>,
    working_bytes: WorkingBytes,
    /// Steps of each sequence that the program is known to take; none if it could not be probed.
    known_steps: Option<usize>,
    /// Why the executor that was wanted does not run it.
    refusal: Option<String>,
    /// Whether rten, which calls itself for each of a chain's operators, needs a large stack to run it.
    is_deep: bool,
}

/// A program in the form in which it runs.
enum Engine {
    /// The whole program in rten, with the ids of its inputs.
    Whole(Box<Model>, Vec<NodeId>),
    /// A program that was cut into sections.
    Sections(SectionedProgram),
    OnnxRuntime(OnnxRuntimeProgram),
}

/// See [`SingleRow`].
enum LoadedSingleRow {
    Plain,
    Twice,
    Branch {
        /// The branch's output for each output port.
        ids: Vec<NodeId>,
        /// The shapes that are checked, then the branch's output for each output port.
        checked_ids: Vec<NodeId>,
        checks: Vec<ShapeCheck>,
        /// For each output port, whether the branch's output holds the row or sequence twice.
        is_double: Vec<bool>,
    },
}

impl Loaded {
    /// Loads `program`, whose inputs are `in0`, `in1`, … and whose outputs are `out0`, `out1`, ….
    ///
    /// # Errors
    /// [`ExecutorError::Load`]
    pub(crate) fn new(
        program: &Program,
        inputs: Vec<Port>,
        outputs: Vec<Port>,
        options: &ProgramOptions,
    ) -> Result<Self, ExecutorError> {
        on_large_stack(program, || Self::load(program, inputs, outputs, options))
    }

    /// The program in the own executor.
    fn in_own(
        program: &Program,
        (mut file, probe): (ModelProto, Option<Probe>),
        inputs: Vec<Port>,
        outputs: Vec<Port>,
        packing: Packing,
    ) -> Result<Self, ExecutorError> {
        let error =
            |reason: String| ExecutorError::Load { summary: program.summary.clone(), reason };
        let is_batched = inputs.iter().chain(&outputs).all(|port| port.axes.batch);
        let known_steps = probe.as_ref().map(|probe| probe.span);
        if let Some(probe) = &probe
            && let Some(cut) = cut(&file, probe, packing)
        {
            return Ok(Self::in_sections(cut, probe, inputs, outputs));
        }
        let single_row = plan(&mut file, probe.as_ref(), is_batched, &inputs);
        let graph = file.graph.as_ref().ok_or_else(|| error("it has no graph".to_owned()))?;
        let working_bytes =
            WorkingBytes::new(graph, probe.as_ref(), &single_row, &inputs, &outputs);
        let bytes = match &single_row {
            SingleRow::Branch(_) => file.write_buf().map_err(|e| error(e.to_string()))?,
            SingleRow::Plain | SingleRow::Twice => program.bytes.to_vec(),
        };
        let operators = file.graph.as_ref().map_or(0, |graph| graph.node.len());
        let is_deep = operators > OPERATORS_OF_THREAD;
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
        let single_row = LoadedSingleRow::new(&single_row, id)?;
        let engine = Engine::Whole(Box::new(model), input_ids);
        let loaded = Self::with(engine, [inputs, outputs], working_bytes, known_steps);
        let mut loaded = Self { output_ids, single_row, is_deep, ..loaded };
        if !loaded.has_same_bits_as_two(probe.map_or(1, |probe| probe.span)) {
            loaded.single_row = LoadedSingleRow::Twice;
            loaded.working_bytes.run_twice();
        }
        Ok(loaded)
    }

    /// Whether it needs a large stack to run.
    pub(crate) fn is_deep(&self) -> bool {
        self.is_deep
    }

    fn in_sections(cut: Cut, probe: &Probe, inputs: Vec<Port>, outputs: Vec<Port>) -> Self {
        let Cut { program, graph, copies, scratch_bytes } = cut;
        let working_bytes =
            WorkingBytes::of_sections(&graph, probe, (&copies, scratch_bytes), &inputs, &outputs);
        let engine = Engine::Sections(program);
        Self::with(engine, [inputs, outputs], working_bytes, Some(probe.span))
    }

    /// The program in `engine`, which computes a single row or sequence as it does several.
    fn with(
        engine: Engine,
        [inputs, outputs]: [Vec<Port>; 2],
        working_bytes: WorkingBytes,
        known_steps: Option<usize>,
    ) -> Self {
        Self {
            engine,
            inputs,
            outputs,
            output_ids: Vec::new(),
            single_row: LoadedSingleRow::Plain,
            known_spans: Mutex::default(),
            working_bytes,
            known_steps,
            refusal: None,
            is_deep: false,
        }
    }

    /// The executor that runs the program.
    pub(crate) fn executor(&self) -> Executor {
        match &self.engine {
            Engine::Whole(..) | Engine::Sections(_) => Executor::Own,
            Engine::OnnxRuntime(program) => Executor::OnnxRuntime(program.runtime().clone()),
        }
    }

    /// Why the executor that was wanted does not run the program.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// The program, with the reason why the executor that was wanted does not run it.
    pub(crate) fn refused(self, reason: String) -> Self {
        Self { refusal: Some(reason), ..self }
    }

    /// See [`WorkingBytes::bound_batches`].
    pub(crate) fn bound_batches(mut self, bytes: u64) -> Self {
        self.working_bytes.bound_batches(bytes);
        self
    }

    /// The bytes that runs of the program take.
    pub(crate) fn working_bytes(&self) -> &WorkingBytes {
        &self.working_bytes
    }

    /// Whether rows or sequences may run together.
    pub(crate) fn is_batched(&self) -> bool {
        self.inputs.iter().chain(&self.outputs).all(|port| port.axes.batch)
    }

    /// Whether a single row or sequence is computed once, but for products that need it twice.
    pub(crate) fn computes_single_row_once(&self) -> bool {
        !matches!(self.single_row, LoadedSingleRow::Twice)
    }

    /// Checks the inputs of `count` rows or sequences, of which ports have `spans` steps.
    ///
    /// # Errors
    /// [`ExecutorError::Input`], [`ExecutorError::InputCount`]
    pub(crate) fn check_inputs(
        &self,
        count: usize,
        spans: &[u32],
        inputs: &[TensorData],
    ) -> Result<(), ExecutorError> {
        let shapes = self.inputs.iter().zip(spans);
        check(inputs, &self.inputs, shapes.map(|(port, &span)| port.shape(count, span as usize)))
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
        threads: &ExecutorThreads,
    ) -> Result<Vec<TensorData>, ExecutorError> {
        let (input_spans, output_spans) = spans.split_at(self.inputs.len());
        let shape = |(port, &span): (&Port, &u32)| port.shape(count, span as usize);
        let shapes: Vec<Vec<usize>> = self.inputs.iter().zip(input_spans).map(shape).collect();
        check(&inputs, &self.inputs, shapes.iter().cloned())?;
        let inputs: Vec<Shaped> = shapes.into_iter().zip(inputs).collect();
        let expected: Vec<_> = self.outputs.iter().zip(output_spans).map(shape).collect();
        if let Engine::OnnxRuntime(program) = &self.engine {
            let outputs = program
                .run(inputs, self.bytes(count, spans), threads)?
                .into_iter()
                .zip(expected)
                .enumerate();
            let element = |port: usize| self.outputs[port].row.element;
            let outputs = outputs
                .map(|(port, (output, expected))| checked(port, output, element(port), &expected));
            return outputs.collect();
        }
        let (values, is_double) = self.compute(count, spans, inputs, threads)?;
        self.data(values, expected, &is_double)
    }

    /// The number of sequences of `steps` steps that run together, at least 1. Without `steps`, they are those that the program is
    /// known to take.
    pub(crate) fn batch_max(&self, steps: Option<usize>) -> usize {
        self.working_bytes.batch_max(&self.spans(steps)) as usize
    }

    /// The rows of all ports where sequences have `steps` steps, or those that the program is known to take.
    fn spans(&self, steps: Option<usize>) -> Vec<u32> {
        let steps = steps.or(self.known_steps).unwrap_or(1);
        let ports = self.inputs.iter().chain(&self.outputs);
        ports.map(|port| steps_of(port, steps) as u32).collect()
    }

    /// About the bytes that a run of `count` rows or sequences of these spans allocates.
    fn bytes(&self, count: usize, spans: &[u32]) -> u64 {
        self.working_bytes.of_one(spans).saturating_mul(count as u64)
    }

    /// Takes the time of a run of `count` rows or sequences of `steps` steps that hold any numbers. Without `steps`, they are those
    /// that the program is known to take. Returns the steps too.
    ///
    /// # Errors
    /// [`ExecutorError::Run`], [`ExecutorError::Integer`]
    pub(crate) fn time(
        &self,
        count: usize,
        steps: Option<usize>,
        threads: &ExecutorThreads,
    ) -> Result<(Duration, usize), ExecutorError> {
        let spans = self.spans(steps);
        let steps = steps.or(self.known_steps).unwrap_or(1);
        let inputs = made_up(&self.inputs, count, steps);
        let start = Instant::now();
        match &self.engine {
            Engine::OnnxRuntime(program) => {
                drop(program.run(inputs, self.bytes(count, &spans), threads)?)
            }
            Engine::Whole(..) | Engine::Sections(_) => {
                drop(self.compute(count, &spans, inputs, threads)?);
            }
        }
        Ok((start.elapsed(), steps))
    }

    /// The outputs of `count` rows or sequences, and for each whether it holds the only row or sequence twice.
    fn compute(
        &self,
        count: usize,
        spans: &[u32],
        inputs: Vec<Shaped>,
        threads: &ExecutorThreads,
    ) -> Result<(Vec<Value>, Vec<bool>), ExecutorError> {
        let all = |is_double| vec![is_double; self.outputs.len()];
        let twice = |mut inputs: Vec<Shaped>| {
            for (shape, data) in &mut inputs {
                shape[0] = 2;
                double(data);
            }
            Ok((self.call(&self.output_ids, inputs, threads)?, all(true)))
        };
        match &self.single_row {
            LoadedSingleRow::Branch { ids, checked_ids, checks, is_double } if count == 1 => {
                let is_short = if checks.is_empty() { Some(false) } else { self.is_short(spans) };
                let outputs = match is_short {
                    Some(true) => return twice(inputs),
                    Some(false) => self.call(ids, inputs, threads)?,
                    None => {
                        let mut values = self.call(checked_ids, inputs.clone(), threads)?;
                        let outputs = values.split_off(values.len() - self.outputs.len());
                        let is_short = is_sensitive(checks, values);
                        self.learn(spans, is_short);
                        if is_short {
                            return twice(inputs);
                        }
                        outputs
                    }
                };
                Ok((outputs, is_double.clone()))
            }
            LoadedSingleRow::Twice if count == 1 && self.is_batched() => twice(inputs),
            _ => Ok((self.call(&self.output_ids, inputs, threads)?, all(false))),
        }
    }

    fn call(
        &self,
        outputs: &[NodeId],
        inputs: Vec<Shaped>,
        threads: &ExecutorThreads,
    ) -> Result<Vec<Value>, ExecutorError> {
        let values = inputs.into_iter().map(|(shape, data)| to_value(&shape, data));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        match &self.engine {
            Engine::Sections(program) => program.run(values, threads),
            Engine::OnnxRuntime(_) => unreachable!("it takes no tensors of rten"),
            Engine::Whole(model, input_ids) => {
                let options = RunOptions::default().with_thread_pool(Some(threads.pool()));
                let values = input_ids.iter().zip(values).map(|(&id, value)| (id, value.into()));
                let run = model.run(values.collect(), outputs, Some(options));
                run.map_err(|error| ExecutorError::Run(error.to_string()))
            }
        }
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

    /// Whether one row or sequence of `span` steps gives the bits that it gives beside another. An optimisation of
    /// rten's that goes across the place where a row is doubled would be found here.
    fn has_same_bits_as_two(&self, span: usize) -> bool {
        let LoadedSingleRow::Branch { checked_ids, is_double, .. } = &self.single_row else {
            return true;
        };
        let threads = ExecutorThreads::new();
        let inputs = |count: usize| -> Vec<Shaped> {
            let input = |port: &Port| {
                let (one, all) = (port.shape(1, span), port.shape(count, span));
                let mut data = numbers(port, one.iter().product());
                data.resize(all.iter().product());
                (all, data)
            };
            self.inputs.iter().map(input).collect()
        };
        let Ok(together) = self.call(&self.output_ids, inputs(2), &threads) else {
            // Nothing is known of the lengths that it takes: they are checked as they come.
            return self.inputs.iter().any(|port| port.axes.steps);
        };
        let Ok(mut single) = self.call(checked_ids, inputs(1), &threads) else { return false };
        let single = single.split_off(single.len() - self.outputs.len());
        let outputs = together.into_iter().zip(single).zip(is_double);
        let mut pairs = outputs.map(|((together, single), &is_double)| {
            let (together, single) = (bits(together), bits(single));
            let half = together.len() / 2;
            single.len() == if is_double { 2 * half } else { half }
                && together[..half] == single[..half]
        });
        pairs.all(|is_equal| is_equal)
    }
}

impl LoadedSingleRow {
    fn new(
        plan: &SingleRow,
        id: impl Fn(&str) -> Result<NodeId, ExecutorError>,
    ) -> Result<Self, ExecutorError> {
        let SingleRowBranch { outputs, shapes, checks, .. } = match plan {
            SingleRow::Plain => return Ok(Self::Plain),
            SingleRow::Twice => return Ok(Self::Twice),
            SingleRow::Branch(branch) => branch,
        };
        let shapes = shapes.iter().map(|name| id(&shape_of(name)));
        let shapes: Vec<NodeId> = shapes.collect::<Result<_, _>>()?;
        let ids = outputs.iter().map(|output| id(&output.name));
        let ids: Vec<NodeId> = ids.collect::<Result<_, _>>()?;
        Ok(Self::Branch {
            checked_ids: [&shapes[..], &ids].concat(),
            ids,
            checks: checks.clone(),
            is_double: outputs.iter().map(|output| output.is_double).collect(),
        })
    }
}

/// Plans how one row or sequence of the program in `file` runs.
fn plan(
    file: &mut ModelProto,
    probe: Option<&Probe>,
    is_batched: bool,
    inputs: &[Port],
) -> SingleRow {
    let graph = file.graph.as_mut().filter(|graph| is_batched && may_be_sensitive(graph));
    let Some(graph) = graph else { return SingleRow::Plain };
    let has_lengths = inputs.iter().any(|port| port.axes.steps);
    single_row::plan(graph, probe, has_lengths)
}

/// Whether an operator among `checks` is sensitive, by the shapes of its operands.
fn is_sensitive(checks: &[ShapeCheck], shapes: Vec<Value>) -> bool {
    let shapes: Option<Vec<_>> = shapes.into_iter().map(dims).collect();
    let Some(shapes) = shapes else { return true };
    checks.iter().any(|check| check.is_sensitive(&shapes))
}

/// Checks that there is a tensor for each input port, of the port's type, with as many elements as its
/// shape in `shapes` has.
///
/// # Errors
/// [`ExecutorError::Input`], [`ExecutorError::InputCount`]
fn check(
    inputs: &[TensorData],
    ports: &[Port],
    shapes: impl Iterator<Item = Vec<usize>>,
) -> Result<(), ExecutorError> {
    if inputs.len() != ports.len() {
        return Err(ExecutorError::InputCount { count: inputs.len(), expected: ports.len() });
    }
    for (port, ((data, Port { row, .. }), shape)) in
        inputs.iter().zip(ports).zip(shapes).enumerate()
    {
        let expected_count = shape.iter().product();
        if data.element() != row.element || data.len() != expected_count {
            let (element, count, expected) = (data.element(), data.len(), row.element);
            return Err(ExecutorError::Input { port, count, element, expected_count, expected });
        }
    }
    Ok(())
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

fn bits(value: Value) -> Vec<u32> {
    match value {
        Value::FloatTensor(tensor) => tensor.into_data().into_iter().map(f32::to_bits).collect(),
        Value::Int32Tensor(tensor) => tensor.into_data().into_iter().map(|n| n as u32).collect(),
        _ => Vec::new(),
    }
}
