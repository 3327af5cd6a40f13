//! ONNX operators `Loop` and `Scan` (opset 9 and later).
//!
//! A loop with a step for every step of a tensor is a chain, as a recurrent operator is: its body is the
//! cell. One whose number of steps the file knows, and few, is the body that many times. What of a body
//! does not depend on the step is computed before it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::{Analysis, Domain, RecurrentPort, Source, Val, View};
use crate::array::Array;
use crate::kinds::Direction;
use crate::literal::Literal;
use crate::loop_body::{BodyInput, COUNTER, LoopBody, check_edges, drop_unread, find_batch};
use crate::onnx_file::{Node, OnnxFile, Subgraph};
use crate::operators::{Sequence, apply, int_attribute, ints_attribute, limit_ids};
use crate::recurrence::{Initial, Recurrent, SequenceLengths, Step};
use crate::symbolic::{AtomId, BATCH, Dim, Int, row_shape, steps};
use crate::{Blocker, LoadError, NamedCell};

/// The most steps of a loop that is the body again and again whatever it goes along.
const FEW: i64 = 8;

/// The most nodes that repeating a body may come to.
const REPEATED_MAX: i64 = 10_000;

/// The name of what the state becomes that is the number of the step.
const NEXT_NUMBER: &str = "number of the next step";

pub(crate) fn is_loop(node: &Node) -> bool {
    matches!(node.operator.as_str(), "Loop" | "Scan")
}

/// A loop, whichever operator it is.
struct Loop<'a> {
    node: &'a Node,
    graph: &'a Subgraph,
    /// None: as long as the condition holds.
    trips: Option<Int>,
    /// First values.
    states: Vec<Val>,
    /// Tensors that the body is given a step of, along which axis, which way.
    scanned: Vec<(Val, usize, Direction)>,
    /// The body's inputs.
    number: Option<&'a str>,
    condition: Option<&'a str>,
    state_inputs: &'a [String],
    step_inputs: &'a [String],
    /// The body's outputs.
    goes_on: Option<&'a str>,
    state_outputs: &'a [String],
    /// With the axis of the steps in the whole, and which way they are put together.
    every: Vec<(&'a str, i64, Direction)>,
}

/// The outputs of a `Loop` or `Scan` whose inputs are all known.
pub(crate) fn evaluate(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &[Option<Val>],
    file: &OnnxFile,
) -> Result<Vec<Val>, String> {
    let a_loop = match node.operator.as_str() {
        "Loop" => Loop::of_loop(node, inputs)?,
        _ => Loop::of_scan(analysis, node, inputs)?,
    };
    let inside = a_loop.hoist(analysis, file);
    let count = a_loop.trips.as_ref().and_then(Int::as_number);
    let repeated_count = count.filter(|count| count * inside.len() as i64 <= REPEATED_MAX);
    if let Some(count) = repeated_count.filter(|&count| count <= FEW || analysis.is_cell) {
        return a_loop.repeat(analysis, count, &inside, file);
    }
    if analysis.is_cell {
        return Err(
            "inside a cell or another loop, it has steps that the file does not count".into()
        );
    }
    match (a_loop.chain(analysis, &inside, file), repeated_count) {
        (Ok(vals), _) => Ok(vals),
        (Err(_), Some(count)) => a_loop.repeat(analysis, count, &inside, file),
        (Err(blockers), None) => {
            analysis.blockers.extend(blockers);
            Ok(Vec::new())
        }
    }
}

