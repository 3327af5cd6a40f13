//! Loops that a condition on their own counter ends, as TensorFlow's converter writes them: `while i < n: ...; i += 1`. They
//! become loops with a trip count, and states that never change become values of the graph around them.

use std::collections::HashMap;

use rten_onnx::onnx::DataType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::narrow::data_type_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::attribute::int_attribute;
use crate::file::node::{Node, Subgraph};
use crate::file::onnx_file::{OnnxFile, live};

/// A loop with a trip count in the place of another.
pub(super) struct Counted {
    pub(super) node: Node,
    pub(super) inputs: Vec<Option<Val>>,
    /// For each state of the other loop its last value, where that is known without the loop.
    last: Vec<Option<Val>>,
}

/// The loop with a trip count that `node` is equal to, where it has none and counts its steps itself.
pub(super) fn counted(
    analysis: &Analysis,
    node: &Node,
    inputs: &Inputs,
    file: &OnnxFile,
) -> Option<Counted> {
    let graph = node.subgraph("body")?;
    let has_bodies = graph.nodes.iter().any(Node::has_subgraphs);
    if node.inputs.first().is_some_and(|name| !name.is_empty()) || has_bodies {
        return None;
    }
    let firsts: Option<Vec<&Val>> = inputs.iter().skip(2).map(Option::as_ref).collect();
    let firsts = firsts?;
    let a_while = While::read(node, graph, file).filter(|of| of.states.len() == firsts.len())?;
    let (trips, first) = (analysis.values.get(a_while.bound)?, firsts[a_while.counter]);
    let (steps, zero) = (integer_of(trips)?, integer_of(first)?.as_number());
    let is_empty = steps.as_number().is_some_and(|steps| steps < 1);
    let has_axes = trips.dims().len() != first.dims().len();
    if zero != Some(0) || is_empty || has_axes || !begins(analysis, node, file, &steps) {
        return None;
    }
    let last = |state: usize| match state {
        _ if state == a_while.counter => Some(trips.clone()),
        _ if a_while.is_same[state] => Some(firsts[state].clone()),
        _ => None,
    };
    let of_kept = a_while.kept().map(|state| Some(firsts[state].clone()));
    Some(Counted {
        inputs: [Some(trips.clone()), None].into_iter().chain(of_kept).collect(),
        node: a_while.as_counted(data_type_of(first.element()?)),
        last: (0..firsts.len()).map(last).collect(),
    })
}

impl Counted {
    /// The outputs of the other loop, from those of this one.
    pub(super) fn outputs(self, vals: Vec<Val>) -> Vec<Val> {
        let mut vals = vals.into_iter();
        let mut all: Vec<Val> = Vec::new();
        for last in self.last {
            match last.or_else(|| vals.next()) {
                Some(val) => all.push(val),
                // A diagnostic says why.
                None => return Vec::new(),
            }
        }
        all.extend(vals);
        all
    }
}

/// A loop that goes on while its counter is less than a bound.
struct While<'a> {
    node: &'a Node,
    graph: &'a Subgraph,
    number_of_step: &'a String,
    condition: &'a String,
    /// The body's inputs and outputs that are states, and its other outputs.
    states: &'a [String],
    next: &'a [String],
    every: &'a [String],
    /// The state that counts.
    counter: usize,
    /// Whether each state never changes.
    is_same: Vec<bool>,
    /// The value of the graph around it that the counter ends at.
    bound: &'a str,
}

impl<'a> While<'a> {
    fn read(node: &'a Node, graph: &'a Subgraph, file: &'a OnnxFile) -> Option<Self> {
        let [number_of_step, condition, states @ ..] = &graph.inputs[..] else { return None };
        let [goes_on, results @ ..] = &graph.outputs[..] else { return None };
        let (next, every) = results.split_at_checked(states.len())?;
        let makers = Makers::of(&graph.nodes);
        let is_same: Vec<bool> =
            states.iter().zip(next).map(|(state, next)| makers.source(next) == state).collect();

        // The condition after a step: counter + 1 < bound.
        let [counted, bound] = makers.sides_of_less(goes_on)?.map(|name| makers.number(name));
        let sum = makers.maker(counted).filter(|node| node.operator == "Add")?;
        let [a, b] = &sum.inputs[..] else { return None };
        let counter = (0..states.len()).find(|&state| {
            let one = match &states[state] {
                state if state == a => b,
                state if state == b => a,
                _ => return false,
            };
            makers.source(&next[state]) == counted && is_one(one, graph, &makers, file)
        })?;
        let bound = match states.iter().position(|state| state == bound) {
            Some(state) if is_same[state] => node.inputs.get(2 + state)?,
            Some(_) => return None,
            None if makers.maker(bound).is_some() => return None,
            None => bound,
        };
        Some(Self {
            node,
            graph,
            number_of_step,
            condition,
            states,
            next,
            every,
            counter,
            is_same,
            bound,
        })
    }

