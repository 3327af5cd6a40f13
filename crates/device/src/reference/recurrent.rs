//! One step of the ONNX operators `LSTM`, `GRU` and `RNN`, from their specification.

use batchmaker_graph::{Precision, RecurrentCell, RecurrentKind, RnnActivation};

use crate::reference::common::sigmoid;
use crate::reference::products::{Operand, bias};

/// The states after a step, from its input `x`, `[input_size]`, and the `states` before it, each
/// `[hidden_size]`: h, and for an LSTM then c.
///
/// ```text
/// LSTM    i = sigmoid(W_i x + R_i h + p_i c + wb_i + rb_i)
///         f = sigmoid(W_f x + R_f h + p_f c + wb_f + rb_f)
///         c' = f c + i tanh(W_c x + R_c h + wb_c + rb_c)
///         o = sigmoid(W_o x + R_o h + p_o c' + wb_o + rb_o)
///         h' = o tanh(c')
/// GRU     z = sigmoid(W_z x + R_z h + wb_z + rb_z)        r likewise
///         n = tanh(W_h x + R_h (r h) + wb_h + rb_h)       linear_before_reset = 0
///         n = tanh(W_h x + r (R_h h + rb_h) + wb_h)       linear_before_reset = 1
///         h' = (1 - z) n + z h
/// RNN     h' = f(W x + R h + wb + rb)                     f is tanh or relu
/// ```
///
/// Products of vectors without a matrix are element by element. Matrices are multiplied in
/// `precision`, all else is f64. An LSTM of bytes quantises h before it is multiplied with R, which is not rounded.
///
/// # Panics
/// If lengths are not the cell's.
pub fn step(
    precision: Precision,
    cell: &RecurrentCell,
    x: &[f64],
    states: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let hidden = cell.hidden_size;
    assert_eq!(x.len(), cell.input_size, "x is the cell's");
    assert_eq!(states.len(), cell.kind.states(), "as many states as the cell has");
    assert!(states.iter().all(|state| state.len() == hidden), "a state is the cell's");
    let (h, b) = (&states[0], cell.b.as_deref());
    let bytes = match &cell.kind {
        RecurrentKind::Lstm { bytes, .. } => bytes.as_ref(),
        RecurrentKind::Gru { .. } | RecurrentKind::Rnn { .. } => None,
    };
    let x_operand = match bytes.and_then(|bytes| bytes.w_scale.as_ref()) {
        Some(_) => Operand::scaled(x),
        None => Operand::new(precision, x),
    };
    let h_operand = match bytes {
        Some(_) => Operand::quantised(h),
        None => Operand::new(precision, h),
    };
    // W x + wb and R h + rb of a gate's unit.
    let of_x = |gate: usize, unit: usize| {
        let row = gate * hidden + unit;
        x_operand.dot(&cell.w, row) + bias(b, row)
    };
    let of_h = |h: &Operand<'_>, gate: usize, unit: usize| {
        let row = gate * hidden + unit;
        h.dot(&cell.r, row) + bias(b, cell.kind.gates() * hidden + row)
    };
    let sum = |gate: usize, unit: usize| of_x(gate, unit) + of_h(&h_operand, gate, unit);
    let units = 0..hidden;
    match &cell.kind {
        RecurrentKind::Lstm { p, .. } => {
            let peephole = |at: usize, unit: usize, c: f64| {
                p.as_ref().map_or(0.0, |p| f64::from(p[at * hidden + unit]) * c)
            };
            let of_unit = |unit: usize| {
                let before = states[1][unit];
                let i = sigmoid(sum(0, unit) + peephole(0, unit, before));
                let f = sigmoid(sum(2, unit) + peephole(2, unit, before));
                let c = f * before + i * sum(3, unit).tanh();
                let o = sigmoid(sum(1, unit) + peephole(1, unit, c));
                (o * c.tanh(), c)
            };
            let (h, c) = units.map(of_unit).unzip();
            vec![h, c]
        }
        RecurrentKind::Gru { linear_before_reset } => {
            let r: Vec<f64> = units.clone().map(|unit| sigmoid(sum(1, unit))).collect();
            let reset: Vec<f64> = r.iter().zip(h).map(|(r, h)| r * h).collect();
            let reset = Operand::new(precision, &reset);
            let of_unit = |unit: usize| {
                let z = sigmoid(sum(0, unit));
                let candidate = match linear_before_reset {
                    false => of_x(2, unit) + of_h(&reset, 2, unit),
                    true => of_x(2, unit) + r[unit] * of_h(&h_operand, 2, unit),
                };
                (1.0 - z) * candidate.tanh() + z * h[unit]
            };
            vec![units.map(of_unit).collect()]
        }
        RecurrentKind::Rnn { activation } => {
            let of_unit = |unit: usize| match activation {
                RnnActivation::Tanh => sum(0, unit).tanh(),
                RnnActivation::Relu => sum(0, unit).max(0.0),
            };
            vec![units.map(of_unit).collect()]
        }
    }
}
