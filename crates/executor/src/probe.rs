//! Which shape each tensor of a program has, found by running the program on zeros: for one row or sequence, for two,
//! and for one of other lengths.

use std::collections::BTreeMap;

use batchmaker_graph::TensorData;
use rten::{Model, ModelOptions, NodeId, RunOptions, Value, ValueOrView};
use rten_onnx::onnx::{DataType, ModelProto, NodeProto, TensorProto, ValueInfoProto};
use rten_tensor::Layout;

use crate::growth::{Growth, Samples};
use crate::inner_shapes::{add_inner_shapes, has_branches, inner_shape_of, made};
use crate::lengths::{Lengths, ports_of_lengths};
use crate::operator::operator;
use crate::port::{Factor, Port};
use crate::tensors::to_value;
use crate::threads::ExecutorThreads;

/// Steps of each sequence that a program is tried with: long enough for most windows, then short enough
/// for most bounds. A program that takes none of them is not probed.
const SPANS: [usize; 2] = [64, 8];

/// Steps that a program with one of [`WINDOWS`] is tried with after these. Any other fails for another reason, and what it
/// allocates before might be large.
const LONG_SPANS: [usize; 2] = [1000, 16_000];

/// The most numbers of a program's constants that are tried as its steps.
const SPANS_OF_CONSTANTS: usize = 24;

/// The greatest of them.
const SPAN_MAX: usize = 1024;

/// The most elements of a constant that may be a shape.
const SHAPE_MAX: usize = 6;

/// Operators that may want many steps.
const WINDOWS: [&str; 7] =
    ["AveragePool", "Conv", "ConvTranspose", "MaxPool", "Pad", "Slice", "Split"];

/// The most elements of an input or output that a program is tried with.
const ELEMENTS_MAX: usize = 1 << 24;

/// Other steps as parts of those of the first run, in eighths: those of a run that changes some lengths, and those of a run
/// that changes all. Multiples of 8 below 64 keep windows of most strides whole. The second pair is for programs that
/// take no fewer steps.
const OTHER_EIGHTHS: [[usize; 2]; 2] = [[5, 6], [12, 11]];

/// Shapes of all tensors of a program by name.
pub(crate) struct Probe {
    /// The shapes for one row or sequence and for two.
    shapes: BTreeMap<String, [Vec<usize>; 2]>,
    /// The shapes of one row or sequence by lengths.
    growths: BTreeMap<String, ShapeGrowth>,
    lengths: Lengths,
    /// Steps that each sequence had.
    pub(crate) span: usize,
}

/// The shape of a tensor as a function of lengths.
#[derive(Clone, Debug)]
pub(crate) struct ShapeGrowth {
    /// Each dimension, for one row or sequence.
    pub(crate) dims: Vec<Growth>,
    /// Whether the tensor holds something of every row or sequence.
    pub(crate) is_batched: bool,
}

impl ShapeGrowth {
    /// The shape of a constant.
    pub(crate) fn constant(dims: &[usize]) -> Self {
        let dim = |&n: &usize| Growth::Linear { constant: n as f64, rates: Vec::new() };
        Self { dims: dims.iter().map(dim).collect(), is_batched: false }
    }
}

/// Shapes in the order of the names of a [`Tracer`].
type Shapes = Vec<Vec<usize>>;

