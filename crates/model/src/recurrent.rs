//! ONNX operators `LSTM`, `GRU` and `RNN` (opset 7 and later): their attributes, weights and
//! initial states.
//!
//! Everything that the fused cells do not do is refused by name; nothing is ignored.

use std::sync::Arc;

use batchmaker_graph::{ElementType, Lookup, RecurrentCell, RecurrentKind, RnnActivation};

use crate::analysis::{Analysis, Domain, RecurrentPort, Source, Val, View};
use crate::literal::Literal;
use crate::onnx_file::Node;
use crate::operators::Inputs;
use crate::symbolic::{BATCH, Dim, TIME};

/// A forward recurrent operator over the steps of every sequence.
pub(crate) struct Recurrent {
    pub(crate) label: String,
    pub(crate) kind: RecurrentKind,
    /// `[time, batch, input_size]`.
    pub(crate) x: View,
    pub(crate) input_size: usize,
    pub(crate) hidden_size: usize,
    /// `[gates * hidden_size, input_size]`.
    pub(crate) w: Arc<[f32]>,
    /// `[gates * hidden_size, hidden_size]`.
    pub(crate) r: Arc<[f32]>,
    /// `[2 * gates * hidden_size]`.
    pub(crate) b: Option<Arc<[f32]>>,
    /// Of each state: h, and of an LSTM c.
    pub(crate) initial: Vec<Initial>,
    pub(crate) domain: Domain,
    /// The number of recurrent operators upstream, along the longest path.
    pub(crate) level: usize,
}

impl Recurrent {
    /// One step, over an embedding if that is absorbed.
    pub(crate) fn step(&self, lookup: Option<Lookup>) -> RecurrentCell {
        RecurrentCell {
            kind: self.kind.clone(),
            input_size: self.input_size,
            hidden_size: self.hidden_size,
            w: self.w.clone(),
            r: self.r.clone(),
            b: self.b.clone(),
            lookup,
        }
    }

    /// The operator's name.
    pub(crate) fn operator(&self) -> &'static str {
        operator(&self.kind)
    }

    /// The outputs that are states after the last step, in the order of states.
    pub(crate) fn last_states(&self) -> &'static [RecurrentPort] {
        &[RecurrentPort::Hidden, RecurrentPort::Cell][..self.kind.states()]
    }
}

/// The name of the operator whose step it is.
pub(crate) fn operator(kind: &RecurrentKind) -> &'static str {
    match kind {
        RecurrentKind::Lstm { .. } => "LSTM",
        RecurrentKind::Gru { .. } => "GRU",
        RecurrentKind::Rnn { .. } => "RNN",
    }
}

/// For people: what a chain of the cell is.
pub(crate) fn chain_summary(cell: &RecurrentCell) -> String {
    let mut text = operator(&cell.kind).to_owned();
    text.push_str(", a chain of steps for each sequence, fused kernel");
    if let Some(lookup) = &cell.lookup {
        text.push_str(&format!("; x is looked up in a table of {} ids", lookup.rows()));
    }
    text
}

/// A first state.
#[derive(Clone, Debug)]
pub(crate) enum Initial {
    Zeros,
    /// One row for all sequences, or (`rows` > 1) one for each.
    Constant {
        rows: usize,
        data: Vec<f32>,
    },
    View(View),
}

