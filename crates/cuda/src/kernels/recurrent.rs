//! Steps of recurrent cells: `kernels/recurrent_step.cu`.

use std::ops::Range;

use batchmaker_graph::{RecurrentCell, RecurrentKind, RnnActivation};
use bytemuck::{Pod, Zeroable};

use super::batch::{Batch, Lookup, Operand};
use super::tiles;
use super::weights::Storage;

/// The argument of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct StepArguments {
    /// The rows.
    pub batch: Batch,
    /// x, `[input_size]`, or its id in the table of `lookup`.
    pub x: Operand,
    /// h before the step, `[hidden_size]`.
    pub h: Operand,
    /// The cell state before the step, `[hidden_size]`, of an LSTM.
    pub c: Operand,
    /// h after the step.
    pub next_h: Operand,
    /// The cell state after the step.
    pub next_c: Operand,
    /// z and r h, `[2, hidden_size]`, which one kernel leaves to the next where a step takes two.
    pub gates: Operand,
    /// The embedding whose rows x is, if it is one.
    pub lookup: Lookup,
    /// The address of [`PackedLaunch::w`].
    pub w: u64,
    /// The address of [`PackedLaunch::r`].
    pub r: u64,
    /// The address of [`PackedLaunch::b`].
    pub b: u64,
    /// The address of [`PackedRecurrent::peepholes`], or 0.
    pub peepholes: u64,
    /// Elements of x.
    pub input: i32,
    /// Elements of h.
    pub hidden: i32,
}

/// A recurrent cell as the kernels read it.
#[derive(Clone, Debug)]
pub struct PackedRecurrent {
    /// The kernels of a step, one after the other.
    pub launches: Vec<PackedLaunch>,
    /// Weights of peepholes, `[hidden_size, 3]`: i, o, f.
    pub peepholes: Option<Vec<f32>>,
    input_size: usize,
    hidden_size: usize,
}

/// A kernel of a step, and its weights.
#[derive(Clone, Debug)]
pub struct PackedLaunch {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Weights of x, `[input_size, hidden_size, gates]`, as they are stored.
    pub w: Vec<u8>,
    /// Weights of h, `[hidden_size, hidden_size, gates]`, likewise.
    pub r: Vec<u8>,
    /// What sums begin with, `[hidden_size, sums]`: biases of x and h together, but for the last gate of a GRU whose reset comes after the
    /// product, which has a sum for each.
    pub b: Vec<f32>,
}

impl PackedRecurrent {
    /// Packs a cell; none if there is no kernel for it.
    pub fn new(cell: &RecurrentCell, storage: Storage) -> Option<Self> {
        let launches = match &cell.kind {
            RecurrentKind::Lstm { bytes: None, .. } => {
                vec![(["lstm_step_f32", "lstm_step_bf16"], 0..4)]
            }
            RecurrentKind::Lstm { .. } => return None,
            RecurrentKind::Gru { linear_before_reset: true } => {
                vec![(["gru_reset_after_step_f32", "gru_reset_after_step_bf16"], 0..3)]
            }
            RecurrentKind::Gru { linear_before_reset: false } => vec![
                (["gru_gates_f32", "gru_gates_bf16"], 0..2),
                (["gru_state_f32", "gru_state_bf16"], 2..3),
            ],
            RecurrentKind::Rnn { activation: RnnActivation::Tanh } => {
                vec![(["rnn_tanh_step_f32", "rnn_tanh_step_bf16"], 0..1)]
            }
            RecurrentKind::Rnn { activation: RnnActivation::Relu } => {
                vec![(["rnn_relu_step_f32", "rnn_relu_step_bf16"], 0..1)]
            }
        };
        let peepholes = match &cell.kind {
            RecurrentKind::Lstm { p: Some(p), .. } => {
                Some(side_by_side(p, 0..3, cell.hidden_size, 1))
            }
            _ => None,
        };
        let launch = |(kernels, gates)| PackedLaunch::new(kernels, gates, cell, storage);
        let launches = launches.into_iter().map(launch);
        let (input_size, hidden_size) = (cell.input_size, cell.hidden_size);
        Some(Self { launches: launches.collect(), peepholes, input_size, hidden_size })
    }

