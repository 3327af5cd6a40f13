//! Steps of LSTMs of bytes.

use std::sync::Arc;

use batchmaker_cuda::kernels::batch::Operand;
use batchmaker_cuda_emulator::{KernelLibrary, Report};
use batchmaker_graph::{LstmBytes, Precision, RecurrentKind};

use crate::chains::{Chains, Places, SHAPES, cell, check_alone, check_steps, shows};
use crate::harness::{Embedding, Found, bugs, known_id, library, numbers};

pub(crate) const FILE: &str = "lstm_of_bytes.cu";

/// LSTMs whose R is bytes, with peepholes, and those whose W is bytes too.
pub(crate) fn kinds(hidden_size: usize) -> Vec<RecurrentKind> {
    let scale = |row: usize| 0.004 + 0.0005 * (row % 7) as f32;
    let r_scale: Arc<[f32]> = (0..4 * hidden_size).map(scale).collect();
    let w_scale: Arc<[f32]> = r_scale.iter().map(|scale| 0.5 * scale).collect();
    let of_r = LstmBytes { r_scale, w_scale: None };
    let of_both = LstmBytes { w_scale: Some(w_scale), ..of_r.clone() };
    let peepholes = Some(numbers(3 * hidden_size, 4).into());
    vec![
        RecurrentKind::Lstm { p: peepholes, bytes: Some(of_r) },
        RecurrentKind::Lstm { p: None, bytes: Some(of_both) },
    ]
}

#[test]
fn steps_of_bytes_are_right() {
    check_steps(&library("right", FILE, None), kinds);
}

#[test]
fn a_row_alone_has_the_bits_of_a_row_in_a_batch() {
    check_alone(&library("alone", FILE, None), kinds);
}

/// What is reported of a step in which an embedding lacks all ids, and whether its x is other than zeros.
fn without_x(library: &KernelLibrary) -> (Vec<Report>, bool) {
    let [rows, input, hidden] = SHAPES[0];
    let cell = cell(kinds(hidden).remove(1), input, hidden);
    let id_of = |row, node| known_id(row, node) + Embedding::ROWS as i64;
    let chains = Chains::with_ids((&cell, Precision::F32), Places::Ids, rows, &id_of);
    let reports = chains.run(library, 0);
    (reports, chains.is_wrong() || !chains.embedding.has_failed(&chains.gpu))
}

/// What is reported of steps in which h of one row has an element that is not finite, and whether this row's states are numbers, or others' are
/// not.
fn not_finite(library: &KernelLibrary) -> (Vec<Report>, bool) {
    let [rows, input, hidden] = SHAPES[0];
    let cell = cell(kinds(hidden).remove(0), input, hidden);
    let (mut reports, mut is_wrong) = (Vec::new(), false);
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut chains = Chains::new((&cell, Precision::F32), Places::NoStates, rows);
        let mut h = numbers(rows * hidden, 5);
        h[hidden + 1] = value;
        chains.arguments.h = Operand::dense(chains.gpu.upload(&h, "h"), 4 * hidden);
        reports.extend(chains.run(library, 0));
        for row in 0..rows {
            let states = chains.after(row).concat();
            is_wrong |= states.into_iter().any(|state| state.is_nan() != (row == 1));
        }
    }
    (reports, is_wrong)
}

/// A check: what is reported, and whether the result is wrong.
type Check = fn(&KernelLibrary) -> (Vec<Report>, bool);

const CHECKS: [Check; 2] = [without_x, not_finite];

#[test]
fn x_may_be_zeros_and_h_not_finite() {
    let library = library("checks", FILE, None);
    for check in CHECKS {
        let (reports, is_wrong) = check(&library);
        assert!(reports.is_empty(), "{}", reports[0]);
        assert!(!is_wrong);
    }
}

fn is_found(name: &str, replaced: [&str; 2], found: Found) {
    let library = library(name, FILE, Some(replaced));
    let is_shown = |check: Check| {
        let (reports, is_wrong) = check(&library);
        found.is_by(&reports, || is_wrong)
    };
    let is_found = CHECKS.into_iter().any(is_shown) || shows(&library, kinds, found);
    assert!(is_found, "{name} is not found");
}

bugs! {
    super::is_found;
    all_threads_write_the_scale: "has_infinite);\n  if (threadIdx.x == 0) to[0] = written;" => "has_infinite);\n  to[0] = written;", Found::By(Fault::DataRace);
    numbers_of_rows_beyond: "  if (row >= of.batch.count) return;\n" => "", Found::By(Fault::OutOfBounds);
    no_check_of_h: "const float x = h ? h[at] : 0.f;\n    lowest" => "const float x = h[at];\n    lowest", Found::By(Fault::OutOfBounds);
    no_check_of_x: "x ? x[input - 1] : 0.f" => "x[input - 1]", Found::By(Fault::OutOfBounds);
    scale_past_x: "x ? x[input - 1] : 0.f" => "x ? x[input] : 0.f", Found::By(Fault::OutOfBounds);
    part_of_a_warp: "__any_sync(0xffffffffu, has_none)" => "__any_sync(1u, has_none)", Found::By(Fault::WarpMask);
    threads_that_stay_away: "  const float written = scale_or_none(scale, has_infinite);\n  if (threadIdx.x == 0) to[0] = written;" => "  if (threadIdx.x == 0) to[0] = scale_or_none(scale, has_infinite);", Found::By(Fault::Deadlock);
    no_number_becomes_one: "? __uint_as_float(0x7fffffffu) : scale" => "? scale : scale", Found::ByValues;
    half_of_a_warp: "for (int by = 16;" => "for (int by = 8;", Found::ByAnything;
    least_without_zero: "float lowest = 0.f, negated_highest" => "float lowest = BYTE_MAX, negated_highest", Found::ByValues;
    rounded_down: "rintf(x / scale)" => "floorf(x / scale)", Found::ByValues;
    ties_away_from_zero: "rintf(element)" => "roundf(element)", Found::ByValues;
    bytes_for_numbers: "BYTE_MAX) - zero);" => "BYTE_MAX));", Found::ByValues;
    numbers_far_apart: "lowest), lowest + BYTE_MAX);" => "lowest), BYTE_MAX);", Found::ByValues;
    x_over_h: "of_x.base += (1 + of.hidden) * sizeof(float);" => "of_x.base += sizeof(float);", Found::ByAnything;
    x_past_its_place: "of_x.base += (1 + of.hidden)" => "of_x.base += (2 + of.hidden)", Found::By(Fault::OutOfBounds);
    numbers_from_the_scale: "part.first + part.thread) + 1 : nullptr;" => "part.first + part.thread) : nullptr;", Found::ByAnything;
    numbers_beyond: "part.thread < part.rows ? (const int*)locate(batch, rows, part.first + part.thread) + 1 : nullptr" => "(const int*)locate(batch, rows, part.first + part.thread) + 1", Found::By(Fault::OutOfBounds);
    scales_of_units_beyond: "  if (part.unit >= units) return;\n  for" => "  for", Found::By(Fault::OutOfBounds);
    scales_of_another_unit: "scales[part.unit * Lstm::GATES + gate]" => "scales[gate]", Found::ByValues;
    scale_of_the_first_row: "*(const float*)locate(batch, rows, row);" => "*(const float*)locate(batch, rows, part.first);", Found::ByValues;
    scale_counts_as_x: "of.w_scale, of.input - 1, part" => "of.w_scale, of.input, part", Found::By(Fault::OutOfBounds);
    wide_numbers: "typedef int16_t Weight;" => "typedef int Weight;", Found::By(Fault::OutOfBounds);
}