/// The operator's outputs and why it cannot be served, if it cannot.
pub(crate) fn evaluate(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> (Vec<Val>, Vec<String>) {
    let mut reasons = attribute_reasons(node);
    let given = |index: usize| inputs.get(index).and_then(Option::as_ref);
    if given(4).is_some() {
        reasons.push("sequence_lens is not supported".to_owned());
    }
    let directions = match node.string("direction") {
        Some("bidirectional") => 2,
        _ => 1,
    };
    let (mut kind, has_its_activations) = kind(node);
    if !has_its_activations {
        reasons.push(format!("activations {:?} are not supported", node.strings("activations")));
    }
    let gates = kind.gates();
    let (weights, sizes) = match weights(node, inputs, directions, gates) {
        Ok((weights, sizes)) => (Some(weights), sizes),
        Err(reason) => {
            reasons.push(reason);
            (None, None)
        }
    };
    let x = match given(0) {
        Some(Val::View(view)) => Some(view.clone()),
        Some(Val::Unknown) => {
            analysis.hidden = true;
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
    if let Err(reason) = take_axes(analysis, node, &x, sizes.map(|_| input_size)) {
        reasons.push(reason);
        return (Vec::new(), reasons);
    }
    if let RecurrentKind::Lstm { p } = &mut kind {
        match peepholes(given(7), directions, hidden_size) {
            Ok(peepholes) => *p = peepholes,
            Err(reason) => reasons.push(reason),
        }
    }
    let mut state = |index: usize, name: &str| {
        let val = given(index)?;
        match initial(analysis, val, x.dims.get(1)?, hidden_size, name) {
            Ok(initial) => Some(initial),
            Err(reason) => {
                reasons.extend(reason);
                None
            }
        }
    };
    let initial = [(5, "initial_h"), (6, "initial_c")][..kind.states()]
        .iter()
        .map(|&(index, name)| state(index, name).unwrap_or(Initial::Zeros))
        .collect();
    let outputs = outputs(analysis, node, &x, directions, hidden_size);
    let ([w, r], b) = weights.unwrap_or_else(|| ([Arc::default(), Arc::default()], None));
    let level = |val: &Val| match val {
        Val::View(view) => analysis.level(view.source),
        _ => 0,
    };
    let level = inputs.iter().flatten().map(level).max().unwrap_or(0);
    let domain = Domain::of(&x.dims);
    let label = node.label.clone();
    let recurrent =
        Recurrent { label, kind, x, input_size, hidden_size, w, r, b, initial, domain, level };
    analysis.recurrents.push(recurrent);
    (outputs, reasons)
}

fn attribute_reasons(node: &Node) -> Vec<String> {
    let mut reasons = Vec::new();
    match node.string("direction") {
        None | Some("forward") => {}
        Some(direction) => {
            reasons.push(format!("direction \"{direction}\" is not supported yet"));
        }
    }
    if node.has("clip") {
        reasons.push("clip is not supported".to_owned());
    }
    if node.int("input_forget").unwrap_or(0) != 0 {
        reasons.push("input_forget=1 is not supported".to_owned());
    }
    if node.int("layout").unwrap_or(0) != 0 {
        reasons.push("layout=1 is not supported".to_owned());
    }
    reasons
}

/// The kind of step, without peepholes, and whether its activations are the kind's.
fn kind(node: &Node) -> (RecurrentKind, bool) {
    let activations = node.strings("activations");
    let are = |standard: &[&str]| {
        let mut pairs = activations.iter().zip(standard.iter().cycle());
        pairs.all(|(name, standard)| name.eq_ignore_ascii_case(standard))
    };
    match node.operator.as_str() {
        "LSTM" => (RecurrentKind::Lstm { p: None }, are(&["sigmoid", "tanh", "tanh"])),
        "GRU" => {
            let linear_before_reset = node.int("linear_before_reset").unwrap_or(0) != 0;
            (RecurrentKind::Gru { linear_before_reset }, are(&["sigmoid", "tanh"]))
        }
        _ if are(&["tanh"]) => (RecurrentKind::Rnn { activation: RnnActivation::Tanh }, true),
        _ => (RecurrentKind::Rnn { activation: RnnActivation::Relu }, are(&["relu"])),
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
    let (&[_, _, input], &[_, _, hidden]) = (&w.shape[..], &r.shape[..]) else {
        return Err(format!("W of {:?} and R of {:?}", w.shape, r.shape));
    };
    let fits = w.shape == [directions, gates * hidden, input]
        && r.shape == [directions, gates * hidden, hidden]
        && b.is_none_or(|b| b.shape == [directions, 2 * gates * hidden])
        && node.int("hidden_size").is_none_or(|size| size == hidden as i64)
        && input > 0
        && hidden > 0;
    if !fits {
        let b = b.map(|b| &b.shape[..]);
        return Err(format!("W of {:?}, R of {:?} and B of {b:?} do not fit", w.shape, r.shape));
    }
    let b = b.map(|b| Arc::from(&b.data[..])).filter(|b: &Arc<[f32]>| b.iter().any(|&x| x != 0.0));
    let matrices = [Arc::from(&w.data[..]), Arc::from(&r.data[..])];
    Ok(((matrices, b), Some([input, hidden])))
}

/// X is `[time, batch, input_size]`: learns which axes these are.
fn take_axes(
    analysis: &mut Analysis,
    node: &Node,
    x: &View,
    input_size: Option<usize>,
) -> Result<(), String> {
    if x.element != ElementType::F32 {
        return Err(format!("its X is {}", x.element));
    }
    let [time, batch, features] = &x.dims[..] else {
        return Err(format!("its X has rank {}", x.dims.len()));
    };
    let layout = node.int("layout").unwrap_or(0) != 0;
    let (time, batch) = if layout { (batch, time) } else { (time, batch) };
    if let Some(size) = input_size {
        analysis.learn(features, size);
        let found = analysis.need_fixed(features, "takes for features")?;
        if found != size {
            return Err(format!("its X has rows of {found}, its W is for {size}"));
        }
    }
    let shape = analysis.axes.show(&x.dims);
    for (dim, atom, name) in [(time, TIME, "time"), (batch, BATCH, "batch")] {
        match dim.as_atom() {
            _ if dim.is_one() => {}
            Some(found) if analysis.draft => analysis.axes.unify(found, atom)?,
            Some(found) if found == atom => {}
            _ => return Err(format!("its X is {shape}, where axis `{name}` is none of an input")),
        }
    }
    Ok(())
}

/// A first state, `[1, batch, hidden_size]`; the error is none where a reason is known.
fn initial(
    analysis: &mut Analysis,
    val: &Val,
    batch: &Dim,
    hidden_size: usize,
    name: &str,
) -> Result<Initial, Option<String>> {
    let dims = val.dims();
    match val {
        Val::Unknown => return Err(None),
        Val::Fill(value, _) => {
            let x = value.as_f32().map_or(0.0, |array| array.data[0]);
            let data = vec![x; hidden_size];
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
    if let Some(atom) = one.as_atom().filter(|_| analysis.draft) {
        analysis.axes.learn(atom, 1);
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
            let length = batch.as_atom().map_or(Some(1), |atom| analysis.axes.length(atom));
            if rows > 1 && length != Some(rows) && !analysis.draft {
                return Err(misfit());
            }
            if array.data.iter().all(|&x| x == 0.0) {
                return Ok(Initial::Zeros);
            }
            Ok(Initial::Constant { rows, data: array.data.clone() })
        }
        Val::View(view) => {
            match (own_batch.as_atom(), batch.as_atom()) {
                (Some(own), Some(batch)) => analysis.axes.unify(own, batch).map_err(Some)?,
                _ if own_batch.is_one() || analysis.draft => {}
                _ => return Err(misfit()),
            }
            Ok(Initial::View(view.clone()))
        }
        _ => Err(None),
    }
}

fn outputs(
    analysis: &Analysis,
    node: &Node,
    x: &View,
    directions: usize,
    hidden_size: usize,
) -> Vec<Val> {
    if node.int("layout").unwrap_or(0) != 0 || hidden_size == 0 {
        return Vec::new();
    }
    let index = analysis.recurrents.len();
    let [time, batch] = [&x.dims[0], &x.dims[1]].map(Dim::clone);
    let (one, features) = (Dim::fixed(directions), Dim::fixed(hidden_size));
    let view = |port, dims| {
        let source = Source::Recurrent(index, port);
        Val::View(View { source, at: None, element: ElementType::F32, dims })
    };
    let last = vec![one.clone(), batch.clone(), features.clone()];
    let mut outputs = vec![
        view(RecurrentPort::Every, vec![time, one, batch, features]),
        view(RecurrentPort::Hidden, last.clone()),
    ];
    if node.operator == "LSTM" {
        outputs.push(view(RecurrentPort::Cell, last));
    }
    outputs
}
