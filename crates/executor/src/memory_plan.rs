//! The operators of a run one after the other, each with the values that it reads and writes and with what else it
//! allocates.
//!
//! The operators are those of the program's file. Those that rten joins when it loads the program allocate less.

use std::collections::{BTreeMap, BTreeSet};

use rten_onnx::onnx::{GraphProto, NodeProto};

use crate::inner_shapes::bodies;
use crate::operator::operator;
use crate::probe::{Probe, ShapeGrowth, constant_dims, int_elements};
use crate::row_count::constant;
use crate::run_order::{may_be_in_place, reads, run_order};
use crate::single_row_branch::Copies;

/// The operators of a run.
pub(crate) struct MemoryPlan {
    pub(crate) values: Vec<PlannedValue>,
    pub(crate) steps: Vec<Step>,
    /// The value of each input port that is read.
    pub(crate) inputs: Vec<Option<usize>>,
    /// The value of each output port that an operator computes.
    pub(crate) outputs: Vec<Option<usize>>,
    /// Bytes that an operator needs beside its tensors.
    pub(crate) scratch_bytes: u64,
}

pub(crate) struct PlannedValue {
    /// None: unknown, taken to be as large as the largest.
    pub(crate) shape: Option<ShapeGrowth>,
    /// Whether it holds a single row or sequence twice.
    pub(crate) is_double: bool,
    /// The operators that read it, and 1 if it is an output.
    pub(crate) readers: usize,
}

pub(crate) struct Step {
    /// The values that it reads, each once.
    pub(crate) reads: Vec<usize>,
    pub(crate) writes: Vec<usize>,
    pub(crate) in_place: InPlace,
    /// The inputs that its output may be written over.
    pub(crate) candidates: Vec<usize>,
    pub(crate) scratch: Scratch,
    /// Its first input, if that is no constant.
    pub(crate) first: Option<usize>,
    pub(crate) loops: Loops,
}

/// The part of a step in a loop, of which [`ITERATIONS`] iterations are listed.
pub(crate) enum Loops {
    None,
    /// An iteration begins.
    Iteration,
    /// The loop ends. It has as many iterations as its second value has the first.
    End(Option<[usize; 2]>),
}

/// The name of attention in our kernels. Its first two inputs name the keys and the values that it packs; the others name the tensors that it
/// reads.
pub(crate) const NATIVE_ATTENTION: &str = "NativeAttention";

/// The iterations of a loop that are listed: from the second on, each takes as many new buffers as the one before.
pub(crate) const ITERATIONS: usize = 3;

/// The input that an operator's output may be written over.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum InPlace {
    Never,
    /// The largest candidate, if it has as many elements.
    Whole,
    /// The candidate, of which the output is a part.
    Part,
}

/// What an operator allocates beside its output.
pub(crate) enum Scratch {
    None,
    /// A copy of its first input.
    Copy,
    /// What one element of its output is computed from.
    Lane,
    /// Blocks of the factors `[..., m, k]` and `[..., k, n]`.
    Product(Option<ShapeGrowth>, Option<ShapeGrowth>),
    /// The keys `[..., k, n]` and the values `[..., n, m]` of a head, packed, and the scores of a block of queries.
    Attention(Option<ShapeGrowth>, Option<ShapeGrowth>),
    /// A copy of the weights, a table of positions, and blocks of the factors.
    Convolution {
        /// Elements of the weights.
        weights: f64,
        /// Channels of the output.
        channels: f64,
    },
}

impl MemoryPlan {
    /// Plans a run of `graph` that gives `outputs`, one for each output port.
    pub(crate) fn new(
        graph: &GraphProto,
        probe: &Probe,
        copies: &Copies,
        input_count: usize,
        outputs: &[String],
    ) -> Self {
        let mut planner = Planner { probe, copies, graph, values: Vec::new(), steps: Vec::new() };
        let mut scope = Scope::new();
        for input in 0..input_count {
            let name = format!("in{input}");
            let value = planner.value(&name);
            scope.insert(name, value);
        }
        planner.add(graph, outputs, &mut scope);
        let inputs = (0..input_count).map(|input| scope.get(&format!("in{input}")).copied());
        let inputs = inputs.collect();
        let outputs: Vec<Option<usize>> =
            outputs.iter().map(|name| scope.get(name).copied()).collect();
        let Planner { mut values, steps, .. } = planner;
        let read = steps.iter().flat_map(|step| &step.reads).chain(outputs.iter().flatten());
        let read: Vec<usize> = read.copied().collect();
        read.into_iter().for_each(|value| values[value].readers += 1);
        Self { values, steps, inputs, outputs, scratch_bytes: 0 }
    }
}

