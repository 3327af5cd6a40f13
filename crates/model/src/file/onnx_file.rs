//! An ONNX file as nodes over named values. The meaning of operators is not
//! known here.

use std::collections::{HashMap, HashSet};

use batchmaker_graph::ElementType;
use rten_onnx::onnx::{DataType, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};

use crate::data::literal::Literal;
use crate::error::{Diagnostic, LoadError};
use crate::file::files::Files;
use crate::file::node::{Node, Subgraph};
use crate::file::passed::{Passed, take_passed};
use crate::file::tensor::{External, element_type, is_converted, literal};
use crate::file::wire_check;

/// A graph: inputs without initializers, nodes in an order that producers come first.
pub(crate) struct OnnxFile {
    pub(crate) name: String,
    pub(crate) opset: i64,
    pub(crate) inputs: Vec<GraphInput>,
    pub(crate) outputs: Vec<String>,
    /// The type of each output, where the file declares one that is served.
    pub(crate) output_elements: Vec<Option<ElementType>>,
    /// The rank of each output, where the file declares it.
    pub(crate) output_ranks: Vec<Option<usize>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) initializers: HashMap<String, Result<Literal, String>>,
    /// What else it takes and gives: these inputs and outputs are not among the others.
    pub(crate) passed: Vec<Passed>,
    /// Faults of the graph as such.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Notes for its owner.
    pub(crate) notes: Vec<String>,
}

pub(crate) struct GraphInput {
    pub(crate) name: String,
    pub(crate) element: Result<ElementType, String>,
    /// The dimensions; none: the file does not declare them.
    pub(crate) shape: Option<Vec<DeclaredDimension>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeclaredDimension {
    Static(usize),
    Named(String),
    Unnamed,
}

impl OnnxFile {
    /// Reads the file `name` of `files`.
    pub(crate) fn read(files: &Files, name: &str) -> Result<Self, LoadError> {
        let malformed = |reason: String| LoadError::Malformed { file: files.label(name), reason };
        let bytes = files.read(name)?;
        wire_check::check(&bytes)
            .map_err(|reason| malformed(format!("not an ONNX file that can be read: {reason}")))?;
        let model = ModelProto::parse_buf(&bytes).map_err(|error| {
            malformed(format!(
                "not an ONNX file that can be read: {error} (packed `dims` and `ints`, which \
                 some writers produce, are not supported)"
            ))
        })?;
        let Some(mut graph) = model.graph else {
            return Err(malformed("not an ONNX file: it has no graph".to_owned()));
        };
        let opset = model
            .opset_import
            .iter()
            .find(|set| matches!(set.domain.as_deref().unwrap_or(""), "" | "ai.onnx"))
            .and_then(|set| set.version)
            .unwrap_or(1);
        let mut diagnostics = Vec::new();
        if opset < 7 {
            diagnostics.push(Diagnostic {
                operator: "graph".to_owned(),
                node: files.label(name),
                reason: format!("opset {opset}; 7 and later are supported"),
            });
        }
        let input_twice = twice(graph.input.iter().filter_map(|info| info.name.as_ref()));
        let output_twice = twice(graph.output.iter().filter_map(|info| info.name.as_ref()));
        if let Some(name) = input_twice.or(output_twice) {
            return Err(malformed(format!("two of its inputs or outputs are named `{name}`")));
        }
        let passed = take_passed(&mut graph);
        let external = External { files, beside: name };
        let initializers: HashMap<_, _> = graph
            .initializer
            .iter()
            .map(|tensor| {
                let name = tensor.name.clone().unwrap_or_default();
                (name, literal(tensor, Some(&external)))
            })
            .collect();
        let is_wider = |tensor: &&TensorProto| tensor.data_type.is_some_and(is_converted);
        let converted: Vec<&TensorProto> = graph.initializer.iter().filter(is_wider).collect();
        let mut notes = Vec::new();
        if let Some(first) = converted.first() {
            let (file, count) = (files.label(name), converted.len());
            let of = first.name.as_deref().unwrap_or("");
            notes.push(format!(
                "{file}: {count} of its weights are not FLOAT (`{of}`, for one, is {}): converted",
                first.data_type.unwrap_or(DataType(0))
            ));
        }
        let inputs = graph
            .input
            .iter()
            .filter(|info| !initializers.contains_key(info.name.as_deref().unwrap_or("")))
            .map(|info| {
                let tensor = info.r#type.as_ref().and_then(|ty| ty.tensor_type.as_ref());
                let element = tensor.and_then(|tensor| tensor.elem_type);
                GraphInput {
                    name: info.name.clone().unwrap_or_default(),
                    element: match element {
                        Some(data_type) => element_type(data_type),
                        None => Err("its type is not a tensor's".to_owned()),
                    },
                    shape: tensor.and_then(|tensor| tensor.shape.as_ref()).map(|shape| {
                        shape
                            .dim
                            .iter()
                            .map(|dim| match (dim.dim_value, dim.dim_param.as_deref()) {
                                (Some(length), _) if length >= 0 => {
                                    DeclaredDimension::Static(length as usize)
                                }
                                (_, Some(name)) if !matches!(name, "" | "?") => {
                                    DeclaredDimension::Named(name.to_owned())
                                }
                                _ => DeclaredDimension::Unnamed,
                            })
                            .collect()
                    }),
                }
            })
            .collect();
        let outputs: Vec<String> =
            graph.output.iter().map(|info| info.name.clone().unwrap_or_default()).collect();
        let output_element = |info: &ValueInfoProto| {
            let data_type = info.r#type.as_ref()?.tensor_type.as_ref()?.elem_type?;
            element_type(data_type).ok()
        };
        let output_elements = graph.output.iter().map(output_element).collect();
        let output_ranks = graph
            .output
            .iter()
            .map(|info| {
                let tensor = info.r#type.as_ref()?.tensor_type.as_ref()?;
                Some(tensor.shape.as_ref()?.dim.len())
            })
            .collect();
        let nodes = read_nodes(graph.node, "", &external);
        let nodes = live(nodes, &outputs);
        let name = files.label(name);
        Ok(Self {
            name,
            opset,
            inputs,
            outputs,
            output_elements,
            output_ranks,
            nodes,
            initializers,
            passed,
            diagnostics,
            notes,
        })
    }
}

/// The first name that occurs a second time.
fn twice<'a>(names: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let mut known = HashSet::new();
    names.into_iter().find(|name| !known.insert(*name))
}

