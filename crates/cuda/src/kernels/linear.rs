//! A linear layer whose greatest output is wanted: `kernels/linear_arg_max.cu`.

use batchmaker_graph::LinearArgMax;
use bytemuck::{Pod, Zeroable};

use super::batch::{Batch, Operand};
use super::tiles;
use super::weights::Storage;

/// The argument of both kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct LinearArguments {
    /// The rows.
    pub batch: Batch,
    /// x, `[inputs]`.
    pub x: Operand,
    /// The index of the greatest output, an integer of 64 bits.
    pub y: Operand,
    /// The address of [`PackedLinearArgMax::w`].
    pub w: u64,
    /// The address of [`PackedLinearArgMax::b`].
    pub b: u64,
    /// The address of the [`PART_BYTES`] of each block of each row, `[rows, blocks_of_a_row]`.
    pub parts: u64,
    /// Elements of x.
    pub inputs: i32,
    /// The number of outputs.
    pub outputs: i32,
}

/// The bytes that a block leaves of a row: its greatest output, and that one's sum.
pub const PART_BYTES: usize = 8;

/// A linear layer as the kernels read it.
#[derive(Clone, Debug)]
pub struct PackedLinearArgMax {
    /// The kernels, one after the other: the greatest of each block, and the greatest of these.
    pub kernels: [&'static str; 2],
    /// `[inputs, outputs]`, as its storage has it.
    pub w: Vec<u8>,
    /// `[outputs]`.
    pub b: Vec<f32>,
    inputs: usize,
    outputs: usize,
}

impl PackedLinearArgMax {
    /// Packs a layer.
    pub fn new(layer: &LinearArgMax, storage: Storage) -> Self {
        let LinearArgMax { input_size, output_size, w, b } = layer;
        let (inputs, outputs) = (*input_size, *output_size);
        let of = |at: usize| w[at % outputs * inputs + at / outputs];
        let b = b.as_ref().map_or_else(|| vec![0.0; outputs], |b| b.to_vec());
        let w: Vec<f32> = (0..inputs * outputs).map(of).collect();
        let of_blocks = storage.choose(["linear_arg_max_f32", "linear_arg_max_bf16"]);
        let kernels = [of_blocks, "arg_max_of_parts"];
        Self { kernels, w: storage.bytes(&w, outputs), b, inputs, outputs }
    }

    /// Elements of x.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Blocks that the outputs are divided among: each leaves [`PART_BYTES`] for each row.
    pub fn blocks_of_a_row(&self) -> usize {
        self.outputs.div_ceil(tiles::UNITS)
    }

    /// Blocks along x and y of the launches for a batch of `rows` rows.
    pub fn grids(&self, rows: usize) -> [[u32; 3]; 2] {
        [tiles::grid(self.outputs, rows), tiles::grid_of_rows(rows)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_an_input_lie_side_by_side() {
        let w: Vec<f32> = vec![11., 12., 21., 22., 31., 32.];
        let layer = LinearArgMax { input_size: 2, output_size: 3, w: w.into(), b: None };
        let packed = PackedLinearArgMax::new(&layer, Storage::F32);
        assert_eq!(packed.w, Storage::F32.bytes(&[11., 21., 31., 12., 22., 32.], 3));
        assert_eq!((packed.b.as_slice(), packed.blocks_of_a_row()), ([0.0; 3].as_slice(), 1));
        assert_eq!(packed.grids(17), [[1, 2, 1], [5, 1, 1]]);
    }
}
