//! The formulas in f64, element by element, from the specification of the ONNX operators LSTM, GRU
//! and RNN and from the paper of the TreeLSTM, with nothing of how kernels compute them.

use super::cells::{Cell, Inner, Kind, Leaf, Linear};

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Row `row` of a matrix times a vector.
fn dot(matrix: &[f32], row: usize, vector: &[f64]) -> f64 {
    let weights = &matrix[row * vector.len()..][..vector.len()];
    weights.iter().zip(vector).map(|(&w, v)| f64::from(w) * v).sum()
}

fn bias(b: &Option<Vec<f32>>, row: usize) -> f64 {
    b.as_ref().map_or(0.0, |b| f64::from(b[row]))
}

/// One step of a row; `c` is empty where it is no state.
pub(super) fn step(cell: &Cell, x: &[f64], h: &mut Vec<f64>, c: &mut [f64]) {
    let &Cell { kind, hidden_size, ref w, ref r, ref b, ref p, .. } = cell;
    let rows = kind.gates() * hidden_size;
    let h_in = h.clone();
    // W x + Wb and R h + Rb of a gate's unit.
    let of_x = |gate: usize, unit: usize| {
        let row = gate * hidden_size + unit;
        dot(w, row, x) + bias(b, row)
    };
    let of_h = |gate: usize, unit: usize, h: &[f64]| {
        let row = gate * hidden_size + unit;
        dot(r, row, h) + bias(b, rows + row)
    };
    let sum = |gate: usize, unit: usize| of_x(gate, unit) + of_h(gate, unit, &h_in);
    let peephole = |gate: usize, unit: usize, c: f64| {
        p.as_ref().map_or(0.0, |p| f64::from(p[gate * hidden_size + unit]) * c)
    };
    match kind {
        Kind::Lstm | Kind::PeepholeLstm => {
            for unit in 0..hidden_size {
                let c_in = c[unit];
                let i = sigmoid(sum(0, unit) + peephole(0, unit, c_in));
                let f = sigmoid(sum(2, unit) + peephole(2, unit, c_in));
                c[unit] = f * c_in + i * sum(3, unit).tanh();
                let o = sigmoid(sum(1, unit) + peephole(1, unit, c[unit]));
                h[unit] = o * c[unit].tanh();
            }
        }
        Kind::GruResetBefore | Kind::GruResetAfter => {
            let reset: Vec<f64> = (0..hidden_size).map(|unit| sigmoid(sum(1, unit))).collect();
            let reset_h: Vec<f64> = reset.iter().zip(&h_in).map(|(r, h)| r * h).collect();
            for unit in 0..hidden_size {
                let z = sigmoid(sum(0, unit));
                let candidate = match kind {
                    Kind::GruResetBefore => of_x(2, unit) + of_h(2, unit, &reset_h),
                    _ => of_x(2, unit) + reset[unit] * of_h(2, unit, &h_in),
                };
                h[unit] = (1.0 - z) * candidate.tanh() + z * h_in[unit];
            }
        }
        Kind::RnnTanh => *h = (0..hidden_size).map(|unit| sum(0, unit).tanh()).collect(),
        Kind::RnnRelu => *h = (0..hidden_size).map(|unit| sum(0, unit).max(0.0)).collect(),
    }
}

/// h and c of a leaf.
pub(super) fn leaf(leaf: &Leaf, x: &[f64]) -> [Vec<f64>; 2] {
    let units = leaf.hidden_size;
    let sum = |gate: usize, unit: usize| {
        let row = gate * units + unit;
        dot(&leaf.w, row, x) + bias(&leaf.b, row)
    };
    let c: Vec<f64> = (0..units).map(|unit| sigmoid(sum(0, unit)) * sum(2, unit).tanh()).collect();
    let h = (0..units).map(|unit| sigmoid(sum(1, unit)) * c[unit].tanh()).collect();
    [h, c]
}

/// h and c of an inner node from those of its children.
pub(super) fn inner(inner: &Inner, [h_l, c_l, h_r, c_r]: [&[f64]; 4]) -> [Vec<f64>; 2] {
    let units = inner.hidden_size;
    let sum = |gate: usize, unit: usize| {
        let row = gate * units + unit;
        dot(&inner.l, row, h_l) + dot(&inner.r, row, h_r) + bias(&inner.b, row)
    };
    let c: Vec<f64> = (0..units)
        .map(|unit| {
            sigmoid(sum(0, unit)) * sum(4, unit).tanh()
                + sigmoid(sum(2, unit)) * c_l[unit]
                + sigmoid(sum(3, unit)) * c_r[unit]
        })
        .collect();
    let h = (0..units).map(|unit| sigmoid(sum(1, unit)) * c[unit].tanh()).collect();
    [h, c]
}

pub(super) fn linear(linear: &Linear, x: &[f64]) -> Vec<f64> {
    (0..linear.output_size).map(|row| dot(&linear.w, row, x) + bias(&linear.b, row)).collect()
}
