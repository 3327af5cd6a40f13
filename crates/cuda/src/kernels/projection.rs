//! Products of x for several steps at once: `kernels/project_inputs.cu`.

use bytemuck::{Pod, Zeroable};

use super::batch::{Batch, Lookup, Operand};

/// Rows and columns of a block.
const SIDE: usize = 64;

/// The most rows, those of all steps together: a grid has no more blocks along y.
pub const ROWS_MAX: usize = 65_535 * SIDE;

/// The argument of the kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ProjectionArguments {
    /// The rows, at the first step.
    pub batch: Batch,
    /// x, `[input_size]`, or its id in the table of `lookup`.
    pub x: Operand,
    /// The embedding whose rows x is, if it is one.
    pub lookup: Lookup,
    /// The address of [`PackedLaunch::w`](super::recurrent::PackedLaunch::w).
    pub w: u64,
    /// The address of [`PackedLaunch::b`](super::recurrent::PackedLaunch::b).
    pub b: u64,
    /// The address of the sums, `[steps, rows, hidden_size, gates]`.
    pub sums: u64,
    /// Elements of x.
    pub input: i32,
    /// `hidden_size` times `gates`.
    pub columns: i32,
    /// The number of steps.
    pub steps: i32,
    /// Gates of a unit.
    pub gates: i32,
    /// Biases of a unit.
    pub sums_of_unit: i32,
    /// No meaning.
    pub padding: i32,
}

/// The products of x of one kernel of a step, which may run for several steps at once: its sums are what [`StepArguments::projected`] reads.
///
/// [`StepArguments::projected`]: super::recurrent::StepArguments::projected
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projection {
    /// The kernel's name.
    pub kernel: &'static str,
    /// `hidden_size` times `gates`.
    pub columns: usize,
    /// Gates of a unit.
    pub gates: usize,
    /// Biases of a unit.
    pub sums_of_unit: usize,
}

impl Projection {
    /// Blocks along x and y for `rows` rows at each of `steps` steps.
    pub fn grid(&self, rows: usize, steps: usize) -> [u32; 3] {
        [self.columns.div_ceil(SIDE) as u32, (rows * steps).div_ceil(SIDE) as u32, 1]
    }

    /// Bytes of the sums of a row at one step.
    pub fn row_bytes(&self) -> usize {
        4 * self.columns
    }
}