/// Reads the nodes of a graph. `inside` is the prefix of the labels of nodes without a name.
fn read_nodes(nodes: Vec<NodeProto>, inside: &str, external: &External<'_>) -> Vec<Node> {
    let read = |(k, node): (usize, NodeProto)| {
        let label = match node.name {
            Some(name) if !name.is_empty() => name,
            _ => format!("{inside}OP_{k}"),
        };
        let mut attributes = node.attribute;
        let mut subgraphs = Vec::new();
        for attribute in &mut attributes {
            if let Some(graph) = attribute.g.take() {
                let name = attribute.name.clone().unwrap_or_default();
                let graph = read_subgraph(graph, &format!("{label}/{name}/"), external);
                subgraphs.push((name, graph));
            }
        }
        Node {
            operator: node.op_type.unwrap_or_default(),
            domain: node.domain.filter(|domain| domain != "ai.onnx").unwrap_or_default(),
            label,
            inputs: node.input,
            outputs: node.output,
            attributes,
            subgraphs,
        }
    };
    nodes.into_iter().enumerate().map(read).collect()
}

impl OnnxFile {
    /// The number of elements of all its constants.
    pub(crate) fn elements(&self) -> usize {
        let literals = self.initializers.values().flatten();
        literals.map(|literal| literal.shape().iter().product::<usize>()).sum()
    }
}

fn read_subgraph(graph: GraphProto, inside: &str, external: &External<'_>) -> Subgraph {
    let names = |infos: Vec<ValueInfoProto>| -> Vec<String> {
        infos.into_iter().map(|info| info.name.unwrap_or_default()).collect()
    };
    let (inputs, outputs) = (names(graph.input), names(graph.output));
    let nodes = live(read_nodes(graph.node, inside, external), &outputs);
    let read = |tensor: &TensorProto| {
        (tensor.name.clone().unwrap_or_default(), literal(tensor, Some(external)))
    };
    let initializers = graph.initializer.iter().map(read).collect();
    Subgraph { inputs, nodes, initializers, outputs }
}

/// Only the nodes that the outputs depend on.
pub(crate) fn live(nodes: Vec<Node>, outputs: &[String]) -> Vec<Node> {
    let mut wanted: HashSet<String> = outputs.iter().cloned().collect();
    let mut kept: Vec<Node> = Vec::new();
    for node in nodes.into_iter().rev() {
        if node.outputs.iter().any(|output| wanted.contains(output)) {
            wanted.extend(node.reads().into_iter().cloned());
            kept.push(node);
        }
    }
    kept.reverse();
    kept
}
