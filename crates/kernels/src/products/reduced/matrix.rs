//! Weights packed in lane groups.

use super::round::{bf16, largest_magnitude, offset_of, scale_of, to_byte, whole};
use crate::packing::lines::Lines;
use crate::packing::panel_matrix::{Columns, PanelRow};
use crate::packing::reduced::{Format, INT8_INPUTS_MAX, Reduced};

/// Words of k of a tile: weights for tiles are padded to whole ones with zeros.
pub(super) const TILE_GROUPS: usize = 16;

/// The bytes that the elements of an input row are rounded to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum InputBytes {
    /// 0 to 255, by a [`SpanScale`](super::round::SpanScale).
    OfSpan,
    /// 0 to 255, by an [`UnsignedScale`](super::round::UnsignedScale).
    Unsigned,
    /// Elements are whole numbers from -255 to 255, at most 255 apart. 1 stands for 1, or for the element behind the row.
    Whole { is_scaled: bool },
}

/// The scales of a matrix that is given as bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenBytes<'a> {
    /// The value that 1 stands for in each column, `[columns]`. Each element of the matrix is a whole number from -255 to 255 times
    /// that; those of one column are at most 255 apart.
    pub(crate) scales: &'a [f32],
    pub(crate) inputs: InputBytes,
}

/// A matrix packed in lane groups.
pub(crate) struct ReducedMatrix {
    pub(super) reduced: Reduced,
    /// Elements of an input.
    pub(super) inputs: usize,
    /// Words of k, with padding.
    pub(super) groups: usize,
    panel_len: usize,
    /// Lane groups, as the bits of f32.
    lines: Lines,
    /// With weights of bytes, the bytes that inputs are rounded to.
    pub(super) input_bytes: InputBytes,
    /// With weights of bytes, the value that a 1 stands for in each column.
    pub(super) scales: Option<PanelRow>,
    /// With weights of bytes, the sum of each column's, an i32: what an input's zero point is multiplied with.
    pub(super) column_sums: Option<PanelRow>,
    /// The whole numbers, an i32 for each column, that given bytes are less than what they stand for, if not all are 0.
    pub(super) offsets: Option<PanelRow>,
}

impl ReducedMatrix {
    /// Packs `source`, `[columns, inputs]`, whose length the caller has checked.
    pub(crate) fn new(reduced: Reduced, columns: &Columns, source: &[f32], inputs: usize) -> Self {
        Self::of_bytes(reduced, columns, source, inputs, None)
    }

    /// As [`Self::new`], of elements that are bytes, if `given` is.
    pub(crate) fn of_bytes(
        reduced: Reduced,
        columns: &Columns,
        source: &[f32],
        inputs: usize,
        given: Option<GivenBytes<'_>>,
    ) -> Self {
        let Reduced { format, instructions } = reduced;
        assert!(format != Format::Int8 || inputs <= INT8_INPUTS_MAX, "sums of {inputs} bytes");
        let mut groups = inputs.div_ceil(format.group_len());
        let is_tiled = instructions.is_tiled();
        if is_tiled {
            groups = groups.next_multiple_of(TILE_GROUPS);
        }
        let row_len = columns.vectors() * columns.lanes;
        let panel_len = groups * row_len;
        let place = |group: usize, at: usize| match is_tiled {
            false => group * row_len + at,
            true => {
                let (tile, row) = (group / TILE_GROUPS, group % TILE_GROUPS);
                let (vector, lane) = (at / columns.lanes, at % columns.lanes);
                let tile = tile * columns.vectors() + vector;
                (tile * TILE_GROUPS + row) * columns.lanes + lane
            }
        };
        let mut lines = Lines::zeros(columns.panels() * panel_len);
        let (mut scales, mut column_sums, mut offsets) = (Vec::new(), Vec::new(), Vec::new());
        let packed = lines.as_mut_slice();
        let (mut bytes, mut least) = (Vec::new(), 0);
        for (at, column) in columns.sources().enumerate() {
            let panel = &mut packed[at / row_len * panel_len..][..panel_len];
            let weights = column.map_or(&[][..], |column| &source[column * inputs..][..inputs]);
            let given_scale = given.zip(column).map(|(given, column)| given.scales[column]);
            let (rounded_scale, factor) = scale_of(largest_magnitude(weights));
            let (mut sum, mut offset) = (0_i32, 0);
            if let Some(scale) = given_scale {
                offset = offset_of(weights, scale, instructions.least_fast_byte());
            }
            bytes.clear();
            match format {
                Format::Bf16 => bytes
                    .extend(weights.iter().flat_map(|&weight| (bf16(weight) as u16).to_le_bytes())),
                Format::Int8 => bytes.extend(weights.iter().map(|&weight| {
                    let byte = match given_scale {
                        Some(scale) => whole(weight, scale).wrapping_sub(offset),
                        None => to_byte(weight, factor),
                    };
                    sum += byte;
                    least = least.min(byte);
                    byte as u8
                })),
            }
            for (group, of_word) in bytes.chunks(4).enumerate() {
                let mut whole = [0; 4];
                whole[..of_word.len()].copy_from_slice(of_word);
                panel[place(group, at % row_len)] = f32::from_bits(u32::from_le_bytes(whole));
            }
            scales.push(given_scale.unwrap_or(rounded_scale));
            column_sums.push(f32::from_bits(sum as u32));
            offsets.push(f32::from_bits(offset as u32));
        }
        let row = |values: Vec<f32>| PanelRow::packed(columns, values);
        let (scales, column_sums) = match format {
            Format::Bf16 => (None, None),
            Format::Int8 => (Some(row(scales)), Some(row(column_sums))),
        };
        let offsets = offsets.iter().any(|offset| offset.to_bits() != 0).then(|| row(offsets));
        let input_bytes = given.map_or(InputBytes::OfSpan, |given| given.inputs);
        let instructions = instructions.for_bytes_from(least);
        Self {
            reduced: Reduced { format, instructions },
            inputs,
            groups,
            panel_len,
            lines,
            input_bytes,
            scales,
            column_sums,
            offsets,
        }
    }

    /// The first lane group of a panel.
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize) -> *const u32 {
        self.lines.as_slice()[panel * self.panel_len..][..self.panel_len].as_ptr().cast()
    }

    pub(crate) fn bytes(&self) -> usize {
        let rows = [&self.scales, &self.column_sums, &self.offsets];
        self.lines.bytes() + rows.into_iter().flatten().map(PanelRow::bytes).sum::<usize>()
    }
}
