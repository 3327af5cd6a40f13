//! Threads may divide one step by panels.

use super::kernels::{Kernel, Layer, Memory, Row, run_whole};
use super::random::Random;
use crate::packing::target::Target;

/// Runs every panel of a phase in a thread of its own.
fn run_in_threads(kernel: &dyn Kernel, memories: &mut [Memory]) {
    let rows: &[Row] = &memories.iter_mut().map(Memory::row).collect::<Vec<_>>();
    for phase in 0..kernel.phases() {
        std::thread::scope(|scope| {
            for panel in 0..kernel.panels(phase) {
                // SAFETY: each row has memory of its own, and each thread other units of it; the
                // threads of a phase are joined before the next.
                scope.spawn(move || unsafe { kernel.run(phase, rows, panel..panel + 1) });
            }
        });
    }
}

#[test]
fn threads_may_divide_work_by_panels() {
    let mut random = Random(1);
    let (input, units, rows) = if cfg!(miri) { (2, 9, 2) } else { (6, 75, 5) };
    for layer in Layer::random_all(&mut random, input, units) {
        if matches!(layer, Layer::ArgMax(_)) {
            continue; // Threads have places of their own: see `argmax.rs`.
        }
        for target in Target::all_for_tests() {
            let kernel = layer.pack(target);
            let mut expected: Vec<Memory> = (0..rows).map(|_| kernel.memory(&mut random)).collect();
            let mut actual = expected.clone();
            run_whole(&*kernel, &mut expected);
            run_in_threads(&*kernel, &mut actual);
            for (row, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
                let what = format!("{target:?} {} row {row}", layer.name());
                assert_eq!(actual.output_bits(), expected.output_bits(), "{what}");
            }
        }
    }
}
