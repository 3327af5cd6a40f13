//! The inputs of a product's rows, in the precision of its weights. Made once and used for all
//! panels of a call.

use std::cell::RefCell;

use super::matrix::{ReducedMatrix, UNSIGNED};
use super::round::{bf16, largest_magnitude, round_to_bf16, scale_of, to_byte};
use crate::packing::lines::{LINE_LEN, Lines};
use crate::packing::reduced::Format;
use crate::products::panel_product::ProductRow;
use crate::products::tiling::ROWS_MAX;
use crate::simd::operations::{Simd, SimdOp};

thread_local! {
    /// Buffers that no operand holds.
    #[expect(clippy::vec_box, reason = "a buffer moves as one address")]
    static FREE_BUFFERS: RefCell<Vec<Box<Buffer>>> = const { RefCell::new(Vec::new()) };
}

/// The addresses of the inputs of some rows.
struct Buffer {
    elements: Lines,
    scales: [f32; ROWS_MAX],
}

/// The rows' inputs as a product reads them; empty where weights are f32, and inputs are read where they lie.
pub(crate) struct Operand {
    buffer: Option<Box<Buffer>>,
    is_empty: bool,
    /// Elements from one row to the next.
    stride: usize,
}

impl Operand {
    /// An operand without rows.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { buffer: None, is_empty: true, stride: 0 }
    }

    /// Forgets the rows.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.is_empty = true;
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The lane groups of a row: of bfloat16 or unsigned bytes as the weights have them, or, where those
    /// are widened, an f32 for each number.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> *const u32 {
        let buffer = self.buffer.as_ref().expect("a filled operand");
        buffer.elements.as_slice()[row * self.stride..][..self.stride].as_ptr().cast()
    }

    /// Bytes from one row to the next.
    pub(super) fn stride_bytes(&self) -> usize {
        self.stride * size_of::<u32>()
    }

    /// The value that a byte of 1 stands for in a row.
    #[inline(always)]
    pub(super) fn scale(&self, row: usize) -> f32 {
        self.buffer.as_ref().expect("a filled operand").scales[row]
    }
}

impl Drop for Operand {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            FREE_BUFFERS.with_borrow_mut(|free| free.push(buffer));
        }
    }
}

/// Fills an operand with rows. Whoever runs it vouches that `matrix.inputs` elements are readable at the input of
/// each row.
pub(super) struct Fill<'a> {
    pub(super) matrix: &'a ReducedMatrix,
    pub(super) rows: &'a [ProductRow],
    pub(super) operand: &'a mut Operand,
}

impl SimdOp for Fill<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { matrix, rows, operand } = self;
        let (format, instructions) = (matrix.reduced.format, matrix.reduced.instructions);
        let row_len = match instructions.widens() {
            true => matrix.groups * format.group_len(),
            false => matrix.groups,
        };
        // A line more, so that rows of a power of two do not share the sets of a cache.
        operand.stride = Lines::row_stride(row_len) + LINE_LEN;
        operand.is_empty = false;
        let buffer = operand.buffer.get_or_insert_with(|| {
            let free = FREE_BUFFERS.with_borrow_mut(Vec::pop);
            free.unwrap_or_else(|| {
                Box::new(Buffer { elements: Lines::zeros(0), scales: [0.0; ROWS_MAX] })
            })
        });
        // Tiles read rows up to a multiple of their height, past the last one.
        let len = ROWS_MAX * operand.stride;
        if buffer.elements.as_slice().len() < len {
            buffer.elements = Lines::zeros(len);
        }
        for (at, row) in rows.iter().enumerate() {
            // SAFETY: the contract of `multiply`: as many elements as the matrix has inputs.
            let from = unsafe { std::slice::from_raw_parts(row.input, matrix.inputs) };
            let to = &mut buffer.elements.as_mut_slice()[at * operand.stride..][..row_len];
            match format {
                Format::Bf16 if instructions.widens() => widen_bf16(from, to),
                Format::Bf16 => pack_bf16(from, to),
                Format::Int8 => {
                    let (scale, factor) = scale_of(largest_magnitude(from));
                    buffer.scales[at] = scale;
                    match instructions.widens() {
                        true => widen_bytes(from, factor, to),
                        false => pack_bytes(from, factor, to),
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn widen_bf16(from: &[f32], to: &mut [f32]) {
    let (whole, rest) = to.split_at_mut(from.len());
    for (to, &value) in whole.iter_mut().zip(from) {
        *to = round_to_bf16(value);
    }
    rest.fill(0.0);
}

#[inline(always)]
fn pack_bf16(from: &[f32], to: &mut [f32]) {
    let (pairs, last) = from.as_chunks::<2>();
    let (whole, rest) = to.split_at_mut(pairs.len());
    for (to, &[low, high]) in whole.iter_mut().zip(pairs) {
        *to = f32::from_bits(bf16(low) | bf16(high) << 16);
    }
    rest.fill(0.0);
    if let (&[low], [to, ..]) = (last, rest) {
        *to = f32::from_bits(bf16(low));
    }
}

#[inline(always)]
fn widen_bytes(from: &[f32], factor: f32, to: &mut [f32]) {
    let (whole, rest) = to.split_at_mut(from.len());
    for (to, &value) in whole.iter_mut().zip(from) {
        *to = to_byte(value, factor) as f32;
    }
    rest.fill(0.0);
}

/// Padding stands for 0 like any other byte.
#[inline(always)]
fn pack_bytes(from: &[f32], factor: f32, to: &mut [f32]) {
    let byte = |value: f32| (to_byte(value, factor) + UNSIGNED) as u32;
    let (quads, last) = from.as_chunks::<4>();
    let (whole, rest) = to.split_at_mut(quads.len());
    for (to, quad) in whole.iter_mut().zip(quads) {
        let [a, b, c, d] = quad.map(byte);
        *to = f32::from_bits(a | b << 8 | c << 16 | d << 24);
    }
    rest.fill(f32::from_bits(0x8080_8080));
    if let (Some(to), false) = (rest.first_mut(), last.is_empty()) {
        let bytes = last.iter().enumerate();
        let mut group = 0x8080_8080_u32;
        for (at, &value) in bytes {
            group = group & !(0xff << (8 * at)) | byte(value) << (8 * at);
        }
        *to = f32::from_bits(group);
    }
}
