//! Errors of the driver: what they do to requests, and what is said.

use std::path::PathBuf;
use std::process::Command;

use batchmaker_cuda::{CudaConfig, CudaDevice};
use batchmaker_engine::{EngineError, Request, Tensor, TensorData};
use batchmaker_manager::Failure;

use crate::emulated::{Emulated, config, in_process};
use crate::engine::engine;
use crate::models::Kind;

/// A sequence of so many steps.
fn request(steps: usize) -> Request {
    let x = TensorData::F32(vec![0.25; 5 * steps]);
    Request::new().input("x", Tensor::new(vec![1, steps, 5], x))
}

/// Requests that a GPU has no room for fail, and others are served.
fn no_memory(emulated: &'static Emulated) {
    emulated.configure("memory_bytes", "4500000");
    // Taken from the driver piece by piece, or in blocks.
    let block_bytes = if emulated.seed() % 2 == 1 { 1 << 18 } else { 0 };
    let config = CudaConfig { bytes_max: Some(1 << 30), block_bytes, ..config(1) };
    let device = CudaDevice::new(config).unwrap();
    let engine = engine(device, 1);
    let reply = |steps| engine.submit(Kind::Stacked.model(), request(steps)).unwrap().wait();
    let small = reply(3).unwrap().outputs;
    match reply(65_000) {
        Err(EngineError::Failed(Failure::Task(reason))) => {
            assert!(reason.contains("no memory left"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(reply(3).unwrap().outputs, small);
    engine.shutdown();
    assert_eq!(emulated.reports(), [""; 0]);
}

/// A launch that fails is the end of the GPU: requests there fail, and later ones are refused.
fn a_launch_fails(emulated: &'static Emulated) {
    let engine = engine(CudaDevice::new(config(1)).unwrap(), 1);
    let submit = |steps| engine.submit(Kind::Stacked.model(), request(steps));
    submit(3).unwrap().wait().unwrap();
    emulated.configure("fail_launch", "5");
    match submit(20).unwrap().wait() {
        Err(EngineError::Failed(Failure::WorkerLost(reason))) => {
            assert!(reason.contains("CUDA_ERROR_LAUNCH_FAILED"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    while !engine.is_lost() {
        std::thread::yield_now();
    }
    assert!(matches!(submit(3), Err(EngineError::DeviceLost(_))));
    engine.shutdown();
}

/// What is missing is said.
fn not_there(emulated: &'static Emulated) {
    emulated.configure("devices", "2");
    assert_eq!(CudaDevice::gpus(), Ok(2));
    let refused = |config| CudaDevice::new(config).err().unwrap().to_string();
    let of_five = refused(CudaConfig { gpus: vec![5], ..config(1) });
    assert_eq!(of_five, "there is no GPU 5: the machine has 2");
    let no_image = batchmaker_cuda::Images::of_ptx(75, "no image");
    let of_image = refused(CudaConfig { images: no_image, ..config(1) });
    assert!(of_image.contains("its driver, of CUDA"), "{of_image}");
    assert!(of_image.contains("does not take the kernels"), "{of_image}");
}

/// The variable that a process has which finds an old driver.
const OLD_DRIVER: &str = "TEST_OF_OLD_DRIVER";

/// A driver that lacks functions is refused, and says which.
#[test]
fn old_driver() {
    if std::env::var(OLD_DRIVER).is_ok() {
        let error = CudaDevice::gpus().unwrap_err().to_string();
        let reason = "the NVIDIA driver is too old for this program: it has no function";
        assert_eq!(error, format!("{reason} cuLaunchHostFunc"));
        return;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("old-driver");
    std::fs::create_dir_all(&folder).unwrap();
    let all = CudaDevice::DRIVER_FUNCTIONS.into_iter();
    let has = all.filter(|name| !["cuLaunchHostFunc", "cuMemFreeAsync"].contains(name));
    let text: String =
        has.map(|name| format!("extern \"C\" int {name}() {{ return 999; }}\n")).collect();
    let (source, library) = (folder.join("old.cpp"), folder.join("libcuda.so.1"));
    std::fs::write(&source, text).unwrap();
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "g++".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source);
    assert!(command.status().unwrap().success());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["errors::old_driver", "--exact"]).env(OLD_DRIVER, "1");
    let output = command.env("LD_LIBRARY_PATH", &folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn no_memory_left() {
    in_process("errors::no_memory_left", 2, no_memory);
}

#[test]
fn launch_failure() {
    in_process("errors::launch_failure", 2, a_launch_fails);
}

#[test]
fn missing_gpus() {
    in_process("errors::missing_gpus", 1, not_there);
}
