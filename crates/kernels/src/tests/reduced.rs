//! Products in bfloat16 and in bytes: against plain loops, and by all instructions alike.

use super::cells::{Cell, Kind, Linear};
use super::kernels::{Kernel, Layer, Memory, run_whole};
use super::random::Random;
use crate::packing::reduced::{Format, Instructions, Reduced};
use crate::packing::target::Target;
use crate::products::reduced::round::{SpanScale, bf16, scale_of, to_byte};

fn is_by_tiles(target: Target) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let Some(Reduced { instructions: Instructions::Tiles(_), .. }) = target.reduced {
        return true;
    }
    let _ = (target, Instructions::Widened, std::marker::PhantomData::<Reduced>);
    false
}

fn memories(kernel: &dyn Kernel, seed: u64, rows: usize) -> Vec<Memory> {
    let mut random = Random(seed);
    (0..rows).map(|_| kernel.memory(&mut random)).collect()
}

/// The outputs of a linear layer, row by row.
fn outputs(kernel: &dyn Kernel, memories: &[Memory]) -> Vec<Vec<f32>> {
    let mut memories = memories.to_vec();
    run_whole(kernel, &mut memories);
    memories.into_iter().map(|memory| memory.outputs[0].to_vec()).collect()
}

/// Around a word, a vector, a tile of rows and one of k; some over more than a tile's rows, and some,
/// of more than 32 KiB, that tiles go over in blocks of k.
fn shapes() -> Vec<(usize, usize, usize)> {
    let mut shapes = vec![(0, 3, 2), (1, 1, 1), (2, 5, 3), (5, 16, 4), (31, 17, 7), (33, 64, 16)];
    if !cfg!(miri) {
        shapes.extend([(64, 65, 17), (130, 70, 33), (257, 128, 47), (1100, 40, 3), (100, 30, 140)]);
        shapes.extend([(300, 90, 90)]);
    }
    shapes
}

#[test]
fn bf16_sums_are_those_of_rounded_numbers() {
    let round = |value: f32| f64::from(f32::from_bits(bf16(value) << 16));
    let mut random = Random(1);
    for (input, units, rows) in shapes() {
        let linear = Linear::random(&mut random, input, units);
        for target in Target::all_reduced_for_tests(Format::Bf16) {
            let kernel = Layer::Linear(linear.clone()).pack(target);
            let memories = memories(&*kernel, 2, rows);
            for (memory, actual) in memories.iter().zip(outputs(&*kernel, &memories)) {
                for (unit, &actual) in actual.iter().enumerate() {
                    let weights = &linear.w[unit * input..][..input];
                    let products = weights.iter().zip(&memory.inputs[0]);
                    let terms: Vec<f64> = products.map(|(&w, &x)| round(w) * round(x)).collect();
                    let bias = linear.b.as_ref().map_or(0.0, |b| f64::from(b[unit]));
                    let expected = bias + terms.iter().sum::<f64>();
                    let magnitude = 1.0 + terms.iter().map(|term| term.abs()).sum::<f64>();
                    let difference = (f64::from(actual) - expected).abs();
                    assert!(difference < 1e-6 * magnitude, "{target:?} [{input}, {units}] {unit}");
                }
            }
        }
    }
}

#[test]
fn int8_sums_are_exact() {
    let largest = |values: &[f32]| values.iter().fold(0.0_f32, |max, value| max.max(value.abs()));
    let mut random = Random(3);
    for (input, units, rows) in shapes() {
        let linear = Linear::random(&mut random, input, units);
        for target in Target::all_reduced_for_tests(Format::Int8) {
            let kernel = Layer::Linear(linear.clone()).pack(target);
            let memories = memories(&*kernel, 4, rows);
            for (memory, actual) in memories.iter().zip(outputs(&*kernel, &memories)) {
                let x = &memory.inputs[0];
                let of_x = SpanScale::of(x);
                for (unit, &actual) in actual.iter().enumerate() {
                    let weights = &linear.w[unit * input..][..input];
                    let (scale, factor) = scale_of(largest(weights).to_bits());
                    let products = weights.iter().zip(x);
                    let sum: i32 =
                        products.map(|(&w, &x)| to_byte(w, factor) * of_x.whole(x)).sum();
                    let bias = linear.b.as_ref().map_or(0.0, |b| b[unit]);
                    let expected = (sum as f32).mul_add(of_x.scale * scale, bias);
                    assert_eq!(actual, expected, "{target:?} [{input}, {units}] {unit}");
                }
            }
        }
    }
}

