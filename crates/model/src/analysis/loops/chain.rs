//! A loop as a chain over the steps of a tensor: its body becomes a cell.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::analysis::loop_body::{BodyInput, COUNTER, LoopBody};
use crate::analysis::loops::body::{check_edges, drop_unread, find_batch};
use crate::analysis::loops::form::{Loop, integer, truth};
use crate::analysis::loops::states::{check_ids, first_state};
use crate::analysis::operators::arguments::axis_of;
use crate::analysis::operators::dispatch::apply;
use crate::analysis::recurrence::{Initial, Recurrent, SequenceLengths, Step};
use crate::analysis::state::{Analysis, Subject};
use crate::analysis::value::{Domain, RecurrentPort, Source, TensorList, Val, View};
use crate::data::axes::Axes;
use crate::data::dim::{Dim, steps};
use crate::data::direction::Direction;
use crate::data::int::Int;
use crate::data::named_cell::NamedCell;
use crate::data::symbol::{BATCH, Symbol};
use crate::error::Diagnostic;
use crate::file::node::Node;
use crate::file::onnx_file::OnnxFile;

/// The name of the next value of the state that holds the number of the step.
const NEXT_NUMBER: &str = "\u{1}number of the next step";

impl Loop<'_> {
    /// The outputs of the loop as a chain over the steps of a tensor.
    pub(super) fn chain(
        &self,
        analysis: &mut Analysis,
        inside: &[&Node],
        file: &OnnxFile,
    ) -> Result<Vec<Val>, Vec<Diagnostic>> {
        let refuse = |reason: String| vec![self.node.diagnostic(reason)];
        let outer = self.outer(analysis, inside);
        let mut shapes: Vec<Vec<Dim>> = self.states.iter().map(Val::dims).collect();
        // A first state may be repeated along axes that it gets in the first step.
        for _ in 0..3 {
            let iteration = analysis.axes.add("steps of a loop", None);
            let body = LoopBody::new(outer.clone(), iteration);
            let mut nested = analysis.nested(Subject::LoopStep, body);
            let evaluated = self.evaluate_body(&mut nested, &shapes, inside, file);
            let next = evaluated.and_then(|()| self.next_states(&mut nested, &shapes, file));
            let done = match next {
                Ok(next) if next == shapes => match analysis.has_roles() {
                    true => self.build(analysis, &mut nested, &shapes, file).map(Some),
                    false => Ok(Some(self.outputs_of_shapes(&mut nested, &shapes, file))),
                },
                Ok(next) => {
                    shapes = next;
                    Ok(None)
                }
                Err(reason) => Err(refuse(reason)),
            };
            let diagnostics = std::mem::take(&mut nested.diagnostics);
            analysis.take_back(&mut nested);
            match done {
                _ if !diagnostics.is_empty() => return Err(diagnostics),
                Ok(Some(vals)) => return Ok(vals),
                Ok(None) => {}
                Err(reasons) => return Err(reasons),
            }
        }
        Err(refuse("its states change their shapes".to_owned()))
    }

    /// Adds the body's inputs, with their values.
    pub(super) fn enter_body(
        &self,
        nested: &mut Analysis,
        shapes: &[Vec<Dim>],
    ) -> Result<(), String> {
        let number = nested.body.as_ref().and_then(LoopBody::number);
        if let (Some(name), Some(number)) = (self.number, number) {
            nested.values.insert(name.to_owned(), integer(number));
        }
        if let Some(name) = self.condition {
            nested.values.insert(name.to_owned(), truth());
        }
        for (state, (name, val)) in self.state_inputs.iter().zip(&self.states).enumerate() {
            if let Val::List(list) = val {
                let is_empty = matches!(&**list, TensorList::List(vals) if vals.is_empty());
                if !is_empty {
                    return Err(format!("its state `{name}` is a list that is not empty at first"));
                }
                nested.values.insert(name.clone(), Val::List(Rc::new(TensorList::Grown(None))));
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
                    if let Some(symbol) =
                        view.dims[*axis].as_symbol().filter(|_| !nested.has_roles())
                    {
                        if nested.axes.find(symbol) == BATCH {
                            return Err("it goes along the batch".to_owned());
                        }
                        nested.axes.mark_time(symbol);
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
        Ok(())
    }

    fn evaluate_body(
        &self,
        nested: &mut Analysis,
        shapes: &[Vec<Dim>],
        inside: &[&Node],
        file: &OnnxFile,
    ) -> Result<(), String> {
        self.enter_body(nested, shapes)?;
        for node in inside {
            nested.add_node(node, file);
        }
        match self.goes_on.map(|name| nested.value(name, file)) {
            // The roles of axes do not depend on it.
            _ if !nested.has_roles() => Ok(()),
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
                Val::List(_) if matches!(first, Val::List(_)) => Vec::new(),
                Val::View(view) if Some(view.element) == first.element() => view.dims,
                Val::View(view) => {
                    return Err(format!("its state `{name}` becomes {}", view.element));
                }
                Val::List(_) | Val::Unknown => before.clone(),
                _ => return Err(format!("its state `{name}` becomes a constant")),
            };
            let same = |nested: &Analysis| {
                let mut pairs = before.iter().zip(&after);
                before.len() == after.len() && pairs.all(|(a, b)| nested.axes.same_dim(a, b))
            };
            if !nested.has_roles() && before.len() == after.len() {
                for (a, b) in before.iter().zip(&after) {
                    if let (Some(a), Some(b)) = (a.as_symbol(), b.as_symbol()) {
                        nested.axes.unify(a, b)?;
                    }
                }
            }
            let is_constant = !matches!(first, Val::View(_));
            next.push(match same(nested) {
                true => before.clone(),
                _ if is_constant && is_repeated(&nested.axes, before, &after) => after,
                _ if !nested.has_roles() => before.clone(),
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
    fn outputs_of_shapes(
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
            let axis = axis_of(axis, dims.len() + 1).unwrap_or(0);
            dims.insert(axis, Dim::symbol(along));
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
    fn steps(&self, nested: &Analysis) -> Option<Symbol> {
        let edges = nested.body.iter().flat_map(|body| &body.edges);
        let mut along = edges.filter_map(|edge| match edge {
            BodyInput::Step { of, axis, .. } => of.dims[*axis].as_symbol(),
            _ => None,
        });
        along.next().map(|symbol| nested.axes.find(symbol))
    }

    fn build(
        &self,
        analysis: &mut Analysis,
        nested: &mut Analysis,
        shapes: &[Vec<Dim>],
        file: &OnnxFile,
    ) -> Result<Vec<Val>, Vec<Diagnostic>> {
        let refuse = |reason: String| vec![self.node.diagnostic(reason)];
        for (name, first) in self.state_outputs.iter().zip(&self.states) {
            match (first, nested.value(name, file)) {
                (Val::List(_), list) => match appended(&list) {
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
            let step = vec![Val::View(counter), integer(Int::number(1))];
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
        nested.rename_symbols();
        nested.check_rows();
        if !nested.diagnostics.is_empty() {
            return Err(Vec::new());
        }
        if let Some((name, view)) = nested.outputs.iter().find(|(_, v)| !steps(&v.dims).is_empty())
        {
            let shape = nested.axes.show(&view.dims);
            return Err(refuse(format!(
                "a step makes `{name}`, {shape}, of more than its own rows"
            )));
        }
        let along = self.steps(nested).filter(|&symbol| {
            let all = nested.body.iter().flat_map(|body| &body.edges);
            all.into_iter().all(|edge| match edge {
                BodyInput::Step { of, axis, .. } => {
                    of.dims[*axis].as_symbol().map(|own| nested.axes.find(own)) == Some(symbol)
                }
                _ => true,
            })
        });
        let Some(along) = along else {
            return Err(refuse("its steps go along no axis of the request".to_owned()));
        };
        let length = nested.axes.int(&Dim::symbol(along));
        if self.trips.as_ref() != Some(&length) {
            return Err(refuse(
                "it has other steps than the tensors that it goes along".to_owned(),
            ));
        }
        let counts = nested.body.as_ref().is_some_and(|body| body.counter.is_some());
        let counter = counts.then(|| (COUNTER.to_owned(), NEXT_NUMBER.to_owned()));
        let states = self.state_inputs.iter().zip(self.state_outputs).zip(&self.states);
        let states: BTreeMap<String, String> = states
            .filter(|(_, first)| first.element().is_some())
            .map(|((input, output), _)| (input.clone(), output.clone()))
            .chain(counter)
            .collect();
        let named = (analysis.bodies.step)(self.node, nested, &states)?;
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
        along: Symbol,
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
        let directions: Vec<Direction> = directions
            .into_iter()
            .map(|direction| direction.unwrap_or(Direction::Forward))
            .collect();
        let recurrence_depths =
            read.iter().map(|(_, (view, _))| analysis.recurrence_depth(view.source));
        let recurrence_depth = recurrence_depths.max().unwrap_or(0);
        let of_states = initial.iter().filter_map(|initial| match initial {
            Initial::View(view) => Some(analysis.recurrence_depth(view.source)),
            _ => None,
        });
        let recurrence_depth = of_states.max().unwrap_or(0).max(recurrence_depth);
        let index = analysis.recurrents.len();
        let keeps_state = !named.cell.states.is_empty();
        let mut vals = Vec::new();
        let of = |name: &str| {
            let view = nested.outputs.iter().find(|(known, _)| known == name).map(|(_, view)| view);
            Some((view?.element, view?.dims.clone(), output(name)?))
        };
        let put_together = |name: &str, axis: i64| -> Result<Val, String> {
            let (element, mut dims, port) = of(name).ok_or("an output that nothing makes")?;
            let axis = axis_of(axis, dims.len() + 1)?;
            dims.insert(axis, Dim::symbol(along));
            let source = Source::Recurrent(index, RecurrentPort::Every(port));
            Ok(Val::View(View { source, at: None, element, dims }))
        };
        for (name, first) in self.state_outputs.iter().zip(&self.states) {
            if let Val::List(_) = first {
                let name = appended_to(name);
                vals.push(match of(&name) {
                    Some(_) => steps_of(put_together(&name, 0)?),
                    None => first.clone(),
                });
                continue;
            }
            let (element, dims, port) = of(name).ok_or("a state that nothing makes")?;
            // Without a state, every step stands for itself.
            let (produced, at) = match (keeps_state, directions[port]) {
                (true, _) => (RecurrentPort::Last(port), None),
                (false, Direction::Forward) => (RecurrentPort::Every(port), Some(-1)),
                (false, Direction::Reverse) => (RecurrentPort::Every(port), Some(0)),
            };
            let source = Source::Recurrent(index, produced);
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
            recurrence_depth,
        });
        Ok(vals)
    }
}

/// The tensor that a step of a loop appends to a list.
fn appended(list: &Val) -> Option<Val> {
    match list {
        Val::List(list) => match &**list {
            TensorList::Grown(val) => val.clone(),
            _ => None,
        },
        _ => None,
    }
}

/// The name of the tensor that a step appends to the list `name`.
fn appended_to(name: &str) -> String {
    format!("\u{1}appended to {name}")
}

/// The list of a tensor's steps, along its first axis.
fn steps_of(tensor: Val) -> Val {
    Val::List(Rc::new(TensorList::Slices { tensor, axis: 0, keeps_axis: false }))
}

/// Whether a constant first state is the same for every sequence, and all else of it stays.
fn is_repeated(axes: &Axes, before: &[Dim], after: &[Dim]) -> bool {
    let is_batch = |dim: &Dim| dim.as_symbol().map(|symbol| axes.find(symbol)) == Some(BATCH);
    let mut pairs = before.iter().zip(after);
    before.len() == after.len()
        && pairs.all(|(a, b)| {
            let is_one_a_sequence = a.is_one() || axes.int(a) == axes.int(b);
            axes.same_dim(a, b) || (is_batch(b) && is_one_a_sequence)
        })
}
