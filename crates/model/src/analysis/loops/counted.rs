//! Loops that a condition on their own counter ends, as TensorFlow's converter writes them: `while i < n: ...; i += 1`. They
//! become loops with a trip count, and states that never change become values of the graph around them.

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

/// A body, and how it is read.
struct Body<'a> {
    graph: &'a Subgraph,
    file: &'a OnnxFile,
}

impl Body<'_> {
    fn maker(&self, name: &str) -> Option<&Node> {
        self.graph.nodes.iter().find(|node| node.outputs.iter().any(|output| output == name))
    }

    /// The value that `name` is a copy of, perhaps of another type.
    fn origin<'b>(&'b self, name: &'b str, operators: &[&str]) -> &'b str {
        origin(&self.graph.nodes, name, operators)
    }

    /// Whether a value is the number 1.
    fn is_one(&self, name: &str) -> bool {
        let inside = self.graph.initializers.iter().find(|(known, _)| known == name);
        let literal = inside.map(|(_, literal)| literal).or(self.file.initializers.get(name));
        let made = || self.maker(name).and_then(|node| node.tensor("value"));
        let literal = literal.cloned().or_else(made);
        literal.is_some_and(|literal| literal.is_ok_and(|literal| number(&literal) == Some(1.0)))
    }
}

/// The value that `name` is a copy of, by way of nodes of some operators.
fn origin<'a>(nodes: &'a [Node], mut name: &'a str, operators: &[&str]) -> &'a str {
    for _ in 0..nodes.len() {
        let maker = nodes.iter().find(|node| node.outputs.iter().any(|output| output == name));
        match maker {
            Some(node) if operators.contains(&&*node.operator) && node.inputs.len() == 1 => {
                name = &node.inputs[0];
            }
            _ => break,
        }
    }
    name
}

/// The number that a constant of one element is.
fn number(literal: &Literal) -> Option<f64> {
    match literal {
        Literal::F32(array) if array.data.len() == 1 => Some(f64::from(array.data[0])),
        literal => match literal.as_numbers()?[..] {
            [one] => Some(one as f64),
            _ => None,
        },
    }
}

/// The one integer of a constant, which may be a length of the request.
fn integer_of(val: Option<&Val>) -> Option<Int> {
    match val? {
        Val::Literal(literal) => match &literal.as_ints()?.data[..] {
            [one] => Some(one.clone()),
            _ => None,
        },
        _ => None,
    }
}

const COPIES: [&str; 2] = ["Identity", "Cast"];

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
    let body = Body { graph, file };
    let [number_of_step, condition, states @ ..] = &graph.inputs[..] else { return None };
    let [goes_on, results @ ..] = &graph.outputs[..] else { return None };
    let (next, every) = results.split_at_checked(states.len())?;
    let firsts: Option<Vec<&Val>> = inputs.iter().skip(2).map(Option::as_ref).collect();
    let firsts = firsts.filter(|firsts| firsts.len() == states.len())?;
    let is_same = |state: usize| body.origin(&next[state], &["Identity"]) == states[state];

    // The condition after a step: counter + 1 < bound.
    let less = body.maker(body.origin(goes_on, &["Identity"]))?;
    let [counted, bound] = match (&*less.operator, &less.inputs[..]) {
        ("Less", [a, b]) | ("Greater", [b, a]) => [a, b].map(|name| body.origin(name, &COPIES)),
        _ => return None,
    };
    let counter = (0..states.len()).find(|&state| {
        let sum = body.maker(counted).filter(|node| node.operator == "Add");
        let is_next = |node: &Node| match &node.inputs[..] {
            [a, b] if *a == states[state] => body.is_one(b),
            [a, b] if *b == states[state] => body.is_one(a),
            _ => false,
        };
        sum.is_some_and(is_next) && body.origin(&next[state], &["Identity"]) == counted
    })?;
    let first = match firsts[counter] {
        Val::Literal(literal) => number(literal)?,
        _ => return None,
    };
    let bound = match states.iter().position(|state| state == bound) {
        Some(state) if is_same(state) => &node.inputs[2 + state],
        Some(_) => return None,
        None if body.maker(bound).is_some() => return None,
        None => bound,
    };
    let trips = analysis.values.get(bound)?;
    let steps = integer_of(Some(trips))?;
    if first != 0.0 || !begins(analysis, node, file, &steps) {
        return None;
    }

    let is_kept = |state: &usize| *state != counter && !is_same(*state);
    let kept: Vec<usize> = (0..states.len()).filter(is_kept).collect();
    let new_name = |name: &String| match states.iter().position(|state| state == name) {
        Some(state) if is_same(state) => node.inputs[2 + state].clone(),
        _ => name.clone(),
    };
    let renamed = graph.nodes.iter().map(|inner| {
        let mut inner = inner.clone();
        inner.inputs.iter_mut().for_each(|name| *name = new_name(name));
        inner
    });
    let element = firsts[counter].element()?;
    let to = int_attribute("to", data_type_of(element).0.into());
    let mut count = Node::plain("Cast", node).with(vec![to]);
    count.inputs = vec![number_of_step.clone()];
    count.outputs = vec![states[counter].clone()];
    let of_kept = |names: &[String]| kept.iter().map(|&state| names[state].clone()).collect();
    let kept_states: Vec<String> = of_kept(states);
    let kept_next: Vec<String> = of_kept(next);
    let outputs = [&[condition.clone()][..], &kept_next, every].concat();
    let body = Subgraph {
        inputs: [&[number_of_step.clone(), condition.clone()][..], &kept_states].concat(),
        nodes: live(std::iter::once(count).chain(renamed).collect(), &outputs),
        initializers: graph.initializers.clone(),
        outputs,
    };
    let first_kept: Vec<String> = of_kept(&node.inputs[2..]);
    let output = |index: usize| node.outputs.get(index).cloned().unwrap_or_default();
    let after = states.len()..states.len() + every.len();
    let outer_outputs = kept.iter().copied().chain(after).map(output).collect();
    let outer_inputs = [&[bound.to_owned(), String::new()][..], &first_kept].concat();
    let vals = kept.iter().map(|&state| Some(firsts[state].clone()));
    let last = |state: usize| match state {
        _ if state == counter => Some(trips.clone()),
        _ if is_same(state) => Some(firsts[state].clone()),
        _ => None,
    };
    Some(Counted {
        node: node.with_body(body, outer_inputs, outer_outputs),
        inputs: [Some(trips.clone()), None].into_iter().chain(vals).collect(),
        last: (0..states.len()).map(last).collect(),
    })
}

/// Whether the condition before the first step is that there is a step: none, or 0 < steps.
fn begins(analysis: &Analysis, node: &Node, file: &OnnxFile, steps: &Int) -> bool {
    let Some(name) = node.inputs.get(1).filter(|name| !name.is_empty()) else { return true };
    let name = origin(&file.nodes, name, &["Identity"]);
    let maker = file.nodes.iter().find(|node| node.outputs.iter().any(|output| output == name));
    let sides = maker.and_then(|node| match (&*node.operator, &node.inputs[..]) {
        ("Less", [a, b]) | ("Greater", [b, a]) => Some([a, b]),
        _ => None,
    });
    let Some([zero, bound]) = sides else { return false };
    let is_zero = match analysis.values.get(zero) {
        Some(Val::Literal(literal)) => number(literal) == Some(0.0),
        _ => {
            matches!(file.initializers.get(zero), Some(Ok(literal)) if number(literal) == Some(0.0))
        }
    };
    let bound = origin(&file.nodes, bound, &COPIES);
    is_zero && integer_of(analysis.values.get(bound)).as_ref() == Some(steps)
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
