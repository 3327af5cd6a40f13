//! Inputs that hold any numbers, to run a program with.

use batchmaker_graph::{ElementType, TensorData};

use crate::port::Port;
use crate::probe::{steps_of, trial_input};
use crate::tensors::Shaped;

/// Inputs for `count` rows or sequences of `steps` steps: numbers from -1 to 1, ids of 0, lengths where a port holds one.
pub(crate) fn made_up(ports: &[Port], count: usize, steps: usize) -> Vec<Shaped> {
    let input = |port: &Port| {
        let length = steps_of(port, steps);
        let shape = port.shape(count, length);
        let data = match port.is_count() {
            true => trial_input(port, &shape, length),
            false => numbers(port, shape.iter().product()),
        };
        (shape, data)
    };
    ports.iter().map(input).collect()
}

/// `count` elements that a program can be tried with: numbers from -1 to 1, ids of 0.
pub(crate) fn numbers(port: &Port, count: usize) -> TensorData {
    match port.row.element {
        ElementType::F32 => {
            let mut state = 1u32;
            let number = |_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 8) as f32 / (1 << 23) as f32 - 1.0
            };
            TensorData::F32((0..count).map(number).collect())
        }
        element => TensorData::zeros(element, count),
    }
}
