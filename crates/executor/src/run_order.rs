//! The order in which rten runs the operators of a graph: as `PlanBuilder` in rten's `graph/planner.rs`.

use std::collections::{BTreeMap, BTreeSet};

use rten_onnx::onnx::{GraphProto, NodeProto};

use crate::inner_shapes::{bodies, made};
use crate::operator::operator;

/// The names of the tensors that an operator reads: its inputs, then what graphs inside it take from around.
pub(crate) fn reads(node: &NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> =
        node.input.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    for body in bodies(node) {
        let inner = body.input.iter().filter_map(|input| input.name.as_ref()).chain(made(body));
        let inner: BTreeSet<&str> = inner.map(String::as_str).collect();
        let outputs = body.output.iter().filter_map(|output| output.name.as_deref());
        let taken = body.node.iter().flat_map(reads).chain(outputs);
        names.extend(taken.filter(|name| !inner.contains(name)));
    }
    names
}

/// Whether rten may write an operator's result over one of its inputs.
pub(crate) fn may_be_in_place(node: &NodeProto) -> bool {
    IN_PLACE.binary_search(&operator(node)).is_ok()
}

/// The operators that rten runs in place, in alphabetical order.
const IN_PLACE: &[&str] = &[
    "Abs",
    "Acos",
    "Add",
    "Asin",
    "Atan",
    "BatchNormalization",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Concat",
    "Cos",
    "Div",
    "Elu",
    "Erf",
    "Exp",
    "Expand",
    "Flatten",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "InstanceNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "Mul",
    "Neg",
    "Not",
    "Pow",
    "Reciprocal",
    "Relu",
    "Reshape",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Slice",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Tan",
    "Tanh",
    "Tile",
    "Unsqueeze",
];

/// The operators of `graph` that `outputs` need, as positions among its nodes, in the order in which they run.
pub(crate) fn run_order(graph: &GraphProto, outputs: &[String]) -> Vec<usize> {
    let makers: BTreeMap<&str, usize> = graph
        .node
        .iter()
        .enumerate()
        .flat_map(|(at, node)| node.output.iter().map(move |name| (name.as_str(), at)))
        .collect();
    let reads: Vec<Vec<usize>> = graph
        .node
        .iter()
        .map(|node| reads(node).iter().filter_map(|name| makers.get(name).copied()).collect())
        .collect();
    let mut needed = Vec::new();
    let mut is_visited = vec![false; graph.node.len()];
    for name in outputs {
        let Some(&maker) = makers.get(name.as_str()) else { continue };
        visit(maker, &reads, &mut is_visited, &mut needed);
    }
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); graph.node.len()];
    for &at in &needed {
        reads[at].iter().for_each(|&read| readers[read].push(at));
    }
    let mut has_run = vec![false; graph.node.len()];
    let is_ready = |at: usize, has_run: &[bool]| reads[at].iter().all(|&read| has_run[read]);
    let ready = needed.iter().copied().filter(|&at| is_ready(at, &has_run));
    let mut frontier: Vec<usize> = ready.collect();
    let mut order = Vec::with_capacity(needed.len());
    while !frontier.is_empty() {
        let first = frontier.iter().position(|&at| !may_be_in_place(&graph.node[at]));
        let next = frontier.remove(first.unwrap_or(0));
        order.push(next);
        has_run[next] = true;
        for &reader in &readers[next] {
            if !has_run[reader] && !frontier.contains(&reader) && is_ready(reader, &has_run) {
                frontier.push(reader);
            }
        }
    }
    order
}

/// Appends an operator to `needed` behind those that it reads from. The depth is kept in a list: programs may be long.
fn visit(root: usize, reads: &[Vec<usize>], is_visited: &mut [bool], needed: &mut Vec<usize>) {
    let mut stack = vec![(root, 0)];
    while let Some((at, read)) = stack.pop() {
        if read == 0 {
            if is_visited[at] {
                continue;
            }
            is_visited[at] = true;
        }
        match reads[at].get(read) {
            Some(&next) => {
                stack.push((at, read + 1));
                if !is_visited[next] {
                    stack.push((next, 0));
                }
            }
            None => needed.push(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_in_place_are_in_order() {
        assert!(IN_PLACE.is_sorted());
    }

    #[test]
    fn operators_that_allocate_come_first() {
        let node = |operator: &str, input: &[&str], output: &str| NodeProto {
            op_type: Some(operator.to_owned()),
            input: input.iter().map(|&name| name.to_owned()).collect(),
            output: vec![output.to_owned()],
            ..NodeProto::default()
        };
        let graph = GraphProto {
            node: vec![
                node("Relu", &["in0"], "a"),
                node("Exp", &["a"], "unread"),
                node("Transpose", &["in0"], "b"),
                node("MatMul", &["a", "b"], "out0"),
            ],
            ..GraphProto::default()
        };
        assert_eq!(run_order(&graph, &["out0".to_owned()]), [2, 0, 3]);
    }
}
