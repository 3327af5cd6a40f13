//! A host program on cudarc: what works on a GPU works here, and what it forgets is reported. Takes g++.
//!
//! The driver lives as long as the process, and errors stay with a device: each case runs in a process of its own.
#![cfg(all(target_arch = "x86_64", unix))]

use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchmaker_cuda_emulator::compile;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::Ptx;
use libloading::Library;

/// An image as a compiler makes one, as far as the driver reads it.
const IMAGE: &str = ".version 8.0\n.target sm_75\n.visible .entry scale()\n{}\n\
    .visible .entry scale_too_many()\n{}\n.visible .entry count_up()\n{}\n";

const COUNT: usize = 100;

/// The variable of a case's process that holds its seed.
const CASE: &str = "EMULATED_CUDA_CASE";

/// The emulated driver.
struct Emulated(Library);

impl Emulated {
    /// Loads it, before cudarc looks for a driver.
    fn load() -> Self {
        let test = std::env::current_exe().unwrap();
        let path = test.parent().unwrap().join("libemulated_cuda.so");
        // SAFETY: the library does nothing when it is loaded.
        let emulated = Self(unsafe { Library::new(path) }.unwrap());
        emulated.configure("kernels", &std::env::var("EMULATED_CUDA_KERNELS").unwrap());
        emulated.configure("seed", &std::env::var(CASE).unwrap());
        emulated
    }

    fn configure(&self, name: &str, value: &str) {
        type Configure = unsafe extern "C" fn(*const c_char, *const c_char) -> i32;
        let [name, value] = [name, value].map(|of| CString::new(of).unwrap());
        // SAFETY: the driver declares the function so.
        let result = unsafe {
            let configure = self.0.get::<Configure>(b"emulated_cuda_configure").unwrap();
            configure(name.as_ptr(), value.as_ptr())
        };
        assert_eq!(result, 0, "{name:?} {value:?}");
    }

