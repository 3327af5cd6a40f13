//! The kernels, and what their launchers and their tests must agree on: their arguments, the layout of weights, the shapes of launches.
//!
//! The kernels are the `.cu` files of the folder `kernels` beside `src`. They are written for two compilers: NVRTC, for GPUs, and g++, for
//! the emulator. A kernel has one argument, a structure that has the same layout here and there.
//!
//! | file | its kernels |
//! |---|---|
//! | `batch.rs` | what all share: `batch.cuh` |
//! | `tiles.rs` | how products are divided: `products.cuh` |
//! | `recurrent.rs` | steps of recurrent cells: `recurrent_step.cu` |
//! | `tree.rs` | cells of a TreeLSTM: `tree_node.cu` |
//! | `linear.rs` | a linear layer with arg-max: `linear_arg_max.cu` |
//! | `rows.rs` | copies, the end of a step, the signal that work is done: `rows.cu` |

pub mod batch;
pub mod linear;
pub mod recurrent;
pub mod rows;
pub mod tiles;
pub mod tree;

/// The source of a file of kernels or of a header, with its name.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The name of the file.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! sources {
    ($($name:literal),*) => {
        [$(Source { name: $name, text: include_str!(concat!("../../kernels/", $name)) }),*]
    };
}

/// The files of kernels.
pub const SOURCES: [Source; 4] =
    sources!["recurrent_step.cu", "tree_node.cu", "linear_arg_max.cu", "rows.cu"];

/// The headers that they include.
pub const HEADERS: [Source; 3] = sources!["portable.cuh", "batch.cuh", "products.cuh"];

/// The names of all kernels.
pub const NAMES: [&str; 14] = [
    "lstm_step_f32",
    "gru_reset_after_step_f32",
    "gru_gates_f32",
    "gru_state_f32",
    "rnn_tanh_step_f32",
    "rnn_relu_step_f32",
    "tree_leaf_f32",
    "tree_inner_f32",
    linear::PackedLinearArgMax::KERNELS[0],
    linear::PackedLinearArgMax::KERNELS[1],
    rows::COPY_ROWS,
    rows::COPY_OPERAND,
    rows::FINISH_STEP,
    rows::SIGNAL,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_sources() {
        let of_source = |source: &Source| source.text.matches("\nKERNEL(").count();
        // Four kernels of a file are made by one macro.
        let count: usize = SOURCES.iter().map(of_source).sum();
        assert_eq!(count + 4, NAMES.len());
        for name in NAMES {
            let is_there = |source: &Source| source.text.contains(&format!("({name}"));
            assert!(SOURCES.iter().any(is_there), "{name}");
        }
    }
}
