//! What all steps of recurrent cells share: `kernels/recurrent.cuh`.

use std::ops::Range;

use batchmaker_graph::{RecurrentCell, RecurrentKind};
use bytemuck::{Pod, Zeroable};

use super::batch::{Batch, Lookup, Operand};
use super::projection::Projection;
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
    /// What the first kernel leaves to the next one where a step takes two, [`PackedRecurrent::between_bytes`] of a row.
    pub between: Operand,
    /// The sums after x, `[hidden_size, gates]`, where a [`Projection`] has run for the step; else nowhere, and the kernel multiplies x itself.
    pub projected: Operand,
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
    /// The address of [`PackedRecurrent::w_scale`], or 0.
    pub w_scale: u64,
    /// The address of [`PackedRecurrent::r_scale`], or 0.
    pub r_scale: u64,
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
    /// What 1 stands for in W of an LSTM whose W is bytes, `[hidden_size, 4]`.
    pub w_scale: Option<Vec<f32>>,
    /// What 1 stands for in R of an LSTM of bytes, `[hidden_size, 4]`.
    pub r_scale: Option<Vec<f32>>,
    between_bytes: usize,
    input_size: usize,
    hidden_size: usize,
}

/// A kernel of a step, and its weights.
#[derive(Clone, Debug)]
pub struct PackedLaunch {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Weights of x, `[input_size, hidden_size, gates]`, as they are stored; `[input_size - 1, hidden_size, gates]` where they are bytes.
    pub w: Vec<u8>,
    /// Weights of h, `[hidden_size, hidden_size, gates]`, likewise.
    pub r: Vec<u8>,
    /// What sums begin with, `[hidden_size, sums]`: biases of x and h together, but for the last gate of a GRU whose reset comes after the
    /// product, which has a sum for each.
    pub b: Vec<f32>,
    /// The products of x, if they may run before the kernel.
    pub projection: Option<Projection>,
    /// Units of the cell; none where the kernel has a warp for each row.
    pub(super) units: Option<usize>,
}

impl PackedRecurrent {
    /// A cell whose weights are packed.
    pub(super) fn of_launches(
        launches: Vec<PackedLaunch>,
        between_bytes: usize,
        cell: &RecurrentCell,
    ) -> Self {
        let (input_size, hidden_size) = (cell.input_size, cell.hidden_size);
        let of_gates = |of: &[f32], gates: usize| side_by_side(of, 0..gates, hidden_size, 1);
        let (peepholes, bytes) = match &cell.kind {
            RecurrentKind::Lstm { p, bytes } => (p.as_deref(), bytes.as_ref()),
            RecurrentKind::Gru { .. } | RecurrentKind::Rnn { .. } => (None, None),
        };
        let w_scale = bytes.and_then(|bytes| bytes.w_scale.as_deref());
        Self {
            launches,
            peepholes: peepholes.map(|p| of_gates(p, 3)),
            w_scale: w_scale.map(|scale| of_gates(scale, 4)),
            r_scale: bytes.map(|bytes| of_gates(&bytes.r_scale, 4)),
            between_bytes,
            input_size,
            hidden_size,
        }
    }

    /// Elements of x.
    pub fn input_size(&self) -> usize {
        self.input_size
    }

    /// Elements of h.
    pub fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    /// Bytes of [`StepArguments::between`] of a row: none where a step is one kernel.
    pub fn between_bytes(&self) -> usize {
        self.between_bytes
    }
}

impl PackedLaunch {
    /// Blocks along x and y for a batch of `rows` rows.
    pub fn grid(&self, rows: usize) -> [u32; 3] {
        self.units.map_or_else(|| tiles::grid_of_rows(rows), |units| tiles::grid(units, rows))
    }
}

/// The products of x with weights of some gates, that are stored so; `b` is what their sums begin with.
pub(super) fn projection(
    hidden_size: usize,
    gates: usize,
    b: &[f32],
    storage: Storage,
) -> Projection {
    Projection {
        kernel: storage.choose(["project_inputs_f32", "project_inputs_bf16"]),
        columns: hidden_size * gates,
        gates,
        sums_of_unit: b.len() / hidden_size.max(1),
    }
}

/// What the sums of some of a cell's gates begin with.
pub(super) fn biases(cell: &RecurrentCell, gates: Range<usize>) -> Vec<f32> {
    let bias = |of: usize, gate: usize, unit: usize| {
        let at = (of * cell.kind.gates() + gate) * cell.hidden_size + unit;
        cell.b.as_ref().map_or(0.0, |b| b[at])
    };
    let is_split = |gate: usize| {
        gate == 2 && matches!(cell.kind, RecurrentKind::Gru { linear_before_reset: true })
    };
    let of_gate = |gate: usize, unit: usize| {
        let [of_x, of_h] = [0, 1].map(|of| bias(of, gate, unit));
        if is_split(gate) { vec![of_x, of_h] } else { vec![of_x + of_h] }
    };
    let units = 0..cell.hidden_size;
    units.flat_map(|unit| gates.clone().flat_map(move |gate| of_gate(gate, unit))).collect()
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
}
