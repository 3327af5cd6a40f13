//! The leaf and the inner cell of a binary TreeLSTM: see [`TreeCell`].

use std::rc::Rc;
use std::sync::Arc;

use batchmaker_graph::{ElementType, Lookup, TreeCell};

use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source};
use crate::emit::recognise::expression::{Affine, Expression, Function, Input, Reader};

/// A fused cell and where its ports are: the analysed cell's input for each of its input ports, and
/// the source for each output port (h, c).
pub(crate) struct Recognised {
    pub(crate) cell: TreeCell,
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: [Source; 2],
    /// A description.
    pub(crate) summary: String,
}

/// The most operands of a cell that is compared with a TreeLSTM, which has less than half as many however its
/// gates are spelled.
const OPERANDS_MAX: usize = 256;

/// The TreeLSTM cell that an analysed cell is, if it is one: it may give back h, c or both.
pub(crate) fn tree_cell(analysis: &Analysis) -> Option<Recognised> {
    // Formulas are trees: a part that is read several times is repeated each time.
    let operands = analysis.ops.iter().map(|op| op.operands.len()).sum::<usize>();
    if operands > OPERANDS_MAX {
        return None;
    }
    let mut reader = Reader::new(analysis);
    let mut outputs = Vec::new();
    for (_, view) in &analysis.outputs {
        let source = through_copies(analysis, view.source);
        if view.at.is_some() {
            return None;
        }
        if !outputs.iter().any(|&(known, _)| known == source) {
            outputs.push((source, reader.read(source)?));
        }
    }
    let [one, two] = &outputs[..] else { return None };
    let (h, c) = if is_h(&one.1, &two.1) { (one, two) } else { (two, one) };
    let o = output_gate(&h.1, &c.1)?;
    let (cell, inputs) = leaf(&o, &c.1).or_else(|| inner(&o, &c.1))?;
    let is_float = |&input: &usize| analysis.inputs[input].element == ElementType::F32;
    let is_looked_up = matches!(cell, TreeCell::Leaf { lookup: Some(_), .. });
    let fits = match is_looked_up {
        true => inputs.iter().all(|&input| analysis.inputs[input].element == ElementType::I64),
        false => inputs.iter().all(is_float),
    };
    let is_all = inputs.len() == analysis.inputs.len();
    let summary = match &cell {
        TreeCell::Leaf { lookup: Some(lookup), .. } => {
            let rows = lookup.rows();
            format!(
                "leaf of a binary TreeLSTM, fused kernel; x is looked up in a table of {rows} ids"
            )
        }
        TreeCell::Leaf { .. } => "leaf of a binary TreeLSTM, fused kernel".to_owned(),
        TreeCell::Inner { .. } => "inner node of a binary TreeLSTM, fused kernel".to_owned(),
    };
    let outputs = [h.0, c.0];
    (fits && is_all).then_some(Recognised { cell, inputs, outputs, summary })
}

/// The source behind operators that change nothing.
pub(crate) fn through_copies(analysis: &Analysis, source: Source) -> Source {
    let Source::Op(op, 0) = source else { return source };
    match (&*analysis.ops[op].operator, analysis.ops[op].operands.first()) {
        ("Identity", Some(Operand::Rows { source, at: None, .. })) => {
            through_copies(analysis, *source)
        }
        _ => source,
    }
}

fn is_h(h: &Rc<Expression>, c: &Rc<Expression>) -> bool {
    output_gate(h, c).is_some()
}

/// The gate o of `h = o tanh(c)`.
fn output_gate(h: &Expression, c: &Rc<Expression>) -> Option<Affine> {
    let Expression::Product(a, b) = h else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(gate, state)| {
        let Expression::Apply(Function::Tanh, of) = &**state else { return None };
        gate_of(gate, Function::Sigmoid).filter(|_| Rc::ptr_eq(of, c))
    })
}

/// The sums under a gate.
fn gate_of(gate: &Expression, function: Function) -> Option<Affine> {
    let Expression::Apply(applied, of) = gate else { return None };
    match &**of {
        Expression::Affine(sums) if *applied == function => Some(sums.clone()),
        _ => None,
    }
}

/// The sums under i and u of `i u`.
fn written(product: &Expression) -> Option<[Affine; 2]> {
    let Expression::Product(a, b) = product else { return None };
    [(a, b), (b, a)]
        .into_iter()
        .find_map(|(i, u)| Some([gate_of(i, Function::Sigmoid)?, gate_of(u, Function::Tanh)?]))
}

