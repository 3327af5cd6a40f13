//! ONNX operators `LSTM`, `GRU` and `RNN` (opset 7 and later): their attributes, weights and
//! initial states.
//!
//! A bidirectional operator is two chains and the joining of what they give. What the fused steps
//! do not do is a step of primitive operators ([`StepRule`]); nothing is ignored.

use std::sync::Arc;

use batchmaker_graph::{ElementType, RecurrentKind, RnnActivation};

use crate::analysis::ids::origin;
use crate::analysis::operator::Inputs;
use crate::analysis::operators::select::take_positions;
use crate::analysis::recurrence::{Initial, OperatorStep, Recurrent, SequenceLengths, Step};
use crate::analysis::state::Analysis;
use crate::analysis::step_rule::{self, StepRule};
use crate::analysis::value::{Domain, Operand, RecurrentPort, Source, Val, View};
use crate::data::array::Array;
use crate::data::dim::{Dim, row_axis, row_shape};
use crate::data::direction::Direction;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;
use crate::file::onnx_file::OnnxFile;

/// `LSTM`.
pub(super) fn lstm(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    _: &OnnxFile,
) -> Result<Vec<Val>, String> {
    Ok(add(analysis, node, inputs, RecurrentKind::Lstm { p: None }))
}

/// `GRU`.
pub(super) fn gru(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    _: &OnnxFile,
) -> Result<Vec<Val>, String> {
    let linear_before_reset = node.int("linear_before_reset").unwrap_or(0) != 0;
    Ok(add(analysis, node, inputs, RecurrentKind::Gru { linear_before_reset }))
}

/// `RNN`.
pub(super) fn rnn(
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

/// Adds the operator, of a kind without peepholes, and every reason that stands in its way.
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
    if let RecurrentKind::Lstm { p } = &mut kind {
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
        if let RecurrentKind::Lstm { p: Some(p) } = &mut kind {
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
        };
        let way = directions[direction];
        analysis.recurrents.push(Recurrent {
            label,
            directions: vec![way; step.kind.states()],
            step: Step::Operator(step),
            inputs: vec![(x.clone(), way)],
            lengths: lengths.clone(),
            initial,
            domain: Domain::of(&x.dims),
            recurrence_depth,
        });
    }
    (outputs(analysis, node, &x, first, is_batch_first), reasons)
}

/// Input `sequence_lens`, `[batch]`; the error is none where a reason is known.
fn lengths(
    analysis: &mut Analysis,
    val: &Val,
    (batch, time): (&Dim, &Dim),
) -> Result<SequenceLengths, Option<String>> {
    let of_numbers = |numbers: Option<Vec<i64>>| {
        let lengths: Option<Vec<usize>> =
            numbers?.into_iter().map(|n| usize::try_from(n).ok()).collect();
        lengths.map(SequenceLengths::Constant)
    };
    let misfit = || Some("its sequence_lens are no lengths".to_owned());
    let all = analysis.axes.int(time);
    let is_time = |int: &Int| *int == all;
    match val {
        Val::Sequence(_) | Val::Unknown => Err(None),
        Val::Repeat(..) => Err(misfit()),
        Val::Fill(value, _) => {
            let ints = value.as_ints().ok_or_else(misfit)?;
            match ints.data.iter().all(is_time) {
                true => Ok(SequenceLengths::All),
                false => of_numbers(value.as_numbers()).ok_or_else(misfit),
            }
        }
        Val::Literal(literal) => {
            let length = batch.as_symbol().map_or(Some(1), |symbol| analysis.axes.length(symbol));
            let ints = literal.as_ints().ok_or_else(misfit)?;
            match ints.data.iter().all(is_time) {
                true => Ok(SequenceLengths::All),
                _ if Some(ints.data.len()) != length && analysis.has_roles() => {
                    let count = ints.data.len();
                    Err(Some(format!("its sequence_lens are of {count} sequences")))
                }
                false => of_numbers(literal.as_numbers()).ok_or_else(misfit),
            }
        }
        Val::View(view) => {
            let Source::Input(input) = origin(analysis, view.source) else {
                let reason = "its sequence_lens are computed: known too late to unfold a request";
                return Err(Some(reason.to_owned()));
            };
            if !matches!(analysis.inputs[input].element, ElementType::I64 | ElementType::I32) {
                return Err(misfit());
            }
            match (&view.dims[..], batch.as_symbol()) {
                ([own], Some(batch)) if own.as_symbol().is_some() => {
                    let own = own.as_symbol().unwrap_or(batch);
                    analysis.axes.unify(own, batch).map_err(Some)?;
                }
                ([own], _) if own.is_one() || !analysis.has_roles() => {}
                _ => return Err(misfit()),
            }
            Ok(SequenceLengths::Input(input))
        }
    }
}

