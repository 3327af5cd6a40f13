//! The cells of a binary TreeLSTM (Tai, Socher and Manning, 2015).

use batchmaker_graph::{Precision, TreeCell, UnknownId};

use crate::reference::common::{input, sigmoid};
use crate::reference::products::{Operand, bias};
use crate::reference::row::Row;

/// The states h and c, each `[hidden]`, of a leaf with input `x`, `[input]`, by `w`, `[3 * hidden,
/// input]`, and `b`, `[3 * hidden]`, gates i, o, u.
///
/// ```text
/// i = sigmoid(W_i x + b_i)    o likewise    u = tanh(W_u x + b_u)    c = i u    h = o tanh(c)
/// ```
pub fn tree_leaf(
    precision: Precision,
    hidden: usize,
    w: &[f32],
    b: Option<&[f32]>,
    x: &[f64],
) -> [Vec<f64>; 2] {
    let x = Operand::new(precision, x);
    let sum = |gate: usize, unit: usize| {
        let row = gate * hidden + unit;
        x.dot(w, row) + bias(b, row)
    };
    states(hidden, |unit| (sigmoid(sum(0, unit)) * sum(2, unit).tanh(), sigmoid(sum(1, unit))))
}

/// The states h and c, each `[hidden]`, of an inner node from those of its left child and of its right
/// child, by `l` and `r`,
/// each `[5 * hidden, hidden]`, and `b`, `[5 * hidden]`, gates i, o, f_l, f_r, u.
///
/// ```text
/// i = sigmoid(L_i h_l + R_i h_r + b_i)      o, f_l, f_r likewise
/// u = tanh(L_u h_l + R_u h_r + b_u)
/// c = i u + f_l c_l + f_r c_r               h = o tanh(c)
/// ```
pub fn tree_inner(
    precision: Precision,
    [l, r]: [&[f32]; 2],
    b: Option<&[f32]>,
    [h_l, c_l, h_r, c_r]: [&[f64]; 4],
) -> [Vec<f64>; 2] {
    let hidden = c_l.len();
    let (h_l, h_r) = (Operand::new(precision, h_l), Operand::new(precision, h_r));
    let sum = |gate: usize, unit: usize| {
        let row = gate * hidden + unit;
        h_l.dot(l, row) + h_r.dot(r, row) + bias(b, row)
    };
    states(hidden, |unit| {
        let [i, o, f_l, f_r] = [0, 1, 2, 3].map(|gate| sigmoid(sum(gate, unit)));
        (i * sum(4, unit).tanh() + f_l * c_l[unit] + f_r * c_r[unit], o)
    })
}

/// The states h and c of a node from its input ports' rows.
///
/// # Errors
/// If the embedding lacks the id of a leaf.
pub(super) fn node(
    precision: Precision,
    cell: &TreeCell,
    inputs: &[Row],
) -> Result<[Vec<f64>; 2], UnknownId> {
    Ok(match cell {
        TreeCell::Leaf { hidden_size, w, b, lookup, .. } => {
            let x = input(lookup.as_ref(), &inputs[0])?;
            tree_leaf(precision, *hidden_size, w, b.as_deref(), &x)
        }
        TreeCell::Inner { l, r, b, .. } => {
            let children = [0, 1, 2, 3].map(|port| inputs[port].floats());
            tree_inner(precision, [l, r], b.as_deref(), children)
        }
    })
}

/// h and c from c and o of each unit.
fn states(hidden: usize, c_and_o: impl Fn(usize) -> (f64, f64)) -> [Vec<f64>; 2] {
    let of_unit = |unit: usize| {
        let (c, o) = c_and_o(unit);
        (o * c.tanh(), c)
    };
    let (h, c) = (0..hidden).map(of_unit).unzip();
    [h, c]
}
