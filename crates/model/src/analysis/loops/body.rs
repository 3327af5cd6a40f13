//! The body of a `Loop` or `Scan` as a cell: what it reads of the graph around it, and which of that
//! goes along the steps.

use std::collections::HashMap;
use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::operators::{Sequence, limit_ids};
use crate::analysis::recurrence::Recurrent;
use crate::analysis::{Analysis, Operand, Source, Val, View};
use crate::data::direction::Direction;
use crate::data::symbolic::{AtomId, BATCH, Dim, Int, steps};
use crate::partition::stacks::uses;

/// The name of the state that is the number of the step.
pub(crate) const COUNTER: &str = "\u{1}number of the step";

/// What a body is analysed with.
pub(crate) struct LoopBody {
    /// What the graph around it knows.
    outer: HashMap<String, Val>,
    /// The steps done when one ends: from 1.
    iteration: AtomId,
    /// Of each input of the analysis.
    pub(crate) edges: Vec<BodyInput>,
    /// The state that is the number of the step, where something is computed on it.
    pub(crate) counter: Option<View>,
}

/// An input of a body.
#[derive(Clone, Debug)]
pub(crate) enum BodyInput {
    State,
    /// One step along `axis` of the tensor at each step.
    Step {
        of: View,
        axis: usize,
        direction: Direction,
    },
    /// A tensor from around the loop, the same at every step.
    Captured(View),
}

impl LoopBody {
    pub(crate) fn new(outer: HashMap<String, Val>, iteration: AtomId) -> Self {
        Self { outer, iteration, edges: Vec::new(), counter: None }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.outer.contains_key(name)
    }

    /// The number of the step, from 0.
    pub(crate) fn number(&self) -> Option<Int> {
        Int::atom(self.iteration).minus(&Int::number(1))
    }
}

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

    /// The next state of the body.
    pub(crate) fn add_state(&mut self, name: &str, val: View) {
        self.add_body_input(name, BodyInput::State, &val);
    }

    /// A step of a tensor from around the loop; its view without that axis.
    pub(crate) fn add_step(&mut self, of: View, axis: usize, direction: Direction) -> View {
        let body = self.body.as_ref();
        let edges = body.map_or(&[][..], |body| &body.edges);
        let is_same = |edge: &BodyInput| match edge {
            BodyInput::Step { of: known, axis: along, direction: way } => {
                let same = (known.source, known.at, *along, *way);
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

    /// The number of the step, from 0, where `atom` is the steps up to its end.
    pub(crate) fn counter(&mut self, atom: AtomId) -> Option<View> {
        let body = self.body.as_ref().filter(|body| body.iteration == atom)?;
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

    /// A length of the request, inside a loop.
    pub(crate) fn capture_length(&mut self, length: View, atom: AtomId) -> View {
        // No name that a file may have by chance.
        let name = format!("\u{1}length {}", self.axes.find(atom).0);
        let known = self.inputs.iter().position(|input| input.name == name);
        match known {
            Some(index) => View { source: Source::Input(index), ..length },
            None => self.add_body_input(&name, BodyInput::Captured(length.clone()), &length),
        }
    }

    /// A value from around the loop.
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
            Val::Sequence(sequence) => {
                let mut part = |(index, val): (usize, &Val)| {
                    self.capture_val(&format!("{name} {index}"), val.clone())
                };
                Val::Sequence(Rc::new(match &*sequence {
                    Sequence::Slices { tensor, axis, keeps_axis } => {
                        let (axis, keeps_axis) = (*axis, *keeps_axis);
                        Sequence::Slices { tensor: part((0, tensor)), axis, keeps_axis }
                    }
                    Sequence::List(vals) => {
                        Sequence::List(vals.iter().enumerate().map(part).collect())
                    }
                    // What the loop around this one appends to, it cannot see.
                    Sequence::Grown(_) => return Val::Unknown,
                }))
            }
            other => other,
        }
    }
}

/// Drops what a body makes no use of: tensors of which it reads steps alone.
pub(crate) fn drop_unread(nested: &mut Analysis) {
    let count = nested.inputs.len();
    let is_state = |edge: &BodyInput| matches!(edge, BodyInput::State);
    let states: Vec<bool> = nested.body.iter().flat_map(|body| &body.edges).map(is_state).collect();
    let is_kept = |index: usize| states[index] || uses(nested, Source::Input(index)) > 0;
    let kept: Vec<bool> = (0..count).map(is_kept).collect();
    let place = |source: &mut Source| {
        if let Source::Input(index) = source {
            *index = kept[..*index].iter().filter(|&&kept| kept).count();
        }
    };
    for operand in nested.ops.iter_mut().flat_map(|op| &mut op.operands) {
        if let Operand::Rows { source, .. } | Operand::Whole { source, .. } = operand {
            place(source);
        }
    }
    nested.recurrents.iter_mut().flat_map(Recurrent::views_mut).for_each(|v| place(&mut v.source));
    nested.outputs.iter_mut().for_each(|(_, view)| place(&mut view.source));
    let mut flags = kept.iter();
    nested.inputs.retain(|_| flags.next() == Some(&true));
    if let Some(body) = &mut nested.body {
        let mut flags = kept.iter();
        body.edges.retain(|_| flags.next() == Some(&true));
    }
}

/// Where `index` is the number of a loop's step, that step of a tensor from around the loop, without
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
    if let Some(atom) = dim.as_atom().filter(|_| analysis.draft) {
        if analysis.axes.find(atom) == BATCH {
            return Err("its loop goes along the batch".to_owned());
        }
        analysis.axes.mark_time(atom);
    }
    Ok(Some(analysis.add_step(of, axis, direction)))
}

