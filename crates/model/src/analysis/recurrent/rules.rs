//! The rules of `LSTM`, `GRU` and `RNN`: each adds a chain for each direction to the analysis.

use std::sync::Arc;

use batchmaker_graph::{ElementType, RecurrentKind, RnnActivation};

use crate::analysis::operator::Inputs;
use crate::analysis::operators::composed::quantised_lstm::quantised_lstm;
use crate::analysis::recurrence::{Initial, OperatorStep, Recurrent, SequenceLengths, Step};
use crate::analysis::recurrent::arguments::{lengths, peepholes, weights};
use crate::analysis::recurrent::first_states::{InitialEdge, first_states};
use crate::analysis::state::Analysis;
use crate::analysis::step_rule::{self, StepRule};
use crate::analysis::value::{Domain, Operand, RecurrentPort, Source, Val, View};
use crate::data::dim::{Dim, row_axis, row_shape};
use crate::data::direction::Direction;
use crate::data::symbol::BATCH;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;
use crate::file::onnx_file::OnnxFile;

/// `LSTM`.
pub(crate) fn lstm(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    _: &OnnxFile,
) -> Result<Vec<Val>, String> {
    Ok(add(analysis, node, inputs, RecurrentKind::Lstm { p: None, bytes: None }))
}

/// `DynamicQuantizeLSTM` of the domain `com.microsoft`: an `LSTM` with weights of 8 bits. X is quantised by a scale of all steps of its sequence, h at every step.
pub(crate) fn dynamic_quantize_lstm(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    file: &OnnxFile,
) -> Result<Vec<Val>, String> {
    if inputs.iter().flatten().any(|val| matches!(val, Val::Unknown)) {
        analysis.misses_recurrence = true;
        return Ok(Vec::new());
    }
    // No kernel has a step of a rule; the operator itself refuses what is no rule.
    let kind = RecurrentKind::Lstm { p: None, bytes: None };
    let directions = if node.string("direction") == Some("bidirectional") { 2 } else { 1 };
    let rules = StepRule::of(node, directions, &kind).unwrap_or_default();
    let keeps_bytes = rules.iter().all(Option::is_none);
    let quantised = quantised_lstm(analysis, node, inputs, keeps_bytes)?;
    let first = analysis.recurrents.len();
    let outputs = lstm(analysis, node, &quantised.inputs, file)?;
    let mut of_directions = quantised.bytes.into_iter().flatten();
    for recurrent in &mut analysis.recurrents[first..] {
        let Step::Operator(step) = &mut recurrent.step else { continue };
        let of_direction = of_directions.next();
        step.quantises_h = of_direction.is_none();
        if let RecurrentKind::Lstm { bytes, .. } = &mut step.kind {
            *bytes = of_direction;
        }
    }
    Ok(outputs)
}

/// `GRU`.
pub(crate) fn gru(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    _: &OnnxFile,
) -> Result<Vec<Val>, String> {
    let linear_before_reset = node.int("linear_before_reset").unwrap_or(0) != 0;
    Ok(add(analysis, node, inputs, RecurrentKind::Gru { linear_before_reset }))
}

/// `RNN`.
pub(crate) fn rnn(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    _: &OnnxFile,
) -> Result<Vec<Val>, String> {
    let activation = match step_rule::is_relu(node) {
        true => RnnActivation::Relu,
        false => RnnActivation::Tanh,
    };
    Ok(add(analysis, node, inputs, RecurrentKind::Rnn { activation }))
}

/// Adds the operator, of a kind without peepholes, and a diagnostic for every reason that it cannot be served.
fn add(analysis: &mut Analysis, node: &Node, inputs: &Inputs, kind: RecurrentKind) -> Vec<Val> {
    let (outputs, reasons) = evaluate(analysis, node, inputs, kind);
    analysis.diagnostics.extend(reasons.into_iter().map(|reason| node.diagnostic(reason)));
    outputs
}

