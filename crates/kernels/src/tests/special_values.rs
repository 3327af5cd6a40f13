//! Infinities saturate; a NaN stays, and stays in its row.

use super::cells::{Cell, Inner, Kind, Leaf, Linear};
use super::kernels::{Kernel, Layer, Memory, run_whole};
use super::random::{Random, bits};
use crate::simd::vector_unit::VectorUnit;
use crate::{ArgMax, step_dense};

const INFINITY: f32 = f32::INFINITY;

/// Puts a NaN where it reaches every unit: one element of what is multiplied with weights, all of
/// a child's `c`.
fn poison(layer: &Layer, memory: &mut Memory, input: usize) {
    match (layer, input) {
        (Layer::Inner(_), 1 | 3) => memory.inputs[input].fill(f32::NAN),
        _ => memory.inputs[input][0] = f32::NAN,
    }
}

fn assert_all_nan(layer: &Layer, memory: &Memory, what: &str) {
    if let Layer::ArgMax(_) = layer {
        let ArgMax { value, index } = ArgMax::NONE;
        assert_eq!(
            bits(&memory.outputs[0]),
            [value.to_bits(), index],
            "{what}: never the greatest"
        );
        return;
    }
    for (output, values) in memory.outputs.iter().enumerate() {
        for (element, value) in values.iter().enumerate() {
            assert!(value.is_nan(), "{what}: output {output} [{element}] is {value}");
        }
    }
}

fn check_nan(layer: &Layer, kernel: &dyn Kernel, rows: usize, random: &mut Random, what: &str) {
    let start: Vec<Memory> = (0..rows).map(|_| kernel.memory(random)).collect();
    let mut clean = start.clone();
    run_whole(kernel, &mut clean);
    for input in 0..start[0].inputs.len() {
        let mut actual = start.clone();
        let poisoned = random.below(rows);
        poison(layer, &mut actual[poisoned], input);
        // The outputs before are NaN, and would hide that nothing was written.
        if !matches!(layer, Layer::ArgMax(_)) {
            for value in actual[poisoned].outputs.iter_mut().flatten() {
                *value = if value.is_nan() { 0.0 } else { *value };
            }
        }
        run_whole(kernel, &mut actual);
        for (row, (actual, clean)) in actual.iter().zip(&clean).enumerate() {
            let what = format!("{what} row {row} of {rows}, NaN in input {input} of {poisoned}");
            if row == poisoned {
                assert_all_nan(layer, actual, &what);
            } else {
                assert_eq!(actual.output_bits(), clean.output_bits(), "{what}");
            }
        }
    }
}

#[test]
fn a_nan_stays_in_its_row() {
    let mut random = Random(1);
    for units in [3, 21] {
        for layer in Layer::random_all(&mut random, 3, units) {
            if matches!(layer, Layer::ProjectedStep(_)) {
                continue; // A sum belongs to one unit.
            }
            for unit in VectorUnit::all_for_tests() {
                let kernel = layer.pack(unit);
                let what = format!("{unit:?} {}", layer.name());
                for rows in [1, 3, 11] {
                    check_nan(&layer, &*kernel, rows, &mut random, &what);
                }
            }
        }
    }
}

/// h and c, where there is one, after a step of one unit from h 0.5 and c 0.25, for each x, which
/// is what all gates sum to.
fn step(kind: Kind, unit: VectorUnit, x: &[f32]) -> Vec<(f32, f32)> {
    let cell = Cell::uniform(kind, 1, 1.0, 0.0).pack(unit);
    let mut h_out = vec![f32::NAN; x.len()];
    let mut c = vec![0.25; x.len() * cell.c_len()];
    step_dense(&*cell, x.len(), x, &vec![0.5; x.len()], &mut h_out, &mut c).expect("lengths agree");
    c.resize(x.len(), f32::NAN);
    h_out.into_iter().zip(c).collect()
}

fn assert_near(actual: f32, expected: f64, what: &str) {
    assert!((f64::from(actual) - expected).abs() < 1e-6, "{what}: {actual} is not {expected}");
}

