//! An LSTM whose R, or R and W, are bytes: near the same step in f32 from the x and h that its bytes stand for, with the same
//! bits on every vector unit and in any batch.

use super::cells::{Cell, Kind};
use super::random::{Random, bits};
use crate::packing::reduced::Format;
use crate::packing::target::Target;
use crate::{LstmBytes, LstmParameters, PackedLstm, step_dense};

/// An LSTM whose R is bytes, each row times its scale, and W too if it has a scale.
struct OfBytes {
    cell: Cell,
    w: Vec<f32>,
    w_scale: Option<Vec<f32>>,
    r: Vec<f32>,
    r_scale: Vec<f32>,
}

/// Rows of bytes, each times its scale, and the scales.
fn rows_of_bytes(random: &mut Random, rows: usize, len: usize) -> (Vec<f32>, Vec<f32>) {
    let scales: Vec<f32> = (0..rows).map(|_| 0.01 + random.f32(0.005)).collect();
    // Of every third row they are no signed bytes.
    let least =
        |at: usize| if (at / len).is_multiple_of(3) { 30.0 * (at / len % 9) as f32 } else { 128.0 };
    let bytes = (0..rows * len).map(|at| random.below(256) as f32 - least(at));
    (bytes.enumerate().map(|(at, byte)| byte * scales[at / len]).collect(), scales)
}

impl OfBytes {
    fn random(random: &mut Random, (input_size, hidden_size): (usize, usize)) -> Self {
        let cell = Cell::random(random, Kind::Lstm, input_size, hidden_size);
        let (r, r_scale) = rows_of_bytes(random, 4 * hidden_size, hidden_size);
        Self { w: cell.lstm().w.to_vec(), w_scale: None, cell, r, r_scale }
    }

    /// The same with W of bytes; x has a scale.
    fn with_w(random: &mut Random, (input_size, hidden_size): (usize, usize)) -> Self {
        let plain = Self::random(random, (input_size + 1, hidden_size));
        let (w, w_scale) = rows_of_bytes(random, 4 * hidden_size, input_size + 1);
        Self { w, w_scale: Some(w_scale), ..plain }
    }

    /// Both forms.
    fn both(random: &mut Random, sizes: (usize, usize)) -> [Self; 2] {
        [Self::random(random, sizes), Self::with_w(random, sizes)]
    }

    fn bytes(&self) -> LstmBytes<'_> {
        LstmBytes { r_scale: &self.r_scale, w_scale: self.w_scale.as_deref() }
    }

    fn step(
        &self,
        target: Target,
        bytes: Option<LstmBytes<'_>>,
        rows: usize,
        state: &State,
    ) -> State {
        let parameters = LstmParameters { w: &self.w, r: &self.r, bytes, ..self.cell.lstm() };
        let lstm = PackedLstm::for_target(target, parameters).expect("consistent sizes");
        let State { x, h, c } = state;
        let (mut h_out, mut c) = (h.clone(), c.clone());
        step_dense(&lstm, rows, x, h, &mut h_out, &mut c).expect("lengths of the rows");
        State { x: x.clone(), h: h_out, c }
    }
}

struct State {
    x: Vec<f32>,
    h: Vec<f32>,
    c: Vec<f32>,
}

/// The numbers that a row's bytes stand for, by the equations of `DynamicQuantizeLinear`.
fn quantised(h: &[f32]) -> Vec<f32> {
    let least = h.iter().copied().fold(0.0, f32::min);
    let greatest = h.iter().copied().fold(0.0, f32::max);
    let scale = if least == greatest { 1.0 } else { (greatest - least) / 255.0 };
    let zero = (-least / scale).round_ties_even().clamp(0.0, 255.0);
    let byte = |value: f32| ((value / scale).round_ties_even() + zero).clamp(0.0, 255.0);
    h.iter().map(|&value| (byte(value) - zero) * scale).collect()
}

/// The x that whole numbers and their scale stand for; the last element 0, as that of W counts.
fn of_whole(x: &[f32]) -> Vec<f32> {
    let (scale, whole) = x.split_last().expect("a scale");
    whole.iter().map(|value| value * scale).chain([0.0]).collect()
}

/// With hidden sizes around a lane group, a vector, and more than the sums that f32 adds up exactly.
const SHAPES: [(usize, usize, usize); 5] =
    [(3, 1, 2), (2, 5, 3), (7, 17, 33), (16, 64, 5), (0, 600, 2)];

