//! Errors of loading and running programs.

use batchmaker_graph::ElementType;

/// A program cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The model's fault: rten does not take the program.
    #[error("{summary}: {reason}")]
    Load {
        /// The program's operators.
        summary: String,
        /// The message of rten, or of the check of the program's ports.
        reason: String,
    },
    /// The device's fault: a tensor is not of its port's type, or not as long as the batch.
    #[error("input {port} holds {count} {element} where {expected_count} {expected} go")]
    Input {
        /// The input port.
        port: usize,
        /// Elements that came.
        count: usize,
        /// Their type.
        element: ElementType,
        /// Elements that the batch has at this port.
        expected_count: usize,
        /// The port's type.
        expected: ElementType,
    },
    /// The device's fault: another number of tensors than the program has input ports.
    #[error("{count} inputs for a program that has {expected}")]
    InputCount {
        /// Tensors that came.
        count: usize,
        /// Input ports.
        expected: usize,
    },
    /// The request's fault: integers inside programs have 32 bits.
    #[error("integer {0} does not fit 32 bits")]
    Integer(i64),
    /// The model's fault: an output is not what the model was analysed to give.
    #[error("output {port} is {got} where {expected} goes")]
    Output {
        /// The output port.
        port: usize,
        /// Its type and shape.
        got: String,
        /// The type and shape that the port has.
        expected: String,
    },
    /// An operator failed.
    #[error("{0}")]
    Run(String),
}
