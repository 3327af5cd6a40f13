//! Cuts a program into steps: convolutions and products with weights, each with what follows it, and islands of all else.
//!
//! The *depth* of an operator is the most steps of ours upstream of it. Operators of one depth are one island, which runs
//! before the steps that read it.

use std::collections::{BTreeMap, BTreeSet};

use batchmaker_kernels::Activation;
use rten_onnx::onnx::{GraphProto, ModelProto, NodeProto};

use crate::operator::operator;
use crate::probe::Probe;
use crate::row_count::may_be_sensitive;
use crate::run_order::reads;
use crate::single_row_branch::Copies;
use crate::steps::convolution::Convolution;
use crate::steps::island::{ConstantLayout, Island};
use crate::steps::pooling::Pool;
use crate::steps::product::Product;
use crate::steps::stepped::{Step, Stepped, Work};
use crate::steps::weights::{Constants, float, int};

/// A program that was cut.
pub(crate) struct Cut {
    pub(crate) stepped: Stepped,
    /// Its operators in the order of its steps, for plans of memory. Steps of ours have operators of their own names.
    pub(crate) graph: GraphProto,
    /// The tensors of `graph` that are others in another layout.
    pub(crate) copies: Copies,
    /// Bytes that one of its steps needs beside its tensors.
    pub(crate) scratch_bytes: u64,
}

/// Cuts the program in `file`; none if it has no convolution of ours, or an operator that would look at the number of rows.
pub(crate) fn cut(file: &ModelProto, probe: &Probe) -> Option<Cut> {
    let graph = file.graph.as_ref()?;
    let constants = Constants::of(graph);
    let mut sorter = Sorter::new(graph, &constants, probe);
    graph.node.iter().try_for_each(|node| sorter.add(node))?;
    sorter.prune(graph);
    let Sorter { ours, rest, .. } = sorter;
    if !ours.iter().any(|ours| matches!(ours.kind, Kind::Convolution(_))) {
        return None;
    }
    let nodes = rest.values().flatten().map(|&node| node.clone()).collect();
    let islands =
        GraphProto { node: nodes, initializer: graph.initializer.clone(), ..GraphProto::default() };
    if may_be_sensitive(&islands) {
        return None;
    }
    let writer = StepWriter {
        file,
        constants: &constants,
        names: BTreeMap::new(),
        steps: Vec::new(),
        tensors: 0,
        graph: GraphProto::default(),
        copies: Copies::new(),
        scratch_bytes: 0,
    };
    writer.write(graph, ours, &rest)
}

/// Operators that make an element of one of each tensor.
const ELEMENTWISE: [&str; 24] = [
    "Abs",
    "Add",
    "Ceil",
    "Clip",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Max",
    "Min",
    "Mul",
    "Neg",
    "Relu",
    "Sigmoid",
    "Softplus",
    "Sqrt",
    "Sub",
    "Sum",
    "Swish",
    "Tanh",
];

/// A step of ours, with what follows it.
struct Ours {
    kind: Kind,
    reads: Vec<String>,
    activation: Activation,
    out: String,
    depth: usize,
}

enum Kind {
    Convolution(Box<Convolution>),
    /// Shape, weights and bias.
    Product([usize; 2], Vec<f32>, Option<Vec<f32>>),
    Pool(Pool),
    /// Along channels.
    Concat,
    /// Operators that make an element of one of each tensor.
    Elements(Vec<NodeProto>),
}

/// Sorts operators into steps of ours and islands by their depth.
struct Sorter<'a> {
    constants: &'a Constants<'a>,
    probe: &'a Probe,
    readers: BTreeMap<&'a str, usize>,
    /// The operator that makes a tensor.
    makers: BTreeMap<&'a str, &'a NodeProto>,
    depths: BTreeMap<&'a str, usize>,
    ours: Vec<Ours>,
    rest: BTreeMap<usize, Vec<&'a NodeProto>>,
}