fn random_state(random: &mut Random, lstm: &OfBytes, rows: usize) -> State {
    let (input, hidden) = (lstm.cell.lstm().input_size, lstm.cell.lstm().hidden_size);
    let mut x = random.vec(rows * input, 1.0);
    if lstm.w_scale.is_some() {
        for x in x.chunks_mut(input) {
            let least = random.below(256) as f32;
            for x in &mut *x {
                *x = random.below(256) as f32 - least;
            }
            x[input - 1] = 0.001 + random.f32(0.0005);
        }
    }
    // Some rows are positive, one is zero.
    let h = (0..rows).flat_map(|row| match row % 3 {
        0 => random.vec(hidden, 1.0),
        1 => random.vec(hidden, 0.3).iter().map(|value| value.abs()).collect(),
        _ => vec![0.0; hidden],
    });
    let h = h.collect();
    State { x, h, c: random.vec(rows * hidden, 1.0) }
}

fn shapes() -> Vec<(usize, usize, usize)> {
    SHAPES.into_iter().filter(|&(_, hidden, _)| !cfg!(miri) || hidden < 20).collect()
}

#[test]
fn a_step_is_that_from_what_bytes_stand_for() {
    let mut random = Random(1);
    for shape @ (input, hidden, rows) in shapes() {
        for lstm in OfBytes::both(&mut random, (input, hidden)) {
            let state = random_state(&mut random, &lstm, rows);
            let h: Vec<f32> = state.h.chunks(hidden).flat_map(quantised).collect();
            let x = match &lstm.w_scale {
                Some(_) => state.x.chunks(input + 1).flat_map(of_whole).collect(),
                None => state.x.clone(),
            };
            let rounded = State { x, h, c: state.c.clone() };
            for target in Target::all_f32_for_tests() {
                let actual = lstm.step(target, Some(lstm.bytes()), rows, &state);
                let expected = lstm.step(target, None, rows, &rounded);
                let pairs =
                    actual.h.iter().chain(&actual.c).zip(expected.h.iter().chain(&expected.c));
                let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 2e-5, "{target:?} {shape:?}: {worst}");
            }
        }
    }
}

#[test]
fn bits_depend_on_the_row_alone() {
    let mut random = Random(2);
    for shape @ (input, hidden, rows) in shapes() {
        for lstm in OfBytes::both(&mut random, (input, hidden)) {
            let input = lstm.cell.lstm().input_size;
            let state = random_state(&mut random, &lstm, rows);
            let scales = Some(lstm.bytes());
            let mut targets = Target::all_f32_for_tests();
            targets.extend(Target::all_reduced_for_tests(Format::Int8));
            if lstm.w_scale.is_none() {
                // W is of the precision.
                targets.retain(|target| target.reduced.is_none());
            }
            let together = lstm.step(targets[0], scales, rows, &state);
            for target in targets {
                let other = lstm.step(target, scales, rows, &state);
                assert!(bits(&other.h) == bits(&together.h), "{target:?} {shape:?}");
                let part =
                    |all: &[f32], row: usize, size: usize| all[row * size..][..size].to_vec();
                for row in 0..rows {
                    let [h, c] = [&state.h, &state.c].map(|all| part(all, row, hidden));
                    let one = State { x: part(&state.x, row, input), h, c };
                    let alone = lstm.step(target, scales, 1, &one);
                    let of_row = part(&together.h, row, hidden);
                    assert!(bits(&alone.h) == bits(&of_row), "{target:?} {shape:?}: row {row}");
                }
            }
        }
    }
}

#[test]
fn a_row_that_is_not_finite_is_nan_alone() {
    let mut random = Random(3);
    let (hidden, rows) = (9, 3);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for lstm in OfBytes::both(&mut random, (2, hidden)) {
            let mut state = random_state(&mut random, &lstm, rows);
            match lstm.w_scale {
                // The numbers of such a row are anything.
                Some(_) => state.x[3..6].copy_from_slice(&[f32::NAN, bad, f32::NAN]),
                None => state.h[hidden + 4] = bad,
            }
            for target in Target::all_f32_for_tests() {
                let after = lstm.step(target, Some(lstm.bytes()), rows, &state);
                let is_nan: Vec<bool> =
                    after.h.chunks(hidden).map(|row| row.iter().all(|h| h.is_nan())).collect();
                assert_eq!(is_nan, [false, true, false], "{target:?} {bad}");
                let finite = after.h[..hidden].iter().chain(&after.h[2 * hidden..]);
                assert!(finite.into_iter().all(|h| h.is_finite()), "{target:?} {bad}");
            }
        }
    }
}
