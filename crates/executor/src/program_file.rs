//! Reads the file of a program.

use batchmaker_graph::Program;
use rten_onnx::onnx::ModelProto;

use crate::error::ExecutorError;
use crate::port::Port;
use crate::probe::Probe;

/// Bytes of the stack of the thread that loads a program: seven times what a chain of as many operators as a file may have takes.
const STACK_BYTES: usize = 64 << 20;

/// The most operators that rten plans on a thread of usual size, 2 MiB: a third of what a chain of them may have.
pub(crate) const OPERATORS_OF_THREAD: usize = 1500;

/// Calls `load` on a thread with a large stack: rten calls itself for each of a chain's operators.
///
/// # Errors
/// [`ExecutorError::Load`]
pub(crate) fn on_large_stack<T: Send>(
    program: &Program,
    load: impl FnOnce() -> Result<T, ExecutorError> + Send,
) -> Result<T, ExecutorError> {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    std::thread::scope(|scope| {
        let loaded = thread.spawn_scoped(scope, load).map_err(|error| ExecutorError::Load {
            summary: program.summary.clone(),
            reason: format!("there is no thread to load it: {error}"),
        })?;
        loaded.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Reads the file of a program, adds what it says of the ports to them, and probes it.
///
/// # Errors
/// [`ExecutorError::Load`]
pub(crate) fn read(
    program: &Program,
    inputs: &mut [Port],
    outputs: &mut [Port],
) -> Result<(ModelProto, Option<Probe>), ExecutorError> {
    let error = |reason: String| ExecutorError::Load { summary: program.summary.clone(), reason };
    let mut file = ModelProto::parse_buf(&program.bytes[..]).map_err(|e| error(e.to_string()))?;
    if let Some(graph) = &file.graph {
        Port::read_factors(inputs, &graph.input);
        Port::read_factors(outputs, &graph.output);
    }
    let is_batched = inputs.iter().chain(&*outputs).all(|port| port.axes.batch);
    let probe = Probe::run(&mut file, inputs, outputs, is_batched);
    Ok((file, probe))
}
