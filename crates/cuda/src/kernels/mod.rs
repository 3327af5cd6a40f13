//! The kernels, and what their launchers and their tests must agree on: their arguments, the layout of weights, the shapes of launches.
//!
//! The kernels are the `.cu` files of the folder `kernels` beside `src`. They are written for two compilers: NVRTC, for GPUs, and g++, for
//! the emulator. A kernel has one argument, a structure that has the same layout here and there.
//!
//! | file | its kernels |
//! |---|---|
//! | `batch.rs` | what all share: `batch.cuh` |
//! | `weights.rs` | how weights are stored: `weights.cuh`, and in bfloat16 multiplied: `mma.cuh` |
//! | `tiles.rs` | how products are divided: `products.cuh` |
//! | `step.rs` | what all steps of recurrent cells share: `recurrent.cuh` |
//! | `persistent.rs` | recurrent cells whose weights stay on the chip: `persistent.cuh` |
//! | `quantum.rs` | the same while the batch changes: `quantum.cuh` |
//! | `projection.rs` | products of x for several steps at once: `project_inputs.cu` |
//! | `recurrent.rs` | steps of recurrent cells: `recurrent_step.cu` |
//! | `lstm_of_bytes.rs` | steps of LSTMs of bytes: `lstm_of_bytes.cu` |
//! | `tree.rs` | cells of a TreeLSTM: `tree_node.cu` |
//! | `linear.rs` | a linear layer with arg-max: `linear_arg_max.cu` |
//! | `benchmarks.rs` | micro-benchmarks for the cost model: `benchmarks.cuh` |
//! | `rows.rs` | copies, the end of a step, the signal that work is done: `rows.cu`, `signal.cuh` |

pub mod batch;
pub mod benchmarks;
pub mod linear;
mod lstm_of_bytes;
pub mod persistent;
pub mod projection;
pub mod quantum;
pub mod recurrent;
pub mod rows;
mod step;
pub mod tiles;
pub mod tree;
pub mod weights;

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
pub const SOURCES: [Source; 6] = sources![
    "project_inputs.cu",
    "recurrent_step.cu",
    "lstm_of_bytes.cu",
    "tree_node.cu",
    "linear_arg_max.cu",
    "rows.cu"
];

/// The headers that they include.
pub const HEADERS: [Source; 12] = sources![
    "portable.cuh",
    "copies.cuh",
    "signal.cuh",
    "batch.cuh",
    "weights.cuh",
    "mma.cuh",
    "products.cuh",
    "recurrent.cuh",
    "fragments.cuh",
    "persistent.cuh",
    "quantum.cuh",
    "benchmarks.cuh"
];

/// The names of all kernels.
pub const NAMES: [&str; 29] = [
    "project_inputs_f32",
    "project_inputs_bf16",
    "lstm_step_f32",
    "lstm_step_bf16",
    "gru_reset_after_step_f32",
    "gru_reset_after_step_bf16",
    "gru_gates_f32",
    "gru_gates_bf16",
    "gru_state_f32",
    "gru_state_bf16",
    "rnn_tanh_step_f32",
    "rnn_tanh_step_bf16",
    "rnn_relu_step_f32",
    "rnn_relu_step_bf16",
    "lstm_whole_numbers",
    "lstm_of_bytes_step_f32",
    "lstm_of_bytes_step_bf16",
    "lstm_of_bytes_step_whole",
    "tree_leaf_f32",
    "tree_leaf_bf16",
    "tree_inner_f32",
    "tree_inner_bf16",
    "linear_arg_max_f32",
    "linear_arg_max_bf16",
    "arg_max_of_parts",
    rows::COPY_ROWS,
    rows::COPY_OPERAND,
    rows::FINISH_STEP,
    rows::SIGNAL,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel that a line makes: a macro's name in capitals, whose first argument is the kernel's.
    fn kernel_of(line: &'static str) -> Option<&'static str> {
        let (made_by, arguments) = line.split_once('(')?;
        let is_macro = made_by.chars().all(|letter| letter.is_ascii_uppercase());
        is_macro.then(|| arguments.split([',', ')']).next()).flatten()
    }

    #[test]
    fn names_are_those_of_the_sources() {
        let mut made: Vec<_> =
            SOURCES.iter().flat_map(|source| source.text.lines()).filter_map(kernel_of).collect();
        let mut names = NAMES;
        made.sort_unstable();
        names.sort_unstable();
        assert_eq!(made, names);
    }
}
