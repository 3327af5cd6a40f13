//! An ONNX file as nodes over named values. Reading only: what the operators mean is
//! not known here.

use std::collections::{HashMap, HashSet};

use batchmaker_graph::ElementType;
use rten_onnx::onnx::{
    AttributeProto, DataLocation, DataType, GraphProto, ModelProto, NodeProto, TensorProto,
    ValueInfoProto,
};

use crate::data::literal::{Literal, is_converted};
use crate::error::{Diagnostic, LoadError};
use crate::file::files::Files;
use crate::file::wire_check;

/// A graph: inputs without initializers, nodes in an order that producers come first.
pub(crate) struct OnnxFile {
    pub(crate) name: String,
    pub(crate) opset: i64,
    pub(crate) inputs: Vec<GraphInput>,
    pub(crate) outputs: Vec<String>,
    /// Of each output, where the file declares it.
    pub(crate) output_ranks: Vec<Option<usize>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) initializers: HashMap<String, Result<Literal, String>>,
    /// What is wrong with the graph as such.
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// What its owner may want to know.
    pub(crate) notes: Vec<String>,
}

pub(crate) struct GraphInput {
    pub(crate) name: String,
    pub(crate) element: Result<ElementType, String>,
    /// None: the file does not say.
    pub(crate) shape: Option<Vec<DeclaredDimension>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeclaredDimension {
    Static(usize),
    Named(String),
    Unnamed,
}

pub(crate) struct Node {
    pub(crate) operator: String,
    pub(crate) domain: String,
    /// The node's name, or `OP_k`: the k-th node of the file.
    pub(crate) label: String,
    /// Empty: an optional input that is absent.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    attributes: Vec<AttributeProto>,
    /// By attribute.
    subgraphs: Vec<(String, Subgraph)>,
}

/// A graph inside a node, which may read values of the graphs around it.
pub(crate) struct Subgraph {
    /// Names, in order.
    pub(crate) inputs: Vec<String>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) initializers: Vec<(String, Result<Literal, String>)>,
    pub(crate) outputs: Vec<String>,
}

impl Node {
    /// A `Transpose` of the value `from` to the value `to`.
    pub(crate) fn transpose(label: String, from: &str, to: &str, permutation: &[usize]) -> Self {
        let perm = AttributeProto {
            name: Some("perm".to_owned()),
            ints: permutation.iter().map(|&axis| axis as i64).collect(),
            ..AttributeProto::default()
        };
        Self {
            operator: "Transpose".to_owned(),
            domain: String::new(),
            label,
            inputs: vec![from.to_owned()],
            outputs: vec![to.to_owned()],
            attributes: vec![perm],
            subgraphs: Vec::new(),
        }
    }

    /// An operator without attributes, in the place of `node`.
    pub(crate) fn plain(operator: &str, node: &Self) -> Self {
        Self {
            operator: operator.to_owned(),
            domain: String::new(),
            label: node.label.clone(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: Vec::new(),
            subgraphs: Vec::new(),
        }
    }

    pub(crate) fn with(self, attributes: Vec<AttributeProto>) -> Self {
        Self { attributes, ..self }
    }

    fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|attribute| attribute.name.as_deref() == Some(name))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).map(|attribute| attribute.i.unwrap_or(0))
    }

    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name).map(|attribute| attribute.f.unwrap_or(0.0))
    }

    pub(crate) fn string(&self, name: &str) -> Option<&str> {
        self.attribute(name).map(|attribute| attribute.s.as_deref().unwrap_or(""))
    }

    pub(crate) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| attribute.ints.as_slice())
    }

    pub(crate) fn floats(&self, name: &str) -> Option<&[f32]> {
        self.attribute(name).map(|attribute| attribute.floats.as_slice())
    }

    pub(crate) fn strings(&self, name: &str) -> &[String] {
        self.attribute(name).map_or(&[], |attribute| attribute.strings.as_slice())
    }

    pub(crate) fn tensor(&self, name: &str) -> Option<Result<Literal, String>> {
        let tensor = self.attribute(name)?.t.as_ref()?;
        Some(literal(tensor, None))
    }

    pub(crate) fn subgraph(&self, name: &str) -> Option<&Subgraph> {
        self.subgraphs.iter().find(|(attribute, _)| attribute == name).map(|(_, graph)| graph)
    }

    /// All names of values in it, those of its subgraphs included.
    pub(crate) fn names_mut(&mut self) -> Vec<&mut String> {
        let mut names: Vec<&mut String> = self.inputs.iter_mut().chain(&mut self.outputs).collect();
        for (_, graph) in &mut self.subgraphs {
            names.extend(&mut graph.outputs);
            names.extend(graph.nodes.iter_mut().flat_map(Node::names_mut));
        }
        names
    }

    /// The values that it and its subgraphs read; some may be made inside.
    pub(crate) fn reads(&self) -> Vec<&String> {
        let mut names: Vec<&String> = self.inputs.iter().collect();
        for (_, graph) in &self.subgraphs {
            names.extend(&graph.outputs);
            names.extend(graph.nodes.iter().flat_map(Node::reads));
        }
        names
    }

    pub(crate) fn output(&self, index: usize) -> Option<&str> {
        self.outputs.get(index).map(String::as_str).filter(|name| !name.is_empty())
    }

    pub(crate) fn diagnostic(&self, reason: impl Into<String>) -> Diagnostic {
        Diagnostic {
            operator: self.operator.clone(),
            node: self.label.clone(),
            reason: reason.into(),
        }
    }
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
        let Some(graph) = model.graph else {
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
                                (_, Some(name)) if !name.is_empty() => {
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
        let names = graph.input.iter().map(|info| info.name.as_ref());
        let input_twice = twice(names.flatten());
        if let Some(name) = input_twice.or_else(|| twice(outputs.iter())) {
            return Err(malformed(format!("two of its inputs or outputs are named `{name}`")));
        }
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
            output_ranks,
            nodes,
            initializers,
            diagnostics,
            notes,
        })
    }
}

