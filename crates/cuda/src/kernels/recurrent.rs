//! Steps of recurrent cells: `kernels/recurrent_step.cu`.

use std::ops::Range;

use batchmaker_graph::{RecurrentCell, RecurrentKind, RnnActivation};

use super::lstm_of_bytes;
pub use super::step::{PackedLaunch, PackedRecurrent, StepArguments};
use super::step::{biases, projection, side_by_side};
use super::weights::Storage;

impl PackedRecurrent {
    /// Packs a cell; none if there is no kernel for it.
    pub fn new(cell: &RecurrentCell, storage: Storage) -> Option<Self> {
        let launches = match &cell.kind {
            RecurrentKind::Lstm { bytes: None, .. } => {
                vec![(["lstm_step_f32", "lstm_step_bf16"], 0..4)]
            }
            RecurrentKind::Lstm { bytes: Some(bytes), .. } => {
                return lstm_of_bytes::pack(cell, bytes, storage);
            }
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
        let launch = |(kernels, gates)| PackedLaunch::new(kernels, gates, cell, storage);
        let launches: Vec<_> = launches.into_iter().map(launch).collect();
        let between_bytes = if launches.len() > 1 { 2 * 4 * cell.hidden_size } else { 0 };
        Some(Self::of_launches(launches, between_bytes, cell))
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
        let weights = |of: &[f32], inputs: usize| {
            let columns = hidden_size * gates.len();
            storage.bytes(&side_by_side(of, gates.clone(), hidden_size, inputs), columns)
        };
        let b = biases(cell, gates.clone());
        Self {
            kernel: storage.choose(kernels),
            w: weights(&cell.w, cell.input_size),
            r: weights(&cell.r, hidden_size),
            projection: Some(projection(hidden_size, gates.len(), &b, storage)),
            b,
            units: Some(hidden_size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(packed.launches[0].grid(17), [1, 2, 1]);
        let projection = packed.launches[0].projection.unwrap();
        assert_eq!((projection.columns, projection.gates, projection.sums_of_unit), (6, 3, 4));
        assert_eq!((projection.grid(17, 4), projection.row_bytes()), ([1, 2, 1], 24));
        let before = RecurrentKind::Gru { linear_before_reset: false };
        let cell = RecurrentCell { kind: before, ..cell };
        let packed = PackedRecurrent::new(&cell, Storage::Bf16).unwrap();
        assert_eq!(packed.launches[0].b, [11., 33., 22., 44.]);
        assert_eq!(packed.launches[1].b, [55., 66.]);
    }
}