/// Input P of an LSTM, `[directions, 3 * hidden_size]`.
fn peepholes(
    p: Option<&Val>,
    directions: usize,
    hidden_size: usize,
) -> Result<Option<Arc<[f32]>>, String> {
    let Some(p) = p else { return Ok(None) };
    let Val::Literal(literal) = p else { return Err("its P is not constant".to_owned()) };
    let p = literal.as_f32().ok_or("its P is not FLOAT")?;
    if p.shape != [directions, 3 * hidden_size] {
        return Err(format!("P of {:?}, not [{directions}, {}]", p.shape, 3 * hidden_size));
    }
    Ok(p.data.iter().any(|&x| x != 0.0).then(|| Arc::from(&p.data[..])))
}

type Weights = ([Arc<[f32]>; 2], Option<Arc<[f32]>>);

/// The weights and the sizes of x and h.
fn weights(
    node: &Node,
    inputs: &Inputs,
    directions: usize,
    gates: usize,
) -> Result<(Weights, Option<[usize; 2]>), String> {
    let constant = |index: usize, name: &str| match inputs.get(index).and_then(Option::as_ref) {
        Some(Val::Literal(literal)) => {
            literal.as_f32().map(Some).ok_or_else(|| format!("its {name} is not FLOAT"))
        }
        Some(_) => Err(format!("its {name} is not constant")),
        None => Ok(None),
    };
    let w = constant(1, "W")?.ok_or("its W is missing")?;
    let r = constant(2, "R")?.ok_or("its R is missing")?;
    let b = constant(3, "B")?;
    let (&[_, _, input], &[_, _, misses_recurrence]) = (&w.shape[..], &r.shape[..]) else {
        return Err(format!("W of {:?} and R of {:?}", w.shape, r.shape));
    };
    let fits = w.shape == [directions, gates * misses_recurrence, input]
        && r.shape == [directions, gates * misses_recurrence, misses_recurrence]
        && b.is_none_or(|b| b.shape == [directions, 2 * gates * misses_recurrence])
        && node.int("hidden_size").is_none_or(|size| size == misses_recurrence as i64)
        && input > 0
        && misses_recurrence > 0;
    if !fits {
        let b = b.map(|b| &b.shape[..]);
        return Err(format!("W of {:?}, R of {:?} and B of {b:?} do not fit", w.shape, r.shape));
    }
    let b = b.map(|b| Arc::from(&b.data[..])).filter(|b: &Arc<[f32]>| b.iter().any(|&x| x != 0.0));
    let matrices = [Arc::from(&w.data[..]), Arc::from(&r.data[..])];
    Ok(((matrices, b), Some([input, misses_recurrence])))
}