impl Probe {
    /// Probes the program in `model`, which comes back as it was. With `is_batched` it takes several rows or
    /// sequences.
    pub(crate) fn run(
        model: &mut ModelProto,
        inputs: &[Port],
        outputs: &[Port],
        is_batched: bool,
    ) -> Option<Self> {
        let tracer = Tracer::new(model, inputs)?;
        let ports = ports_of_lengths(inputs);
        let has_windows = model.graph.iter().flat_map(|graph| &graph.node);
        let has_windows = has_windows.map(operator).any(|name| WINDOWS.contains(&name));
        let spans = match (ports.is_empty(), has_windows) {
            (true, _) => vec![1],
            (false, true) => [&SPANS[..], &LONG_SPANS, &spans_of_constants(model)].concat(),
            (false, false) => [&SPANS[..], &spans_of_constants(model)].concat(),
        };
        let run = |count: usize, span: usize| tracer.shapes(count, &vec![span; inputs.len()]);
        let two = |span: usize, one: &Shapes| match is_batched {
            true => run(2, span),
            false => Some(one.clone()),
        };
        let elements = |port: &Port, span: usize| {
            let steps = if port.axes.steps { steps_of(port, span) } else { 1 };
            steps.saturating_mul(port.row.elements())
        };
        let (span, one, two) = spans.into_iter().find_map(|span| {
            let mut ports = inputs.iter().chain(outputs);
            if ports.any(|port| elements(port, span) > ELEMENTS_MAX) {
                return None;
            }
            let one = run(1, span)?;
            let two = two(span, &one)?;
            Some((span, one, two))
        })?;
        let (lengths, growths) = grow(&tracer, inputs, span, &one);
        let mut growths: BTreeMap<String, ShapeGrowth> =
            tracer.names.iter().cloned().zip(growths).collect();
        let made = tracer.names.into_iter().zip(one.into_iter().zip(two));
        let mut shapes: BTreeMap<_, _> =
            made.map(|(name, (one, two))| (name, [one, two])).collect();
        for (name, growth) in &mut growths {
            growth.is_batched = shapes[name][0] != shapes[name][1];
        }
        for (number, port) in inputs.iter().enumerate() {
            let name = format!("in{number}");
            let shape = |count| port.shape(count, steps_of(port, span));
            shapes.insert(name.clone(), [1, 2].map(shape));
            growths.insert(name, of_port(number, port, span, &lengths));
        }
        for constant in &model.graph.as_ref()?.initializer {
            let (name, dims) = (constant.name.clone()?, constant_dims(constant));
            growths.insert(name.clone(), ShapeGrowth::constant(&dims));
            shapes.insert(name, [dims.clone(), dims]);
        }
        Some(Self { shapes, growths, lengths, span })
    }

    /// The shapes of a tensor for one row or sequence and for two.
    pub(crate) fn shapes(&self, name: &str) -> Option<&[Vec<usize>; 2]> {
        self.shapes.get(name)
    }

    /// The shape of a tensor as a function of [`Self::lengths`].
    pub(crate) fn growth(&self, name: &str) -> Option<&ShapeGrowth> {
        self.growths.get(name)
    }

    /// The lengths that shapes depend on.
    pub(crate) fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// Whether a tensor holds something of every row or sequence. A constant does not.
    pub(crate) fn is_batched(&self, name: &str) -> bool {
        self.shapes(name).is_some_and(|[one, two]| one != two)
    }

    /// The axis of a tensor that is the batch's and nothing else's.
    pub(crate) fn batch_axis(&self, name: &str) -> Option<usize> {
        let [one, two] = self.shapes(name)?;
        let mut differing = (0..one.len().max(two.len())).filter(|&at| one.get(at) != two.get(at));
        let axis = differing.next()?;
        let is_plain =
            differing.next().is_none() && (one.get(axis), two.get(axis)) == (Some(&1), Some(&2));
        is_plain.then_some(axis)
    }
}

/// Runs a program for the shapes of its tensors.
struct Tracer<'a> {
    inputs: &'a [Port],
    names: Vec<String>,
    /// The program; where it has branches, with either branch taken.
    variants: Vec<(Model, Vec<NodeId>)>,
    threads: ExecutorThreads,
}