impl<'a> Loop<'a> {
    fn of_loop(node: &'a Node, inputs: &[Option<Val>]) -> Result<Self, String> {
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

    fn of_scan(
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
        let way = |name: &str, index: usize| match at(name, index) {
            Some(0) => Ok(Direction::Forward),
            Some(1) => Ok(Direction::Reverse),
            _ => Err(format!("its {name} are wrong")),
        };
        let axis = |name: &str, index: usize| {
            at(name, index).ok_or_else(|| format!("its {name} are too few"))
        };
        let scanned = scanned.into_iter().enumerate().map(|(index, val)| {
            let axis = from_front(axis("scan_input_axes", index)?, val.dims().len())?;
            Ok((val, axis, way("scan_input_directions", index)?))
        });
        let scanned = scanned.collect::<Result<Vec<_>, String>>()?;
        let (state_inputs, step_inputs) = graph.inputs.split_at(count);
        let (state_outputs, every) = graph.outputs.split_at(count);
        let every = every.iter().enumerate().map(|(index, name)| {
            let axis = axis("scan_output_axes", index)?;
            Ok((&**name, axis, way("scan_output_directions", index)?))
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

    /// Computes what is the same at every step; the nodes that are left.
    fn hoist(&self, analysis: &mut Analysis, file: &OnnxFile) -> Vec<&'a Node> {
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

    /// What the body reads of the graph around it.
    fn outer(&self, analysis: &mut Analysis, inside: &[&Node]) -> HashMap<String, Val> {
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

    /// The body `count` times.
    fn repeat(
        &self,
        analysis: &mut Analysis,
        count: i64,
        inside: &[&Node],
        file: &OnnxFile,
    ) -> Result<Vec<Val>, String> {
        let mut states = self.states.clone();
        let mut every: Vec<Vec<Val>> = vec![Vec::new(); self.every.len()];
        for step in 0..count {
            let mut set = |name: &str, val: Val| {
                analysis.values.insert(name.to_owned(), val);
            };
            self.number.into_iter().for_each(|name| set(name, scalar(Int::number(step))));
            self.condition.into_iter().for_each(|name| set(name, truth()));
            for (name, val) in self.state_inputs.iter().zip(&states) {
                set(name, val.clone());
            }
            for (name, (val, axis, direction)) in self.step_inputs.iter().zip(&self.scanned) {
                let at = match direction {
                    Direction::Forward => step,
                    Direction::Reverse => count - 1 - step,
                };
                let axis = vec![int_attribute("axis", *axis as i64)];
                let index = scalar(Int::number(at));
                let val = apply(analysis, self.node, "Gather", axis, vec![val.clone(), index])?;
                analysis.values.insert(name.clone(), val);
            }
            for node in inside {
                analysis.add_node(node, file);
            }
            for (known, (name, ..)) in every.iter_mut().zip(&self.every) {
                known.push(analysis.value(name, file));
            }
            states = self.state_outputs.iter().map(|name| analysis.value(name, file)).collect();
            match self.goes_on.map(|name| analysis.value(name, file)) {
                Some(Val::Literal(bits)) if bits.as_bools().is_some_and(|b| !b.data[0]) => break,
                None | Some(Val::Literal(_) | Val::Unknown) => {}
                Some(_) => return Err("its condition depends on the request".to_owned()),
            }
        }
        for (at, (mut vals, (_, axis, direction))) in every.into_iter().zip(&self.every).enumerate()
        {
            let is_used = self.node.output(self.states.len() + at).is_some();
            if !is_used || vals.iter().any(|val| matches!(val, Val::Unknown)) {
                states.push(Val::Unknown);
                continue;
            }
            if *direction == Direction::Reverse {
                vals.reverse();
            }
            let rank = vals.first().ok_or("it has no steps to put together")?.dims().len();
            let axis = from_front(*axis, rank + 1)? as i64;
            let mut parts = Vec::new();
            for val in vals {
                let axes = vec![ints_attribute("axes", vec![axis])];
                parts.push(apply(analysis, self.node, "Unsqueeze", axes, vec![val])?);
            }
            let axis = vec![int_attribute("axis", axis)];
            states.push(apply(analysis, self.node, "Concat", axis, parts)?);
        }
        Ok(states)
    }

    /// A chain over the steps of a tensor.
    fn chain(
        &self,
        analysis: &mut Analysis,
        inside: &[&Node],
        file: &OnnxFile,
    ) -> Result<Vec<Val>, Vec<Blocker>> {
        let refuse = |reason: String| vec![self.node.blocker(reason)];
        let outer = self.outer(analysis, inside);
        let mut shapes: Vec<Vec<Dim>> = self.states.iter().map(Val::dims).collect();
        // A first state may be repeated along axes that it gets in the first step.
        for _ in 0..3 {
            let iteration = analysis.axes.add("steps of a loop", None);
            let body = LoopBody::new(outer.clone(), iteration);
            let mut nested = analysis.nested(body);
            let evaluated = self.evaluate_body(&mut nested, &shapes, inside, file);
            let next = evaluated.and_then(|()| self.next_states(&mut nested, &shapes, file));
            let done = match next {
                Ok(next) if next == shapes => match analysis.draft {
                    true => Ok(Some(self.draft_outputs(&mut nested, &shapes, file))),
                    false => self.build(analysis, &mut nested, &shapes, file).map(Some),
                },
                Ok(next) => {
                    shapes = next;
                    Ok(None)
                }
                Err(reason) => Err(refuse(reason)),
            };
            let mut blockers = std::mem::take(&mut nested.blockers);
            analysis.take_back(&mut nested);
            match done {
                Ok(Some(vals)) if blockers.is_empty() => return Ok(vals),
                Ok(_) if !blockers.is_empty() => return Err(blockers),
                Ok(_) => {}
                Err(reasons) if blockers.is_empty() => return Err(reasons),
                Err(_) => return Err(std::mem::take(&mut blockers)),
            }
        }
        Err(refuse("its states change their shapes".to_owned()))
    }

    fn evaluate_body(
        &self,
        nested: &mut Analysis,
        shapes: &[Vec<Dim>],
        inside: &[&Node],
        file: &OnnxFile,
    ) -> Result<(), String> {
        let number = nested.body.as_ref().and_then(LoopBody::number);
        if let (Some(name), Some(number)) = (self.number, number) {
            nested.values.insert(name.to_owned(), scalar(number));
        }
        if let Some(name) = self.condition {
            nested.values.insert(name.to_owned(), truth());
        }
        for (state, (name, val)) in self.state_inputs.iter().zip(&self.states).enumerate() {
            if let Val::Sequence(list) = val {
                let is_empty = matches!(&**list, Sequence::List(vals) if vals.is_empty());
                if !is_empty {
                    return Err(format!("its state `{name}` is a list that is not empty at first"));
                }
                nested.values.insert(name.clone(), Val::Sequence(Rc::new(Sequence::Grown(None))));
                continue;
            }
            let element = val.element().ok_or("a state that nothing makes")?;
            let dims = shapes[state].clone();
            let view = View { source: Source::Input(0), at: None, element, dims };
            nested.add_state(name, view);
        }
        for (name, (val, axis, direction)) in self.step_inputs.iter().zip(&self.scanned) {
            let step = match val {
                Val::View(view) => {
                    if let Some(atom) = view.dims[*axis].as_atom().filter(|_| nested.draft) {
                        if nested.axes.find(atom) == BATCH {
                            return Err("it goes along the batch".to_owned());
                        }
                        nested.axes.mark_time(atom);
                    }
                    Val::View(nested.add_step(view.clone(), *axis, *direction))
                }
                Val::Fill(value, dims) => {
                    let mut dims = dims.clone();
                    dims.remove(*axis);
                    Val::Fill(value.clone(), dims)
                }
                _ => return Err("it goes along a constant".to_owned()),
            };
            nested.values.insert(name.clone(), step);
        }
        for node in inside {
            nested.add_node(node, file);
        }
        match self.goes_on.map(|name| nested.value(name, file)) {
            // What the axes are does not hang on it.
            _ if nested.draft => Ok(()),
            None | Some(Val::Unknown) => Ok(()),
            Some(Val::Literal(bits)) if bits.as_bools().is_some_and(|bits| bits.data[0]) => Ok(()),
            Some(Val::Literal(_)) => Err("its condition ends it after one step".to_owned()),
            Some(_) => Err("its condition depends on the request".to_owned()),
        }
    }

    /// The dimensions of the states: those after a step, where a constant is the first.
    fn next_states(
        &self,
        nested: &mut Analysis,
        shapes: &[Vec<Dim>],
        file: &OnnxFile,
    ) -> Result<Vec<Vec<Dim>>, String> {
        let mut next = Vec::new();
        for (state, name) in self.state_outputs.iter().enumerate() {
            let (first, before) = (&self.states[state], &shapes[state]);
            let after = match nested.value(name, file) {
                Val::Sequence(_) if matches!(first, Val::Sequence(_)) => Vec::new(),
                Val::View(view) if Some(view.element) == first.element() => view.dims,
                Val::View(view) => {
                    return Err(format!("its state `{name}` becomes {}", view.element));
                }
                Val::Sequence(_) | Val::Unknown => before.clone(),
                _ => return Err(format!("its state `{name}` becomes a constant")),
            };
            let same = |nested: &Analysis| {
                let mut pairs = before.iter().zip(&after);
                before.len() == after.len() && pairs.all(|(a, b)| nested.axes.same_dim(a, b))
            };
            if nested.draft && before.len() == after.len() {
                for (a, b) in before.iter().zip(&after) {
                    if let (Some(a), Some(b)) = (a.as_atom(), b.as_atom()) {
                        nested.axes.unify(a, b)?;
                    }
                }
            }
            let is_constant = !matches!(first, Val::View(_));
            next.push(match same(nested) {
                true => before.clone(),
                _ if is_constant && before.len() <= after.len() => after,
                _ if nested.draft => before.clone(),
                _ => {
                    let (a, b) = (nested.axes.show(before), nested.axes.show(&after));
                    return Err(format!(
                        "its state `{name}` is {a} before a step and {b} after it"
                    ));
                }
            });
        }
        Ok(next)
    }

    /// Views of the right shapes, while roles are being found.
    fn draft_outputs(
        &self,
        nested: &mut Analysis,
        shapes: &[Vec<Dim>],
        file: &OnnxFile,
    ) -> Vec<Val> {
        let along = self.steps(nested);
        let slices =
            nested.body.iter().flat_map(|body| &body.edges).filter_map(|edge| match edge {
                BodyInput::Step { of, axis, .. } => {
                    let mut dims = of.dims.clone();
                    dims.remove(*axis);
                    Some(dims)
                }
                _ => None,
            });
        let slices: Vec<_> = slices.collect();
        find_batch(nested, shapes, &slices);
        let view =
            |element, dims| Val::View(View { source: Source::Input(0), at: None, element, dims });
        let put_together = |val: Val, axis: i64| {
            let (Some(element), Some(along)) = (val.element(), along) else { return Val::Unknown };
            let mut dims = val.dims();
            let axis = from_front(axis, dims.len() + 1).unwrap_or(0);
            dims.insert(axis, Dim::atom(along));
            view(element, dims)
        };
        let mut vals = Vec::new();
        for (name, (val, dims)) in self.state_outputs.iter().zip(self.states.iter().zip(shapes)) {
            vals.push(match (val.element(), appended(&nested.value(name, file))) {
                (Some(element), _) => view(element, dims.clone()),
                (None, Some(val)) => steps_of(put_together(val, 0)),
                (None, None) => val.clone(),
            });
        }
        for (name, axis, _) in &self.every {
            vals.push(put_together(nested.value(name, file), *axis));
        }
        vals
    }

    /// The axis that the steps go along, of those that the body reads.
    fn steps(&self, nested: &Analysis) -> Option<AtomId> {
        let edges = nested.body.iter().flat_map(|body| &body.edges);
        let mut along = edges.filter_map(|edge| match edge {
            BodyInput::Step { of, axis, .. } => of.dims[*axis].as_atom(),
            _ => None,
        });
        along.next().map(|atom| nested.axes.find(atom))
    }

    fn build(
        &self,
        analysis: &mut Analysis,
        nested: &mut Analysis,
        shapes: &[Vec<Dim>],
        file: &OnnxFile,
    ) -> Result<Vec<Val>, Vec<Blocker>> {
        let refuse = |reason: String| vec![self.node.blocker(reason)];
        for (name, first) in self.state_outputs.iter().zip(&self.states) {
            match (first, nested.value(name, file)) {
                (Val::Sequence(_), list) => match appended(&list) {
                    None => {}
                    Some(Val::View(view)) => nested.outputs.push((appended_to(name), view)),
                    Some(_) => return Err(refuse(format!("it appends a constant to `{name}`"))),
                },
                _ => self.add_output(nested, name, file),
            }
        }
        for (name, ..) in &self.every {
            self.add_output(nested, name, file);
        }
        if let Some(counter) = nested.body.as_ref().and_then(|body| body.counter.clone()) {
            let step = vec![Val::View(counter), scalar(Int::number(1))];
            match apply(nested, self.node, "Add", vec![], step) {
                Ok(Val::View(next)) => nested.outputs.push((NEXT_NUMBER.to_owned(), next)),
                _ => return Err(refuse("its steps cannot be counted".to_owned())),
            }
        }
        let names = self.every.iter().map(|(name, ..)| *name);
        let mut names = names.chain(self.state_outputs.iter().map(String::as_str));
        if names.any(|name| matches!(nested.value(name, file), Val::Unknown)) {
            return Err(Vec::new());
        }
        drop_unread(nested);
        nested.rename_atoms();
        nested.check_rows();
        if !nested.blockers.is_empty() {
            return Err(Vec::new());
        }
        if let Some((name, view)) = nested.outputs.iter().find(|(_, v)| !steps(&v.dims).is_empty())
        {
            let shape = nested.axes.show(&view.dims);
            return Err(refuse(format!(
                "a step makes `{name}`, {shape}, of more than its own rows"
            )));
        }
        let along = self.steps(nested).filter(|&atom| {
            let all = nested.body.iter().flat_map(|body| &body.edges);
            all.into_iter().all(|edge| match edge {
                BodyInput::Step { of, axis, .. } => {
                    of.dims[*axis].as_atom().map(|own| nested.axes.find(own)) == Some(atom)
                }
                _ => true,
            })
        });
        let Some(along) = along else {
            return Err(refuse("its steps go along no axis of the request".to_owned()));
        };
        let length = nested.axes.int(&Dim::atom(along));
        if self.trips.as_ref() != Some(&length) {
            return Err(refuse(
                "it has other steps than the tensors that it goes along".to_owned(),
            ));
        }
        let named =
            NamedCell::of_analysis(&self.node.label, nested).map_err(|error| match error {
                LoadError::Refused { blockers, .. } => blockers,
                other => refuse(other.to_string()),
            })?;
        let counts = nested.body.as_ref().is_some_and(|body| body.counter.is_some());
        let counter = counts.then(|| (COUNTER.to_owned(), NEXT_NUMBER.to_owned()));
        let states = self.state_inputs.iter().zip(self.state_outputs).zip(&self.states);
        let states: BTreeMap<String, String> = states
            .filter(|(_, first)| first.element().is_some())
            .map(|((input, output), _)| (input.clone(), output.clone()))
            .chain(counter)
            .collect();
        let named = named.with_states(&states).map_err(refuse)?;
        self.add_chain(analysis, nested, named, shapes, along).map_err(refuse)
    }

    fn add_output(&self, nested: &mut Analysis, name: &str, file: &OnnxFile) {
        if !nested.outputs.iter().any(|(known, _)| known == name) {
            nested.add_output(name, file);
        }
    }

    fn add_chain(
        &self,
        analysis: &mut Analysis,
        nested: &Analysis,
        named: NamedCell,
        shapes: &[Vec<Dim>],
        along: AtomId,
    ) -> Result<Vec<Val>, String> {
        let port = |index: usize| named.input(&nested.inputs[index].name).and_then(|i| i.port);
        check_edges(analysis, nested, |index| port(index).is_some())?;
        let mut read: Vec<(usize, (View, Direction))> = Vec::new();
        let mut domain = Domain { time: Some(along), batch: false };
        let edges = nested.body.as_ref().map_or(&[][..], |body| &body.edges);
        for (index, edge) in edges.iter().enumerate() {
            let (view, direction) = match edge {
                BodyInput::State => continue,
                BodyInput::Step { of, direction, .. } => (of, *direction),
                BodyInput::Captured(view) => (view, Direction::Forward),
            };
            if let Some(port) = port(index) {
                read.push((port, (view.clone(), direction)));
                domain.batch |= Domain::of(&view.dims).batch;
            }
        }
        domain.batch |= shapes.iter().any(|dims| Domain::of(dims).batch);
        read.sort_by_key(|(port, _)| *port);
        let mut initial = vec![Initial::Zeros; named.cell.states.len()];
        for (state, name) in self.state_inputs.iter().enumerate() {
            let Some(place) = named.input(name).and_then(|input| input.state) else { continue };
            initial[place] = first_state(analysis, &self.states[state], &shapes[state])?;
            let inside = nested.inputs.iter().find(|input| input.name == *name);
            if let Some(rows) = inside.and_then(|input| input.ids) {
                check_ids(analysis, &self.states[state], rows)?;
            }
        }
        let mut directions = vec![None; named.cell.outputs.len()];
        let output = |name: &str| named.output(name).map(|output| output.port);
        for (name, _, direction) in &self.every {
            let Some(port) = output(name) else { continue };
            if *directions[port].get_or_insert(*direction) != *direction {
                return Err(format!("it puts `{name}` together both ways"));
            }
        }
        let directions: Vec<Direction> =
            directions.into_iter().map(|way| way.unwrap_or(Direction::Forward)).collect();
        let levels = read.iter().map(|(_, (view, _))| analysis.level(view.source));
        let level = levels.max().unwrap_or(0);
        let of_states = initial.iter().filter_map(|initial| match initial {
            Initial::View(view) => Some(analysis.level(view.source)),
            _ => None,
        });
        let level = of_states.max().unwrap_or(0).max(level);
        let index = analysis.recurrents.len();
        let keeps_state = !named.cell.states.is_empty();
        let mut vals = Vec::new();
        let of = |name: &str| {
            let view = nested.outputs.iter().find(|(known, _)| known == name).map(|(_, view)| view);
            Some((view?.element, view?.dims.clone(), output(name)?))
        };
        let put_together = |name: &str, axis: i64| -> Result<Val, String> {
            let (element, mut dims, port) = of(name).ok_or("an output that nothing makes")?;
            let axis = from_front(axis, dims.len() + 1)?;
            dims.insert(axis, Dim::atom(along));
            let source = Source::Recurrent(index, RecurrentPort::Every(port));
            Ok(Val::View(View { source, at: None, element, dims }))
        };
        for (name, first) in self.state_outputs.iter().zip(&self.states) {
            if let Val::Sequence(_) = first {
                let name = appended_to(name);
                vals.push(match of(&name) {
                    Some(_) => steps_of(put_together(&name, 0)?),
                    None => first.clone(),
                });
                continue;
            }
            let (element, dims, port) = of(name).ok_or("a state that nothing makes")?;
            // Of a body that keeps no state every step stands for itself.
            let (made, at) = match (keeps_state, directions[port]) {
                (true, _) => (RecurrentPort::Last(port), None),
                (false, Direction::Forward) => (RecurrentPort::Every(port), Some(-1)),
                (false, Direction::Reverse) => (RecurrentPort::Every(port), Some(0)),
            };
            let source = Source::Recurrent(index, made);
            vals.push(Val::View(View { source, at, element, dims }));
        }
        for (name, axis, _) in &self.every {
            vals.push(put_together(name, *axis)?);
        }
        analysis.recurrents.push(Recurrent {
            label: self.node.label.clone(),
            step: Step::Body(named),
            inputs: read.into_iter().map(|(_, input)| input).collect(),
            directions,
            lengths: SequenceLengths::All,
            initial,
            domain,
            level,
        });
        Ok(vals)
    }
}

/// What a step of a loop appends to a list.
fn appended(list: &Val) -> Option<Val> {
    match list {
        Val::Sequence(list) => match &**list {
            Sequence::Grown(val) => val.clone(),
            _ => None,
        },
        _ => None,
    }
}

/// The name of what a step appends to the list `name`.
fn appended_to(name: &str) -> String {
    format!("appended to {name}")
}

/// The list of a tensor's steps, along its first axis.
fn steps_of(tensor: Val) -> Val {
    Val::Sequence(Rc::new(Sequence::Slices { tensor, axis: 0, keeps_axis: false }))
}

/// `axis` counted from the front.
fn from_front(axis: i64, rank: usize) -> Result<usize, String> {
    let found = if axis < 0 { axis + rank as i64 } else { axis };
    let found = usize::try_from(found).ok().filter(|&axis| axis < rank);
    found.ok_or_else(|| format!("steps along axis {axis} of a tensor of rank {rank}"))
}

fn scalar(int: Int) -> Val {
    Val::literal(Literal::Int(Array::scalar(int), ElementType::I64))
}

fn truth() -> Val {
    Val::literal(Literal::Bool(Array::scalar(true)))
}

/// The first value of a state that has the dimensions `dims` from then on.
fn first_state(analysis: &Analysis, val: &Val, dims: &[Dim]) -> Result<Initial, String> {
    let row: Vec<usize> = row_shape(dims);
    let constant = |rows: usize, data: Literal| {
        let is_zero = match &data {
            Literal::F32(array) => array.data.iter().all(|&x| x.to_bits() == 0),
            Literal::Bool(array) => array.data.iter().all(|&bit| !bit),
            Literal::Int(..) => data.as_numbers().is_some_and(|n| n.iter().all(|&n| n == 0)),
        };
        match data.data() {
            None => Err("a first state is a length of the request".to_owned()),
            Some(_) if is_zero => Ok(Initial::Zeros),
            Some(_) => Ok(Initial::Constant { rows, data }),
        }
    };
    match val {
        Val::View(view) if steps(&view.dims).is_empty() => Ok(Initial::View(view.clone())),
        Val::View(_) => Err("a first state is all of a sequence".to_owned()),
        Val::Fill(value, _) => constant(1, value.expanded(&row)),
        Val::Literal(literal) | Val::Repeat(literal, _) => {
            // The literal under `dims`, of which it may lack the first.
            let mut shape = vec![1; dims.len().saturating_sub(literal.shape().len())];
            shape.extend(literal.shape());
            let literal = literal.reshaped(&shape);
            let batch = dims.iter().position(|dim| dim.as_atom() == Some(BATCH));
            let rows = batch.map_or(1, |axis| shape[axis]);
            if rows > 1 && analysis.axes.length(BATCH) != Some(rows) {
                return Err(format!("a first state is of {rows} sequences"));
            }
            let order = batch.into_iter().chain((0..shape.len()).filter(|&a| Some(a) != batch));
            let literal = literal.transposed(&order.collect::<Vec<_>>());
            let shape: Vec<usize> = batch.map(|_| rows).into_iter().chain(row).collect();
            let fits = literal.shape().len() == shape.len();
            let mut pairs = literal.shape().iter().zip(&shape);
            if !(fits && pairs.all(|(&from, &to)| from == to || from == 1)) {
                let found = literal.shape();
                return Err(format!("a first state of {found:?} becomes one of {shape:?}"));
            }
            constant(rows, literal.expanded(&shape))
        }
        Val::Sequence(_) | Val::Unknown => Err("a first state that nothing makes".to_owned()),
    }
}

/// That the first value of a state indexes a table of `rows`.
fn check_ids(analysis: &mut Analysis, val: &Val, rows: usize) -> Result<(), String> {
    let fits = |literal: &Rc<Literal>| {
        let numbers = literal.as_numbers();
        numbers.is_some_and(|n| n.iter().all(|&n| (0..rows as i64).contains(&n)))
    };
    match val {
        Val::View(view) => limit_ids(analysis, view, rows),
        Val::Literal(literal) | Val::Fill(literal, _) | Val::Repeat(literal, _)
            if fits(literal) =>
        {
            Ok(())
        }
        _ => Err(format!("a first state is no id below {rows}")),
    }
}
