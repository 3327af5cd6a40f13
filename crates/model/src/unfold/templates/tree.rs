//! `kind = "tree"`: leaves, then inner nodes bottom-up, of one fixed arity.

use std::collections::BTreeMap;

use batchmaker_graph::{
    CellGraphBuilder, ElementType, InvalidRequest, NamedTensor, OutputTensor, Parameters, RowSpec,
    Rows, Sink, SinkTime, Tensor, TensorData, Unfold, UnfoldError, Unfolded, ValueIndex,
};

use crate::data::layout::{Axis, Content, InputLayout};
use crate::unfold::templates::row_tensor::{RowTensor, check_length, common_rows};
use crate::unfold::templates::template_cell::{StepOutput, TemplateCell, TemplateError};
use crate::unfold::unfolding::{ReplyTensor, RequestTensor, TensorInfo};

/// The name of the tensor that holds a tree's structure: the children of its inner nodes.
const CHILDREN: &str = "children";

/// Trees of one leaf cell and one inner cell.
///
/// Nodes are numbered: leaves 0 to L - 1, left to right, then inner nodes, children before parents.
/// The last node is the root. Request: a tensor `[L, ...row]` for each input of the leaf, and
/// `children`, INT32 `[M, arity]`.
#[derive(Clone, Debug)]
pub struct Tree {
    leaf: TemplateCell,
    inner: TemplateCell,
    /// The positions in `tensors` of the tensors that feed the leaf's inputs, by port.
    leaf_feeds: Vec<usize>,
    tensors: Vec<RowTensor>,
    /// The child and the position in `features` that feed the inner cell's inputs, by port.
    inner_feeds: Vec<(usize, usize)>,
    arity: usize,
    features: Vec<Feature>,
    outputs: Vec<StepOutput>,
    max_length: usize,
}

/// A value that every node has: an output of both cells.
#[derive(Clone, Debug)]
struct Feature {
    name: String,
    /// A row, as the leaf's file declares it.
    row: RowSpec,
    /// Output ports.
    leaf: usize,
    inner: usize,
}

impl Tree {
    /// Trees over `leaf`, fed by the request's `sequence` tensors, and `inner`, whose inputs are
    /// the outputs of its children: per child, inputs of the cell and outputs of the child.
    ///
    /// # Errors
    /// If names or rows do not fit.
    pub fn new(
        leaf: TemplateCell,
        sequence: &[String],
        inner: TemplateCell,
        children: &[BTreeMap<String, String>],
        outputs: Vec<StepOutput>,
        max_length: usize,
    ) -> Result<Self, TemplateError> {
        if children.is_empty() {
            return Err("an inner node has at least one child".to_owned());
        }
        let mut tensors = Vec::new();
        for name in sequence {
            if name == CHILDREN {
                return Err(format!("`{CHILDREN}` is the tensor of children, not a sequence"));
            }
            tensors.push(RowTensor::of(leaf.input(name)?));
        }
        if tensors.is_empty() {
            return Err(
                "unfold.leaf.sequence names no input: nothing says how many leaves there are"
                    .to_owned(),
            );
        }
        let of_sequence = |name: &str| sequence.iter().position(|known| known == name);
        let leaf_feeds = leaf.feeds(of_sequence)?;

        let mut features: Vec<Feature> = Vec::new();
        let from = outputs.iter().map(|output| &output.from);
        for name in children.iter().flat_map(BTreeMap::values).chain(from) {
            if features.iter().all(|known| known.name != *name) {
                features.push(Feature::new(&leaf, &inner, name)?);
            }
        }
        for (input, name) in children.iter().flatten() {
            if children.iter().filter(|of_child| of_child.contains_key(input)).count() > 1 {
                return Err(format!("cell `{}`: its input `{input}` is fed twice", inner.name));
            }
            let input = inner.input(input)?;
            for child in [&leaf, &inner] {
                let misfit = |reason| format!("a child of cell `{}`: {reason}", child.name);
                child.output(name)?.check_feeds(input).map_err(misfit)?;
            }
        }
        let of_child = |name: &str| {
            let mut of_children = children.iter().enumerate();
            of_children.find_map(|(child, inputs)| {
                let output = inputs.get(name)?;
                Some((child, features.iter().position(|feature| feature.name == *output)?))
            })
        };
        let inner_feeds = inner.feeds(of_child)?;
        if outputs.is_empty() {
            return Err("the reply has no tensor: unfold.outputs is empty".to_owned());
        }
        let arity = children.len();
        Ok(Self {
            leaf,
            inner,
            leaf_feeds,
            tensors,
            inner_feeds,
            arity,
            features,
            outputs,
            max_length,
        })
    }

    /// The tensors of a request.
    pub fn inputs(&self) -> Vec<RequestTensor> {
        let shape = vec![-1, self.arity as i64];
        let info = TensorInfo { name: CHILDREN.to_owned(), element: ElementType::I32, shape };
        let axes = vec![Axis::Inner, Axis::Fixed(self.arity)];
        let layout = InputLayout { axes, content: Content::Children, optional: false };
        let children = RequestTensor { info, layout, step_axis: None };
        let sequences = self.tensors.iter().map(|row| row.described(Some(Axis::Time), false));
        sequences.chain([children]).collect()
    }

    /// The tensors of a reply.
    pub fn reply(&self) -> Vec<ReplyTensor> {
        let reply = |output: &StepOutput| output.described(&self.feature(output).1.row);
        self.outputs.iter().map(reply).collect()
    }

