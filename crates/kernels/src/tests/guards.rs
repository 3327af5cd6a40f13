//! Nothing outside the panels' units is written.

use std::ops::Range;

use super::kernels::{Kernel, Layer, Memory, Row};
use super::random::Random;
use crate::packing::target::Target;

const GUARD: f32 = -123.25;
/// More than a panel of one gate.
const GUARDS: usize = 67;

/// An output between guards, which also stand where it has no state.
fn guarded(output: &[f32]) -> Vec<f32> {
    let mut values = vec![GUARD; output.len() + 2 * GUARDS];
    for (to, &value) in values[GUARDS..].iter_mut().zip(output) {
        if !value.is_nan() {
            *to = value;
        }
    }
    values
}

/// Runs `panels` of a phase over outputs between guards.
fn check(kernel: &dyn Kernel, phase: usize, panels: Range<usize>, memories: &[Memory], what: &str) {
    let before: Vec<Vec<Vec<f32>>> = memories
        .iter()
        .map(|memory| memory.outputs.iter().map(|output| guarded(output)).collect())
        .collect();
    let mut outputs = before.clone();
    let rows: Vec<Row> = memories
        .iter()
        .zip(&mut outputs)
        .map(|(memory, outputs)| Row {
            inputs: memory.inputs.iter().map(|input| input.as_ptr()).collect(),
            outputs: outputs.iter_mut().map(|output| output[GUARDS..].as_mut_ptr()).collect(),
        })
        .collect();
    // SAFETY: each row has memory of its own, of the kernel's sizes. What a second phase reads of
    // a first is there: guards, as good as any numbers.
    unsafe { kernel.run(phase, &rows, panels.clone()) };

    for (row, (memory, outputs)) in memories.iter().zip(&outputs).enumerate() {
        for (at, output) in outputs.iter().enumerate() {
            for (place, &value) in output.iter().enumerate() {
                let written = place.checked_sub(GUARDS).is_some_and(|element| {
                    element < memory.outputs[at].len()
                        && panels.clone().any(|panel| kernel.writes(phase, panel, at, element))
                });
                assert_eq!(
                    value.to_bits() != before[row][at][place].to_bits(),
                    written,
                    "{what} phase {phase} panels {panels:?}: row {row} output {at} element {} \
                     of {}",
                    place as isize - GUARDS as isize,
                    memory.outputs[at].len()
                );
            }
        }
    }
}

#[test]
fn nothing_outside_the_panels_units_is_written() {
    let mut random = Random(1);
    let sizes: &[usize] = match cfg!(miri) {
        true => &[1, 9],
        false => &[1, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 70, 129],
    };
    for &size in sizes {
        for layer in Layer::random_all(&mut random, 3, size) {
            if matches!(layer, Layer::ArgMax(_)) {
                continue; // All panels write the same place.
            }
            for target in Target::all_for_tests() {
                let kernel = layer.pack(target);
                // One row takes two panels at once.
                for rows in [1, 2, 9] {
                    let memories: Vec<Memory> =
                        (0..rows).map(|_| kernel.memory(&mut random)).collect();
                    for phase in 0..kernel.phases() {
                        let count = kernel.panels(phase);
                        // All starts are too many for the units of one lane.
                        for start in (0..count).step_by(1 + count / 8) {
                            for end in [start + 1, start + 2, count] {
                                if end <= count {
                                    let what = format!("{target:?} {}", layer.name());
                                    check(&*kernel, phase, start..end, &memories, &what);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The panels together write everything.
#[test]
fn every_element_belongs_to_one_panel() {
    let mut random = Random(2);
    for layer in Layer::random_all(&mut random, 3, 70) {
        if matches!(layer, Layer::ArgMax(_)) {
            continue;
        }
        for target in Target::all_for_tests() {
            let kernel = layer.pack(target);
            let memory = kernel.memory(&mut random);
            for (at, output) in memory.outputs.iter().enumerate() {
                for element in 0..output.len() {
                    let writers = (0..kernel.phases())
                        .flat_map(|phase| (0..kernel.panels(phase)).map(move |p| (phase, p)))
                        .filter(|&(phase, panel)| kernel.writes(phase, panel, at, element))
                        .count();
                    assert_eq!(writers, 1, "{target:?} {} output {at} [{element}]", layer.name());
                }
            }
        }
    }
}
