//! Sums are accumulated in the documented order: the bias, then x, then h, k ascending, one fused
//! multiply-add each; in a tree the left child from the bias, the right one from 0, then both.

use std::ops::Range;

use super::cells::{Cell, Inner, Kind, Leaf, Linear};
use super::kernels::{Layer, Memory, STEP_C, run_whole};
use super::random::{Random, bits};
use crate::packing::panel_matrix::Columns;
use crate::simd::vector_unit::VectorUnit;
use crate::{Isa, PackedRnn, RnnActivation, RnnParameters, step_dense};

/// `(input, units, rows)`: tails of the unrolled loop, one tile and more, two panels at once, and
/// blocks of k.
fn shapes() -> Vec<(usize, usize, usize)> {
    let mut shapes = vec![
        (0, 3, 1),
        (1, 1, 2),
        (2, 17, 1),
        (3, 8, 4),
        (5, 9, 9),
        (7, 35, 3),
        (9, 70, 1),
        (6, 65, 10),
        (301, 19, 9),
        (30, 131, 10),
        (1101, 3, 10),
    ];
    if cfg!(miri) {
        shapes.truncate(5);
    }
    shapes
}

/// The chain from `start` over a row of a matrix.
fn chain(start: f32, matrix: &[f32], row: usize, input: &[f32]) -> f32 {
    let weights = &matrix[row * input.len()..][..input.len()];
    weights.iter().zip(input).fold(start, |sum, (weight, x)| weight.mul_add(*x, sum))
}

/// Rows of random inputs, run on `unit`.
fn run(layer: &Layer, unit: VectorUnit, rows: usize) -> Vec<Memory> {
    let kernel = layer.pack(unit);
    let mut random = Random(7);
    let mut memories: Vec<Memory> = (0..rows).map(|_| kernel.memory(&mut random)).collect();
    run_whole(&*kernel, &mut memories);
    memories
}

/// The kernels' own tanh: a cell with no other work to do.
fn tanh(sums: &[f32]) -> Vec<f32> {
    let parameters = RnnParameters {
        input_size: 1,
        hidden_size: 1,
        w: &[1.0],
        r: &[0.0],
        b: None,
        activation: RnnActivation::Tanh,
    };
    let cell = PackedRnn::new(Isa::Scalar, parameters).expect("consistent sizes");
    let mut result = vec![f32::NAN; sums.len()];
    step_dense(&cell, sums.len(), sums, &vec![0.0; sums.len()], &mut result, &mut [])
        .expect("lengths agree");
    result
}

#[test]
fn of_linear_outputs() {
    let mut random = Random(1);
    for (input, outputs, rows) in shapes() {
        let linear = Linear::random(&mut random, input, outputs);
        for unit in VectorUnit::all_for_tests() {
            for (row, memory) in run(&Layer::Linear(linear.clone()), unit, rows).iter().enumerate()
            {
                let expected: Vec<f32> = (0..outputs)
                    .map(|output| {
                        let bias = linear.b.as_ref().map_or(0.0, |b| b[output]);
                        chain(bias, &linear.w, output, &memory.inputs[0])
                    })
                    .collect();
                assert_eq!(
                    bits(&memory.outputs[0]),
                    bits(&expected),
                    "{unit:?} [{input}, {outputs}] {row} of {rows}"
                );
            }
        }
    }
}

/// The element of a row of sums where a gate of a unit stands, by the layout that
/// `panel_matrix.rs` documents.
fn place(columns: &Columns, gate: usize, unit: usize) -> usize {
    let group = unit / columns.lanes;
    let (panel, group) = (group / columns.groups, group % columns.groups);
    let vector = group * columns.gates.len() + gate - columns.gates.start;
    (panel * columns.vectors() + vector) * columns.lanes + unit % columns.lanes
}

/// The raw sums are there to be read.
#[test]
fn of_projections() {
    let mut random = Random(2);
    for (input, hidden, rows) in shapes() {
        for kind in Kind::ALL {
            let cell = Cell::random(&mut random, kind, input, hidden);
            let parts: &[(Range<usize>, usize)] = match kind {
                Kind::Lstm | Kind::PeepholeLstm => &[(0..4, 1)],
                Kind::GruResetBefore => &[(0..2, 2), (2..3, 4)],
                Kind::GruResetAfter => &[(0..3, 1)],
                Kind::RnnTanh | Kind::RnnRelu => &[(0..1, 4)],
            };
            for unit in VectorUnit::all_for_tests() {
                let layer = Layer::Projection(cell.clone());
                for (row, memory) in run(&layer, unit, rows).iter().enumerate() {
                    // Lanes past the last unit have no bias and no weights.
                    let mut expected = vec![0.0; memory.outputs[0].len()];
                    let mut first = 0;
                    for (gates, groups) in parts {
                        let columns = Columns::new(unit.into(), hidden, gates.clone(), *groups);
                        for gate in gates.clone() {
                            for unit in 0..hidden {
                                let column = gate * hidden + unit;
                                let of_h_apart = kind == Kind::GruResetAfter && gate == 2;
                                let start = cell.b.as_ref().map_or(0.0, |b| match of_h_apart {
                                    true => b[column],
                                    false => b[column] + b[kind.gates() * hidden + column],
                                });
                                expected[first + place(&columns, gate, unit)] =
                                    chain(start, &cell.w, column, &memory.inputs[0]);
                            }
                        }
                        first += columns.row_len();
                    }
                    assert_eq!(first, expected.len(), "{unit:?} {}", layer.name());
                    assert_eq!(
                        bits(&memory.outputs[0]),
                        bits(&expected),
                        "{unit:?} {} {row} of {rows}",
                        layer.name()
                    );
                }
            }
        }
    }
}