impl<'a> Sorter<'a> {
    fn new(graph: &'a GraphProto, constants: &'a Constants<'a>, probe: &'a Probe) -> Self {
        let mut readers = BTreeMap::new();
        let outputs = graph.output.iter().filter_map(|output| output.name.as_deref());
        for name in graph.node.iter().flat_map(reads).chain(outputs) {
            *readers.entry(name).or_insert(0) += 1;
        }
        let (depths, ours, rest) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        let made = |node: &'a NodeProto| node.output.iter().map(move |name| (name.as_str(), node));
        let makers = graph.node.iter().flat_map(made).collect();
        Self { constants, probe, readers, makers, depths, ours, rest }
    }

    fn depth(&self, name: &str) -> usize {
        self.depths.get(name).copied().unwrap_or(0)
    }

    /// None for an operator that has no name for its output.
    fn add(&mut self, node: &'a NodeProto) -> Option<()> {
        let depth = reads(node).iter().map(|name| self.depth(name)).max().unwrap_or(0);
        let out = node.output.first()?;
        let depth = if let Some(kind) = self.kind(node) {
            let mut reads: Vec<String> = Vec::new();
            for name in node.input.iter().filter(|name| !self.constants.has(name)) {
                if !name.is_empty() && (matches!(kind, Kind::Concat) || !reads.contains(name)) {
                    reads.push(name.clone());
                }
            }
            let (activation, out) = (Activation::Identity, out.clone());
            self.ours.push(Ours { kind, reads, activation, out, depth: depth + 1 });
            depth + 1
        } else if let Some(depth) = self.follow(node, out) {
            depth
        } else if self.is_of_elements(node) {
            self.elements(node, out, depth)
        } else {
            self.rest.entry(depth).or_default().push(node);
            depth
        };
        node.output.iter().for_each(|name| _ = self.depths.insert(name, depth));
        Some(())
    }

    fn kind(&self, node: &NodeProto) -> Option<Kind> {
        let x = node.input.first().filter(|x| !self.constants.has(x))?;
        match operator(node) {
            "Conv" => Some(Kind::Convolution(Box::new(Convolution::of(node, self.constants)?))),
            "MatMul" => {
                let (shape, weights) = self.constants.floats(node.input.get(1)?)?;
                let shape: [usize; 2] = shape.try_into().ok()?;
                let rank = self.probe.shapes(x)?[0].len();
                (rank >= 2 && shape[1] > 0).then_some(Kind::Product(shape, weights, None))
            }
            "MaxPool" | "AveragePool" => {
                let is_one = node.output.len() == 1 && self.has_channels(x);
                Some(Kind::Pool(Pool::of(node).filter(|_| is_one)?))
            }
            "Concat" => {
                let parts = node.input.iter();
                let is_ours = int(node, "axis", 0) == 1
                    && self.has_pixels(node)
                    && parts.clone().all(|name| self.has_channels(name))
                    && !parts.clone().any(|name| self.constants.has(name));
                is_ours.then_some(Kind::Concat)
            }
            _ => None,
        }
    }

    /// Lets an operator follow the step of ours whose output it alone reads; gives that step's depth.
    fn follow(&mut self, node: &NodeProto, out: &str) -> Option<usize> {
        let is_followed = |name: &String| self.readers.get(name.as_str()) == Some(&1);
        let place = |name: &String| {
            let place = self.ours.iter().position(|ours| &ours.out == name);
            place.filter(|_| is_followed(name))
        };
        if let Some(activation) = self.activation(node)
            && let Some(ours) = place(node.input.first()?)
            && self.ours[ours].activation == Activation::Identity
            && matches!(self.ours[ours].kind, Kind::Convolution(_) | Kind::Product(..))
        {
            let ours = &mut self.ours[ours];
            ours.activation = activation;
            out.clone_into(&mut ours.out);
            return Some(ours.depth);
        }
        if let Some(pool) = self.pool_rounded_to_zero(node) {
            let ours = &mut self.ours[pool];
            out.clone_into(&mut ours.out);
            if let Kind::Pool(pool) = &mut ours.kind {
                pool.round_to_zero();
            }
            return Some(ours.depth);
        }
        if operator(node) != "Add" {
            return None;
        }
        let [a, b] = &node.input[..] else { return None };
        let places = [(place(a), b), (place(b), a)];
        // Of two steps the later one: the other has run.
        let (ours, other) =
            places.into_iter().filter_map(|(at, other)| Some((at?, other))).max()?;
        let is_sum = self.is_sum(ours, other, out)?;
        let depth = self.ours[ours].depth;
        if !is_sum {
            let (_, b) = self.constants.floats(other)?;
            let Kind::Product(_, _, bias) = &mut self.ours[ours].kind else { return None };
            *bias = Some(b);
        } else {
            self.ours[ours].reads.push(other.clone());
        }
        out.clone_into(&mut self.ours[ours].out);
        Some(depth)
    }