/// The operator's outputs and why it cannot be served, if it cannot.
fn evaluate(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    mut kind: RecurrentKind,
) -> (Vec<Val>, Vec<String>) {
    let mut reasons = Vec::new();
    let given = |index: usize| inputs.get(index).and_then(Option::as_ref);
    let directions: &[Direction] = match node.string("direction").unwrap_or("forward") {
        "forward" => &[Direction::Forward],
        "reverse" => &[Direction::Reverse],
        "bidirectional" => &[Direction::Forward, Direction::Reverse],
        other => {
            reasons.push(format!("there is no direction \"{other}\""));
            &[Direction::Forward]
        }
    };
    let count = directions.len();
    let rules = StepRule::of(node, count, &kind).unwrap_or_else(|reason| {
        reasons.push(reason);
        vec![None; count]
    });
    let gates = kind.gates();
    let (weights, sizes) = match weights(node, inputs, count, gates) {
        Ok((weights, sizes)) => (Some(weights), sizes),
        Err(reason) => {
            reasons.push(reason);
            (None, None)
        }
    };
    let x = match given(0) {
        Some(Val::View(view)) => Some(view.clone()),
        Some(Val::Unknown) => {
            analysis.misses_recurrence = true;
            None
        }
        _ => {
            reasons.push("its input X does not depend on the request".to_owned());
            None
        }
    };
    let ([input_size, hidden_size], Some(x)) = (sizes.unwrap_or_default(), x) else {
        return (Vec::new(), reasons);
    };
    let is_batch_first = node.int("layout").unwrap_or(0) != 0;
    if let Err(reason) = take_axes(analysis, is_batch_first, &x, sizes.map(|_| input_size)) {
        reasons.push(reason);
        return (Vec::new(), reasons);
    }
    if let RecurrentKind::Lstm { p, .. } = &mut kind {
        match peepholes(given(7), count, hidden_size) {
            Ok(peepholes) => *p = peepholes,
            Err(reason) => reasons.push(reason),
        }
    }
    let batch = x.dims[usize::from(!is_batch_first)].clone();
    let time = x.dims[usize::from(is_batch_first)].clone();
    let axes = (&batch, &time);
    let lengths = given(4).map_or(Ok(SequenceLengths::All), |val| lengths(analysis, val, axes));
    let lengths = lengths.unwrap_or_else(|reason| {
        reasons.extend(reason);
        SequenceLengths::All
    });
    let mut initial = vec![vec![Initial::Zeros; kind.states()]; count];
    let states = [(5, "initial_h"), (6, "initial_c")];
    for (state, &(index, name)) in states[..kind.states()].iter().enumerate() {
        let Some(val) = given(index) else { continue };
        let edge = InitialEdge { name, batch: &batch, directions: count, hidden_size };
        match first_states(analysis, node, val, &edge, is_batch_first) {
            Ok(of_directions) => {
                for (direction, found) in of_directions.into_iter().enumerate() {
                    initial[direction][state] = found;
                }
            }
            Err(reason) => reasons.extend(reason),
        }
    }
    let ([w, r], b) = weights.unwrap_or_else(|| ([Arc::default(), Arc::default()], None));
    let recurrence_depth = |val: &Val| match val {
        Val::View(view) => analysis.recurrence_depth(view.source),
        _ => 0,
    };
    let recurrence_depth = inputs.iter().flatten().map(recurrence_depth).max().unwrap_or(0);
    let first = analysis.recurrents.len();
    let part = |data: &Arc<[f32]>, direction: usize| -> Arc<[f32]> {
        let length = data.len() / count;
        match count {
            1 => data.clone(),
            _ => data[direction * length..(direction + 1) * length].into(),
        }
    };
    for (direction, (rule, initial)) in rules.into_iter().zip(initial).enumerate() {
        let mut kind = kind.clone();
        if let RecurrentKind::Lstm { p: Some(p), .. } = &mut kind {
            *p = part(p, direction);
        }
        let label = match directions {
            [_] => node.label.clone(),
            _ => format!("{}_{}", node.label, ["forward", "reverse"][direction]),
        };
        let step = OperatorStep {
            kind,
            rule,
            input_size,
            hidden_size,
            w: part(&w, direction),
            r: part(&r, direction),
            b: b.as_ref().map(|b| part(b, direction)),
            quantises_h: false,
        };
        let along = directions[direction];
        analysis.recurrents.push(Recurrent {
            label,
            directions: vec![along; step.kind.states()],
            step: Step::Operator(step),
            inputs: vec![(x.clone(), along)],
            lengths: lengths.clone(),
            initial,
            domain: Domain::of(&x.dims),
            recurrence_depth,
        });
    }
    (outputs(analysis, node, &x, first, is_batch_first), reasons)
}