    /// Elements of x.
    pub fn input_size(&self) -> usize {
        self.input_size
    }

    /// Elements of h.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    /// Bytes of [`StepArguments::gates`] of a row: none where a step is one kernel.
    pub fn gate_bytes(&self) -> usize {
        if self.launches.len() > 1 { 2 * 4 * self.hidden_size } else { 0 }
    }

    /// Blocks along x and y of a launch for a batch of `rows` rows.
    pub fn grid(&self, rows: usize) -> [u32; 3] {
        tiles::grid(self.hidden_size, rows)
    }
}

impl PackedLaunch {
    /// The weights of some of a cell's gates.
    fn new(
        kernels: [&'static str; 2],
        gates: Range<usize>,
        cell: &RecurrentCell,
        storage: Storage,
    ) -> Self {
        let hidden_size = cell.hidden_size;
        let bias = |of: usize, gate: usize, unit: usize| {
            let at = (of * cell.kind.gates() + gate) * hidden_size + unit;
            cell.b.as_ref().map_or(0.0, |b| b[at])
        };
        let is_split = |gate: usize| {
            gate == 2 && matches!(cell.kind, RecurrentKind::Gru { linear_before_reset: true })
        };
        let of_gate = |gate: usize, unit: usize| {
            let [of_x, of_h] = [0, 1].map(|of| bias(of, gate, unit));
            if is_split(gate) { vec![of_x, of_h] } else { vec![of_x + of_h] }
        };
        let units = 0..hidden_size;
        let b = units.flat_map(|unit| gates.clone().flat_map(move |gate| of_gate(gate, unit)));
        let weights = |of: &[f32], inputs: usize| {
            storage.bytes(&side_by_side(of, gates.clone(), hidden_size, inputs))
        };
        Self {
            kernel: storage.choose(kernels),
            b: b.collect(),
            w: weights(&cell.w, cell.input_size),
            r: weights(&cell.r, hidden_size),
        }
    }
}

/// From some gates of `[gates, units, inputs]` to `[inputs, units, gates]`.
pub(super) fn side_by_side(
    w: &[f32],
    gates: Range<usize>,
    units: usize,
    inputs: usize,
) -> Vec<f32> {
    let count = gates.len();
    let of = |at: usize| {
        let (gate, unit, input) =
            (gates.start + at % count, at / count % units, at / count / units);
        w[(gate * units + unit) * inputs + input]
    };
    (0..count * units * inputs).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_of_a_unit_lie_side_by_side() {
        // Two gates, three units, two inputs: each weight says where it is.
        let w: Vec<f32> =
            [111., 112., 121., 122., 131., 132., 211., 212., 221., 222., 231., 232.].into();
        let expected = [111., 211., 121., 221., 131., 231., 112., 212., 122., 222., 132., 232.];
        assert_eq!(side_by_side(&w, 0..2, 3, 2), expected);
        let of_second = [211., 221., 231., 212., 222., 232.];
        assert_eq!(side_by_side(&w, 1..2, 3, 2), of_second);
    }

    #[test]
    fn gates_of_a_gru_have_their_biases() {
        let b: Vec<f32> = [1., 2., 3., 4., 5., 6., 10., 20., 30., 40., 50., 60.].into();
        let cell = RecurrentCell {
            kind: RecurrentKind::Gru { linear_before_reset: true },
            input_size: 0,
            hidden_size: 2,
            w: [].into(),
            r: [0.0; 12].into(),
            b: Some(b.into()),
            lookup: None,
        };
        let packed = PackedRecurrent::new(&cell, Storage::F32).unwrap();
        assert_eq!(packed.launches[0].b, [11., 33., 5., 50., 22., 44., 6., 60.]);
        assert_eq!(packed.grid(17), [1, 2, 1]);
        let before = RecurrentKind::Gru { linear_before_reset: false };
        let cell = RecurrentCell { kind: before, ..cell };
        let packed = PackedRecurrent::new(&cell, Storage::Bf16).unwrap();
        assert_eq!(packed.launches[0].b, [11., 33., 22., 44.]);
        assert_eq!(packed.launches[1].b, [55., 66.]);
    }
}