    fn feature(&self, output: &StepOutput) -> (usize, &Feature) {
        let mut features = self.features.iter().enumerate();
        features.find(|(_, feature)| feature.name == output.from).expect("all were added")
    }
}

impl Feature {
    fn new(leaf: &TemplateCell, inner: &TemplateCell, name: &str) -> Result<Self, TemplateError> {
        let (of_leaf, of_inner) = (leaf.output(name)?, inner.output(name)?);
        if of_leaf.row != of_inner.row {
            return Err(format!(
                "output `{name}` is {} of cell `{}`, {} of cell `{}`",
                show(&of_leaf.row),
                leaf.name,
                show(&of_inner.row),
                inner.name
            ));
        }
        let (name, row) = (name.to_owned(), of_leaf.row.clone());
        Ok(Self { name, row, leaf: of_leaf.port, inner: of_inner.port })
    }
}

fn show(row: &RowSpec) -> String {
    format!("{} {:?}", row.element, row.shape)
}

impl Unfold for Tree {
    fn unfold(
        &self,
        mut tensors: Vec<NamedTensor>,
        parameters: &Parameters,
    ) -> Result<Unfolded, UnfoldError> {
        let children = tensors.pop().expect("`children` is the last tensor").tensor;
        let (leaves, name) = common_rows(&self.tensors, &tensors)?.expect("a leaf is fed");
        let children = self.check_children(&children, leaves)?;
        let inner = children.len() / self.arity;
        let nodes = leaves + inner;
        check_length(name, nodes, self.max_length)?;

        let (mut graph, mut inputs) = (CellGraphBuilder::for_request(parameters), Vec::new());
        let fed: Vec<ValueIndex> = self
            .tensors
            .iter()
            .zip(tensors)
            .map(|(row, tensor)| row.add_to(&mut graph, &mut inputs, tensor.tensor))
            .collect();
        let values: Vec<ValueIndex> = self
            .features
            .iter()
            .map(|feature| {
                let row = RowSpec::flat(feature.row.element, feature.row.elements());
                graph.value(row, nodes as u32)
            })
            .collect();
        let sinks = |port: fn(&Feature) -> usize, first: usize| {
            let sink = |(feature, &value): (&Feature, &ValueIndex)| Sink {
                port: port(feature),
                time: SinkTime::Every,
                rows: Rows::strided(value, first as u32, 1),
            };
            self.features.iter().zip(&values).map(sink).collect::<Vec<_>>()
        };
        let reads = self.leaf_feeds.iter().map(|&tensor| Rows::all(fed[tensor])).collect();
        let of_leaf = sinks(|feature| feature.leaf, 0);
        graph.rows(self.leaf.cell_type, leaves as u32, reads, of_leaf);
        if inner > 0 {
            let reads = self.inner_feeds.iter().map(|&(child, feature)| {
                let of_node = children.chunks_exact(self.arity).map(|of_node| of_node[child]);
                Rows::listed(values[feature], of_node.collect::<Vec<u32>>())
            });
            let of_inner = sinks(|feature| feature.inner, leaves);
            graph.nodes(self.inner.cell_type, inner as u32, reads.collect(), of_inner);
        }

        let outputs = self.outputs.iter().map(|output| {
            let (position, feature) = self.feature(output);
            let (rows, all) = match output.every_step {
                true => (None, Some(nodes)),
                false => (Some(nodes - 1..nodes), None),
            };
            let shape = all.into_iter().chain(feature.row.shape.iter().copied()).collect();
            let (name, value) = (output.name.clone(), values[position]);
            OutputTensor { name, value, rows, shape, until: None, permutation: None }
        });
        let outputs: Vec<OutputTensor> = outputs.collect();
        outputs.iter().for_each(|output| graph.output(output.value));
        Ok(Unfolded { graph: graph.finish()?, inputs, outputs, checks: Vec::new() })
    }
}

impl Tree {
    /// The children of all inner nodes, as node ids: one tree of them all.
    fn check_children(&self, tensor: &Tensor, leaves: usize) -> Result<Vec<u32>, InvalidRequest> {
        let refuse = |text: String| Err(InvalidRequest(format!("tensor `{CHILDREN}`: {text}")));
        let inner = match *tensor.shape() {
            [inner, arity] if arity == self.arity => inner,
            ref found => {
                return refuse(format!("expected shape [inner, {}], got {found:?}", self.arity));
            }
        };
        let TensorData::I32(ids) = tensor.data() else { unreachable!("the type was checked") };
        let nodes = leaves + inner;
        let mut has_parent = vec![false; nodes];
        for (position, &id) in ids.iter().enumerate() {
            let node = leaves + position / self.arity;
            let child = usize::try_from(id).ok().filter(|&child| child < nodes);
            let Some(child) = child else {
                return refuse(format!("node {node} has child {id}; there are {nodes} nodes"));
            };
            if child >= node {
                return refuse(format!(
                    "node {node} has child {id}, which does not come before it"
                ));
            }
            if std::mem::replace(&mut has_parent[child], true) {
                return refuse(format!("node {id} has two parents"));
            }
        }
        let root = has_parent[..nodes - 1].iter().position(|has_parent| !has_parent);
        if let Some(root) = root {
            let last = nodes - 1;
            return refuse(format!(
                "two roots: node {root} has no parent, and node {last} is last"
            ));
        }
        Ok(ids.iter().map(|&id| id as u32).collect())
    }
}
