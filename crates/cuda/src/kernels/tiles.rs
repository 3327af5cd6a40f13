//! How products of a batch are divided: `kernels/products.cuh`.

/// Units of a block.
pub(crate) const UNITS: usize = 32;

/// Warps of a block: each has a part of its units, or of its rows.
const GROUPS: usize = 4;

/// Rows of a block.
const ROWS: usize = 16;

/// Blocks along x and y for units and rows.
pub(crate) fn grid(units: usize, rows: usize) -> [u32; 3] {
    [units.div_ceil(UNITS) as u32, rows.div_ceil(ROWS) as u32, 1]
}

/// Blocks along x for rows, a warp for each.
pub(crate) fn grid_of_rows(rows: usize) -> [u32; 3] {
    [rows.div_ceil(GROUPS) as u32, 1, 1]
}

/// Threads of a block along x and y.
pub const BLOCK: [u32; 3] = [UNITS as u32, GROUPS as u32, 1];
