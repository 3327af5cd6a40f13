//! Matrices with their axes swapped: images whose channels come first, and those whose channels come last.

use std::ops::Range;

use crate::error::KernelError;
use crate::packing::checks::check_len;

/// Rows and columns that are swapped at a time: four vectors of four elements.
const BLOCK: usize = 4;

/// Rows and columns of a tile, whose lines stay in the first-level cache.
const TILE: usize = 16;

/// Writes the columns `columns` of a matrix `x`, `[height, width]`, as rows of `y`, `[columns, height]`.
///
/// # Errors
/// [`KernelError::Length`] where `x` or `y` has another length, or the matrix does not have these columns.
pub fn transpose(
    x: &[f32],
    [height, width]: [usize; 2],
    columns: Range<usize>,
    y: &mut [f32],
) -> Result<(), KernelError> {
    check_len("x", x, height * width)?;
    check_len("y", y, columns.len() * height)?;
    if columns.start > columns.end || columns.end > width {
        let (expected, actual) = (width, columns.end.max(columns.start));
        return Err(KernelError::Length { tensor: "columns", expected, actual });
    }
    if height == 1 || width == 1 {
        y.copy_from_slice(&x[columns.start * height..columns.end * height]);
        return Ok(());
    }
    for top in (0..height).step_by(TILE) {
        let rows = top..height.min(top + TILE);
        for left in columns.clone().step_by(TILE) {
            let of_tile = left..columns.end.min(left + TILE);
            let blocks = of_tile.len() / BLOCK * BLOCK;
            let to = &mut y[(left - columns.start) * height..];
            for block in (0..blocks).step_by(BLOCK) {
                let to = &mut to[block * height..][..BLOCK * height];
                transpose_block_column(x, width, rows.clone(), left + block, to);
            }
            for column in blocks..of_tile.len() {
                let line = &mut to[column * height..][rows.clone()];
                for (row, to) in rows.clone().zip(line) {
                    *to = x[row * width + left + column];
                }
            }
        }
    }
    Ok(())
}

/// Writes `rows` of the four columns from `left` on to the lines of `y`, `[4, height]`.
#[inline]
fn transpose_block_column(x: &[f32], width: usize, rows: Range<usize>, left: usize, y: &mut [f32]) {
    let (a, rest) = y.split_at_mut(y.len() / BLOCK);
    let (b, rest) = rest.split_at_mut(a.len());
    let (c, d) = rest.split_at_mut(a.len());
    let mut row = rows.start;
    while row + BLOCK <= rows.end {
        let line = |down: usize| -> [f32; BLOCK] {
            let line = x[(row + down) * width + left..].first_chunk();
            *line.expect("the matrix has four more columns")
        };
        let swapped = transposed([line(0), line(1), line(2), line(3)]);
        for (to, from) in [&mut *a, &mut *b, &mut *c, &mut *d].into_iter().zip(swapped) {
            to[row..][..BLOCK].copy_from_slice(&from);
        }
        row += BLOCK;
    }
    for row in row..rows.end {
        let from = &x[row * width + left..][..BLOCK];
        [a[row], b[row], c[row], d[row]] = [from[0], from[1], from[2], from[3]];
    }
}

/// The columns of four rows of four elements.
#[cfg(target_arch = "x86_64")]
#[inline]
fn transposed(rows: [[f32; BLOCK]; BLOCK]) -> [[f32; BLOCK]; BLOCK] {
    use std::arch::x86_64::{
        _mm_loadu_ps, _mm_movehl_ps, _mm_movelh_ps, _mm_storeu_ps, _mm_unpackhi_ps, _mm_unpacklo_ps,
    };
    let mut columns = [[0.0; BLOCK]; BLOCK];
    // SAFETY: every x86-64 has SSE; a row and a column have the four elements of a vector.
    unsafe {
        let [a, b, c, d] = rows.map(|row| _mm_loadu_ps(row.as_ptr()));
        let (low_ab, high_ab) = (_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
        let (low_cd, high_cd) = (_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
        let vectors = [
            _mm_movelh_ps(low_ab, low_cd),
            _mm_movehl_ps(low_cd, low_ab),
            _mm_movelh_ps(high_ab, high_cd),
            _mm_movehl_ps(high_cd, high_ab),
        ];
        for (column, vector) in columns.iter_mut().zip(vectors) {
            _mm_storeu_ps(column.as_mut_ptr(), vector);
        }
    }
    columns
}

/// The columns of four rows of four elements.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn transposed(rows: [[f32; BLOCK]; BLOCK]) -> [[f32; BLOCK]; BLOCK] {
    std::array::from_fn(|column| rows.map(|row| row[column]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_finds_its_place() {
        for [height, width] in
            [[1, 7], [7, 1], [4, 4], [5, 3], [3, 5], [16, 17], [33, 18], [70, 20]]
        {
            let x: Vec<f32> = (0..height * width).map(|at| at as f32).collect();
            for columns in [0..width, width / 3..width, 0..width / 2, 1..width - width / 4] {
                if columns.is_empty() {
                    continue;
                }
                let mut y = vec![-1.0; columns.len() * height];
                transpose(&x, [height, width], columns.clone(), &mut y).unwrap();
                for (line, column) in y.chunks_exact(height).zip(columns) {
                    let expected: Vec<f32> =
                        (0..height).map(|row| x[row * width + column]).collect();
                    assert_eq!(line, expected, "column {column} of {height} x {width}");
                }
            }
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        let mut y = [0.0; 6];
        assert!(transpose(&[0.0; 5], [2, 3], 0..3, &mut y).is_err());
        assert!(transpose(&[0.0; 6], [2, 3], 0..2, &mut y).is_err());
        assert!(transpose(&[0.0; 6], [2, 3], 1..4, &mut y).is_err());
    }
}
