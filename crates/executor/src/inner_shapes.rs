//! Brings the shapes of tensors inside loops and branches out of them: as outputs of the operator that holds the graph.
//!
//! | operator | shape of a tensor inside |
//! |---|---|
//! | `Loop` | one row for each iteration: `[iterations, rank]` |
//! | `If` | `[rank]` of the branch that was taken; `[1]` zero of the other |
//!
//! Graphs inside these graphs are left out.

use rten_onnx::onnx::{
    AttributeProto, DataType, GraphProto, NodeProto, TensorProto, ValueInfoProto,
};

use crate::operator::operator;

/// The most iterations of a loop while a program is probed: a loop that a condition on data ends may not end on
/// numbers that mean nothing.
const ITERATIONS_MAX: i64 = 4096;

const NO_SHAPE: &str = "no shape";
const ITERATIONS: &str = "iterations at most";
const CONDITION: &str = "condition";

/// The name of the shapes of a tensor inside an operator.
pub(crate) fn inner_shape_of(name: &str) -> String {
    format!("inner shape of {name}")
}

/// The graphs inside an operator.
pub(crate) fn bodies(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().filter_map(|attribute| attribute.g.as_ref())
}

/// The names of the tensors that the operators of `graph` compute.
pub(crate) fn made(graph: &GraphProto) -> impl Iterator<Item = &String> {
    graph.node.iter().flat_map(|node| &node.output).filter(|name| !name.is_empty())
}

/// Whether an operator of `graph` is an `If`.
pub(crate) fn has_branches(graph: &GraphProto) -> bool {
    graph.node.iter().any(|node| operator(node) == "If")
}

/// Adds the shapes of inner tensors to the outputs of the operators of `graph`; bounds its loops. Every `If` takes the
/// branch that `condition` says, if it says one. Gives the names of the tensors.
pub(crate) fn add_inner_shapes(graph: &mut GraphProto, condition: Option<bool>) -> Vec<String> {
    let mut names = Vec::new();
    if graph.node.iter().all(|node| bodies(node).next().is_none()) {
        return names;
    }
    for (number, mut node) in std::mem::take(&mut graph.node).into_iter().enumerate() {
        match operator(&node) {
            "Loop" => {
                names.extend(add_of_loop(&mut node));
                graph.node.extend(bound(&mut node, number));
            }
            "If" => {
                names.extend(add_of_branches(&mut node));
                if condition.is_some() {
                    CONDITION.clone_into(&mut node.input[0]);
                }
            }
            _ => {}
        }
        graph.node.push(node);
    }
    graph.initializer.extend([
        constant(NO_SHAPE, vec![1], DataType::INT64, 0),
        constant(ITERATIONS, Vec::new(), DataType::INT64, ITERATIONS_MAX),
        constant(CONDITION, Vec::new(), DataType::BOOL, i64::from(condition == Some(true))),
    ]);
    names
}

fn constant(name: &str, dims: Vec<i64>, data_type: DataType, value: i64) -> TensorProto {
    let mut tensor = TensorProto {
        name: Some(name.to_owned()),
        dims,
        data_type: Some(data_type),
        ..TensorProto::default()
    };
    match data_type {
        DataType::INT64 => tensor.int64_data = vec![value],
        _ => tensor.int32_data = vec![value as i32],
    }
    tensor
}

fn node(operator: &str, inputs: &[&str], output: String) -> NodeProto {
    NodeProto {
        op_type: Some(operator.to_owned()),
        input: inputs.iter().map(|&name| name.to_owned()).collect(),
        output: vec![output],
        ..NodeProto::default()
    }
}

fn output(graph: &mut GraphProto, name: String) {
    graph.output.push(ValueInfoProto { name: Some(name), r#type: None });
}

/// Pads the outputs of an operator to `count`.
fn pad(node: &mut NodeProto, count: usize) {
    node.output.resize(count.max(node.output.len()), String::new());
}

fn body(attribute: &mut AttributeProto) -> Option<&mut GraphProto> {
    attribute.g.as_mut()
}

/// Adds the shapes of the tensors in a loop's body as outputs of every iteration.
fn add_of_loop(loops: &mut NodeProto) -> Vec<String> {
    let Some(body) = loops.attribute.iter_mut().find_map(body) else { return Vec::new() };
    // The first output is the condition, which the operator does not give.
    let count = body.output.len().saturating_sub(1);
    let names: Vec<String> = made(body).cloned().collect();
    for name in &names {
        let shape = format!("shape within {name}");
        body.node.push(node("Shape", &[name], shape.clone()));
        output(body, shape);
    }
    pad(loops, count);
    loops.output.extend(names.iter().map(|name| inner_shape_of(name)));
    names
}

/// Bounds the iterations of a loop. Gives the operator that computes the bound, if the loop had one.
fn bound(loops: &mut NodeProto, number: usize) -> Option<NodeProto> {
    let own = loops.input.first_mut()?;
    if own.is_empty() {
        ITERATIONS.clone_into(own);
        return None;
    }
    let bounded = format!("iterations of loop {number}");
    let least = node("Min", &[own.as_str(), ITERATIONS], bounded.clone());
    *own = bounded;
    Some(least)
}

/// Adds the shapes of the tensors in both branches as outputs of both.
fn add_of_branches(branches: &mut NodeProto) -> Vec<String> {
    let of_branch = |attribute: &AttributeProto| -> Vec<String> {
        attribute.g.iter().flat_map(|graph| made(graph).cloned()).collect()
    };
    let names: Vec<Vec<String>> = branches.attribute.iter().map(of_branch).collect();
    let mut count = 0;
    for at in 0..branches.attribute.len() {
        let Some(body) = body(&mut branches.attribute[at]) else { continue };
        count = count.max(body.output.len());
        for (from, names) in names.iter().enumerate() {
            for name in names {
                let shape = format!("shape within {at} {from} {name}");
                let given = match from == at {
                    true => node("Shape", &[name], shape.clone()),
                    false => node("Identity", &[NO_SHAPE], shape.clone()),
                };
                body.node.push(given);
                output(body, shape);
            }
        }
    }
    pad(branches, count);
    let names: Vec<String> = names.into_iter().flatten().collect();
    branches.output.extend(names.iter().map(|name| inner_shape_of(name)));
    names
}