/// `expected` by one target, and all others alike.
fn check_same_bits(format: Format, is_alike: impl Fn(Target) -> bool) {
    let mut random = Random(5);
    for (input, units, rows) in shapes() {
        for layer in Layer::random_all(&mut random, input, units) {
            if matches!(layer, Layer::Projection(_) | Layer::ProjectedStep(_)) {
                continue; // Projected rows have the panels of the vector unit.
            }
            let bits = |target: Target| {
                let kernel = layer.pack(target);
                let mut memories = memories(&*kernel, 6, rows);
                run_whole(&*kernel, &mut memories);
                memories.iter().map(Memory::output_bits).collect::<Vec<_>>()
            };
            let targets = Target::all_reduced_for_tests(format);
            let expected = bits(targets[0]);
            for &target in targets[1..].iter().filter(|&&target| is_alike(target)) {
                assert!(bits(target) == expected, "{target:?} {} {rows} rows", layer.name());
            }
        }
    }
}

#[test]
fn int8_gives_the_same_bits_everywhere() {
    check_same_bits(Format::Int8, |_| true);
}

#[test]
fn bf16_gives_the_same_bits_by_vectors() {
    check_same_bits(Format::Bf16, |target| !is_by_tiles(target));
}

/// The distance that outputs of a step may have from those of f32, with weights of ordinary size.
#[test]
fn steps_are_near_those_of_f32() {
    let mut random = Random(7);
    for kind in Kind::ALL {
        let cell = Cell::random(&mut random, kind, 24, 48);
        let layer = Layer::Step(cell);
        let run = |target: Target| {
            let kernel = layer.pack(target);
            outputs(&*kernel, &memories(&*kernel, 8, 5))
        };
        let expected = run(Target::all_f32_for_tests()[0]);
        for (format, tolerance) in [(Format::Bf16, 0.02), (Format::Int8, 0.08)] {
            for target in Target::all_reduced_for_tests(format) {
                let differences = expected.iter().flatten().zip(run(target).into_iter().flatten());
                let worst = differences.map(|(a, b)| (a - b).abs()).fold(0.0_f32, f32::max);
                let scale = expected.iter().flatten().fold(1.0_f32, |max, h| max.max(h.abs()));
                assert!(worst > 0.0, "{target:?} {kind:?}: as exact as f32");
                assert!(worst < tolerance * scale, "{target:?} {kind:?}: {worst} of {scale}");
            }
        }
    }
}

/// A row with a number that is not finite gives NaN where it should, and others do not notice.
#[test]
fn numbers_that_are_not_finite_stay_in_their_row() {
    let linear = Linear::random(&mut Random(9), 40, 20);
    for format in [Format::Bf16, Format::Int8] {
        for target in Target::all_reduced_for_tests(format) {
            let kernel = Layer::Linear(linear.clone()).pack(target);
            let mut memories = memories(&*kernel, 10, 3);
            let expected = outputs(&*kernel, &memories);
            for bad in [f32::NAN, f32::INFINITY] {
                memories[1].inputs[0][7] = bad;
                let actual = outputs(&*kernel, &memories);
                assert_eq!([&actual[0], &actual[2]], [&expected[0], &expected[2]], "{target:?}");
                assert!(actual[1].iter().all(|y| !y.is_finite()), "{target:?} {bad}");
            }
        }
    }
}