/// X is `[time, batch, input_size]`, or `[batch, time, input_size]`: learns which axes these are.
fn take_axes(
    analysis: &mut Analysis,
    is_batch_first: bool,
    x: &View,
    input_size: Option<usize>,
) -> Result<(), String> {
    if !x.element.is_float() {
        return Err(format!("its X is {}", x.element));
    }
    let [time, batch, features] = &x.dims[..] else {
        return Err(format!("its X has rank {}", x.dims.len()));
    };
    let (time, batch) = if is_batch_first { (batch, time) } else { (time, batch) };
    if let Some(size) = input_size {
        analysis.learn(features, size);
        let found = analysis.need_fixed(features, "takes for features")?;
        if found != size {
            return Err(format!("its X has rows of {found}, its W is for {size}"));
        }
    }
    let shape = analysis.axes.show(&x.dims);
    let is_none =
        |name: &str| Err(format!("its X is {shape}, where axis `{name}` is none of an input"));
    match batch.as_symbol() {
        _ if batch.is_one() => {}
        Some(found) if !analysis.has_roles() => analysis.axes.unify(found, BATCH)?,
        Some(BATCH) => {}
        _ => return is_none("batch"),
    }
    match time.as_symbol() {
        _ if time.is_one() => Ok(()),
        Some(BATCH) => is_none("time"),
        Some(found) => {
            analysis.axes.mark_time(found);
            Ok(())
        }
        None => is_none("time"),
    }
}

/// The outputs Y, Y_h and Y_c.
fn outputs(
    analysis: &mut Analysis,
    node: &Node,
    x: &View,
    first: usize,
    is_batch_first: bool,
) -> Vec<Val> {
    let count = analysis.recurrents.len() - first;
    let hidden_size = analysis.recurrents[first].row(RecurrentPort::Last(0)).elements();
    if hidden_size == 0 {
        return Vec::new();
    }
    let (axes, features) = ([&x.dims[0], &x.dims[1]].map(Dim::clone), Dim::fixed(hidden_size));
    let [time, batch] = match (axes, is_batch_first) {
        ([batch, time], true) => [time, batch],
        (axes, false) => axes,
    };
    let directions = Dim::fixed(count);
    let every = match is_batch_first {
        true => vec![batch.clone(), time, directions.clone(), features.clone()],
        false => vec![time, directions.clone(), batch.clone(), features.clone()],
    };
    let last = match is_batch_first {
        true => vec![batch, directions, features],
        false => vec![directions, batch, features],
    };
    let mut outputs = Vec::new();
    let ports = [(RecurrentPort::Every(0), every), (RecurrentPort::Last(0), last.clone())];
    let has_cell = analysis.recurrents[first].initial.len() > 1;
    let cell = has_cell.then_some((RecurrentPort::Last(1), last));
    for (port, dims) in ports.into_iter().chain(cell) {
        let source = |direction| Source::Recurrent(first + direction, port);
        let element = ElementType::F32;
        if count == 1 {
            outputs.push(Val::View(View { source: source(0), at: None, element, dims }));
            continue;
        }
        // The axis of directions has length 1 in each operand.
        let along = usize::from(is_batch_first) + usize::from(port == RecurrentPort::Every(0));
        let mut one = dims.clone();
        one[along] = Dim::fixed(1);
        let shape = row_shape(&one);
        let rows =
            |direction| Operand::Rows { source: source(direction), at: None, shape: shape.clone() };
        let axis = vec![int_attribute("axis", 1 + row_axis(&dims, along) as i64)];
        let operands = (0..count).map(rows).collect();
        outputs.extend(analysis.emit(node, "Concat", axis, operands, vec![(element, dims)]));
    }
    outputs
}
