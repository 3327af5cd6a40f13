//! The first index of the greatest output.

use std::ops::Range;
use std::slice;

use super::cells::Linear;
use super::kernels::{Layer, run_whole};
use super::random::Random;
use crate::simd::vector_unit::VectorUnit;
use crate::{ArgMax, ArgMaxRow, PackedLinear};

const INFINITY: f32 = f32::INFINITY;

/// The outputs one by one.
fn brute_force(outputs: &[f32]) -> ArgMax {
    let mut best = ArgMax::NONE;
    for (index, &value) in outputs.iter().enumerate() {
        if value > best.value {
            best = ArgMax { value, index: index as u32 };
        }
    }
    best
}

/// Bits, to tell zeros apart.
fn assert_same(actual: ArgMax, expected: ArgMax, what: &str) {
    assert_eq!(actual.index, expected.index, "{what}: {actual:?} is not {expected:?}");
    assert_eq!(actual.value.to_bits(), expected.value.to_bits(), "{what}: {actual:?}");
}

/// A layer with these outputs whatever its input, which has no elements.
fn constant(outputs: &[f32]) -> Linear {
    let b = Some(outputs.to_vec());
    Linear { input_size: 0, output_size: outputs.len(), w: vec![], b }
}

/// Over the given panels, joined in the order of `pieces`, each in a place of its own.
fn joined(linear: &PackedLinear, x: &[f32], pieces: &[Range<usize>]) -> ArgMax {
    pieces.iter().fold(ArgMax::NONE, |joined, panels| {
        let mut best = ArgMax::NONE;
        let row = ArgMaxRow { x: x.as_ptr(), best: &raw mut best };
        // SAFETY: the row is of the layer's size, `best` is this one's alone.
        unsafe { linear.argmax(&[row], panels.clone()) };
        joined.or(best)
    })
}

fn whole(linear: &PackedLinear, x: &[f32]) -> ArgMax {
    joined(linear, x, slice::from_ref(&(0..linear.panels())))
}

fn check_outputs(outputs: &[f32], random: &mut Random, what: &str) {
    let expected = brute_force(outputs);
    for unit in VectorUnit::all_for_tests() {
        let linear = constant(outputs).pack(unit);
        let what = format!("{unit:?} {what} of {}", outputs.len());
        assert_same(whole(&linear, &[]), expected, &what);
        let pieces = random.pieces(linear.panels());
        assert_same(joined(&linear, &[], &pieces), expected, &format!("{what} in {pieces:?}"));
    }
}

/// Numbers of outputs below, at and above a panel of every lane count.
fn counts() -> &'static [usize] {
    match cfg!(miri) {
        true => &[1, 9, 33],
        false => &[1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 129, 300],
    }
}

#[test]
fn ties_give_the_first_index() {
    let mut random = Random(1);
    for &count in counts() {
        check_outputs(&vec![-7.0; count], &mut random, "all equal");
        check_outputs(&vec![0.0; count], &mut random, "zeros");
        check_outputs(&vec![INFINITY; count], &mut random, "infinities");
        for _ in 0..8 {
            let few: Vec<f32> = (0..count).map(|_| random.below(4) as f32 - 5.0).collect();
            check_outputs(&few, &mut random, "few values");
            // Equal, with different bits.
            let zeros: Vec<f32> =
                (0..count).map(|_| if random.coin() { 0.0 } else { -0.0 }).collect();
            check_outputs(&zeros, &mut random, "zeros of both signs");
        }
    }
}

/// Lanes past the last output have no bias of 0 that would be the greatest.
#[test]
fn padding_never_wins() {
    let mut random = Random(2);
    for &count in counts() {
        let outputs: Vec<f32> = (0..count).map(|_| -1.0 - random.f32(0.5).abs()).collect();
        check_outputs(&outputs, &mut random, "negative outputs");
        check_outputs(&vec![f32::MIN; count], &mut random, "least outputs");
    }
}