impl<'a> Tracer<'a> {
    fn new(file: &mut ModelProto, inputs: &'a [Port]) -> Option<Self> {
        let conditions: &[Option<bool>] = match has_branches(file.graph.as_ref()?) {
            true => &[None, Some(true), Some(false)],
            false => &[None],
        };
        let mut names = Vec::new();
        let mut variants = Vec::new();
        for &condition in conditions {
            let (bytes, made) = with_shapes(file, condition)?;
            let model = ModelOptions::with_all_ops().enable_optimization(false).load(bytes).ok()?;
            let id = |name: &String| model.node_id(&shape_of(name)).ok();
            let ids = made.iter().map(id).collect::<Option<_>>()?;
            variants.push((model, ids));
            names = made;
        }
        Some(Self { inputs, names, variants, threads: ExecutorThreads::new() })
    }

    /// The shapes for `count` rows or sequences, if any variant of the program takes them. `lengths` has the steps of
    /// each input port.
    fn shapes(&self, count: usize, lengths: &[usize]) -> Option<Shapes> {
        let of_port = |(port, &length): (&Port, &usize)| match &port.factors[..] {
            [] => length,
            factors => factors.iter().map(|factor| factor.length(lengths[factor.port])).product(),
        };
        let lengths: Vec<usize> = self.inputs.iter().zip(lengths).map(of_port).collect();
        let variants = self.variants.iter();
        let shapes = variants.filter_map(|(model, ids)| self.run(model, ids, count, &lengths));
        shapes.reduce(|all, other| {
            let larger = |(a, b): (Vec<usize>, Vec<usize>)| {
                let elements = |shape: &[usize]| shape.iter().product::<usize>();
                if elements(&a) >= elements(&b) { a } else { b }
            };
            all.into_iter().zip(other).map(larger).collect()
        })
    }