    /// Whether a tensor can be added to a step's output as another tensor, not as a bias; none: it cannot be added.
    fn is_sum(&self, at: usize, other: &str, out: &str) -> Option<bool> {
        let ours = &self.ours[at];
        if ours.activation != Activation::Identity {
            return None;
        }
        match &ours.kind {
            Kind::Product(_, _, Some(_)) | Kind::Pool(_) | Kind::Concat | Kind::Elements(_) => None,
            Kind::Convolution(_) if ours.reads.len() > 1 => None,
            Kind::Product([_, outputs], _, None) => {
                let (shape, b) = self.constants.floats(other)?;
                (shape.last() == Some(outputs) && b.len() == *outputs).then_some(false)
            }
            Kind::Convolution(_) => {
                // A step of ours of the same depth has run if it comes before.
                let is_before = self.ours[..at].iter().any(|ours| ours.out == other);
                let most = if is_before { ours.depth } else { ours.depth - 1 };
                let is_there = self.depth(other) <= most;
                let shapes = [&ours.out[..], other, out].map(|name| self.probe.shapes(name));
                let same = shapes[0].is_some() && shapes.iter().all(|of| *of == shapes[0]);
                (is_there && same && !self.constants.has(other)).then_some(true)
            }
        }
    }

    /// The pool whose windows a `Slice` counts by an integer division, as the model crate writes it: by the lengths of
    /// what is pooled.
    fn pool_rounded_to_zero(&self, node: &NodeProto) -> Option<usize> {
        let [pooled, _, counts, _] = &node.input[..] else { return None };
        let pool = self.ours.iter().position(|ours| &ours.out == pooled)?;
        let is_pool = matches!(self.ours[pool].kind, Kind::Pool(_)) && operator(node) == "Slice";
        let mut name = counts;
        for operator_before in ["Add", "Div", "Add", "Gather", "Shape"] {
            let maker = self.makers.get(name.as_str())?;
            name = maker.input.first().filter(|_| operator(maker) == operator_before)?;
        }
        let is_counted = self.ours[pool].reads.first() == Some(name);
        (is_pool && is_counted && self.readers.get(pooled.as_str()) == Some(&1)).then_some(pool)
    }

    /// Leaves out the operators whose outputs nobody reads any more.
    fn prune(&mut self, graph: &GraphProto) {
        let outputs = graph.output.iter().filter_map(|output| output.name.as_deref());
        let mut read: BTreeSet<&str> = outputs.collect();
        read.extend(self.ours.iter().flat_map(|ours| &ours.reads).map(String::as_str));
        for nodes in self.rest.values_mut().rev() {
            let mut kept = Vec::new();
            for &node in nodes.iter().rev() {
                if node.output.iter().any(|name| read.contains(name.as_str())) {
                    read.extend(reads(node));
                    kept.push(node);
                }
            }
            kept.reverse();
            *nodes = kept;
        }
        self.rest.retain(|_, nodes| !nodes.is_empty());
    }

