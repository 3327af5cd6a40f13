//! Compiles all kernels for the emulator, and those of further files, and prints what a program that preloads the emulated driver finds them by.
//!
//! ```console
//! $ EMULATED_CUDA=$(cargo run --release -p batchmaker-cuda --example emulated_kernels -- /tmp/kernels) \
//!     LD_PRELOAD=target/release/libemulated_cuda.so batchmaker inspect models/g2p --device cuda
//! ```

use std::path::{Path, PathBuf};

use batchmaker_cuda::kernels::SOURCES;
use batchmaker_cuda_emulator::compile;

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().expect("the argument is the folder for the compiled kernels");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let mut settings = Vec::new();
    let own = SOURCES.iter().map(|source| kernels.join(source.name));
    for source in own.chain(arguments) {
        let name = source.file_name().expect("a source is a file");
        let library = folder.join(name).with_extension("so");
        let compiled = compile(&source, &["EMULATED_CUDA"], &library);
        compiled.unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        settings.push(format!("kernels={}", library.display()));
    }
    println!("{}", settings.join(";"));
}