/// Where the batch is not known yet: the axis that states and steps share, else the first open one, is
/// it.
pub(crate) fn find_batch(analysis: &mut Analysis, states: &[Vec<Dim>], slices: &[Vec<Dim>]) {
    let atoms = |lists: &[Vec<Dim>]| -> Vec<AtomId> {
        let all = lists.iter().flatten().filter_map(Dim::as_atom);
        all.map(|atom| analysis.axes.find(atom)).collect()
    };
    let (of_states, of_slices) = (atoms(states), atoms(slices));
    if of_states.iter().chain(&of_slices).any(|&atom| atom == BATCH) {
        return;
    }
    let is_open =
        |atom: &&AtomId| !analysis.axes.is_time(**atom) && analysis.axes.length(**atom).is_none();
    let both = of_slices.iter().filter(is_open).find(|atom| of_states.contains(atom));
    let either = || of_slices.iter().chain(&of_states).find(is_open);
    if let Some(&batch) = both.or_else(either) {
        // They differ: neither is time.
        let _ = analysis.axes.unify(batch, BATCH);
    }
}

/// That what a body reads of the graph around it can be had a row at a time.
pub(crate) fn check_edges(
    outer: &mut Analysis,
    nested: &Analysis,
    is_read: impl Fn(usize) -> bool,
) -> Result<(), String> {
    let edges = nested.body.as_ref().map_or(&[][..], |body| &body.edges);
    for (index, edge) in edges.iter().enumerate() {
        let ids = nested.inputs[index].ids;
        match edge {
            BodyInput::State => {}
            BodyInput::Step { of, .. } => {
                if let Some(rows) = ids {
                    limit_ids(outer, of, rows)?;
                }
            }
            BodyInput::Captured(view) if is_read(index) => {
                if !steps(&view.dims).is_empty() {
                    let shape = nested.axes.show(&view.dims);
                    let name = &nested.inputs[index].name;
                    return Err(format!("each of its steps reads all of `{name}`, {shape}"));
                }
                if let Some(rows) = ids {
                    limit_ids(outer, view, rows)?;
                }
            }
            BodyInput::Captured(_) => {}
        }
    }
    Ok(())
}
