//! Steps of recurrent cells: `kernels/recurrent_step.cu`.

use batchmaker_graph::{RecurrentCell, RecurrentKind, RnnActivation};

/// Units and rows that a block computes.
const UNITS_OF_BLOCK: usize = 32;
const ROWS_OF_BLOCK: usize = 16;

/// A row of a batch, as the kernels read it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRow {
    /// The address of x on the GPU, `[input_size]`.
    pub x: u64,
    /// The address that h after the step is written to, beside its slot, `[hidden_size]`; 0 for none.
    pub y: u64,
    /// The index of the slot of the chain's state.
    pub slot: u32,
    /// The step. h before it lies in half `step % 2` of the states.
    pub step: u32,
}

/// A recurrent cell as the kernels read it.
#[derive(Clone, Debug)]
pub struct PackedRecurrent {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Weights of x, `[input_size, hidden_size, gates]`.
    pub w: Vec<f32>,
    /// Weights of h, `[hidden_size, hidden_size, gates]`.
    pub r: Vec<f32>,
    /// What sums begin with, `[hidden_size, sums]`: biases of x and h together, but for the last gate of a GRU, which has a sum for each.
    pub b: Vec<f32>,
    /// Weights of peepholes, `[hidden_size, 3]`: i, o, f.
    pub peepholes: Option<Vec<f32>>,
    /// Whether there is a cell state.
    pub has_c: bool,
    input_size: usize,
    hidden_size: usize,
}

impl PackedRecurrent {
    /// Packs a cell; none if there is no kernel for it.
    pub fn new(cell: &RecurrentCell) -> Option<Self> {
        let (input_size, hidden_size, gates) =
            (cell.input_size, cell.hidden_size, cell.kind.gates());
        let kernel = match &cell.kind {
            RecurrentKind::Lstm { bytes: None, .. } => "lstm_step_f32",
            RecurrentKind::Gru { linear_before_reset: true } => "gru_reset_after_step_f32",
            RecurrentKind::Rnn { activation: RnnActivation::Tanh } => "rnn_tanh_step_f32",
            RecurrentKind::Rnn { activation: RnnActivation::Relu } => "rnn_relu_step_f32",
            RecurrentKind::Lstm { .. } | RecurrentKind::Gru { .. } => return None,
        };
        let bias = |of: usize, gate: usize, unit: usize| {
            let at = (of * gates + gate) * hidden_size + unit;
            cell.b.as_ref().map_or(0.0, |b| b[at])
        };
        let is_gru = matches!(cell.kind, RecurrentKind::Gru { .. });
        let of_unit = |unit: usize| {
            let both = move |gate| bias(0, gate, unit) + bias(1, gate, unit);
            let split = is_gru.then(|| [bias(0, gates - 1, unit), bias(1, gates - 1, unit)]);
            let together = if is_gru { gates - 1 } else { gates };
            let sums: Vec<f32> =
                (0..together).map(both).chain(split.into_iter().flatten()).collect();
            sums
        };
        let b = (0..hidden_size).flat_map(of_unit).collect();
        let peepholes = match &cell.kind {
            RecurrentKind::Lstm { p: Some(p), .. } => Some(side_by_side(p, 3, hidden_size, 1)),
            _ => None,
        };
        Some(Self {
            kernel,
            w: side_by_side(&cell.w, gates, hidden_size, input_size),
            r: side_by_side(&cell.r, gates, hidden_size, hidden_size),
            b,
            peepholes,
            has_c: matches!(cell.kind, RecurrentKind::Lstm { .. }),
            input_size,
            hidden_size,
        })
    }

    /// Elements of x.
    pub fn input_size(&self) -> usize {
        self.input_size
    }

    /// Elements of h.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    /// Blocks along x and y of a launch for a batch of `rows` rows.
    pub fn grid(&self, rows: usize) -> [u32; 3] {
        let blocks = |of: usize, by: usize| of.div_ceil(by) as u32;
        [blocks(self.hidden_size, UNITS_OF_BLOCK), blocks(rows, ROWS_OF_BLOCK), 1]
    }

    /// Threads of a block along x and y.
    pub fn block() -> [u32; 3] {
        [32, 4, 1]
    }
}

/// From `[gates, units, inputs]` to `[inputs, units, gates]`.
fn side_by_side(w: &[f32], gates: usize, units: usize, inputs: usize) -> Vec<f32> {
    let of = |at: usize| {
        let (gate, unit, input) = (at % gates, at / gates % units, at / gates / units);
        w[(gate * units + unit) * inputs + input]
    };
    (0..gates * units * inputs).map(of).collect()
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
        assert_eq!(side_by_side(&w, 2, 3, 2), expected);
    }

    #[test]
    fn the_last_gate_of_a_gru_has_two_sums() {
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
        let packed = PackedRecurrent::new(&cell).unwrap();
        assert_eq!(packed.b, [11., 33., 5., 50., 22., 44., 6., 60.]);
        assert_eq!(packed.grid(17), [1, 2, 1]);
        let before = RecurrentKind::Gru { linear_before_reset: false };
        assert!(PackedRecurrent::new(&RecurrentCell { kind: before, ..cell }).is_none());
    }
}
