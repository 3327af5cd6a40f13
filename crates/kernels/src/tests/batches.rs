//! A row's bits are the same alone and in any batch, at any place, with panels and rows split in
//! any way, and with its x, or its children's h, given or projected before.

use std::ptr;

use proptest::prelude::{ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::test_runner::RngSeed;

use super::cells::{Cell, Inner, Kind};
use super::kernels::{Kernel, Layer, Memory, STEP_Y, run_in_pieces, run_whole};
use super::random::{Random, bits};
use crate::packing::target::Target;
use crate::{ProjectionRow, Recurrence, Side, StepRow, TreeChild, TreeInnerRow, XPart};

/// The outputs of the row alone, with all its panels at once.
fn alone(kernel: &dyn Kernel, memory: &Memory) -> Vec<Vec<u32>> {
    let mut memories = [memory.clone()];
    run_whole(kernel, &mut memories);
    memories[0].output_bits()
}

/// Every kernel in pieces against its rows alone.
fn check_kernels(random: &mut Random, input: usize, units: usize, rows: usize) {
    for layer in Layer::random_all(random, input, units) {
        for target in Target::all_for_tests() {
            let kernel = layer.pack(target);
            let mut memories: Vec<Memory> = (0..rows).map(|_| kernel.memory(random)).collect();
            let expected: Vec<_> = memories.iter().map(|row| alone(&*kernel, row)).collect();
            for memory in &mut memories {
                if matches!(layer, Layer::Step(_) | Layer::ProjectedStep(_)) && random.coin() {
                    memory.outputs[STEP_Y] = Box::default();
                }
            }
            run_in_pieces(&*kernel, &mut memories, random);
            for (row, (mut actual, expected)) in
                memories.iter().map(Memory::output_bits).zip(expected).enumerate()
            {
                let what = format!("{target:?} {} {row} of {rows}", layer.name());
                if let Layer::Step(_) | Layer::ProjectedStep(_) = layer {
                    assert_eq!(expected[0], expected[STEP_Y], "{what}: h_out and y");
                    if actual[STEP_Y].is_empty() {
                        actual[STEP_Y].clone_from(&expected[STEP_Y]);
                    }
                }
                assert_eq!(actual, expected, "{what}");
            }
        }
    }
}

/// The memory of a step's row, every array an allocation of its exact size.
struct StepMemory {
    x: Box<[f32]>,
    projected: Option<Box<[f32]>>,
    h_in: Box<[f32]>,
    h_out: Box<[f32]>,
    c: Box<[f32]>,
    y: Option<Box<[f32]>>,
}

impl StepMemory {
    fn row(&mut self) -> StepRow {
        let (x, x_part) = match &self.projected {
            None => (&self.x, XPart::Given),
            Some(projected) => (projected, XPart::Projected),
        };
        StepRow {
            x: x.as_ptr(),
            x_part,
            h_in: self.h_in.as_ptr(),
            h_out: self.h_out.as_mut_ptr(),
            c: self.c.as_mut_ptr(),
            y: self.y.as_mut().map_or(ptr::null_mut(), |y| y.as_mut_ptr()),
        }
    }
}

/// Projects the rows that are to be, in pieces.
fn project(cell: &dyn Recurrence, memories: &mut [StepMemory], random: &mut Random) {
    let mut rows: Vec<ProjectionRow> = memories
        .iter_mut()
        .filter_map(|memory| {
            let projected = memory.projected.as_mut()?.as_mut_ptr();
            Some(ProjectionRow { x: memory.x.as_ptr(), projected })
        })
        .collect();
    random.shuffle(&mut rows);
    for panels in random.pieces(cell.projection_panels()) {
        for part in random.pieces(rows.len()) {
            // SAFETY: each row has memory of its own, of the cell's sizes.
            unsafe { cell.project(&rows[part], panels.clone()) };
        }
    }
}

/// Steps all rows in pieces, those whose x is given and the others mixed.
fn step(cell: &dyn Recurrence, memories: &mut [StepMemory], random: &mut Random) {
    let mut rows: Vec<StepRow> = memories.iter_mut().map(StepMemory::row).collect();
    random.shuffle(&mut rows);
    for phase in 0..cell.phases() {
        let mut calls = Vec::new();
        for panels in random.pieces(cell.panels(phase)) {
            for part in random.pieces(rows.len()) {
                calls.push((&rows[part], panels.clone()));
            }
        }
        random.shuffle(&mut calls);
        for (rows, panels) in calls {
            // SAFETY: each row has memory of its own, of the cell's sizes, and what is to be
            // projected is; all of a phase comes before the next.
            unsafe { cell.step(phase, rows, panels) };
        }
    }
}

/// Steps, some rows of which are projected before, against rows alone whose x is given.
fn check_projections(random: &mut Random, input: usize, hidden: usize, rows: usize) {
    for kind in Kind::ALL {
        let weights = Cell::random(random, kind, input, hidden);
        for target in Target::all_for_tests() {
            let cell = weights.pack(target);
            let alone_kernel = Layer::Step(weights.clone()).pack(target);
            let starts: Vec<Memory> = (0..rows).map(|_| alone_kernel.memory(random)).collect();
            let mut memories: Vec<StepMemory> = starts
                .iter()
                .map(|start| StepMemory {
                    x: start.inputs[0].clone(),
                    projected: random.coin().then(|| vec![f32::NAN; cell.projected_len()].into()),
                    h_in: start.inputs[1].clone(),
                    h_out: start.outputs[0].clone(),
                    c: start.outputs[1].clone(),
                    y: random.coin().then(|| start.outputs[STEP_Y].clone()),
                })
                .collect();
            project(&*cell, &mut memories, random);
            step(&*cell, &mut memories, random);
            for (row, (memory, start)) in memories.iter().zip(&starts).enumerate() {
                let expected = alone(&*alone_kernel, start);
                let x = if memory.projected.is_some() { "projected" } else { "given" };
                let what =
                    format!("{target:?} {kind:?} [{input}, {hidden}] {row} of {rows}, x {x}");
                assert_eq!(bits(&memory.h_out), expected[0], "{what}: h");
                assert_eq!(bits(&memory.c), expected[1], "{what}: c");
                if let Some(y) = &memory.y {
                    assert_eq!(bits(y), expected[0], "{what}: y");
                }
            }
        }
    }
}

/// Inner nodes, some of whose children are projected before, against nodes alone.
fn check_children(random: &mut Random, hidden: usize, rows: usize) {
    let weights = Inner::random(random, hidden);
    for target in Target::all_for_tests() {
        let cell = weights.pack(target);
        let alone_kernel = Layer::Inner(weights.clone()).pack(target);
        let starts: Vec<Memory> = (0..rows).map(|_| alone_kernel.memory(random)).collect();
        // Of each row the left child, then the right one.
        let mut projections: Vec<[Option<Box<[f32]>>; 2]> = starts
            .iter()
            .map(|_| {
                [(); 2].map(|()| random.coin().then(|| vec![f32::NAN; cell.projected_len()].into()))
            })
            .collect();
        for (at, side) in [Side::Left, Side::Right].into_iter().enumerate() {
            let to_project: Vec<ProjectionRow> = projections
                .iter_mut()
                .zip(&starts)
                .filter_map(|(projections, start)| {
                    let projected = projections[at].as_mut()?.as_mut_ptr();
                    Some(ProjectionRow { x: start.inputs[2 * at].as_ptr(), projected })
                })
                .collect();
            for panels in random.pieces(cell.panels()) {
                // SAFETY: each row has memory of its own, of the cell's sizes.
                unsafe { cell.project(side, &to_project, panels) };
            }
        }
        let mut outputs: Vec<_> = starts.iter().map(|start| start.outputs.clone()).collect();
        let inner_rows: Vec<TreeInnerRow> = outputs
            .iter_mut()
            .zip(starts.iter().zip(&projections))
            .map(|(outputs, (start, projections))| {
                let [l, r] = [0, 1].map(|at| {
                    let given = start.inputs[2 * at].as_ptr();
                    let (h, h_part) = match &projections[at] {
                        None => (given, XPart::Given),
                        Some(projected) => (projected.as_ptr(), XPart::Projected),
                    };
                    TreeChild { h, h_part, c: start.inputs[2 * at + 1].as_ptr() }
                });
                let [h, c] = [0, 1].map(|at| outputs[at].as_mut_ptr());
                TreeInnerRow { l, r, h, c }
            })
            .collect();
        for panels in random.pieces(cell.panels()) {
            for part in random.pieces(rows) {
                // SAFETY: each row has memory of its own, of the kernel's sizes, and projections are complete.
                unsafe { cell.step(&inner_rows[part], panels.clone()) };
            }
        }
        for (row, start) in starts.iter().enumerate() {
            let expected = alone(&*alone_kernel, start);
            let what = format!("{target:?} [{hidden}] {row} of {rows}");
            assert_eq!(bits(&outputs[row][0]), expected[0], "{what}: h");
            assert_eq!(bits(&outputs[row][1]), expected[1], "{what}: c");
        }
    }
}

/// Mostly small; now and then enough for blocks of k.
fn input_sizes() -> impl Strategy<Value = usize> {
    prop_oneof![7 => 0_usize..24, 1 => 120_usize..280]
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 1 } else { 24 },
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_row_does_not_see_its_batch(
        seed in any::<u64>(),
        input in input_sizes(),
        units in 1_usize..(if cfg!(miri) { 20 } else { 140 }),
        rows in 1_usize..(if cfg!(miri) { 6 } else { 24 }),
    ) {
        check_kernels(&mut Random(seed), input, units, rows);
    }

    #[test]
    fn a_row_does_not_see_whether_its_x_is_projected(
        seed in any::<u64>(),
        input in input_sizes(),
        hidden in 1_usize..(if cfg!(miri) { 20 } else { 140 }),
        rows in 1_usize..(if cfg!(miri) { 6 } else { 24 }),
    ) {
        check_projections(&mut Random(seed), input, hidden, rows);
    }

    #[test]
    fn a_node_does_not_see_whether_its_children_are_projected(
        seed in any::<u64>(),
        hidden in 1_usize..(if cfg!(miri) { 20 } else { 140 }),
        rows in 1_usize..(if cfg!(miri) { 6 } else { 24 }),
    ) {
        check_children(&mut Random(seed), hidden, rows);
    }
}

/// More rows than go over a panel together.
#[test]
#[cfg_attr(miri, ignore = "large")]
fn a_row_does_not_see_a_large_batch() {
    check_kernels(&mut Random(1), 5, 19, 300);
    check_projections(&mut Random(2), 5, 19, 300);
    check_children(&mut Random(3), 19, 300);
}
