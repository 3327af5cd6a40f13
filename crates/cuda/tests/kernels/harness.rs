//! Libraries of kernels, with bugs or without, and numbers.

use std::path::{Path, PathBuf};

use batchmaker_cuda_emulator::{
    DevicePointer, Fault, Kernel, KernelLibrary, Launch, Memory, Report, Schedule, compile, run,
};

/// Schedules of each shape.
pub(crate) const SEEDS: u64 = 20;

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

/// A library of the kernels of a file, with some text of it or of a header replaced.
pub(crate) fn library(name: &str, file: &str, replaced: Option<[&str; 2]>) -> KernelLibrary {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let mut found = 0;
    for entry in std::fs::read_dir(kernels()).unwrap() {
        let path = entry.unwrap().path();
        let of = path.file_name().unwrap();
        if path.extension().is_none_or(|of| of != "cuh") && of != file {
            continue;
        }
        let mut text = std::fs::read_to_string(&path).unwrap();
        if let Some([from, to]) = replaced {
            found += text.matches(from).count();
            text = text.replace(from, to);
        }
        std::fs::write(folder.join(of), text).unwrap();
    }
    if let Some([from, _]) = replaced {
        assert_eq!(found, 1, "{from:?} stands once in {file} and the headers");
    }
    let to = folder.join(file).with_extension("so");
    compile(&folder.join(file), &["EMULATED_CUDA"], &to).unwrap();
    KernelLibrary::load(&to).unwrap()
}

/// Numbers between -1 and 1, no two alike nearby.
pub(crate) fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|at| ((at + 131 * seed) as f32 * 0.618_034).fract() * 2.0 - 1.0).collect()
}

/// The bytes of an argument.
pub(crate) fn pointer(at: DevicePointer) -> Vec<u8> {
    (at as u64).to_ne_bytes().to_vec()
}

/// The bytes of an argument.
pub(crate) fn number(of: usize) -> Vec<u8> {
    (of as i32).to_ne_bytes().to_vec()
}

/// Runs a launch with blocks of the kernels' shape, three at a time.
pub(crate) fn launch(
    memory: &Memory,
    kernel: &Kernel,
    grid: [u32; 3],
    arguments: Vec<Vec<u8>>,
    seed: u64,
) -> Vec<Report> {
    let (block, resident_blocks_max) = (batchmaker_cuda::tiles::BLOCK, 3);
    let launch = Launch { kernel, grid, block, dynamic_shared: 0, resident_blocks_max, arguments };
    // SAFETY: the pointers lead to this memory, which the test alone accesses.
    unsafe { run(memory, &launch, Schedule::of_seed(seed)) }.reports
}

/// What finds a bug.
#[derive(Clone, Copy)]
pub(crate) enum Found {
    By(Fault),
    ByValues,
    ByAnything,
}

impl Found {
    /// Whether reports, or values that are wrong, are what finds the bug.
    pub(crate) fn is_by(self, reports: &[Report], is_wrong: impl FnOnce() -> bool) -> bool {
        match self {
            Self::By(fault) => reports.iter().any(|report| report.fault == fault),
            Self::ByValues => reports.is_empty() && is_wrong(),
            Self::ByAnything => !reports.is_empty() || is_wrong(),
        }
    }
}

/// Tests of planted bugs, each a text of the source and what stands in its place; `$is_found` runs one.
macro_rules! bugs {
    ($is_found:path; $($name:ident: $from:literal => $to:literal, $found:expr;)*) => {
        mod bugs {
            use batchmaker_cuda_emulator::Fault;

            use crate::harness::Found;

            $(#[test] fn $name() {
                $is_found(stringify!($name), [$from, $to], $found);
            })*
        }
    };
}

pub(crate) use bugs;