/// The values by their names.
type Scope = BTreeMap<String, usize>;

/// Lists the steps of a graph and of the graphs inside it.
struct Planner<'a> {
    probe: &'a Probe,
    copies: &'a Copies,
    /// The program's graph, which has the constants.
    graph: &'a GraphProto,
    values: Vec<PlannedValue>,
    steps: Vec<Step>,
}

impl Planner<'_> {
    /// The shape of a tensor, and whether it holds a single row or sequence twice.
    fn shape(&self, name: &str) -> (Option<ShapeGrowth>, bool) {
        let (name, is_double) = match self.copies.get(name) {
            Some((of, is_double)) => (of.as_str(), *is_double),
            None => (name, false),
        };
        (self.probe.growth(name).cloned(), is_double)
    }

    fn value(&mut self, name: &str) -> usize {
        let (shape, is_double) = self.shape(name);
        self.values.push(PlannedValue { shape, is_double, readers: 0 });
        self.values.len() - 1
    }

    /// Adds the operators of `graph` that `outputs` need, with the values around it in `scope`, which receives its own.
    fn add(&mut self, graph: &GraphProto, outputs: &[String], scope: &mut Scope) {
        for at in run_order(graph, outputs) {
            let node = &graph.node[at];
            let mut inner = Vec::new();
            let mut is_loop = false;
            let mut collected = None;
            match (operator(node), bodies(node).next()) {
                ("Loop", Some(body)) => {
                    is_loop = true;
                    collected = self.add_loop(node, body, scope, &mut inner).map(|value| {
                        let states = body.input.len().saturating_sub(2);
                        (value, states)
                    });
                }
                _ => {
                    for body in bodies(node) {
                        let names = names(body);
                        let mut own = scope.clone();
                        self.add(body, &names, &mut own);
                        inner.extend(names.iter().filter_map(|name| own.get(name)));
                    }
                }
            }
            let read: Vec<usize> =
                reads(node).into_iter().filter_map(|name| scope.get(name).copied()).collect();
            let first = node.input.first().and_then(|name| scope.get(name).copied());
            let candidates = candidates(node, first, &read);
            let mut seen = BTreeSet::new();
            let reads = read.into_iter().chain(inner).filter(|&value| seen.insert(value)).collect();
            let mut writes = Vec::new();
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                let value = self.value(name);
                scope.insert(name.clone(), value);
                writes.push(value);
            }
            let scratch = self.scratch(node);
            let in_place = in_place(node);
            let counts = collected.and_then(|(one, output)| {
                Some([one, scope.get(node.output.get(output)?).copied()?])
            });
            let loops = if is_loop { Loops::End(counts) } else { Loops::None };
            self.steps.push(Step { reads, writes, in_place, candidates, scratch, first, loops });
        }
    }

    /// Adds iterations of a loop. `inner` receives the values that the loop collects and those that its last iteration
    /// leaves. Gives the values that [`Loops::End`] names.
    fn add_loop(
        &mut self,
        node: &NodeProto,
        body: &GraphProto,
        scope: &Scope,
        inner: &mut Vec<usize>,
    ) -> Option<usize> {
        let outputs = names(body);
        let states = body.input.iter().filter_map(|input| input.name.clone()).skip(2);
        let states: Vec<String> = states.collect();
        let of_node = node.input.iter().skip(2).map(|name| scope.get(name).copied());
        let mut before: Vec<Option<usize>> = of_node.collect();
        let mut collected = Vec::new();
        for _ in 0..ITERATIONS {
            self.steps.push(Step {
                reads: Vec::new(),
                writes: Vec::new(),
                in_place: InPlace::Never,
                candidates: Vec::new(),
                scratch: Scratch::None,
                first: None,
                loops: Loops::Iteration,
            });
            let mut own = scope.clone();
            for (name, value) in states.iter().zip(&before) {
                own.extend(value.map(|value| (name.clone(), value)));
            }
            self.add(body, &outputs, &mut own);
            before = outputs.iter().skip(1).map(|name| own.get(name).copied()).collect();
            collected.extend(before.iter().skip(states.len()).flatten());
        }
        inner.extend(before.iter().take(states.len()).flatten());
        inner.extend(&collected);
        before.get(states.len()).copied().flatten()
    }

    fn scratch(&self, node: &NodeProto) -> Scratch {
        let shape = |at: usize| node.input.get(at).and_then(|name| self.shape(name).0);
        match operator(node) {
            "Softmax" | "LogSoftmax" | "LpNormalization" => {
                let axis = node.attribute.iter().find(|a| a.name.as_deref() == Some("axis"));
                let rank = shape(0).map_or(0, |shape| shape.dims.len()) as i64;
                match axis.and_then(|axis| axis.i).unwrap_or(-1) {
                    axis if axis == -1 || axis + 1 == rank => Scratch::None,
                    _ => Scratch::Copy,
                }
            }
            "MatMul" | "Gemm" => Scratch::Product(shape(0), shape(1)),
            NATIVE_ATTENTION => Scratch::Attention(shape(0), shape(1)),
            "Conv" | "ConvTranspose" => {
                let weights = node.input.get(1).and_then(|name| constant(self.graph, name));
                let dims = weights.map(constant_dims).unwrap_or_default();
                Scratch::Convolution {
                    weights: dims.iter().map(|&n| n as f64).product(),
                    channels: dims.first().map_or(1.0, |&n| n as f64),
                }
            }
            name if name.starts_with("Reduce") => {
                match are_innermost(self.graph, node, shape(0).map_or(0, |shape| shape.dims.len()))
                {
                    true => Scratch::None,
                    false => Scratch::Lane,
                }
            }
            "ArgMax" | "ArgMin" | "TopK" | "CumSum" => Scratch::Lane,
            _ => Scratch::None,
        }
    }
}