#[test]
fn a_nan_is_never_the_greatest() {
    let mut random = Random(3);
    for &count in counts() {
        for nan in [f32::NAN, -f32::NAN] {
            check_outputs(&vec![nan; count], &mut random, "only NaN");
            for _ in 0..8 {
                let mut outputs = random.vec(count, 1.0);
                for output in &mut outputs {
                    if random.coin() {
                        *output = [nan, -INFINITY][random.below(2)];
                    }
                }
                check_outputs(&outputs, &mut random, "with NaN");
            }
        }
    }
}

#[test]
fn of_nothing_but_nan_or_negative_infinity_it_is_the_first() {
    let mut random = Random(4);
    for &count in counts() {
        let outputs = vec![-INFINITY; count];
        assert_eq!(brute_force(&outputs), ArgMax { value: -INFINITY, index: 0 });
        check_outputs(&outputs, &mut random, "only negative infinity");
    }
}

/// An input that is not finite turns the padding's sums into NaN, no more.
#[test]
fn padding_never_wins_for_infinite_inputs() {
    for unit in VectorUnit::all_for_tests() {
        let linear = Linear { input_size: 1, output_size: 3, w: vec![-1.0; 3], b: None }.pack(unit);
        let best = whole(&linear, &[f32::MAX]);
        assert_same(best, ArgMax { value: f32::MIN, index: 0 }, &format!("{unit:?}"));
        let best = whole(&linear, &[INFINITY]);
        assert_same(best, ArgMax::NONE, &format!("{unit:?}"));
        let best = whole(&linear, &[-INFINITY]);
        assert_same(best, ArgMax { value: INFINITY, index: 0 }, &format!("{unit:?}"));
    }
}

/// Against the outputs that the layer itself computes.
#[test]
fn is_the_greatest_of_the_outputs() {
    let mut random = Random(5);
    for &count in counts() {
        for (input, rows) in [(1, 1), (7, 3), (20, 11), (5, 140)] {
            if cfg!(miri) && rows > 3 {
                continue;
            }
            let linear = Linear::random(&mut random, input, count);
            for unit in VectorUnit::all_for_tests() {
                let kernel = Layer::Linear(linear.clone()).pack(unit);
                let mut memories: Vec<_> = (0..rows).map(|_| kernel.memory(&mut random)).collect();
                run_whole(&*kernel, &mut memories);

                let packed = linear.pack(unit);
                let mut bests = vec![ArgMax::NONE; rows];
                let arg_max_rows: Vec<ArgMaxRow> = memories
                    .iter()
                    .zip(&mut bests)
                    .map(|(memory, best)| ArgMaxRow { x: memory.inputs[0].as_ptr(), best })
                    .collect();
                // One panel after the other, into the same place.
                for panel in 0..packed.panels() {
                    // SAFETY: rows of the layer's size, each with a place of its own.
                    unsafe { packed.argmax(&arg_max_rows, panel..panel + 1) };
                }
                for (row, (memory, &best)) in memories.iter().zip(&bests).enumerate() {
                    let what = format!("{unit:?} [{input}, {count}] {row} of {rows}");
                    assert_same(best, brute_force(&memory.outputs[0]), &what);
                }
            }
        }
    }
}

/// Whatever the order in which places are joined, and however often one is.
#[test]
fn joining_has_an_order_of_its_own() {
    let mut all = vec![ArgMax::NONE];
    for value in [-INFINITY, -1.0, 2.0, INFINITY] {
        all.extend([0, 1, u32::MAX].map(|index| ArgMax { value, index }));
    }
    for &a in &all {
        assert_eq!(a.or(a), a);
        for &b in &all {
            assert_eq!(a.or(b), b.or(a), "{a:?} {b:?}");
            let best = a.or(b);
            assert!(best == a || best == b, "{a:?} {b:?}");
            assert!(best.value >= a.value && best.value >= b.value, "{a:?} {b:?}");
            if a.value == b.value {
                assert_eq!(best.index, a.index.min(b.index), "{a:?} {b:?}");
            }
            for &c in &all {
                assert_eq!(a.or(b).or(c), a.or(b.or(c)), "{a:?} {b:?} {c:?}");
            }
        }
    }
}
