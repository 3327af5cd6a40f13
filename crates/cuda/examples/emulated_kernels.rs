//! Compiles all kernels for the emulator, and prints what a program that preloads the emulated driver finds them by.
//!
//! ```console
//! $ EMULATED_CUDA=$(cargo run --release -p batchmaker-cuda --example emulated_kernels -- /tmp/kernels) \
//!     LD_PRELOAD=target/release/libemulated_cuda.so batchmaker inspect models/g2p --device cuda
//! ```

use std::path::{Path, PathBuf};

use batchmaker_cuda::kernels::SOURCES;
use batchmaker_cuda_emulator::compile;

fn main() {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.expect("the argument is the folder for the compiled kernels");
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let mut settings = Vec::new();
    for source in SOURCES {
        let library = folder.join(source.name).with_extension("so");
        let compiled = compile(&kernels.join(source.name), &["EMULATED_CUDA"], &library);
        compiled.unwrap_or_else(|error| panic!("{}: {error}", source.name));
        settings.push(format!("kernels={}", library.display()));
    }
    println!("{}", settings.join(";"));
}