fn in_place(node: &NodeProto) -> InPlace {
    match operator(node) {
        "Slice" => InPlace::Part,
        // They copy if they change anything.
        "Cast" | "CastLike" | "Concat" | "Tile" | "Expand" => InPlace::Never,
        _ if may_be_in_place(node) => InPlace::Whole,
        _ => InPlace::Never,
    }
}

/// The inputs that an operator's output may be written over: its first input, or any if their order does not matter.
/// An input that is read twice is not among them.
fn candidates(node: &NodeProto, first: Option<usize>, reads: &[usize]) -> Vec<usize> {
    let is_once = |value: &usize| reads.iter().filter(|&read| read == value).count() == 1;
    match operator(node) {
        "Add" | "Mul" => reads.iter().copied().filter(is_once).collect(),
        _ => first.into_iter().filter(is_once).collect(),
    }
}

/// Whether a reduction of a tensor of `rank` axes is along its last ones, which needs no copy.
fn are_innermost(graph: &GraphProto, node: &NodeProto, rank: usize) -> bool {
    let attribute = node.attribute.iter().find(|a| a.name.as_deref() == Some("axes"));
    let axes: Vec<i64> = match (attribute, node.input.get(1).filter(|name| !name.is_empty())) {
        (Some(attribute), _) => attribute.ints.clone(),
        (None, Some(name)) => {
            let axes = constant(graph, name).and_then(int_elements);
            let Some(axes) = axes else { return false };
            axes
        }
        (None, None) => return true,
    };
    let rank = rank as i64;
    let mut axes: Vec<i64> = axes.iter().map(|axis| axis.rem_euclid(rank.max(1))).collect();
    axes.sort_unstable();
    let first = rank - axes.len() as i64;
    !axes.is_empty() && axes.iter().zip(first..).all(|(&axis, expected)| axis == expected)
}

/// The names of a graph's outputs.
fn names(graph: &GraphProto) -> Vec<String> {
    graph.output.iter().filter_map(|output| output.name.clone()).collect()
}
