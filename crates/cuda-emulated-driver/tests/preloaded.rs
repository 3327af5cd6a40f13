//! A program that knows nothing of the emulated driver, and is started with it: settings and reports pass through the environment. Takes g++.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use batchmaker_cuda_emulator::compile;
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg, result, sys};
use cudarc::nvrtc::Ptx;

/// The variable of a program's process that holds the kernel which it launches.
const KERNEL: &str = "EMULATED_CUDA_TEST_KERNEL";

const COUNT: usize = 100;

/// Scales numbers on the second GPU by a kernel.
fn program(kernel: &str) {
    // SAFETY: the library may be loaded at any time.
    assert!(unsafe { sys::is_culib_present() });
    assert_eq!(CudaContext::device_count().unwrap(), 2);
    let context = CudaContext::new(1).unwrap();
    assert_eq!(result::mem_get_info().unwrap().1, 1_000_000);
    let image = format!(".version 8.0\n.target sm_75\n.visible .entry {kernel}()\n{{}}\n");
    let kernel = context.load_module(Ptx::from_src(image)).unwrap().load_function(kernel).unwrap();
    let stream = context.new_stream().unwrap();
    let x: Vec<f32> = (0..COUNT).map(|at| at as f32).collect();
    let from = stream.clone_htod(&x).unwrap();
    let mut to = stream.alloc_zeros::<f32>(COUNT).unwrap();
    let mut launch = stream.launch_builder(&kernel);
    let count = COUNT as i32;
    launch.arg(&from).arg(&mut to).arg(&3.0f32).arg(&count);
    let shape = LaunchConfig { grid_dim: (4, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
    // SAFETY: both have as many elements; what else is accessed, the driver reports.
    unsafe { launch.launch(shape) }.unwrap();
    let scaled: Vec<f32> = x.iter().map(|x| 3.0 * x).collect();
    assert_eq!(stream.clone_dtoh(&to).unwrap(), scaled);
}

/// Starts this test's program in a process with the driver.
fn start(kernel: &str, settings: &str, reports: &Path) -> Output {
    let test = std::env::current_exe().unwrap();
    let mut command = Command::new(&test);
    command.args(["programs_have_emulated_gpus", "--exact", "--nocapture"]).env(KERNEL, kernel);
    command.env("LD_PRELOAD", test.parent().unwrap().join("libemulated_cuda.so"));
    command.env("EMULATED_CUDA", settings).env("EMULATED_CUDA_REPORTS", reports);
    command.output().unwrap()
}

/// Those of a file that is there.
fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn programs_have_emulated_gpus() {
    if let Ok(kernel) = std::env::var(KERNEL) {
        return program(&kernel);
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("preloaded");
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scale.cu");
    let [library, other] = ["scale.so", "other.so"].map(|name| folder.join(name));
    [&library, &other].iter().for_each(|to| compile(&source, &[], to).unwrap());
    let kernels = format!("kernels={};kernels={}", other.display(), library.display());
    let settings = format!("devices=2;memory_bytes=1000000;{kernels}");
    let reports = folder.join("reports.txt");
    let _ = std::fs::remove_file(&reports);

    let right = start("scale", &settings, &reports);
    assert!(right.status.success(), "{right:?}");
    assert_eq!(lines(&reports), [""; 0], "the file is made, and nothing is reported");
    for number in 1..=2 {
        let wrong = start("scale_too_many", &settings, &reports);
        assert!(!wrong.status.success(), "{wrong:?}");
        let found = lines(&reports).iter().filter(|of| of.contains("out of bounds")).count();
        assert_eq!(found, number, "each process appends its own: {:?}", lines(&reports));
    }
    for setting in ["colour=1", "devices=two", "devices", "kernels=/none.so"] {
        let refused = start("scale", &format!("{settings};{setting}"), &reports);
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{setting}");
        assert!(errors.contains(&format!("EMULATED_CUDA: '{setting}' cannot be set")), "{errors}");
    }
}
