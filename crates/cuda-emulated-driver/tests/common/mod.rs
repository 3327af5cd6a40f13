//! Host programs on cudarc, and the emulated driver that each case loads in a process of its own.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchmaker_cuda_emulator::compile;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaStream, DriverError, LaunchConfig, PushKernelArg,
    result, sys,
};
use cudarc::nvrtc::Ptx;
use libloading::Library;

/// An image as a compiler makes one, as far as the driver reads it.
pub(crate) const IMAGE: &str = ".version 8.0\n.target sm_75\n.visible .entry scale()\n{}\n\
    .visible .entry scale_too_many()\n{}\n.visible .entry count_up()\n{}\n\
    .visible .entry count_up_and_stay()\n{}\n.visible .entry count_up_after_fence()\n{}\n\
    .visible .entry count_up_plainly()\n{}\n.visible .entry wait_for_host()\n{}\n\
    .visible .entry exchange()\n{}\n";

pub(crate) const COUNT: usize = 100;

/// The variable of a case's process that holds its seed.
pub(crate) const CASE: &str = "EMULATED_CUDA_CASE";

/// The emulated driver.
pub(crate) struct Emulated(Library);

impl Emulated {
    /// Loads it, before cudarc looks for a driver.
    pub(crate) fn load() -> Self {
        let test = std::env::current_exe().unwrap();
        let path = test.parent().unwrap().join("libemulated_cuda.so");
        // SAFETY: the library does nothing when it is loaded.
        let emulated = Self(unsafe { Library::new(path) }.unwrap());
        emulated.configure("kernels", &std::env::var("EMULATED_CUDA_KERNELS").unwrap());
        emulated.configure("seed", &std::env::var(CASE).unwrap());
        emulated
    }

    pub(crate) fn configure(&self, name: &str, value: &str) {
        type Configure = unsafe extern "C" fn(*const c_char, *const c_char) -> i32;
        let [name, value] = [name, value].map(|of| CString::new(of).unwrap());
        // SAFETY: the driver declares the function so.
        let result = unsafe {
            let configure = self.0.get::<Configure>(b"emulated_cuda_configure").unwrap();
            configure(name.as_ptr(), value.as_ptr())
        };
        assert_eq!(result, 0, "{name:?} {value:?}");
    }

    /// The reports of the driver since the last call.
    pub(crate) fn reports(&self) -> Vec<String> {
        self.text("emulated_cuda_reports").lines().map(str::to_owned).collect()
    }

    /// How often a thread has asked the driver for things, or the nanoseconds of its calls, by the words of `emulated_cuda_calls`.
    pub(crate) fn calls(&self, thread: &str) -> BTreeMap<String, u64> {
        let text = self.text("emulated_cuda_calls");
        let fields = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let of_thread = fields.filter(|of| of[0] == thread);
        let mut counts = BTreeMap::new();
        for of in of_thread {
            *counts.entry(of[1].to_owned()).or_default() += of[2].parse::<u64>().unwrap();
        }
        counts
    }

    /// The text that a function of the driver writes.
    pub(crate) fn text(&self, function: &str) -> String {
        type Write = unsafe extern "C" fn(*mut c_char, usize) -> usize;
        let mut text = vec![0u8; 1 << 16];
        // SAFETY: the driver declares its functions that write texts so, and they write no more than they are given room for.
        unsafe {
            let write = self.0.get::<Write>(function.as_bytes()).unwrap();
            write(text.as_mut_ptr().cast(), text.len());
        }
        let text = CStr::from_bytes_until_nul(&text).unwrap();
        text.to_str().unwrap().to_owned()
    }
}

/// A program on a device, whose streams are ordered by the program alone.
pub(crate) struct Program {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) module: Arc<CudaModule>,
    pub(crate) stream: Arc<CudaStream>,
}

impl Program {
    pub(crate) fn new(device: usize) -> Self {
        let context = CudaContext::new(device).unwrap();
        // SAFETY: the program orders what its streams do.
        unsafe { context.disable_event_tracking() };
        let module = context.load_module(Ptx::from_src(IMAGE)).unwrap();
        let stream = context.new_stream().unwrap();
        Self { context, module, stream }
    }

    pub(crate) fn kernel(&self, name: &str) -> CudaFunction {
        self.module.load_function(name).unwrap()
    }
}

/// A counter in memory of the host, zero at first.
pub(crate) struct Counter {
    pub(crate) at: *mut u32,
    pub(crate) of_device: u64,
}

impl Counter {
    pub(crate) fn new(program: &Program) -> Self {
        program.context.bind_to_thread().unwrap();
        let mut of_device = 0;
        // SAFETY: the pointer is written before it is read, and leads to four bytes.
        let at = unsafe {
            let at = result::malloc_host(4, 2).unwrap();
            sys::cuMemHostGetDevicePointer_v2(&mut of_device, at, 0).result().unwrap();
            at.cast::<u32>().write_volatile(0);
            at.cast()
        };
        Self { at, of_device }
    }

    /// Launches a kernel that counts it up, or waits for it.
    pub(crate) fn launch(&self, program: &Program, name: &str, by: u32) {
        let kernel = program.kernel(name);
        let mut launch = program.stream.launch_builder(&kernel);
        launch.arg(&self.of_device).arg(&by);
        let shape =
            LaunchConfig { grid_dim: (1, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the counter has four bytes.
        unsafe { launch.launch(shape) }.unwrap();
    }

    /// Polls it.
    pub(crate) fn wait_for(&self, emulated: &Emulated, count: u32) {
        let began = Instant::now();
        // SAFETY: kernels write the four bytes at once.
        while unsafe { self.at.read_volatile() } < count {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", emulated.reports());
            std::hint::spin_loop();
        }
    }
}

pub(crate) fn numbers() -> Vec<f32> {
    (0..COUNT).map(|at| at as f32).collect()
}

pub(crate) fn scaled() -> Vec<f32> {
    (0..COUNT).map(|at| 3.0 * at as f32).collect()
}

pub(crate) fn error<T>(result: Result<T, DriverError>) -> sys::CUresult {
    result.err().expect("the call fails").0
}

/// Runs a case in processes of their own, a seed each. Returns what they print; nothing in such a process itself.
pub(crate) fn printed(name: &str, case: fn(&Emulated)) -> Vec<String> {
    if std::env::var(CASE).is_ok() {
        case(&Emulated::load());
        return Vec::new();
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let library = folder.join(format!("{name}.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scale.cu");
    compile(&source, &[], &library).unwrap();
    let of_seed = |seed: u32| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture"]);
        command.env(CASE, seed.to_string()).env("EMULATED_CUDA_KERNELS", &library);
        let output = command.output().unwrap();
        let [printed, errors] =
            [output.stdout, output.stderr].map(|of| String::from_utf8_lossy(&of).into_owned());
        assert!(output.status.success(), "seed {seed}\n{printed}{errors}");
        assert!(printed.contains("1 passed"), "{printed}");
        printed
    };
    (0..3).map(of_seed).collect()
}

macro_rules! cases {
    ($($name:ident, $case:ident;)*) => {
        $(#[test] fn $name() {
            printed(stringify!($name), $case);
        })*
    };
}