/// X is `[time, batch, input_size]`, or `[batch, time, input_size]`: learns which axes these are.
fn take_axes(
    analysis: &mut Analysis,
    is_batch_first: bool,
    x: &View,
    input_size: Option<usize>,
) -> Result<(), String> {
    if x.element != ElementType::F32 {
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

/// What a first state must be.
struct InitialEdge<'a> {
    name: &'a str,
    batch: &'a Dim,
    directions: usize,
    hidden_size: usize,
}

/// The first state of each direction, from `[directions, batch, hidden_size]` (batch first:
/// `[batch, directions, hidden_size]`); the error is none where a reason is known.
fn first_states(
    analysis: &mut Analysis,
    node: &Node,
    val: &Val,
    edge: &InitialEdge<'_>,
    is_batch_first: bool,
) -> Result<Vec<Initial>, Option<String>> {
    let val = match val {
        Val::Sequence(_) | Val::Unknown => return Err(None),
        Val::Repeat(..) if is_batch_first => {
            return Err(Some(format!("its {} is a repeated constant", edge.name)));
        }
        Val::Literal(literal) if is_batch_first && literal.shape().len() == 3 => {
            Val::literal(literal.transposed(&[1, 0, 2]))
        }
        Val::View(view) if is_batch_first && view.dims.len() == 3 => {
            let mut view = view.clone();
            view.dims.swap(0, 1);
            // Only an axis of rows passes another without moving elements.
            if view.dims[1].in_row() && !view.dims[1].is_one() && !view.dims[0].is_one() {
                let name = edge.name;
                return Err(Some(format!("its {name} holds several sequences in a row")));
            }
            Val::View(view)
        }
        other => other.clone(),
    };
    let parts = match (edge.directions, &val) {
        (1, _) | (_, Val::Fill(..)) => vec![val; edge.directions],
        (count, _) => {
            let shape = analysis.axes.show(&val.dims());
            if val.dims().first().is_none_or(|dim| analysis.fixed(dim) != Some(count)) {
                let InitialEdge { name, hidden_size, .. } = edge;
                let reason = format!("its {name} is {shape}, not [{count}, batch, {hidden_size}]");
                match (!analysis.has_roles(), val.dims().first()) {
                    (true, Some(dim)) => analysis.learn(&dim.clone(), count),
                    _ => return Err(Some(reason)),
                }
                return Ok(vec![Initial::Zeros; count]);
            }
            let part = |direction| take_positions(analysis, node, &val, 0, &[direction]);
            (0..count).map(part).collect::<Result<_, _>>().map_err(Some)?
        }
    };
    parts.iter().map(|part| initial(analysis, part, edge)).collect()
}

/// A first state, `[1, batch, hidden_size]`; the error is none where a reason is known.
fn initial(
    analysis: &mut Analysis,
    val: &Val,
    edge: &InitialEdge<'_>,
) -> Result<Initial, Option<String>> {
    let InitialEdge { name, batch, hidden_size, .. } = *edge;
    let dims = val.dims();
    match val {
        Val::Sequence(_) | Val::Unknown => return Err(None),
        Val::Fill(value, _) => {
            let x = value.as_f32().map_or(0.0, |array| array.data[0]);
            let data = Literal::F32(Array::vector(vec![x; hidden_size]));
            return Ok(if x == 0.0 { Initial::Zeros } else { Initial::Constant { rows: 1, data } });
        }
        _ => {}
    }
    let shape = analysis.axes.show(&dims);
    let misfit = || Some(format!("its {name} is {shape}, not [1, batch, {hidden_size}]"));
    let [one, own_batch, features] = &dims[..] else {
        return Err(misfit());
    };
    analysis.learn(features, hidden_size);
    if let Some(symbol) = one.as_symbol().filter(|_| !analysis.has_roles()) {
        analysis.axes.learn(symbol, 1);
    } else if !one.is_one() {
        return Err(misfit());
    }
    if analysis.fixed(features) != Some(hidden_size) {
        return Err(misfit());
    }
    match val {
        Val::Literal(literal) => {
            let Literal::F32(array) = &**literal else { return Err(misfit()) };
            let rows = array.shape[1];
            let length = batch.as_symbol().map_or(Some(1), |symbol| analysis.axes.length(symbol));
            if rows > 1 && length != Some(rows) && analysis.has_roles() {
                return Err(misfit());
            }
            if array.data.iter().all(|&x| x == 0.0) {
                return Ok(Initial::Zeros);
            }
            Ok(Initial::Constant { rows, data: Literal::clone(literal) })
        }
        Val::Repeat(literal, _) => {
            let Literal::F32(array) = &**literal else { return Err(misfit()) };
            match array.data.len() == hidden_size {
                true => Ok(Initial::Constant { rows: 1, data: Literal::clone(literal) }),
                false => Err(misfit()),
            }
        }
        Val::View(view) => {
            match (own_batch.as_symbol(), batch.as_symbol()) {
                (Some(own), Some(batch)) => analysis.axes.unify(own, batch).map_err(Some)?,
                _ if own_batch.is_one() || !analysis.has_roles() => {}
                _ => return Err(misfit()),
            }
            Ok(Initial::View(view.clone()))
        }
        _ => Err(None),
    }
}

/// Y, Y_h and Y_c.
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
        // Of the operands the axis of directions is 1.
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
