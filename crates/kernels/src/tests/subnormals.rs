//! Nothing subnormal lasts: neither in states, which fade through such numbers, nor in weights.

use super::cells::{Cell, Inner, Kind, Leaf, Linear};
use super::kernels::{Layer, Memory, STEP_C, run_whole};
use super::random::Random;
use crate::simd::vector_unit::VectorUnit;
use crate::step_dense;

fn assert_normal_or_zero(values: &[f32], what: &str) {
    for value in values {
        assert!(!value.is_subnormal(), "{what}: {value:e}");
    }
}

/// Cells that halve their state at each step.
#[test]
fn a_fading_state_ends_at_zero() {
    // More than a whole vector; each unit sees itself alone.
    const SIZE: usize = 19;
    const STEPS: usize = 12;
    for kind in Kind::ALL {
        let mut cell = Cell::uniform(kind, SIZE, 0.0, 0.0);
        if matches!(kind, Kind::RnnTanh | Kind::RnnRelu) {
            for unit in 0..SIZE {
                cell.r[unit * SIZE + unit] = 0.5;
            }
        }
        for unit in VectorUnit::all_for_tests() {
            let packed = cell.pack(unit);
            for start in [1e-37, -1e-37] {
                let mut h = vec![start; SIZE];
                let mut c = vec![start; packed.c_len()];
                for step in 0..STEPS {
                    let mut h_out = vec![f32::NAN; SIZE];
                    step_dense(&*packed, 1, &[0.0; SIZE], &h, &mut h_out, &mut c)
                        .expect("lengths agree");
                    h = h_out;
                    let what = format!("{unit:?} {kind:?} from {start:e}, step {step}");
                    assert_normal_or_zero(&h, &format!("{what}: h"));
                    assert_normal_or_zero(&c, &format!("{what}: c"));
                    if step == 0 && !(kind == Kind::RnnRelu && start < 0.0) {
                        let state = if kind.has_c() { c[0] } else { h[0] };
                        assert_eq!(state, start / 2.0, "{what}: halved");
                    }
                }
                let state = if kind.has_c() { &c } else { &h };
                assert!(state.iter().all(|v| v.to_bits() == 0), "{unit:?} {kind:?}: {state:?}");
                assert!(h.iter().all(|v| v.to_bits() == 0), "{unit:?} {kind:?}: {h:?}");
            }
        }
    }
}

/// `[h, c]` of the first unit of the only row.
fn h_and_c(
    layer: &Layer,
    unit: VectorUnit,
    prepare: impl FnOnce(&mut Memory),
    c: usize,
) -> [f32; 2] {
    let kernel = layer.pack(unit);
    let mut memories = [kernel.memory(&mut Random(1))];
    prepare(&mut memories[0]);
    run_whole(&*kernel, &mut memories);
    [memories[0].outputs[0][0], memories[0].outputs[c][0]]
}

/// A normal `c` whose half, for a gate at 0.5, is subnormal; and a `c` which is itself.
#[test]
fn h_and_c_are_each_without_subnormals() {
    const C: f32 = 1.5e-38;
    assert!((C / 2.0).is_subnormal() && !C.is_subnormal());
    for unit in VectorUnit::all_for_tests() {
        for (c, expected) in [(C, [0.0, C]), (C / 2.0, [0.0, 0.0])] {
            let what = format!("{unit:?} {c:e}");
            let lstm = Layer::Step(Cell::uniform(Kind::Lstm, 1, 0.0, 0.0));
            let actual = h_and_c(&lstm, unit, |row| row.outputs[STEP_C][0] = 2.0 * c, STEP_C);
            assert_eq!(actual, expected, "LSTM {what}");

            let b = Some(vec![0.0, 0.0, 2.0 * c]);
            let leaf = Layer::Leaf(Leaf { input_size: 0, hidden_size: 1, w: vec![], b });
            assert_eq!(h_and_c(&leaf, unit, |_| (), 1), expected, "leaf {what}");

            let (l, r) = (vec![0.0; 5], vec![0.0; 5]);
            let inner = Layer::Inner(Inner { hidden_size: 1, l, r, b: None });
            let children = |row: &mut Memory| (row.inputs[1][0], row.inputs[3][0]) = (c, c);
            let actual = h_and_c(&inner, unit, children, 1);
            assert_eq!(actual, expected, "inner {what}");
        }
    }
}

/// The layer with every weight of its matrices replaced.
fn with_weights(layer: &Layer, mut weight: impl FnMut() -> f32) -> Layer {
    let mut layer = layer.clone();
    let matrices: Vec<&mut Vec<f32>> = match &mut layer {
        Layer::Step(cell) | Layer::ProjectedStep(cell) | Layer::Projection(cell) => {
            vec![&mut cell.w, &mut cell.r]
        }
        Layer::Leaf(leaf) => vec![&mut leaf.w],
        Layer::Inner(inner) => vec![&mut inner.l, &mut inner.r],
        Layer::Linear(linear) | Layer::ArgMax(linear) => vec![&mut linear.w],
    };
    matrices.into_iter().flatten().for_each(|to| *to = weight());
    layer
}

/// Inputs are so great that the products would show.
#[test]
fn subnormal_weights_count_as_zero() {
    const SCALE: f32 = 1e37;
    let mut random = Random(2);
    for layer in Layer::random_all(&mut random, 5, 21) {
        let subnormal = with_weights(&layer, || {
            let magnitude = f32::from_bits(1 + random.below(0x7f_ffff) as u32);
            assert!(magnitude.is_subnormal());
            if random.coin() { magnitude } else { -magnitude }
        });
        let zero = with_weights(&layer, || 0.0);
        for unit in VectorUnit::all_for_tests() {
            for rows in [1, 9] {
                let results = [&subnormal, &zero].map(|layer| {
                    let kernel = layer.pack(unit);
                    let mut random = Random(3);
                    let mut memories: Vec<Memory> =
                        (0..rows).map(|_| kernel.memory(&mut random)).collect();
                    for input in memories.iter_mut().flat_map(|row| &mut row.inputs) {
                        input.iter_mut().for_each(|value| *value *= SCALE);
                    }
                    run_whole(&*kernel, &mut memories);
                    memories.iter().map(Memory::output_bits).collect::<Vec<_>>()
                });
                assert!(results[0] == results[1], "{unit:?} {} {rows} rows", layer.name());
            }
        }
    }
}

/// The least normal weight is a weight.
#[test]
fn normal_weights_count() {
    let mut random = Random(4);
    let w = vec![f32::MIN_POSITIVE];
    let linear = Layer::Linear(Linear { input_size: 1, output_size: 1, w, b: None });
    for unit in VectorUnit::all_for_tests() {
        let kernel = linear.pack(unit);
        let mut memories = [kernel.memory(&mut random)];
        memories[0].inputs[0][0] = 2.0;
        run_whole(&*kernel, &mut memories);
        assert_eq!(memories[0].outputs[0][0], 2.0 * f32::MIN_POSITIVE, "{unit:?}");
    }
}
