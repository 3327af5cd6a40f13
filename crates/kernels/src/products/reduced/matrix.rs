//! Weights packed in lane groups.

use super::round::{bf16, largest_magnitude, scale_of, to_byte};
use crate::packing::lines::Lines;
use crate::packing::panel_matrix::{Columns, PanelRow};
use crate::packing::reduced::{Format, INT8_INPUTS_MAX, Reduced};

/// Words of k of a tile: weights for tiles are padded to whole ones with zeros.
pub(super) const TILE_GROUPS: usize = 16;

/// The number added to a byte of an input that is multiplied as an unsigned one.
pub(super) const UNSIGNED: i32 = 128;

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
    /// With weights of bytes, the value that a 1 stands for in each column.
    pub(super) scales: Option<PanelRow>,
    /// With weights of bytes, the i32 that the sums of each column begin with, to make up for [`UNSIGNED`].
    pub(super) offsets: Option<PanelRow>,
}

impl ReducedMatrix {
    /// Packs `source`, `[columns, inputs]`, whose length the caller has checked.
    pub(crate) fn new(reduced: Reduced, columns: &Columns, source: &[f32], inputs: usize) -> Self {
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
        let (mut scales, mut offsets) = (Vec::new(), Vec::new());
        let packed = lines.as_mut_slice();
        let mut bytes = Vec::new();
        for (at, column) in columns.sources().enumerate() {
            let panel = &mut packed[at / row_len * panel_len..][..panel_len];
            let weights = column.map_or(&[][..], |column| &source[column * inputs..][..inputs]);
            let (scale, factor) = scale_of(largest_magnitude(weights));
            let mut sum = 0;
            bytes.clear();
            match format {
                Format::Bf16 => bytes
                    .extend(weights.iter().flat_map(|&weight| (bf16(weight) as u16).to_le_bytes())),
                Format::Int8 => bytes.extend(weights.iter().map(|&weight| {
                    let byte = to_byte(weight, factor);
                    sum += byte;
                    byte as u8
                })),
            }
            for (group, of_word) in bytes.chunks(4).enumerate() {
                let mut whole = [0; 4];
                whole[..of_word.len()].copy_from_slice(of_word);
                panel[place(group, at % row_len)] = f32::from_bits(u32::from_le_bytes(whole));
            }
            scales.push(scale);
            let offset = if instructions.widens() { 0 } else { -UNSIGNED * sum };
            offsets.push(f32::from_bits(offset as u32));
        }
        let row = |values: Vec<f32>| PanelRow::packed(columns, values);
        let (scales, offsets) = match format {
            Format::Bf16 => (None, None),
            Format::Int8 => (Some(row(scales)), Some(row(offsets))),
        };
        Self { reduced, inputs, groups, panel_len, lines, scales, offsets }
    }

    /// The first lane group of a panel.
    #[inline(always)]
    pub(super) fn panel(&self, panel: usize) -> *const u32 {
        self.lines.as_slice()[panel * self.panel_len..][..self.panel_len].as_ptr().cast()
    }

    pub(crate) fn bytes(&self) -> usize {
        let rows = [&self.scales, &self.offsets];
        self.lines.bytes() + rows.into_iter().flatten().map(PanelRow::bytes).sum::<usize>()
    }
}