/// The sums under f of a child's `f c`, and the input that c is.
fn kept(product: &Expression) -> Option<(Affine, Input)> {
    let Expression::Product(a, b) = product else { return None };
    [(a, b), (b, a)].into_iter().find_map(|(f, c)| {
        let Expression::Input(c) = &**c else { return None };
        Some((gate_of(f, Function::Sigmoid)?, c.clone()))
    })
}

/// The leaf cell, if `c = i u`.
fn leaf(o: &Affine, c: &Expression) -> Option<(TreeCell, Vec<usize>)> {
    let [i, u] = written(c)?;
    let gates = [&i, o, &u];
    let inputs = inputs_of(&gates);
    let [x] = &inputs[..] else { return None };
    let lookup = match &x.table {
        None => None,
        Some(table) => {
            let table = table.as_f32()?;
            Some(Lookup { table: table.data[..].into(), width: x.width })
        }
    };
    let hidden_size = o.width();
    let cell = TreeCell::Leaf {
        input_size: x.width,
        hidden_size,
        w: weights(&gates, x, hidden_size)?,
        b: biases(&gates, hidden_size)?,
        lookup,
    };
    Some((cell, vec![x.index]))
}

/// The inner cell, if `c = i u + f_l c_l + f_r c_r`, in any order.
fn inner(o: &Affine, c: &Rc<Expression>) -> Option<(TreeCell, Vec<usize>)> {
    let mut terms = Vec::new();
    flatten(c, &mut terms);
    let news: Vec<[Affine; 2]> = terms.iter().filter_map(|term| written(term)).collect();
    let mut olds: Vec<(Affine, Input)> = terms.iter().filter_map(|term| kept(term)).collect();
    olds.sort_by_key(|(_, c)| c.index);
    let ([[i, u]], [(f_l, c_l), (f_r, c_r)], 3) = (&news[..], &olds[..], terms.len()) else {
        return None;
    };
    let gates = [i, o, f_l, f_r, u];
    let inputs = inputs_of(&gates);
    let [h_l, h_r] = &inputs[..] else { return None };
    let hidden_size = o.width();
    let used = [h_l, c_l, h_r, c_r];
    let is_distinct = (0..4).all(|at| (0..at).all(|before| used[at].index != used[before].index));
    let fits = used.iter().all(|input| input.width == hidden_size && input.table.is_none());
    if !is_distinct || !fits {
        return None;
    }
    let cell = TreeCell::Inner {
        hidden_size,
        l: weights(&gates, h_l, hidden_size)?,
        r: weights(&gates, h_r, hidden_size)?,
        b: biases(&gates, hidden_size)?,
    };
    Some((cell, used.iter().map(|input| input.index).collect()))
}

fn flatten(of: &Rc<Expression>, terms: &mut Vec<Rc<Expression>>) {
    match &**of {
        Expression::Sum(a, b) => {
            flatten(a, terms);
            flatten(b, terms);
        }
        _ => terms.push(of.clone()),
    }
}

/// All inputs of the gates, in the order of the cell's inputs.
fn inputs_of(gates: &[&Affine]) -> Vec<Input> {
    let mut inputs: Vec<Input> = Vec::new();
    for (input, _) in gates.iter().flat_map(|gate| &gate.terms) {
        if !inputs.contains(input) {
            inputs.push(input.clone());
        }
    }
    inputs.sort_by_key(|input| input.index);
    inputs
}

/// `[gates * hidden, input width]`; zeros for gates that the input has no part in.
fn weights(gates: &[&Affine], input: &Input, hidden_size: usize) -> Option<Arc<[f32]>> {
    let mut rows = Vec::with_capacity(gates.len() * hidden_size * input.width);
    for gate in gates {
        if gate.width() != hidden_size {
            return None;
        }
        let weights = gate.weights(input).map(|weights| &weights.data);
        for unit in 0..hidden_size {
            let weight = |k: usize| weights.map_or(0.0, |data| data[k * hidden_size + unit]);
            rows.extend((0..input.width).map(weight));
        }
    }
    Some(rows.into())
}

/// `[gates * hidden]`; none where all are zero.
fn biases(gates: &[&Affine], hidden_size: usize) -> Option<Option<Arc<[f32]>>> {
    if gates.iter().any(|gate| gate.width() != hidden_size) {
        return None;
    }
    let biases: Vec<f32> = gates.iter().flat_map(|gate| gate.bias.iter().copied()).collect();
    Some(biases.iter().any(|&b| b != 0.0).then(|| biases.into()))
}