    /// Whether a tensor has rank 3 or 4.
    fn has_channels(&self, name: &str) -> bool {
        self.probe.shapes(name).is_some_and(|shapes| [3, 4].contains(&shapes[0].len()))
    }

    /// Whether a tensor that a node reads is made with its channels last.
    fn has_pixels(&self, node: &NodeProto) -> bool {
        let is_made = |name: &String| {
            let made = self.ours.iter().find(|ours| &ours.out == name);
            made.is_some_and(|ours| !matches!(ours.kind, Kind::Product(..)))
        };
        node.input.iter().any(is_made)
    }

    /// Whether an operator makes an element of one of each tensor that it reads, whatever their layout.
    fn is_of_elements(&self, node: &NodeProto) -> bool {
        let Some(shapes) = node.output.first().and_then(|name| self.probe.shapes(name)) else {
            return false;
        };
        let is_like = |name: &String| match self.constants.has(name) {
            true => self.is_of_channels(name, &shapes[0]),
            false => name.is_empty() || self.probe.shapes(name) == Some(shapes),
        };
        ELEMENTWISE.contains(&operator(node))
            && [3, 4].contains(&shapes[0].len())
            && node.input.iter().all(is_like)
            && self.has_pixels(node)
    }

    /// Whether a constant is one number, or one for each channel of a tensor of this shape.
    fn is_of_channels(&self, name: &str, shape: &[usize]) -> bool {
        let Some((dims, _)) = self.constants.floats(name) else { return false };
        let before = shape.len().saturating_sub(dims.len());
        let mut axes = dims.iter().enumerate().filter(|(_, n)| **n != 1);
        let is_channels = |(at, &n): (usize, &usize)| before + at == 1 && n == shape[1];
        dims.len() <= shape.len() && axes.next().is_none_or(is_channels) && axes.next().is_none()
    }

    /// Adds an operator on elements, to the step that it follows if it alone reads that; gives its depth.
    fn elements(&mut self, node: &NodeProto, out: &str, depth: usize) -> usize {
        let own: Vec<&String> = node
            .input
            .iter()
            .filter(|name| !name.is_empty() && !self.constants.has(name))
            .collect();
        let depths: BTreeMap<&String, usize> =
            own.iter().map(|&name| (name, self.depth(name))).collect();
        let followed = self.ours.iter_mut().find(|ours| {
            let reads = own.iter().filter(|&&name| *name == ours.out).count();
            let is_there = |name: &&&String| ***name == ours.out || depths[**name] < ours.depth;
            matches!(ours.kind, Kind::Elements(_))
                && reads > 0
                && self.readers.get(ours.out.as_str()) == Some(&reads)
                && own.iter().all(|name| is_there(&name))
        });
        if let Some(ours) = followed {
            let Kind::Elements(nodes) = &mut ours.kind else { return depth };
            nodes.push(node.clone());
            for name in own {
                if *name != ours.out && !ours.reads.contains(name) {
                    ours.reads.push(name.clone());
                }
            }
            out.clone_into(&mut ours.out);
            return ours.depth;
        }
        let mut reads: Vec<String> = Vec::new();
        for name in own {
            if !reads.contains(name) {
                reads.push(name.clone());
            }
        }
        let (kind, out) = (Kind::Elements(vec![node.clone()]), out.to_owned());
        self.ours.push(Ours {
            kind,
            reads,
            activation: Activation::Identity,
            out,
            depth: depth + 1,
        });
        depth + 1
    }

    fn activation(&self, node: &NodeProto) -> Option<Activation> {
        let bound = |at: usize, default: f32| match node.input.get(at).filter(|n| !n.is_empty()) {
            Some(name) => self.constants.number(name),
            None => Some(default),
        };
        Some(match operator(node) {
            "Relu" => Activation::Clip { low: 0.0, high: f32::INFINITY },
            "Clip" => {
                let (low, high) = (bound(1, f32::NEG_INFINITY)?, bound(2, f32::INFINITY)?);
                Activation::Clip { low, high }
            }
            "LeakyRelu" => Activation::Leaky { slope: float(node, "alpha", 0.01) },
            "HardSwish" => Activation::HardSwish { slope: 1.0 / 6.0, shift: 0.5 },
            "HardSigmoid" => Activation::HardSigmoid {
                slope: float(node, "alpha", 0.2),
                shift: float(node, "beta", 0.5),
            },
            _ => return None,
        })
    }
}

