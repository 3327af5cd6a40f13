//! Compiles kernels as host code.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Kernels could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The compiler could not be started.
    #[error("{compiler} cannot be started: {error}")]
    Start {
        /// The compiler.
        compiler: String,
        /// The reason.
        error: std::io::Error,
    },
    /// The compiler refused the source.
    #[error("{path}: {message}")]
    Source {
        /// The source.
        path: PathBuf,
        /// The compiler's error messages.
        message: String,
    },
}

/// Compiles a `.cu` file that includes `emulated_cuda.h` into the shared library `to`, with `defines` (`NAME` or `NAME=value`). The compiler
/// is the one that the environment variable `CXX` names, else g++.
///
/// # Errors
/// [`CompileError`] where there is no such compiler, or it refuses the file.
pub fn compile(source: &Path, defines: &[&str], to: &Path) -> Result<(), CompileError> {
    compile_with("-O1", source, defines, to)
}

/// The same without optimisation, in a third of the time: for kernels that run once, for they take longer.
///
/// # Errors
/// Those of [`compile`].
pub fn compile_unoptimized(source: &Path, defines: &[&str], to: &Path) -> Result<(), CompileError> {
    compile_with("-O0", source, defines, to)
}

fn compile_with(
    optimization: &str,
    source: &Path,
    defines: &[&str],
    to: &Path,
) -> Result<(), CompileError> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned());
    let mut command = Command::new(&compiler);
    command.args(["-std=c++17", "-x", "c++", "-g", optimization, "-fPIC", "-shared", "-w"]);
    command.args([
        "-fsanitize=thread,alignment",
        "-fno-strict-aliasing",
        "-fno-omit-frame-pointer",
    ]);
    command
        .args(["--param=tsan-instrument-func-entry-exit=0", "--param=tsan-distinguish-volatile=1"]);
    // No library of the sanitizer: the header has the functions that the compiler calls.
    command.args(["-fno-exceptions", "-nodefaultlibs", "-Wl,-z,now"]);
    command.args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include")]);
    command.args(defines.iter().map(|define| format!("-D{define}")));
    command.arg(source).arg("-o").arg(to).args(["-lm", "-lc"]);
    let output = command.output().map_err(|error| CompileError::Start { compiler, error })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(CompileError::Source { path: source.to_owned(), message })
}
