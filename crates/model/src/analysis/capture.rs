//! The inputs of the body of a loop: its states, steps of tensors from around the loop, and tensors that are the
//! same at every step.

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::loop_body::{BodyInput, COUNTER};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Source, TensorList, Val, View};
use crate::data::direction::Direction;
use crate::data::int::Int;
use crate::data::symbol::{BATCH, Symbol};

impl Analysis {
    fn add_body_input(&mut self, name: &str, edge: BodyInput, view: &View) -> View {
        let index = self.inputs.len();
        let source = Source::Input(index);
        let inside = View { source, at: None, ..view.clone() };
        let (element, dims) = (view.element, view.dims.clone());
        self.push_input(name, element, dims, Val::View(inside.clone()));
        if let Some(body) = &mut self.body {
            body.edges.push(edge);
        }
        inside
    }

    /// Adds the next state of the body.
    pub(crate) fn add_state(&mut self, name: &str, val: View) {
        self.add_body_input(name, BodyInput::State, &val);
    }

    /// Adds a step of a tensor from around the loop; its view lacks the axis of steps.
    pub(crate) fn add_step(&mut self, of: View, axis: usize, direction: Direction) -> View {
        let body = self.body.as_ref();
        let edges = body.map_or(&[][..], |body| &body.edges);
        let is_same = |edge: &BodyInput| match edge {
            BodyInput::Step { of: known, axis: along, direction: other } => {
                let same = (known.source, known.at, *along, *other);
                same == (of.source, of.at, axis, direction) && known.dims == of.dims
            }
            _ => false,
        };
        let mut step = of.clone();
        step.dims.remove(axis);
        if let Some(index) = edges.iter().position(is_same) {
            return View { source: Source::Input(index), at: None, ..step };
        }
        let name = format!("\u{1}step of input {}", self.inputs.len());
        self.add_body_input(&name, BodyInput::Step { of, axis, direction }, &step)
    }

    /// The number of the step, from 0, where `symbol` is the steps up to its end.
    pub(crate) fn counter(&mut self, symbol: Symbol) -> Option<View> {
        let body = self.body.as_ref().filter(|body| body.iteration == symbol)?;
        if let Some(counter) = &body.counter {
            return Some(counter.clone());
        }
        let (source, element) = (Source::Input(0), ElementType::I64);
        let number = View { source, at: None, element, dims: Vec::new() };
        let counter = self.add_body_input(COUNTER, BodyInput::State, &number);
        if let Some(body) = &mut self.body {
            body.counter = Some(counter.clone());
        }
        Some(counter)
    }

    /// Makes a length of the request known inside a loop.
    pub(crate) fn capture_length(&mut self, length: View, symbol: Symbol) -> View {
        // No name that a file may have by chance.
        let name = format!("\u{1}length {}", self.axes.find(symbol).0);
        let known = self.inputs.iter().position(|input| input.name == name);
        match known {
            Some(index) => View { source: Source::Input(index), ..length },
            None => self.add_body_input(&name, BodyInput::Captured(length.clone()), &length),
        }
    }

    /// Makes a value from around the loop known inside it.
    pub(crate) fn capture(&mut self, name: &str) -> Val {
        let outer = self.body.as_ref().and_then(|body| body.outer.get(name)).cloned();
        outer.map_or(Val::Unknown, |val| self.capture_val(name, val))
    }

    fn capture_val(&mut self, name: &str, val: Val) -> Val {
        match val {
            Val::View(view) => {
                let edge = BodyInput::Captured(view.clone());
                Val::View(self.add_body_input(name, edge, &view))
            }
            Val::List(sequence) => {
                let mut part = |(index, val): (usize, &Val)| {
                    self.capture_val(&format!("{name} {index}"), val.clone())
                };
                Val::List(Rc::new(match &*sequence {
                    TensorList::Slices { tensor, axis, keeps_axis } => {
                        let (axis, keeps_axis) = (*axis, *keeps_axis);
                        TensorList::Slices { tensor: part((0, tensor)), axis, keeps_axis }
                    }
                    TensorList::List(vals) => {
                        TensorList::List(vals.iter().enumerate().map(part).collect())
                    }
                    // What the loop around this one appends to, it cannot see.
                    TensorList::Grown(_) => return Val::Unknown,
                }))
            }
            other => other,
        }
    }
}

/// If `index` is the number of a loop's step, gives that step of a tensor from around the loop, without
/// the axis.
pub(crate) fn step_of(
    analysis: &mut Analysis,
    view: &View,
    axis: usize,
    index: &Int,
    is_below_zero_from_the_end: bool,
) -> Result<Option<View>, String> {
    let Some(body) = &analysis.body else { return Ok(None) };
    let number = body.number().ok_or("a loop without an end")?;
    if index.as_number().is_some() {
        return Ok(None);
    }
    let dim = &view.dims[axis];
    let length = analysis.axes.int(dim);
    // Backwards: length - 1 - number. Below 0: from the end.
    let back = Int::number(-1).minus(&number);
    let of_length = |int: &Option<Int>| int.as_ref().and_then(|int| int.plus(&length));
    let direction = match Some(index) {
        index if index == Some(&number) => Direction::Forward,
        index if index == number.minus(&length).as_ref() && is_below_zero_from_the_end => {
            Direction::Forward
        }
        index if index == of_length(&back).as_ref() => Direction::Reverse,
        index if index == back.as_ref() && is_below_zero_from_the_end => Direction::Reverse,
        _ => return Err("of the steps of a loop it takes neither this one nor its mirror".into()),
    };
    let Source::Input(input) = view.source else {
        return Err("it takes a step of what the loop's body computes".to_owned());
    };
    let BodyInput::Captured(outer) = &body.edges[input] else {
        return Err("it takes a step of a state or of a step".to_owned());
    };
    let of = View { dims: view.dims.clone(), ..outer.clone() };
    if let Some(symbol) = dim.as_symbol().filter(|_| !analysis.has_roles()) {
        if analysis.axes.find(symbol) == BATCH {
            return Err("its loop goes along the batch".to_owned());
        }
        analysis.axes.mark_time(symbol);
    }
    Ok(Some(analysis.add_step(of, axis, direction)))
}