    /// The states that are more than a count or one value.
    fn kept(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.states.len()).filter(|&state| state != self.counter && !self.is_same[state])
    }

    /// The loop with a trip count. Its body counts in numbers of this type.
    fn as_counted(&self, number: DataType) -> Node {
        let of_kept = |names: &[String]| -> Vec<String> {
            self.kept().map(|state| names[state].clone()).collect()
        };
        // States that never change have the names that they have outside.
        let outside = |name: &mut String| {
            let state = self.states.iter().position(|state| state == name);
            if let Some(state) = state.filter(|&state| self.is_same[state]) {
                name.clone_from(&self.node.inputs[2 + state]);
            }
        };
        let mut count =
            Node::plain("Cast", self.node).with(vec![int_attribute("to", number.0.into())]);
        count.inputs = vec![self.number_of_step.clone()];
        count.outputs = vec![self.states[self.counter].clone()];
        let mut nodes = vec![count];
        nodes.extend(self.graph.nodes.iter().cloned());
        let mut outputs = [&[self.condition.clone()][..], &of_kept(self.next), self.every].concat();
        nodes.iter_mut().flat_map(|node| &mut node.inputs).for_each(outside);
        outputs.iter_mut().for_each(outside);
        let head = [self.number_of_step.clone(), self.condition.clone()];
        let body = Subgraph {
            inputs: [&head[..], &of_kept(self.states)].concat(),
            nodes: live(nodes, &outputs),
            initializers: self.graph.initializers.clone(),
            outputs,
        };
        let head = [self.bound.to_owned(), String::new()];
        let inputs = [&head[..], &of_kept(&self.node.inputs[2..])].concat();
        let every = self.states.len()..self.states.len() + self.every.len();
        let output = |index: usize| self.node.outputs.get(index).cloned().unwrap_or_default();
        self.node.with_body(body, inputs, self.kept().chain(every).map(output).collect())
    }
}

/// The nodes of a graph by their outputs.
struct Makers<'a>(HashMap<&'a str, &'a Node>);

impl<'a> Makers<'a> {
    fn of(nodes: &'a [Node]) -> Self {
        let outputs = |node: &'a Node| node.outputs.iter().map(move |output| (&**output, node));
        Self(nodes.iter().flat_map(outputs).collect())
    }

    fn maker(&self, name: &str) -> Option<&'a Node> {
        self.0.get(name).copied()
    }

    /// The value that `name` is a copy of.
    fn source(&self, name: &'a str) -> &'a str {
        self.follow(name, |node| node.operator == "Identity")
    }

    /// The value that `name` is a copy of, perhaps of another type that holds any length.
    fn number(&self, name: &'a str) -> &'a str {
        let wide = [DataType::FLOAT, DataType::DOUBLE, DataType::INT32, DataType::INT64];
        let is_wide = |to: i64| wide.iter().any(|wide| i64::from(wide.0) == to);
        self.follow(name, |node| match &*node.operator {
            "Cast" => node.int("to").is_some_and(is_wide),
            operator => operator == "Identity",
        })
    }

    fn follow(&self, mut name: &'a str, is_copy: impl Fn(&Node) -> bool) -> &'a str {
        for _ in 0..self.0.len() {
            match self.maker(name).filter(|node| is_copy(node)).map(|node| &node.inputs[..]) {
                Some([from]) => name = from,
                _ => break,
            }
        }
        name
    }

    /// The sides of a condition `a < b`.
    fn sides_of_less(&self, condition: &'a str) -> Option<[&'a str; 2]> {
        let node = self.maker(self.source(condition))?;
        match (&*node.operator, &node.inputs[..]) {
            ("Less", [a, b]) | ("Greater", [b, a]) => Some([a, b]),
            _ => None,
        }
    }
}

/// Whether the condition before the first step is that there is a step: none, or 0 < steps.
fn begins(analysis: &Analysis, node: &Node, file: &OnnxFile, steps: &Int) -> bool {
    let Some(condition) = node.inputs.get(1).filter(|name| !name.is_empty()) else { return true };
    let makers = Makers::of(&file.nodes);
    let Some([zero, bound]) = makers.sides_of_less(condition) else { return false };
    let is_zero = match (analysis.values.get(zero), file.initializers.get(zero)) {
        (Some(Val::Literal(literal)), _) => number_of(literal) == Some(0.0),
        (None, Some(Ok(literal))) => number_of(literal) == Some(0.0),
        _ => false,
    };
    let bound = analysis.values.get(makers.number(bound)).and_then(integer_of);
    is_zero && bound.as_ref() == Some(steps)
}

/// Whether a value that a body reads is the number 1.
fn is_one(name: &str, graph: &Subgraph, makers: &Makers<'_>, file: &OnnxFile) -> bool {
    let inside = graph.initializers.iter().find(|(known, _)| known == name);
    let literal = inside.map(|(_, literal)| literal).or(file.initializers.get(name)).cloned();
    let literal = literal.or_else(|| makers.maker(name)?.tensor("value"));
    literal.is_some_and(|literal| literal.is_ok_and(|literal| number_of(&literal) == Some(1.0)))
}

/// The number that a constant of one element is.
fn number_of(literal: &Literal) -> Option<f64> {
    match literal {
        Literal::F32(array) if array.data.len() == 1 => Some(f64::from(array.data[0])),
        literal => match literal.as_numbers()?[..] {
            [one] => Some(one as f64),
            _ => None,
        },
    }
}

/// The one integer of a constant, which may be a length of the request.
fn integer_of(val: &Val) -> Option<Int> {
    match val {
        Val::Literal(literal) => match &literal.as_ints()?.data[..] {
            [one] => Some(one.clone()),
            _ => None,
        },
        _ => None,
    }
}