/// The layout of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layout {
    Planes,
    Pixels,
}

/// Writes steps in the order in which they run.
struct StepWriter<'a> {
    file: &'a ModelProto,
    constants: &'a Constants<'a>,
    /// The tensors by their names and layouts.
    names: BTreeMap<(String, Layout), usize>,
    steps: Vec<Step>,
    tensors: usize,
    graph: GraphProto,
    copies: Copies,
    scratch_bytes: u64,
}

impl StepWriter<'_> {
    fn write(
        mut self,
        graph: &GraphProto,
        ours: Vec<Ours>,
        rest: &BTreeMap<usize, Vec<&NodeProto>>,
    ) -> Option<Cut> {
        let names = |infos: &[rten_onnx::onnx::ValueInfoProto]| -> Option<Vec<String>> {
            infos.iter().map(|info| info.name.clone()).collect()
        };
        let (inputs, outputs) = (names(&graph.input)?, names(&graph.output)?);
        let input_tensors: Vec<usize> =
            inputs.iter().map(|name| self.tensor(name.clone(), Layout::Planes)).collect();
        let deepest = ours.iter().map(|ours| ours.depth).chain(rest.keys().copied()).max()?;
        let mut of_depth: BTreeMap<usize, Vec<Ours>> = BTreeMap::new();
        for ours in ours {
            of_depth.entry(ours.depth).or_default().push(ours);
        }
        for depth in 0..=deepest {
            for ours in of_depth.remove(&depth).unwrap_or_default() {
                self.ours(ours)?;
            }
            let Some(nodes) = rest.get(&depth) else { continue };
            let later = rest.range(depth + 1..).flat_map(|(_, nodes)| nodes);
            let mut read: BTreeSet<&str> = later.flat_map(|node| reads(node)).collect();
            for ours in of_depth.values().flatten() {
                read.extend(ours.reads.iter().map(String::as_str));
            }
            read.extend(outputs.iter().map(String::as_str));
            self.island(nodes, &read)?;
        }
        let output_tensors: Vec<usize> =
            outputs.iter().map(|name| self.read(name, Layout::Planes)).collect::<Option<_>>()?;
        let Self { mut steps, tensors, graph: mut plan, copies, scratch_bytes, .. } = self;
        let mut read: BTreeSet<usize> = output_tensors.iter().copied().collect();
        for step in steps.iter_mut().rev() {
            step.last = step.reads.iter().copied().filter(|&tensor| read.insert(tensor)).collect();
        }
        plan.input.clone_from(&graph.input);
        plan.output.clone_from(&graph.output);
        let stepped = Stepped { steps, tensors, inputs: input_tensors, outputs: output_tensors };
        Some(Cut { stepped, graph: plan, copies, scratch_bytes })
    }

    fn tensor(&mut self, name: String, layout: Layout) -> usize {
        self.names.insert((name, layout), self.tensors);
        self.tensors += 1;
        self.tensors - 1
    }

    /// A tensor in a layout, converted where it is not there in that.
    fn read(&mut self, name: &str, layout: Layout) -> Option<usize> {
        if let Some(&tensor) = self.names.get(&(name.to_owned(), layout)) {
            return Some(tensor);
        }
        let (other, work) = match layout {
            Layout::Planes => (Layout::Pixels, Work::ToPlanes),
            Layout::Pixels => (Layout::Planes, Work::ToPixels),
        };
        let from = *self.names.get(&(name.to_owned(), other))?;
        let to = self.tensor(name.to_owned(), layout);
        self.plan("Layout", &[(name, other)], (name, layout));
        self.steps.push(Step { work, reads: vec![from], writes: vec![to], last: Vec::new() });
        Some(to)
    }

    /// Adds an operator to the plan of memory.
    fn plan(&mut self, operator: &str, inputs: &[(&str, Layout)], output: (&str, Layout)) {
        let mut name = |(name, layout): (&str, Layout)| match layout {
            Layout::Planes => name.to_owned(),
            Layout::Pixels => {
                let pixels = format!("pixels of {name}");
                self.copies.insert(pixels.clone(), (name.to_owned(), false));
                pixels
            }
        };
        let (input, output) =
            (inputs.iter().map(|&input| name(input)).collect(), vec![name(output)]);
        let op_type = Some(operator.to_owned());
        self.graph.node.push(NodeProto { op_type, input, output, ..NodeProto::default() });
    }

    fn ours(&mut self, ours: Ours) -> Option<()> {
        let Ours { kind, reads: inputs, activation, out, .. } = ours;
        let layout = match &kind {
            Kind::Product(..) => Layout::Planes,
            _ => Layout::Pixels,
        };
        let reads: Vec<usize> =
            inputs.iter().map(|name| self.read(name, layout)).collect::<Option<_>>()?;
        let named: Vec<(&str, Layout)> =
            inputs.iter().map(|name| (name.as_str(), layout)).collect();
        self.plan("Ours", &named, (&out, layout));
        let (work, scratch_bytes) = match kind {
            Kind::Convolution(mut convolution) => {
                convolution.activate(activation);
                let scratch_bytes = convolution.scratch_bytes();
                (Work::Convolution(*convolution), scratch_bytes)
            }
            Kind::Product(shape, w, b) => {
                let product = Product::new(&shape, &w, b.as_deref(), activation)?;
                let scratch_bytes = product.scratch_bytes();
                (Work::Product(product), scratch_bytes)
            }
            Kind::Pool(pool) => (Work::Pool(pool), 0),
            Kind::Concat => (Work::Concat, 0),
            Kind::Elements(nodes) => {
                let outputs = std::slice::from_ref(&out);
                let layout = ConstantLayout::Channels;
                let ports = (&inputs[..], outputs);
                let island = Island::load(self.file, &nodes, self.constants, ports, layout)?;
                (Work::Elements(Box::new(island)), 0)
            }
        };
        self.scratch_bytes = self.scratch_bytes.max(scratch_bytes as u64);
        let writes = vec![self.tensor(out, layout)];
        self.steps.push(Step { work, reads, writes, last: Vec::new() });
        Some(())
    }

    /// Writes operators of one depth as an island, which gives those of its tensors that are `read` later.
    fn island(&mut self, nodes: &[&NodeProto], read: &BTreeSet<&str>) -> Option<()> {
        let made: BTreeSet<&str> =
            nodes.iter().flat_map(|node| &node.output).map(String::as_str).collect();
        let mut inputs = BTreeSet::new();
        for name in nodes.iter().flat_map(|node| reads(node)) {
            if !made.contains(name) && !self.constants.has(name) {
                inputs.insert(name.to_owned());
            }
        }
        let inputs: Vec<String> = inputs.into_iter().collect();
        let given: Vec<String> = made.intersection(read).map(|&name| name.to_owned()).collect();
        let reads: Vec<usize> =
            inputs.iter().map(|name| self.read(name, Layout::Planes)).collect::<Option<_>>()?;
        let nodes: Vec<NodeProto> = nodes.iter().map(|&node| node.clone()).collect();
        let (ports, layout) = ((&inputs[..], &given[..]), ConstantLayout::Planes);
        let island = Island::load(self.file, &nodes, self.constants, ports, layout)?;
        self.graph.node.extend(nodes);
        let writes = given.into_iter().map(|name| self.tensor(name, Layout::Planes)).collect();
        self.steps.push(Step {
            work: Work::Island(Box::new(island)),
            reads,
            writes,
            last: Vec::new(),
        });
        Some(())
    }
}