/// A name that comes a second time.
fn twice<'a>(names: impl Iterator<Item = &'a String>) -> Option<&'a String> {
    let mut known = HashSet::new();
    names.into_iter().find(|name| !known.insert(*name))
}

/// Nodes of a graph; `inside`: what stands before the numbers of those without a name.
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
    /// Elements of all its constants.
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
fn live(nodes: Vec<Node>, outputs: &[String]) -> Vec<Node> {
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

struct External<'a> {
    files: &'a Files<'a>,
    beside: &'a str,
}

/// The element type of an ONNX data type that is served.
pub(crate) fn element_type(data_type: DataType) -> Result<ElementType, String> {
    match data_type {
        DataType::FLOAT => Ok(ElementType::F32),
        DataType::INT64 => Ok(ElementType::I64),
        DataType::INT32 => Ok(ElementType::I32),
        DataType::BOOL => Ok(ElementType::Bool),
        other => Err(format!(
            "data type {other} is not supported (FLOAT, INT64, INT32 and BOOL are; weights \
                 may also be FLOAT16, BFLOAT16 and DOUBLE)"
        )),
    }
}

/// Bytes of an element as it is stored.
fn element_size(data_type: DataType, element: ElementType) -> usize {
    match data_type {
        DataType::FLOAT16 | DataType::BFLOAT16 => 2,
        DataType::DOUBLE => 8,
        _ => element.bytes(),
    }
}

fn literal(tensor: &TensorProto, external: Option<&External<'_>>) -> Result<Literal, String> {
    let data_type = tensor.data_type.unwrap_or(DataType(0));
    let element = match is_converted(data_type) {
        true => ElementType::F32,
        false => element_type(data_type)?,
    };
    if tensor.dims.len() > 64 {
        return Err(format!("a tensor of {} axes", tensor.dims.len()));
    }
    let shape = tensor
        .dims
        .iter()
        .map(|&dim| usize::try_from(dim).map_err(|_| format!("a dimension of {dim}")))
        .collect::<Result<Vec<_>, _>>()?;
    let count = shape
        .iter()
        .try_fold(1usize, |count, &length| count.checked_mul(length))
        .ok_or("its shape overflows")?;
    let raw = match (&tensor.raw_data, external) {
        _ if tensor.data_location == Some(DataLocation::EXTERNAL) => {
            let external = external.ok_or("external data in an attribute is not supported")?;
            let size = element_size(data_type, element);
            let bytes = count.checked_mul(size).ok_or("its shape overflows")?;
            Some(read_external(tensor, external, bytes)?)
        }
        (Some(raw), _) => Some(raw.borrow().clone()),
        (None, _) => None,
    };
    let literal = Literal::from_onnx(element, shape, raw.as_deref(), tensor);
    literal.ok_or_else(|| format!("it does not hold the {count} elements that its shape says"))
}

/// The `bytes` bytes of a tensor that lie in another file.
fn read_external(
    tensor: &TensorProto,
    external: &External<'_>,
    bytes: usize,
) -> Result<Vec<u8>, String> {
    let entry = |key: &str| {
        let found = tensor.external_data.iter().find(|entry| entry.key.as_deref() == Some(key));
        found.and_then(|entry| entry.value.as_deref())
    };
    let number = |key: &str| match entry(key) {
        Some(text) => text.parse().map(Some).map_err(|_| format!("external data: bad {key}")),
        None => Ok(None::<usize>),
    };
    let location = entry("location").ok_or("external data: no location")?;
    let folder = external.beside.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = if folder.is_empty() { location.to_owned() } else { format!("{folder}/{location}") };
    let length = number("length")?.unwrap_or(bytes);
    if length != bytes {
        return Err(format!("external data: {length} bytes where its shape says {bytes}"));
    }
    let part = (number("offset")?.unwrap_or(0), bytes);
    let bytes = external.files.read_part(&path, part);
    bytes.map_err(|error| format!("external data: {error}"))
}