/// Gates whose sums are this or its negative are open (1) or shut (0), exactly.
const WIDE: f32 = 200.0;

/// Sets the gates before the last to constants: no weights, `sums` for a bias. The last, the
/// candidate, gets a bias of its own.
fn fix_gates(
    random: &mut Random,
    hidden: usize,
    sums: &[f32],
    matrices: [&mut Vec<f32>; 2],
    biases: usize,
) -> Vec<f32> {
    let gates = sums.len() + 1;
    for matrix in matrices {
        let fixed = matrix.len() / gates * sums.len();
        matrix[..fixed].fill(0.0);
    }
    let mut b = vec![0.0; biases * gates * hidden];
    for (gate, &sum) in sums.iter().enumerate() {
        b[gate * hidden..][..hidden].fill(sum);
    }
    for bias in 0..biases {
        b[(bias * gates + gates - 1) * hidden..][..hidden].fill_with(|| random.f32(1.0));
    }
    b
}

/// Cells whose candidate's sum can be read off the new state, which is tanh (or relu) of it.
#[test]
fn of_cells() {
    let mut random = Random(3);
    for (input, hidden, rows) in shapes() {
        for kind in Kind::ALL {
            let mut cell = Cell::random(&mut random, kind, input, hidden);
            let gates: &[f32] = match kind {
                Kind::Lstm | Kind::PeepholeLstm => &[WIDE, 0.0, -WIDE],
                Kind::GruResetBefore | Kind::GruResetAfter => &[-WIDE, WIDE],
                Kind::RnnTanh | Kind::RnnRelu => &[],
            };
            let matrices = [&mut cell.w, &mut cell.r];
            let b = fix_gates(&mut random, hidden, gates, matrices, 2);
            cell.b = Some(b.clone());

            let layer = Layer::Step(cell.clone());
            for unit in VectorUnit::all_for_tests() {
                let memories = run(&layer, unit, rows);
                let mut sums = Vec::new();
                for memory in &memories {
                    for unit in 0..hidden {
                        let column = gates.len() * hidden + unit;
                        let (b_x, b_h) = (b[column], b[kind.gates() * hidden + column]);
                        let [x, h] = [&memory.inputs[0], &memory.inputs[1]];
                        sums.push(match kind {
                            // The reset gate multiplies the part of h, here by 1.
                            Kind::GruResetAfter => {
                                chain(b_x, &cell.w, column, x) + chain(b_h, &cell.r, column, h)
                            }
                            _ => chain(chain(b_x + b_h, &cell.w, column, x), &cell.r, column, h),
                        });
                    }
                }
                let expected = match kind {
                    Kind::RnnRelu => sums.iter().map(|sum| sum.max(0.0)).collect(),
                    _ => tanh(&sums),
                };
                let output = if kind.has_c() { STEP_C } else { 0 };
                let actual: Vec<f32> =
                    memories.iter().flat_map(|row| row.outputs[output].to_vec()).collect();
                assert_eq!(bits(&actual), bits(&expected), "{unit:?} {} {rows} rows", layer.name());
            }
        }
    }
}

/// The cell state is tanh of the candidate's sum, as in [`of_cells`].
#[test]
fn of_trees() {
    let mut random = Random(4);
    for (input, hidden, rows) in shapes() {
        let mut leaf = Leaf::random(&mut random, input, hidden);
        let matrices = [&mut leaf.w, &mut Vec::new()];
        let b = fix_gates(&mut random, hidden, &[WIDE, 0.0], matrices, 1);
        leaf.b = Some(b.clone());
        let layer = Layer::Leaf(leaf.clone());
        for unit in VectorUnit::all_for_tests() {
            for (row, memory) in run(&layer, unit, rows).iter().enumerate() {
                let sum = |column| chain(b[column], &leaf.w, column, &memory.inputs[0]);
                let sums: Vec<f32> = (2 * hidden..3 * hidden).map(sum).collect();
                let what = format!("{unit:?} {} {row} of {rows}", layer.name());
                assert_eq!(bits(&memory.outputs[1]), bits(&tanh(&sums)), "{what}");
            }
        }

        let mut inner = Inner::random(&mut random, hidden);
        let matrices = [&mut inner.l, &mut inner.r];
        let b = fix_gates(&mut random, hidden, &[WIDE, 0.0, -WIDE, -WIDE], matrices, 1);
        inner.b = Some(b.clone());
        let layer = Layer::Inner(inner.clone());
        for unit in VectorUnit::all_for_tests() {
            for (row, memory) in run(&layer, unit, rows).iter().enumerate() {
                let [h_l, h_r] = [&memory.inputs[0], &memory.inputs[2]];
                let sum = |column| {
                    chain(b[column], &inner.l, column, h_l) + chain(0.0, &inner.r, column, h_r)
                };
                let sums: Vec<f32> = (4 * hidden..5 * hidden).map(sum).collect();
                let what = format!("{unit:?} {} {row} of {rows}", layer.name());
                assert_eq!(bits(&memory.outputs[1]), bits(&tanh(&sums)), "{what}");
            }
        }
    }
}
