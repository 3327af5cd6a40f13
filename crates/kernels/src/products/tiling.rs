//! Tilings: the order in which products go over rows and weights. It changes no bit, only the speed.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::simd::isa::Isa;

/// Rows that go over a panel together.
pub const ROWS_MAX: usize = 128;

/// The order in which a product with weights of f32 goes over rows and weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// Rows of a register tile, at most; fewer where the registers hold fewer.
    pub rows: u8,
    /// Whether a few rows more than a tile takes run over two vectors of a panel at a time, in
    /// narrower and higher tiles.
    pub by_two: bool,
    /// KiB of weights that all rows go over before the next.
    pub block_kib: u16,
}

impl Tiling {
    /// Rows of a register tile, at most, whatever the instruction set.
    pub const ROWS_MAX: u8 = 8;

    /// All fields in 32 bits, which are not 0.
    fn to_bits(self) -> u32 {
        let [low, high] = self.block_kib.to_le_bytes();
        u32::from_le_bytes([self.rows.max(1), u8::from(self.by_two), low, high])
    }

    fn from_bits(bits: u32) -> Self {
        let [rows, by_two, low, high] = bits.to_le_bytes();
        Self { rows, by_two: by_two != 0, block_kib: u16::from_le_bytes([low, high]) }
    }
}

/// The tilings of products, by how many rows they have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tilings {
    /// The tiling of a product of one row, of two, and so on; none: the default of each.
    by_rows: Option<Box<[Tiling]>>,
}

/// Matrices larger than this are better read line after line than two vectors of each row at a
/// time: measured at 16 MiB (a little) and 64 MiB (by a sixth), while at 4 MiB and less it is the
/// other way round.
const NEAR_BYTES: usize = 8 << 20;

/// KiB of weights in a block: half of a first-level data cache of 32 KiB.
const BLOCK_KIB: u16 = 16;

impl Tilings {
    /// The default for each number of rows.
    pub const DEFAULT: Self = Self { by_rows: None };

    /// One tiling for all products.
    pub fn all(tiling: Tiling) -> Self {
        Self { by_rows: Some(vec![tiling; ROWS_MAX].into()) }
    }

    /// Tilings by `(rows, tiling)`: each holds for its number of rows and for more, up to the next; the first
    /// also for fewer. Where `known` is empty, the default for each number of rows.
    pub fn from_rows(known: &[(usize, Tiling)]) -> Self {
        let of = |rows: usize| {
            let before = known.iter().filter(|known| known.0 <= rows).max_by_key(|known| known.0);
            before.or(known.iter().min_by_key(|known| known.0)).map(|known| known.1)
        };
        Self { by_rows: (1..=ROWS_MAX).map(of).collect() }
    }

    /// The default for a matrix of `matrix_bytes` bytes.
    pub fn default_of(matrix_bytes: usize) -> Tiling {
        Tiling { rows: Tiling::ROWS_MAX, by_two: matrix_bytes <= NEAR_BYTES, block_kib: BLOCK_KIB }
    }
}

/// Tilings that change while products run. Any of them gives a product the same bits.
pub(crate) struct LiveTilings {
    /// The bits of the tiling of a product of one row, of two, and so on; 0: the default.
    by_rows: Box<[AtomicU32; ROWS_MAX]>,
}

impl Default for LiveTilings {
    fn default() -> Self {
        Self { by_rows: Box::new(std::array::from_fn(|_| AtomicU32::new(0))) }
    }
}

impl LiveTilings {
    /// Products that begin from now on run by `tilings`.
    pub(crate) fn set(&self, tilings: &Tilings) {
        for (row, live) in self.by_rows.iter().enumerate() {
            let bits = tilings.by_rows.as_ref().map_or(0, |by_rows| by_rows[row].to_bits());
            live.store(bits, Ordering::Relaxed);
        }
    }

    /// The tiling of a product of `rows` rows with a matrix of `matrix_bytes` bytes.
    #[inline(always)]
    pub(crate) fn of(&self, rows: usize, matrix_bytes: usize) -> Tiling {
        match self.by_rows[rows.clamp(1, ROWS_MAX) - 1].load(Ordering::Relaxed) {
            0 => Tilings::default_of(matrix_bytes),
            bits => Tiling::from_bits(bits),
        }
    }
}

/// Rows of a register tile over `vectors` vectors: as many as leave space for the operands among
/// `registers` registers, at most 8.
pub(crate) const fn tile_rows(registers: usize, vectors: usize) -> usize {
    let mut rows = 1;
    while rows < 8 {
        let next = rows + 1;
        let operands = 1 + if next < vectors { next } else { vectors };
        if next * vectors + operands > registers {
            break;
        }
        rows = next;
    }
    rows
}

impl Isa {
    /// Rows of a register tile over `vectors` vectors of a panel, at most.
    pub fn tile_rows_max(self, vectors: usize) -> usize {
        tile_rows(self.registers(), vectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_between_those_known_take_the_smaller() {
        let tiling = |rows| Tiling { rows, by_two: false, block_kib: 8 };
        let tilings = Tilings::from_rows(&[(16, tiling(6)), (4, tiling(2))]);
        let live = LiveTilings::default();
        live.set(&tilings);
        let rows = [1, 4, 15, 16, 128].map(|rows| live.of(rows, 0).rows);
        assert_eq!(rows, [2, 2, 2, 6, 6]);
        assert_eq!(Tilings::from_rows(&[]), Tilings::DEFAULT);
        live.set(&Tilings::DEFAULT);
        assert_eq!(live.of(16, 0), Tilings::default_of(0));
    }

    #[test]
    fn a_tiling_fits_its_bits() {
        let all = [(1, false, 0), (8, true, u16::MAX), (6, false, 300)];
        for (rows, by_two, block_kib) in all {
            let tiling = Tiling { rows, by_two, block_kib };
            assert_eq!(Tiling::from_bits(tiling.to_bits()), tiling);
        }
    }
}
