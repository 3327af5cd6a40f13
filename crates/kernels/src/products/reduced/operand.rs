//! The inputs of a product's rows, in the precision of its weights. Made once and used for all
//! panels of a call.

use std::cell::RefCell;

use super::matrix::{InputBytes, ReducedMatrix};
use super::round::{SpanScale, UnsignedScale, bf16, round_to_bf16};
use crate::packing::lines::{LINE_LEN, Lines};
use crate::packing::reduced::{Format, InputForm};
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
    /// The number that stands for 0.
    zero_points: [i32; ROWS_MAX],
    /// The sum of the whole numbers that stand for the elements; where weights have offsets.
    sums: [i32; ROWS_MAX],
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

    /// The numbers of a row, in the [`InputForm`] of the instructions.
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

    /// The number that stands for 0 in a row.
    #[inline(always)]
    pub(super) fn zero_point(&self, row: usize) -> i32 {
        self.buffer.as_ref().expect("a filled operand").zero_points[row]
    }

    /// The sum of a row's whole numbers, where weights have offsets.
    #[inline(always)]
    pub(super) fn sum(&self, row: usize) -> i32 {
        self.buffer.as_ref().expect("a filled operand").sums[row]
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
/// each row, and one more where that is the row's scale.
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
        let form = instructions.input_form();
        let row_len = matrix.groups * form.elements(format);
        // A line more, so that rows of a power of two do not share the sets of a cache.
        operand.stride = Lines::row_stride(row_len) + LINE_LEN;
        operand.is_empty = false;
        let buffer = operand.buffer.get_or_insert_with(|| {
            let free = FREE_BUFFERS.with_borrow_mut(Vec::pop);
            free.unwrap_or_else(|| {
                let (scales, zero_points, sums) = ([0.0; ROWS_MAX], [0; ROWS_MAX], [0; ROWS_MAX]);
                Box::new(Buffer { elements: Lines::zeros(0), scales, zero_points, sums })
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
                Format::Bf16 if form == InputForm::Floats => widen_bf16(from, to),
                Format::Bf16 => pack_bf16(from, to),
                Format::Int8 => {
                    let form = RowForm { form, has_offsets: matrix.offsets.is_some() };
                    let filled = match matrix.input_bytes {
                        InputBytes::Whole { is_scaled } => {
                            let scale = match is_scaled {
                                // SAFETY: the contract of `multiply`: the scale follows the row.
                                true => unsafe { *row.input.add(from.len()) },
                                false => 1.0,
                            };
                            fill_whole(from, to, form, scale)
                        }
                        InputBytes::OfSpan => fill_span(from, to, form),
                        InputBytes::Unsigned => fill_unsigned(from, to, form),
                    };
                    buffer.scales[at] = filled.scale;
                    buffer.zero_points[at] = filled.zero_point;
                    buffer.sums[at] = filled.sum;
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

/// The scale, the zero point and the sum of a row that has been filled.
struct Filled {
    /// The value that 1 stands for.
    scale: f32,
    /// The number of 0.
    zero_point: i32,
    /// The sum of the whole numbers; 0 where nobody needs it.
    sum: i32,
}

/// The form that a row is filled in.
#[derive(Clone, Copy)]
struct RowForm {
    form: InputForm,
    /// Whether weights have offsets, which are multiplied with the sum of the row.
    has_offsets: bool,
}

/// Fills a row with unsigned bytes, as many as lie between its least and its greatest element.
#[inline(always)]
fn fill_span(from: &[f32], to: &mut [f32], form: RowForm) -> Filled {
    let scale = SpanScale::of(from);
    fill_bytes(from, to, form, (scale.scale, scale.zero_point), |value| scale.whole(value))
}

/// As [`fill_span`], as the ONNX operator `DynamicQuantizeLinear` rounds.
#[inline(always)]
fn fill_unsigned(from: &[f32], to: &mut [f32], form: RowForm) -> Filled {
    let scale = UnsignedScale::of(from);
    // SAFETY: a byte less a byte is a whole number within -255 and 255.
    let whole = |value: f32| unsafe { (scale.byte(value) - scale.zero_point).to_int_unchecked() };
    fill_bytes(from, to, form, (scale.scale, scale.zero_point as i32), whole)
}

/// As [`fill_span`], with whole numbers, of which 1 stands for `scale`.
#[inline(always)]
fn fill_whole(from: &[f32], to: &mut [f32], form: RowForm, scale: f32) -> Filled {
    const SPAN: f32 = 255.0;
    let least = least_or_zero(from).max(-SPAN).round_ties_even();
    // SAFETY: a whole number within -255 and 255; `least` where the value is no number.
    let whole = |value: f32| unsafe {
        value.round_ties_even().max(least).min(least + SPAN).to_int_unchecked()
    };
    fill_bytes(from, to, form, (scale, -least as i32), whole)
}

/// The least of some values and 0. What is no number is left out.
#[inline(always)]
fn least_or_zero(values: &[f32]) -> f32 {
    // As many as a vector may have.
    const LANES: usize = 16;
    let lesser = |a: f32, b: f32| if b < a { b } else { a };
    let (lines, rest) = values.as_chunks::<LANES>();
    let mut least = [0.0; LANES];
    for line in lines {
        for (least, &value) in least.iter_mut().zip(line) {
            *least = lesser(*least, value);
        }
    }
    least.iter().chain(rest).fold(0.0, |least, &value| lesser(least, value))
}

/// The difference of an unsigned byte and the signed one that is multiplied for it.
const SIGNED_LESS: i32 = 128;

/// Fills a row with bytes: `whole` gives the number that stands for a value, 0 for 0. The byte of 0 is added to these numbers
/// where they become bytes.
#[inline(always)]
fn fill_bytes(
    from: &[f32],
    to: &mut [f32],
    form: RowForm,
    (scale, zero_point): (f32, i32),
    whole: impl Fn(f32) -> i32,
) -> Filled {
    let RowForm { form, has_offsets } = form;
    let sum = if has_offsets { from.iter().map(|&value| whole(value)).sum() } else { 0 };
    match form {
        InputForm::Floats => {
            let (of_values, rest) = to.split_at_mut(from.len());
            for (to, &value) in of_values.iter_mut().zip(from) {
                *to = whole(value) as f32;
            }
            rest.fill(0.0);
        }
        InputForm::Words => fill_words(from, to, whole),
        InputForm::LaneGroups => fill_lane_groups(from, to, |value| whole(value) + zero_point),
        InputForm::SignedLaneGroups => {
            fill_lane_groups(from, to, |value| whole(value) + zero_point - SIGNED_LESS);
        }
    }
    let zero_point = match form {
        InputForm::Floats | InputForm::Words => 0,
        InputForm::LaneGroups => zero_point,
        InputForm::SignedLaneGroups => zero_point - SIGNED_LESS,
    };
    Filled { scale, zero_point, sum }
}

/// Fills a row with bytes in lane groups: four in an element, the first in its lowest byte.
#[inline(always)]
fn fill_lane_groups(from: &[f32], to: &mut [f32], byte: impl Fn(f32) -> i32) {
    // SAFETY: these are the bytes of `to`; of any bytes there is an f32.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), size_of_val(to)) };
    let (of_values, rest) = bytes.split_at_mut(from.len());
    for (to, &value) in of_values.iter_mut().zip(from) {
        *to = byte(value) as u8;
    }
    // Weights of padding are 0.
    rest.fill(0);
}

/// Fills a row with numbers of 16 bits ([`InputForm::Words`]).
#[inline(always)]
fn fill_words(from: &[f32], to: &mut [f32], whole: impl Fn(f32) -> i32) {
    let pair = |low: f32, high: f32| {
        f32::from_bits((whole(low) as u32 & 0xffff) | ((whole(high) as u32) << 16))
    };
    let (quads, last) = from.as_chunks::<4>();
    let (of_quads, rest) = to.split_at_mut(2 * quads.len());
    for (to, &[a, b, c, d]) in of_quads.as_chunks_mut::<2>().0.iter_mut().zip(quads) {
        *to = [pair(a, c), pair(b, d)];
    }
    rest.fill(0.0);
    if let ([even, odd, ..], false) = (rest, last.is_empty()) {
        let mut quad = [0.0; 4];
        quad[..last.len()].copy_from_slice(last);
        let [a, b, c, d] = quad;
        [*even, *odd] = [pair(a, c), pair(b, d)];
    }
}
