//! The common form of `Loop` and `Scan`, and the part of their bodies that does not depend on the step.

use std::collections::{HashMap, HashSet};

use batchmaker_graph::ElementType;

use crate::analysis::operators::arguments::axis_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::array::Array;
use crate::data::direction::Direction;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::node::{Node, Subgraph};
use crate::file::onnx_file::OnnxFile;

/// A `Loop` or a `Scan`.
pub(super) struct Loop<'a> {
    pub(super) node: &'a Node,
    pub(super) graph: &'a Subgraph,
    /// The number of steps; none: the loop runs as long as its condition holds.
    pub(super) trips: Option<Int>,
    /// The first values of the states.
    pub(super) states: Vec<Val>,
    /// The tensors of which the body is given a step, each with the axis of steps and the direction.
    pub(super) scanned: Vec<(Val, usize, Direction)>,
    /// The body's inputs.
    pub(super) number: Option<&'a str>,
    pub(super) condition: Option<&'a str>,
    pub(super) state_inputs: &'a [String],
    pub(super) step_inputs: &'a [String],
    /// The body's outputs.
    pub(super) goes_on: Option<&'a str>,
    pub(super) state_outputs: &'a [String],
    /// The outputs of which every step is kept: name, axis of the steps in the result, direction.
    pub(super) every: Vec<(&'a str, i64, Direction)>,
}

impl<'a> Loop<'a> {
    pub(super) fn of_loop(node: &'a Node, inputs: &[Option<Val>]) -> Result<Self, String> {
        let graph = node.subgraph("body").ok_or("it has no body")?;
        let given = |index: usize| inputs.get(index).and_then(Option::as_ref);
        let mut trips = match given(0) {
            None => None,
            Some(Val::Literal(literal)) => {
                let ints = literal.as_ints().filter(|ints| ints.data.len() == 1);
                Some(ints.ok_or("its trip count is no integer")?.data[0].clone())
            }
            Some(_) => return Err("its trip count depends on the request".to_owned()),
        };
        match given(1) {
            None => {}
            Some(Val::Literal(literal) | Val::Fill(literal, _)) => {
                let bits = literal.as_bools().ok_or("its condition is no truth value")?;
                if bits.data.first() == Some(&false) {
                    trips = Some(Int::number(0));
                }
            }
            Some(_) => return Err("its condition depends on the request".to_owned()),
        }
        let states: Option<Vec<Val>> = inputs.iter().skip(2).cloned().collect();
        let states = states.ok_or("one of its states has no first value")?;
        let count = states.len();
        let [number, condition, state_inputs @ ..] = &graph.inputs[..] else {
            return Err("its body has fewer than two inputs".to_owned());
        };
        let [goes_on, rest @ ..] = &graph.outputs[..] else {
            return Err("its body has no outputs".to_owned());
        };
        if state_inputs.len() != count || rest.len() < count {
            return Err(format!("its body is not one of {count} states"));
        }
        let (state_outputs, every) = rest.split_at(count);
        Ok(Self {
            node,
            graph,
            trips,
            states,
            scanned: Vec::new(),
            number: Some(number),
            condition: Some(condition),
            state_inputs,
            step_inputs: &[],
            goes_on: Some(goes_on),
            state_outputs,
            every: every.iter().map(|name| (&**name, 0, Direction::Forward)).collect(),
        })
    }

    pub(super) fn of_scan(
        analysis: &Analysis,
        node: &'a Node,
        inputs: &[Option<Val>],
    ) -> Result<Self, String> {
        if analysis.opset < 9 {
            return Err("a Scan of opset 8 is another operator: 9 and later are supported".into());
        }
        let graph = node.subgraph("body").ok_or("it has no body")?;
        let vals: Option<Vec<Val>> = inputs.iter().cloned().collect();
        let mut vals = vals.ok_or("one of its inputs is missing")?;
        let scanned = node.int("num_scan_inputs").and_then(|n| usize::try_from(n).ok());
        let scanned = scanned.filter(|&n| n > 0 && n <= vals.len());
        let scanned = vals.split_off(vals.len() - scanned.ok_or("its num_scan_inputs are wrong")?);
        let states = vals;
        let count = states.len();
        if graph.inputs.len() != count + scanned.len() || graph.outputs.len() < count {
            return Err(format!("its body is not one of {count} states"));
        }
        let at = |name: &str, index: usize| {
            node.ints(name).map_or(Some(0), |list| list.get(index).copied())
        };
        let direction = |name: &str, index: usize| match at(name, index) {
            Some(0) => Ok(Direction::Forward),
            Some(1) => Ok(Direction::Reverse),
            _ => Err(format!("its {name} are wrong")),
        };
        let axis = |name: &str, index: usize| {
            at(name, index).ok_or_else(|| format!("its {name} are too few"))
        };
        let scanned = scanned.into_iter().enumerate().map(|(index, val)| {
            let axis = axis_of(axis("scan_input_axes", index)?, val.dims().len())?;
            Ok((val, axis, direction("scan_input_directions", index)?))
        });
        let scanned = scanned.collect::<Result<Vec<_>, String>>()?;
        let (state_inputs, step_inputs) = graph.inputs.split_at(count);
        let (state_outputs, every) = graph.outputs.split_at(count);
        let every = every.iter().enumerate().map(|(index, name)| {
            let axis = axis("scan_output_axes", index)?;
            Ok((&**name, axis, direction("scan_output_directions", index)?))
        });
        let (of, along, _) = &scanned[0];
        Ok(Self {
            node,
            graph,
            trips: Some(analysis.axes.int(&of.dims()[*along])),
            states,
            number: None,
            condition: None,
            state_inputs,
            step_inputs,
            goes_on: None,
            state_outputs,
            every: every.collect::<Result<Vec<_>, String>>()?,
            scanned,
        })
    }

    /// Whether the file uses output `at` of those that keep every step.
    pub(super) fn is_used(&self, at: usize) -> bool {
        self.node.output(self.states.len() + at).is_some()
    }

    /// Computes the values that are the same at every step, and gives the remaining nodes.
    pub(super) fn hoist(&self, analysis: &mut Analysis, file: &OnnxFile) -> Vec<&'a Node> {
        let mut changing: HashSet<&str> = self.graph.inputs.iter().map(String::as_str).collect();
        let mut left = Vec::new();
        analysis.add_initializers(self.graph);
        for node in &self.graph.nodes {
            if node.reads().iter().any(|name| changing.contains(name.as_str())) {
                changing.extend(node.outputs.iter().map(String::as_str));
                left.push(node);
            } else {
                analysis.add_node(node, file);
            }
        }
        left
    }

    /// The values of the graph around it that the body reads.
    pub(super) fn outer(&self, analysis: &mut Analysis, inside: &[&Node]) -> HashMap<String, Val> {
        let outputs = self.graph.outputs.iter();
        let names = inside.iter().flat_map(|node| node.reads()).chain(outputs);
        let mut outer = HashMap::new();
        for name in names {
            let val = match analysis.values.get(name) {
                Some(val) => val.clone(),
                None if analysis.body.as_ref().is_some_and(|body| body.has(name)) => {
                    analysis.capture(name)
                }
                None => continue,
            };
            outer.insert(name.clone(), val);
        }
        for name in inside.iter().flat_map(|node| &node.outputs) {
            outer.remove(name);
        }
        outer
    }
}

pub(super) fn integer(int: Int) -> Val {
    Val::literal(Literal::Int(Array::scalar(int), ElementType::I64))
}

pub(super) fn truth() -> Val {
    Val::literal(Literal::Bool(Array::scalar(true)))
}