    fn run(
        &self,
        model: &Model,
        ids: &[NodeId],
        count: usize,
        lengths: &[usize],
    ) -> Option<Shapes> {
        let input = |(number, port): (usize, &Port)| {
            let shape = port.shape(count, lengths[number]);
            let data = trial_input(port, &shape, lengths[number]);
            Some((model.node_id(&format!("in{number}")).ok()?, to_value(&shape, data).ok()?.into()))
        };
        let values: Vec<(NodeId, ValueOrView<'_>)> =
            self.inputs.iter().enumerate().map(input).collect::<Option<_>>()?;
        let options = RunOptions::default().with_thread_pool(Some(self.threads.pool()));
        let shapes = model.run(values, ids, Some(options)).ok()?;
        shapes.into_iter().map(largest).collect()
    }
}

/// The steps that a program may take and no others: the numbers that its small constants, which hold shapes, have most often. Those
/// that take the least memory come first.
fn spans_of_constants(model: &ModelProto) -> Vec<usize> {
    let constants = model.graph.iter().flat_map(|graph| &graph.initializer);
    let shapes = constants.filter_map(shape_in).flatten();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    shapes.for_each(|n| *counts.entry(n).or_default() += 1);
    let mut spans: Vec<(usize, usize)> = counts.into_iter().collect();
    spans.sort_by_key(|&(span, count)| (std::cmp::Reverse(count), std::cmp::Reverse(span)));
    spans.truncate(SPANS_OF_CONSTANTS);
    spans.sort_unstable();
    spans.into_iter().map(|(span, _)| span).collect()
}

/// The numbers of a constant that may be a shape; without those that are no length of several steps.
fn shape_in(constant: &TensorProto) -> Option<Vec<usize>> {
    let ints = int_elements(constant).filter(|ints| ints.len() <= SHAPE_MAX)?;
    let lengths = ints.into_iter().filter_map(|n| usize::try_from(n).ok());
    Some(lengths.filter(|n| (2..=SPAN_MAX).contains(n)).collect())
}

/// Fits the shapes of all tensors to runs of other lengths than `span`, with which they are `base`.
fn grow(
    tracer: &Tracer<'_>,
    inputs: &[Port],
    span: usize,
    base: &Shapes,
) -> (Lengths, Vec<ShapeGrowth>) {
    let ports = ports_of_lengths(inputs);
    let lengths_with = |ports: &[usize], other: usize| -> Vec<usize> {
        let of_port = |port: usize| if ports.contains(&port) { other } else { span };
        (0..inputs.len()).map(of_port).collect()
    };
    let mut known: BTreeMap<(Vec<usize>, usize), Option<Shapes>> = BTreeMap::new();
    let mut run = |ports: &[usize], other: usize| -> Option<Shapes> {
        let key = (ports.to_vec(), other);
        let run = || tracer.shapes(1, &lengths_with(ports, other));
        known.entry(key).or_insert_with(run).clone()
    };
    let others = OTHER_EIGHTHS.map(|eighths| eighths.map(|eighths| (span * eighths / 8).max(1)));
    let other = others.into_iter().find(|[other, _]| run(&ports, *other).is_some());
    let [other, check] = other.unwrap_or([span; 2]);
    let lengths = Lengths::find(inputs, |ports| run(ports, other).is_some());
    let changed: Vec<Option<Shapes>> =
        (0..lengths.count()).map(|at| run(lengths.ports(at), other)).collect();
    let checked = run(&ports, check).filter(|_| check != span);
    let (base_lengths, other_lengths, check_lengths) = (
        vec![span; lengths.count()],
        // Where no other length runs, shapes are taken to grow as fast as any that is looked for.
        vec![if other == span { span + 1 } else { other }; lengths.count()],
        vec![check; lengths.count()],
    );
    let samples = Samples {
        base: &base_lengths,
        changed: &other_lengths,
        check: checked.as_ref().map(|_| &check_lengths[..]),
    };
    let dims_of =
        |shapes: &Option<Shapes>, at: usize| shapes.as_ref().map(|shapes| shapes[at].clone());
    let growth = |(at, base): (usize, &Vec<usize>)| {
        let changed: Vec<Vec<usize>> =
            changed.iter().map(|shapes| dims_of(shapes, at).unwrap_or(base.clone())).collect();
        let checked = dims_of(&checked, at);
        let ranks = changed.iter().chain(&checked).map(Vec::len);
        let dims: Vec<Growth> = match ranks.clone().all(|rank| rank == base.len()) {
            true => {
                let dim = |axis: usize| {
                    let changed: Vec<usize> = changed.iter().map(|dims| dims[axis]).collect();
                    let checked = checked.as_ref().map(|dims| dims[axis]);
                    Growth::fit(&samples, base[axis], &changed, checked)
                };
                (0..base.len()).map(dim).collect()
            }
            // The tensor is another one: its elements count.
            false => {
                let elements = |dims: &Vec<usize>| dims.iter().product::<usize>();
                let changed: Vec<usize> = changed.iter().map(elements).collect();
                let checked = checked.as_ref().map(elements);
                vec![Growth::fit(&samples, elements(base), &changed, checked)]
            }
        };
        ShapeGrowth { dims, is_batched: false }
    };
    let growths = base.iter().enumerate().map(growth).collect();
    (lengths, growths)
}

/// Zeros of this shape, or the length that a port is to hold.
pub(crate) fn trial_input(port: &Port, shape: &[usize], length: usize) -> TensorData {
    let elements = shape.iter().product();
    match port.is_count() {
        true => TensorData::I64(vec![length as i64; elements]),
        false => TensorData::zeros(port.row.element, elements),
    }
}

/// The steps of an input port where every length is `span`.
pub(crate) fn steps_of(port: &Port, span: usize) -> usize {
    match &port.factors[..] {
        [] => span,
        factors => factors.iter().map(|factor| factor.length(span)).product(),
    }
}

/// The shape of an input port.
fn of_port(number: usize, port: &Port, span: usize, lengths: &Lengths) -> ShapeGrowth {
    let own = (0..lengths.count()).find(|&at| lengths.ports(at).contains(&number));
    let rate = |at: usize| if Some(at) == own { 1.0 } else { 0.0 };
    let rates = (0..lengths.count()).map(rate).collect();
    let degree = |at: usize| {
        let is_factor = |factor: &&Factor| lengths.ports(at).contains(&factor.port);
        port.factors.iter().filter(is_factor).count() as i32
    };
    let growth = match port.factors.is_empty() {
        true => Growth::Linear { constant: 0.0, rates },
        false => Growth::Power {
            size: steps_of(port, span) as f64,
            base: vec![span as f64; lengths.count()],
            degrees: (0..lengths.count()).map(degree).collect(),
        },
    };
    let steps = port.axes.steps.then_some(growth);
    let batch = port.axes.batch.then_some(1);
    let constant = |n: usize| Growth::Linear { constant: n as f64, rates: Vec::new() };
    let row = port.row.shape.iter().copied().map(constant);
    let dims = batch.map(constant).into_iter().chain(steps).chain(row).collect();
    ShapeGrowth { dims, is_batched: port.axes.batch }
}

/// The elements of an INT64 constant.
pub(crate) fn int_elements(constant: &TensorProto) -> Option<Vec<i64>> {
    if constant.data_type != Some(DataType::INT64) {
        return None;
    }
    Some(match &constant.raw_data {
        Some(raw) => {
            let bytes = raw.borrow();
            let (ints, _) = bytes.as_chunks::<8>();
            ints.iter().map(|&int| i64::from_le_bytes(int)).collect()
        }
        None => constant.int64_data.clone(),
    })
}

/// The shape of a constant.
pub(crate) fn constant_dims(constant: &TensorProto) -> Vec<usize> {
    constant.dims.iter().map(|&n| n as usize).collect()
}

/// The elements of a shape that a program computed.
pub(crate) fn dims(shape: Value) -> Option<Vec<usize>> {
    match shape {
        Value::Int32Tensor(tensor) => {
            tensor.into_data().into_iter().map(|n| usize::try_from(n).ok()).collect()
        }
        _ => None,
    }
}

/// The elements of a shape; of several, `[iterations, rank]`, the largest dimensions.
fn largest(shapes: Value) -> Option<Vec<usize>> {
    let rank = match shapes.shape().as_slice() {
        &[_, rank] => rank,
        _ => return dims(shapes),
    };
    let all = dims(shapes)?;
    let dim = |axis: usize| all.iter().skip(axis).step_by(rank).copied().max().unwrap_or(0);
    Some((0..rank).map(dim).collect())
}

/// The name of a tensor's shape.
pub(crate) fn shape_of(name: &str) -> String {
    format!("shape of {name}")
}

/// The operator that computes a tensor's shape.
pub(crate) fn shape_node(name: &str) -> NodeProto {
    NodeProto {
        op_type: Some("Shape".to_owned()),
        input: vec![name.to_owned()],
        output: vec![shape_of(name)],
        ..NodeProto::default()
    }
}

/// The program with the shapes of all tensors as outputs, and the tensors' names. `file` comes back as it was. See
/// [`add_inner_shapes`] for `condition`.
fn with_shapes(file: &mut ModelProto, condition: Option<bool>) -> Option<(Vec<u8>, Vec<String>)> {
    let graph = file.graph.as_mut()?;
    let (nodes, outputs) = (graph.node.clone(), graph.output.len());
    let constants = graph.initializer.len();
    let mut names: Vec<String> = made(graph).cloned().collect();
    graph.node.extend(names.iter().map(|name| shape_node(name)));
    let inner = add_inner_shapes(graph, condition);
    let identity = |name: &String| NodeProto {
        op_type: Some("Identity".to_owned()),
        input: vec![inner_shape_of(name)],
        output: vec![shape_of(name)],
        ..NodeProto::default()
    };
    graph.node.extend(inner.iter().map(identity));
    names.extend(inner);
    let info = |name: &String| ValueInfoProto { name: Some(shape_of(name)), r#type: None };
    graph.output.extend(names.iter().map(info));
    let bytes = file.write_buf().ok();
    let graph = file.graph.as_mut()?;
    graph.node = nodes;
    graph.output.truncate(outputs);
    graph.initializer.truncate(constants);
    Some((bytes?, names))
}
