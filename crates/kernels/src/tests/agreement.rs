//! Kernels against the f64 reference.

use super::cells::{Cell, Inner, Kind, Leaf, Linear};
use super::kernels::{Layer, Memory, run_whole};
use super::random::Random;
use super::reference;
use crate::simd::vector_unit::VectorUnit;
use crate::step_dense;

/// `|a - b| <= 1e-5 * max(1, max |b|)`
fn assert_close(actual: &[f32], expected: &[f64], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0_f64, |max, v| max.max(v.abs()));
    for (index, (&a, &b)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(a) - b).abs();
        assert!(error <= 1e-5 * largest, "{what}[{index}]: {a} is not {b} (off by {error:e})");
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// `(input, units, rows)` at and around every lane count, tile height, chunk of rows and block of
/// k, the cheapest first.
fn shapes() -> Vec<(usize, usize, usize)> {
    let mut shapes = vec![
        (1, 1, 1),
        (0, 3, 2),
        (2, 7, 3),
        (3, 8, 4),
        (5, 9, 5),
        (8, 15, 6),
        (1, 16, 7),
        (7, 17, 8),
        (33, 31, 2),
        (4, 32, 13),
        (5, 33, 9),
        (12, 63, 10),
        (16, 64, 1),
        (10, 65, 3),
        (0, 65, 11),
        (9, 70, 20),
        (20, 130, 2),
        // More rows than go over a panel together.
        (3, 10, 300),
        // Blocks of k: with vectors of 8 and 16 lanes, of x and of h; then of 1 lane.
        (300, 17, 9),
        (140, 130, 11),
        (1100, 5, 12),
    ];
    if cfg!(miri) {
        shapes.truncate(6);
    }
    shapes
}

#[test]
fn cells_agree_with_the_reference_over_several_steps() {
    const STEPS: usize = 3;
    let mut random = Random(1);
    for (input, hidden, batch) in shapes() {
        for kind in Kind::ALL {
            let cell = Cell::random(&mut random, kind, input, hidden);
            let c_len = if kind.has_c() { hidden } else { 0 };
            let start_h = random.vec(batch * hidden, 1.0);
            let start_c = random.vec(batch * c_len, 2.0);
            let xs: Vec<_> = (0..STEPS).map(|_| random.vec(batch * input, 1.0)).collect();

            let expected: Vec<[Vec<f64>; 2]> = (0..batch)
                .map(|row| {
                    let mut h = wide(&start_h[row * hidden..][..hidden]);
                    let mut c = wide(&start_c[row * c_len..][..c_len]);
                    for x in &xs {
                        reference::step(&cell, &wide(&x[row * input..][..input]), &mut h, &mut c);
                    }
                    [h, c]
                })
                .collect();
            for unit in VectorUnit::all_for_tests() {
                let packed = cell.pack(unit);
                let (mut h, mut c) = (start_h.clone(), start_c.clone());
                // Room, where `c` is no state, of no meaning.
                c.resize(batch * packed.c_len(), f32::NAN);
                for x in &xs {
                    let mut h_out = vec![f32::NAN; h.len()];
                    step_dense(&*packed, batch, x, &h, &mut h_out, &mut c).expect("lengths agree");
                    h = h_out;
                }
                for (row, [expected_h, expected_c]) in expected.iter().enumerate() {
                    let what = format!("{unit:?} {kind:?} [{input}, {hidden}] {row} of {batch}");
                    assert_close(&h[row * hidden..][..hidden], expected_h, &format!("{what} h"));
                    assert_close(&c[row * c_len..][..c_len], expected_c, &format!("{what} c"));
                }
            }
        }
    }
}

/// Rows with memory, run on every vector unit; then `check` of each.
fn run_on_every_unit(
    layer: &Layer,
    seed: u64,
    rows: usize,
    mut check: impl FnMut(&str, usize, &Memory),
) {
    for unit in VectorUnit::all_for_tests() {
        let kernel = layer.pack(unit);
        let mut random = Random(seed);
        let mut memories: Vec<Memory> = (0..rows).map(|_| kernel.memory(&mut random)).collect();
        run_whole(&*kernel, &mut memories);
        for (row, memory) in memories.iter().enumerate() {
            check(&format!("{unit:?} {} {row} of {rows}", layer.name()), row, memory);
        }
    }
}

