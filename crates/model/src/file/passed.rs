//! Inputs of strings that a graph hands on to its outputs as they are: names of requests, for example.

use std::collections::{HashMap, HashSet};

use rten_onnx::onnx::{DataType, GraphProto, NodeProto, ValueInfoProto};

/// An input of strings, and the outputs that are equal to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub(crate) input: String,
    pub(crate) outputs: Vec<String>,
    /// Its axes; -1: a length that requests choose.
    pub(crate) shape: Vec<i64>,
}

/// Takes the inputs of strings out of a graph that only reach outputs, by way of `Identity` or directly, together with
/// those outputs. Other inputs of strings stay, and those that the file has a value for.
pub(super) fn take_passed(graph: &mut GraphProto) -> Vec<Passed> {
    let mut passed = Vec::new();
    let inputs: Vec<Passed> = graph.input.iter().filter_map(of_strings).collect();
    for input in inputs {
        if graph.initializer.iter().any(|of| of.name.as_ref() == Some(&input.input)) {
            continue;
        }
        if let Some((outputs, nodes)) = reached(graph, &input.input) {
            let mut at = 0..;
            graph.node.retain(|_| !nodes.contains(&at.next().expect("there is no last number")));
            let is_other = |info: &ValueInfoProto, names: &[String]| {
                !info.name.as_ref().is_some_and(|name| names.contains(name))
            };
            graph.input.retain(|info| is_other(info, std::slice::from_ref(&input.input)));
            graph.output.retain(|info| is_other(info, &outputs));
            passed.push(Passed { outputs, ..input });
        }
    }
    passed
}

/// An input of strings whose shape the file declares.
fn of_strings(info: &ValueInfoProto) -> Option<Passed> {
    let tensor = info.r#type.as_ref()?.tensor_type.as_ref()?;
    if tensor.elem_type != Some(DataType::STRING) {
        return None;
    }
    let dims = &tensor.shape.as_ref()?.dim;
    let shape = dims.iter().map(|dim| dim.dim_value.filter(|&length| length >= 0).unwrap_or(-1));
    Some(Passed { input: info.name.clone()?, outputs: Vec::new(), shape: shape.collect() })
}

/// The outputs that are equal to a value, and the nodes between; none if another node reads it, or no output is.
fn reached(graph: &GraphProto, input: &str) -> Option<(Vec<String>, HashSet<usize>)> {
    let mut readers: HashMap<&str, Vec<(usize, &NodeProto)>> = HashMap::new();
    for (at, node) in graph.node.iter().enumerate() {
        for name in &node.input {
            readers.entry(name).or_default().push((at, node));
        }
    }
    let has_body = |node: &&NodeProto| node.attribute.iter().any(|of| of.g.is_some());
    let with_bodies: Vec<&NodeProto> = graph.node.iter().filter(has_body).collect();
    let (mut names, mut nodes) = (vec![input], HashSet::new());
    let mut next = 0;
    while let Some(&name) = names.get(next) {
        next += 1;
        if with_bodies.iter().any(|node| is_read_in_body(node, name)) {
            return None;
        }
        for &(at, node) in readers.get(name).into_iter().flatten() {
            let is_identity = node.op_type.as_deref() == Some("Identity")
                && matches!(node.domain.as_deref(), None | Some("" | "ai.onnx"));
            let ([_], [output], true, true) =
                (&node.input[..], &node.output[..], is_identity, nodes.insert(at))
            else {
                return None;
            };
            names.push(output);
        }
    }
    let outputs = graph.output.iter().filter_map(|info| info.name.as_ref());
    let outputs: Vec<String> = outputs.filter(|name| names.contains(&&***name)).cloned().collect();
    (!outputs.is_empty()).then_some((outputs, nodes))
}

/// Whether a body of a node may read the value `name` of the graph around it.
fn is_read_in_body(node: &NodeProto, name: &str) -> bool {
    let mut bodies = node.attribute.iter().filter_map(|attribute| attribute.g.as_ref());
    bodies.any(|body| {
        let is_output = body.output.iter().any(|info| info.name.as_deref() == Some(name));
        let is_read = |node: &NodeProto| {
            node.input.iter().any(|input| input == name) || is_read_in_body(node, name)
        };
        is_output || body.node.iter().any(is_read)
    })
}