#[test]
fn infinities_saturate_cells() {
    for unit in VectorUnit::all_for_tests() {
        for kind in Kind::ALL {
            let what = format!("{unit:?} {kind:?}");
            let after = step(kind, unit, &[INFINITY, f32::NAN, -INFINITY, 0.0, f32::MAX]);
            let h: Vec<f32> = after.iter().map(|&(h, _)| h).collect();
            assert!(h[1].is_nan(), "{what}: NaN");
            match kind {
                Kind::Lstm | Kind::PeepholeLstm => {
                    assert_eq!(after[0].1, 1.25, "{what}: c of +inf");
                    assert_near(after[0].0, 1.25_f64.tanh(), &format!("{what}: h of +inf"));
                    assert!(after[1].1.is_nan(), "{what}: c of NaN");
                    assert_eq!(after[2], (0.0, 0.0), "{what}: of -inf");
                    assert_eq!(after[3].1, 0.125, "{what}: c of 0");
                    assert_eq!(after[4], after[0], "{what}: of the greatest float");
                }
                // z open: the state stays; z shut: the candidate, -1.
                Kind::GruResetBefore | Kind::GruResetAfter => {
                    assert_eq!([h[0], h[2], h[3], h[4]], [0.5, -1.0, 0.25, 0.5], "{what}");
                }
                Kind::RnnTanh => {
                    assert_eq!([h[0], h[2], h[3], h[4]], [1.0, -1.0, 0.0, 1.0], "{what}");
                }
                Kind::RnnRelu => {
                    assert_eq!([h[0], h[2], h[3], h[4]], [INFINITY, 0.0, 0.0, f32::MAX], "{what}");
                }
            }
        }
    }
}

/// A cell state that is infinite already: forgotten by half it stays, and h is o alone.
#[test]
fn an_infinite_cell_state_is_one() {
    for unit in VectorUnit::all_for_tests() {
        for (c_in, h) in [(INFINITY, 0.5), (-INFINITY, -0.5)] {
            let cell = Cell::uniform(Kind::Lstm, 1, 0.0, 0.0).pack(unit);
            let (mut h_out, mut c) = ([f32::NAN], [c_in]);
            step_dense(&*cell, 1, &[0.0], &[0.0], &mut h_out, &mut c).expect("lengths agree");
            assert_eq!((h_out[0], c[0]), (h, c_in), "{unit:?}");
        }
    }
}

/// The outputs of one row of inputs.
fn outputs(layer: &Layer, unit: VectorUnit, inputs: &[f32]) -> Vec<f32> {
    let kernel = layer.pack(unit);
    let mut memories = [kernel.memory(&mut Random(1))];
    memories[0].inputs = inputs.iter().map(|&input| Box::from([input])).collect();
    run_whole(&*kernel, &mut memories);
    memories[0].outputs.iter().map(|output| output[0]).collect()
}

#[test]
fn infinities_saturate_trees() {
    let leaf = Leaf { input_size: 1, hidden_size: 1, w: vec![1.0; 3], b: None };
    let inner = Inner { hidden_size: 1, l: vec![1.0; 5], r: vec![0.0; 5], b: None };
    let (leaf, inner) = (Layer::Leaf(leaf), Layer::Inner(inner));
    for unit in VectorUnit::all_for_tests() {
        let what = format!("{unit:?}");
        let after = outputs(&leaf, unit, &[INFINITY]);
        assert_eq!(after[1], 1.0, "{what}: c of a leaf");
        assert_near(after[0], 1.0_f64.tanh(), &what);
        assert_eq!(outputs(&leaf, unit, &[-INFINITY]), [0.0, 0.0], "{what}: leaf");

        let after = outputs(&inner, unit, &[INFINITY, 0.25, 0.5, 0.5]);
        assert_eq!(after[1], 1.75, "{what}: c of an inner node");
        assert_near(after[0], 1.75_f64.tanh(), &what);
        let after = outputs(&inner, unit, &[-INFINITY, 0.25, 0.5, 0.5]);
        assert_eq!(after, [0.0, 0.0], "{what}: inner");
    }
}

#[test]
fn infinities_pass_a_linear_layer() {
    let linear =
        Layer::Linear(Linear { input_size: 1, output_size: 1, w: vec![2.0], b: Some(vec![1.0]) });
    for unit in VectorUnit::all_for_tests() {
        assert_eq!(outputs(&linear, unit, &[INFINITY]), [INFINITY], "{unit:?}");
        assert_eq!(outputs(&linear, unit, &[-INFINITY]), [-INFINITY], "{unit:?}");
        assert_eq!(outputs(&linear, unit, &[f32::MAX]), [INFINITY], "{unit:?}");
        assert!(outputs(&linear, unit, &[f32::NAN])[0].is_nan(), "{unit:?}");
    }
}
