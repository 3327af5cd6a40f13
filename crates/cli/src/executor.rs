//! Finds and loads the executor of programs.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use batchmaker::{Executor, OnnxRuntime};

use crate::args::{ExecutorArgs, ExecutorName};

/// The executor that the arguments name.
pub(crate) fn executor(args: &ExecutorArgs) -> anyhow::Result<Executor> {
    let runtime = match &args.executor {
        ExecutorName::Own if args.executor_alone => {
            bail!(
                "--executor-alone is for --executor onnxruntime or faster: the own executor's replies never depend on others"
            )
        }
        ExecutorName::Own => return Ok(Executor::Own),
        ExecutorName::OnnxRuntime(path) => load(path)?,
        ExecutorName::Faster(path) => load(path)?.where_faster(),
    };
    Ok(Executor::OnnxRuntime(if args.executor_alone { runtime.alone() } else { runtime }))
}

/// ONNX Runtime of this library, or of the Python environment's.
fn load(path: &Option<PathBuf>) -> anyhow::Result<OnnxRuntime> {
    Ok(match path {
        Some(path) => OnnxRuntime::load(path)?,
        None => OnnxRuntime::load(&find()?)?,
    })
}

/// The library of the Python environment's `onnxruntime`.
fn find() -> anyhow::Result<PathBuf> {
    const SCRIPT: &str = "import importlib.util as u; print(u.find_spec('onnxruntime').submodule_search_locations[0])";
    let in_environment = env::var_os("VIRTUAL_ENV").map(|of| Path::new(&of).join("bin/python"));
    let python = in_environment.unwrap_or_else(|| "python3".into());
    let advice = "name its library, such as --executor onnxruntime=/usr/lib/libonnxruntime.so";
    let output = Command::new(&python).args(["-c", SCRIPT]).output();
    let output =
        output.with_context(|| format!("'{}' cannot be started; {advice}", python.display()))?;
    let package = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || package.is_empty() {
        bail!("'{}' has no package onnxruntime; {advice}", python.display());
    }
    let folder = Path::new(&package).join("capi");
    let files = folder.read_dir().with_context(|| format!("'{}'", folder.display()))?;
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libonnxruntime.") || name == "onnxruntime.dll"
    };
    let mut found: Vec<PathBuf> = files.flatten().map(|of| of.path()).filter(is_library).collect();
    found.sort();
    match found.pop() {
        Some(library) => Ok(library),
        None => bail!("'{}' holds no library of ONNX Runtime; {advice}", folder.display()),
    }
}