    fn reports(&self) -> Vec<String> {
        type Reports = unsafe extern "C" fn(*mut c_char, usize) -> usize;
        let mut text = vec![0u8; 1 << 16];
        // SAFETY: the driver declares the function so, and writes no more than it is given room for.
        unsafe {
            let reports = self.0.get::<Reports>(b"emulated_cuda_reports").unwrap();
            reports(text.as_mut_ptr().cast(), text.len());
        }
        let end = text.iter().position(|&byte| byte == 0).unwrap();
        let text = String::from_utf8(text[..end].to_vec()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

/// A program on a device, whose streams are ordered by the program alone.
struct Program {
    context: Arc<CudaContext>,
    module: Arc<CudaModule>,
    stream: Arc<CudaStream>,
}

impl Program {
    fn new(device: usize) -> Self {
        let context = CudaContext::new(device).unwrap();
        // SAFETY: the program orders what its streams do.
        unsafe { context.disable_event_tracking() };
        let module = context.load_module(Ptx::from_src(IMAGE)).unwrap();
        let stream = context.new_stream().unwrap();
        Self { context, module, stream }
    }

    fn kernel(&self, name: &str) -> CudaFunction {
        self.module.load_function(name).unwrap()
    }

    /// Launches a kernel that scales x to y, with a thread too many.
    fn scale(
        &self,
        name: &str,
        stream: &Arc<CudaStream>,
        x: &CudaSlice<f32>,
        y: &mut CudaSlice<f32>,
    ) {
        let kernel = self.kernel(name);
        let count = COUNT as i32;
        let mut launch = stream.launch_builder(&kernel);
        launch.arg(x).arg(y).arg(&3.0f32).arg(&count);
        let shape =
            LaunchConfig { grid_dim: (4, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: x and y have as many elements.
        unsafe { launch.launch(shape) }.unwrap();
    }
}

fn numbers() -> Vec<f32> {
    (0..COUNT).map(|at| at as f32).collect()
}

fn scaled() -> Vec<f32> {
    (0..COUNT).map(|at| 3.0 * at as f32).collect()
}

fn error<T>(result: Result<T, cudarc::driver::DriverError>) -> sys::CUresult {
    result.err().expect("the call fails").0
}

/// Copies, a launch, and a copy back, on one stream and on two that an event orders.
fn a_program_that_is_right(emulated: &Emulated) {
    emulated.configure("pause_us", "200");
    let program = Program::new(0);
    let (stream, other) = (program.stream.clone(), program.context.new_stream().unwrap());
    let x = stream.clone_htod(&numbers()).unwrap();
    let mut y = stream.alloc_zeros::<f32>(COUNT).unwrap();
    program.scale("scale", &stream, &x, &mut y);
    assert_eq!(stream.clone_dtoh(&y).unwrap(), scaled());
    let mut z = other.alloc_zeros::<f32>(COUNT).unwrap();
    other.wait(&stream.record_event(None).unwrap()).unwrap();
    program.scale("scale", &other, &y, &mut z);
    let nine_times: Vec<f32> = numbers().iter().map(|x| 9.0 * x).collect();
    assert_eq!(other.clone_dtoh(&z).unwrap(), nine_times);
    assert_eq!(error(program.module.load_function("none")), sys::CUresult::CUDA_ERROR_NOT_FOUND);
    assert_eq!(emulated.reports(), [""; 0]);
}

/// A second stream reads what the first one writes, and nothing orders them: reported whatever the order was.
fn a_wait_for_an_event_is_forgotten(emulated: &Emulated) {
    let program = Program::new(0);
    let (stream, other) = (program.stream.clone(), program.context.new_stream().unwrap());
    let x = stream.clone_htod(&numbers()).unwrap();
    let mut y = stream.alloc_zeros::<f32>(COUNT).unwrap();
    let mut z = stream.alloc_zeros::<f32>(COUNT).unwrap();
    stream.synchronize().unwrap();
    program.scale("scale", &stream, &x, &mut y);
    program.scale("scale", &other, &y, &mut z);
    let done = stream.synchronize().and(other.synchronize());
    assert_eq!(error(done), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    let reports = emulated.reports();
    assert!(reports[0].contains("data race: nothing orders a"), "{reports:?}");
    assert!(reports[0].contains("after a launch of scale (operation"), "{reports:?}");
}

/// A fault of a kernel comes back from the calls that follow, and from all later ones.
fn a_kernel_reads_out_of_bounds(emulated: &Emulated) {
    let program = Program::new(0);
    let stream = program.stream.clone();
    let x = stream.clone_htod(&numbers()).unwrap();
    let mut y = stream.alloc_zeros::<f32>(COUNT).unwrap();
    program.scale("scale_too_many", &stream, &x, &mut y);
    for _ in 0..2 {
        assert_eq!(error(stream.synchronize()), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    }
    assert_eq!(error(stream.clone_htod(&numbers())), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    let reports = emulated.reports();
    assert!(reports[0].contains("access out of bounds"), "{reports:?}");
}

/// The host polls a counter in its own memory, which kernels count up.
fn the_host_polls_a_counter(emulated: &Emulated) {
    emulated.configure("pause_us", "500");
    let program = Program::new(0);
    let mut counter = std::ptr::null_mut();
    let mut of_device = 0;
    // SAFETY: the pointers are written before they are read.
    unsafe {
        sys::cuMemHostAlloc(&mut counter, 4, 2).result().unwrap();
        sys::cuMemHostGetDevicePointer_v2(&mut of_device, counter, 0).result().unwrap();
        counter.cast::<u32>().write_volatile(0);
    }
    let kernel = program.kernel("count_up");
    let shape = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
    for _ in 0..10 {
        let mut launch = program.stream.launch_builder(&kernel);
        launch.arg(&of_device).arg(&7u32);
        // SAFETY: the counter has four bytes.
        unsafe { launch.launch(shape) }.unwrap();
    }
    let began = Instant::now();
    // SAFETY: kernels write the counter with atomic operations.
    while unsafe { counter.cast::<u32>().read_volatile() } < 70 {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", emulated.reports());
        std::hint::spin_loop();
    }
    program.stream.synchronize().unwrap();
    assert_eq!(emulated.reports(), [""; 0]);
}

/// A stream that waits for an event of a device that fails goes on, and so does a host that waits for the event.
fn a_device_fails_that_others_wait_for(emulated: &Emulated) {
    emulated.configure("devices", "2");
    let [program, other] = [0, 1].map(Program::new);
    let x = program.stream.clone_htod(&numbers()).unwrap();
    let mut y = program.stream.alloc_zeros::<f32>(COUNT).unwrap();
    program.stream.synchronize().unwrap();
    emulated.configure("fail_launch", "1");
    program.scale("scale", &program.stream, &x, &mut y);
    if let Ok(event) = program.stream.record_event(None) {
        other.stream.wait(&event).unwrap();
        other.stream.synchronize().unwrap();
        assert_eq!(error(event.synchronize()), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    }
    let x = other.stream.clone_htod(&numbers()).unwrap();
    let mut y = other.stream.alloc_zeros::<f32>(COUNT).unwrap();
    other.scale("scale", &other.stream, &x, &mut y);
    assert_eq!(other.stream.clone_dtoh(&y).unwrap(), scaled(), "one launch alone failed");
}

/// Memory that another stream may still use is freed.
fn memory_is_freed_too_early(emulated: &Emulated) {
    emulated.configure("pause_us", "300");
    let program = Program::new(0);
    let (stream, other) = (program.stream.clone(), program.context.new_stream().unwrap());
    let x = stream.clone_htod(&numbers()).unwrap();
    let mut y = other.alloc_zeros::<f32>(COUNT).unwrap();
    stream.synchronize().unwrap();
    program.scale("scale", &other, &x, &mut y);
    // On the stream that it was allocated on.
    drop(x);
    let done = stream.synchronize().and(other.synchronize());
    assert_eq!(error(done), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
    let reports = emulated.reports();
    assert!(!reports.is_empty(), "{reports:?}");
}

/// Too much memory is asked for; launches fail; one of two devices is lost, and the other one works on.
fn errors_that_a_test_asks_for(emulated: &Emulated) {
    emulated.configure("devices", "2");
    emulated.configure("memory_bytes", "1000");
    let [program, other] = [0, 1].map(Program::new);
    assert_eq!(CudaContext::device_count().unwrap(), 2);
    let allocated = program.stream.alloc_zeros::<f32>(200).unwrap();
    let too_much = program.stream.alloc_zeros::<f32>(100);
    assert_eq!(error(too_much), sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    drop(allocated);
    program.stream.synchronize().unwrap();
    emulated.configure("lose_device", "0");
    assert_eq!(
        error(program.stream.clone_htod(&[1.0f32]).and_then(|_| program.stream.synchronize())),
        sys::CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
    );
    let x = other.stream.clone_htod(&numbers()).unwrap();
    assert_eq!(other.stream.clone_dtoh(&x).unwrap(), numbers());
    emulated.configure("fail_launch", "2");
    let mut y = other.stream.alloc_zeros::<f32>(COUNT).unwrap();
    other.scale("scale", &other.stream, &x, &mut y);
    other.stream.synchronize().unwrap();
    other.scale("scale", &other.stream, &x, &mut y);
    assert_eq!(error(other.stream.synchronize()), sys::CUresult::CUDA_ERROR_LAUNCH_FAILED);
}

/// A grid that stays must fit the GPU.
fn a_cooperative_grid_that_does_not_fit(emulated: &Emulated) {
    emulated.configure("multiprocessors", "2");
    let program = Program::new(0);
    let kernel = program.kernel("count_up");
    let of_one = kernel.occupancy_max_active_blocks_per_multiprocessor(1024, 0, None).unwrap();
    assert_eq!(of_one, 2);
    let mut counter = program.stream.alloc_zeros::<u32>(1).unwrap();
    let launch = |blocks: u32, counter: &mut CudaSlice<u32>| {
        let mut launch = program.stream.launch_builder(&kernel);
        launch.arg(counter).arg(&1u32);
        let (grid_dim, block_dim) = ((blocks, 1, 1), (1024, 1, 1));
        // SAFETY: the counter has four bytes.
        unsafe {
            launch.launch_cooperative(LaunchConfig { grid_dim, block_dim, shared_mem_bytes: 0 })
        }
        .map(drop)
    };
    let refused = sys::CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    assert_eq!(error(launch(5, &mut counter)), refused);
    launch(4, &mut counter).unwrap();
    assert_eq!(program.stream.clone_dtoh(&counter).unwrap(), [4]);
}

/// Runs a case in a process of its own.
fn in_process(name: &str, case: fn(&Emulated)) {
    if std::env::var(CASE).is_ok() {
        return case(&Emulated::load());
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(format!("{name}.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scale.cu");
    compile(&source, &[], &library).unwrap();
    for seed in 0..3 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture"]);
        command.env(CASE, seed.to_string()).env("EMULATED_CUDA_KERNELS", &library);
        let output = command.output().unwrap();
        let [printed, errors] =
            [output.stdout, output.stderr].map(|of| String::from_utf8_lossy(&of).into_owned());
        assert!(output.status.success(), "seed {seed}\n{printed}{errors}");
        assert!(printed.contains("1 passed"), "{printed}");
    }
}

macro_rules! cases {
    ($($name:ident, $case:ident;)*) => {
        $(#[test] fn $name() {
            in_process(stringify!($name), $case);
        })*
    };
}

cases! {
    right, a_program_that_is_right;
    forgotten_event, a_wait_for_an_event_is_forgotten;
    out_of_bounds, a_kernel_reads_out_of_bounds;
    polled_counter, the_host_polls_a_counter;
    failed_device, a_device_fails_that_others_wait_for;
    early_free, memory_is_freed_too_early;
    errors, errors_that_a_test_asks_for;
    cooperative, a_cooperative_grid_that_does_not_fit;
}