/// Results of the reference by row, computed when first asked for.
fn remember<T: Clone>(
    rows: usize,
    compute: impl Fn(&Memory) -> T,
) -> impl FnMut(usize, &Memory) -> T {
    let mut known: Vec<Option<T>> = vec![None; rows];
    move |row, memory| known[row].get_or_insert_with(|| compute(memory)).clone()
}

#[test]
fn trees_agree_with_the_reference() {
    let mut random = Random(2);
    for (input, hidden, rows) in shapes() {
        let leaf = Leaf::random(&mut random, input, hidden);
        let mut expected = remember(rows, |row| reference::leaf(&leaf, &wide(&row.inputs[0])));
        run_on_every_unit(&Layer::Leaf(leaf.clone()), 3, rows, |what, row, memory| {
            let [h, c] = expected(row, memory);
            assert_close(&memory.outputs[0], &h, &format!("{what} h"));
            assert_close(&memory.outputs[1], &c, &format!("{what} c"));
        });

        let inner = Inner::random(&mut random, hidden);
        let mut expected = remember(rows, |row| {
            let inputs: Vec<Vec<f64>> = row.inputs.iter().map(|input| wide(input)).collect();
            reference::inner(&inner, [0, 1, 2, 3].map(|at| &inputs[at][..]))
        });
        run_on_every_unit(&Layer::Inner(inner.clone()), 4, rows, |what, row, memory| {
            let [h, c] = expected(row, memory);
            assert_close(&memory.outputs[0], &h, &format!("{what} h"));
            assert_close(&memory.outputs[1], &c, &format!("{what} c"));
        });
    }
}

/// A node whose left child is a node whose left child is a leaf.
#[test]
fn trees_agree_with_the_reference_over_several_levels() {
    const LEVELS: usize = 3;
    let mut random = Random(5);
    for (input, hidden, _) in shapes().into_iter().step_by(3) {
        let leaf = Leaf::random(&mut random, input, hidden);
        let inner = Inner::random(&mut random, hidden);
        for unit in VectorUnit::all_for_tests() {
            let what = format!("{unit:?} [{input}, {hidden}]");
            let kernel = Layer::Leaf(leaf.clone()).pack(unit);
            let mut leaves = [kernel.memory(&mut random), kernel.memory(&mut random)];
            run_whole(&*kernel, &mut leaves);
            let [[h, c], [h_r, c_r]] =
                leaves.each_ref().map(|row| reference::leaf(&leaf, &wide(&row.inputs[0])));
            let (mut left, mut expected) = (leaves[0].outputs.clone(), [h, c]);

            let kernel = Layer::Inner(inner.clone()).pack(unit);
            for level in 0..LEVELS {
                let mut node = [kernel.memory(&mut random)];
                node[0].inputs = [&left[..], &leaves[1].outputs[..]].concat();
                run_whole(&*kernel, &mut node);
                let [h, c] = &expected;
                expected = reference::inner(&inner, [h, c, &h_r, &c_r]);
                left = node[0].outputs.clone();
                assert_close(&left[0], &expected[0], &format!("{what} h of level {level}"));
                assert_close(&left[1], &expected[1], &format!("{what} c of level {level}"));
            }
        }
    }
}

#[test]
fn linear_agrees_with_the_reference() {
    let mut random = Random(6);
    for (input, outputs, rows) in shapes() {
        let linear = Linear::random(&mut random, input, outputs);
        let mut expected = remember(rows, |row| reference::linear(&linear, &wide(&row.inputs[0])));
        run_on_every_unit(&Layer::Linear(linear.clone()), 7, rows, |what, row, memory| {
            assert_close(&memory.outputs[0], &expected(row, memory), what);
        });
    }
}
