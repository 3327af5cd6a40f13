//! All vector units give the same bits.

use super::kernels::{Kernel, Layer, Memory, run_whole};
use super::random::Random;
use crate::simd::vector_unit::VectorUnit;

fn output_bits(kernel: &dyn Kernel, seed: u64, rows: usize) -> Vec<Vec<Vec<u32>>> {
    let mut random = Random(seed);
    let mut memories: Vec<Memory> = (0..rows).map(|_| kernel.memory(&mut random)).collect();
    run_whole(kernel, &mut memories);
    memories.iter().map(Memory::output_bits).collect()
}

#[test]
fn every_vector_unit_gives_the_same_bits() {
    let mut random = Random(1);
    // Around every lane count, a chunk of rows, then weights larger than a second-level cache.
    let mut shapes = vec![(0, 1, 1), (3, 7, 2), (2, 9, 5), (8, 16, 4), (5, 33, 9)];
    if !cfg!(miri) {
        shapes.extend([(30, 64, 1), (20, 65, 3), (3, 21, 300), (270, 130, 1), (1100, 66, 18)]);
        for _ in 0..10 {
            shapes.push((random.below(60), 1 + random.below(140), 1 + random.below(20)));
        }
    }
    for (input, units, rows) in shapes {
        for layer in Layer::random_all(&mut random, input, units) {
            if matches!(layer, Layer::Projection(_) | Layer::ProjectedStep(_)) {
                continue; // Projected rows have the panels of the vector unit.
            }
            let vector_units = VectorUnit::all_for_tests();
            let expected = output_bits(&*layer.pack(vector_units[0]), 2, rows);
            for &unit in &vector_units[1..] {
                let actual = output_bits(&*layer.pack(unit), 2, rows);
                assert!(actual == expected, "{unit:?} {} {rows} rows", layer.name());
            }
        }
    }
}
