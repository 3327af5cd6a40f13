//! The emulated driver, in a process of its own for each test: errors stay with a GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use batchmaker_cuda::{CudaConfig, Images, Quantum, kernels};
use batchmaker_cuda_emulator::compile;
use libloading::Library;

/// The variable of a test's process that holds its seed.
const SEED: &str = "EMULATED_CUDA_SEED";

/// The folder of compiled kernels.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("device")
}

/// The emulated driver.
pub(crate) struct Emulated {
    library: Library,
    seed: u64,
}

impl Emulated {
    /// Loads it, before anything looks for a driver.
    fn load(seed: &str) -> Self {
        let test = std::env::current_exe().unwrap();
        let path = test.parent().unwrap().join("libemulated_cuda.so");
        // SAFETY: the library does nothing when it is loaded.
        let library = unsafe { Library::new(path) }.unwrap();
        let emulated = Self { library, seed: seed.parse().unwrap() };
        for source in kernels::SOURCES {
            let library = folder().join(source.name).with_extension("so");
            emulated.configure("kernels", library.to_str().unwrap());
        }
        emulated.configure("seed", seed);
        emulated
    }

    /// The seed of this process.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn configure(&self, name: &str, value: &str) {
        type Configure = unsafe extern "C" fn(*const c_char, *const c_char) -> i32;
        let [name, value] = [name, value].map(|of| CString::new(of).unwrap());
        // SAFETY: the driver declares the function so.
        let result = unsafe {
            let configure = self.library.get::<Configure>(b"emulated_cuda_configure").unwrap();
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

    /// What this process has asked the driver for: functions by their names, and operations in words.
    pub(crate) fn asked(&self) -> BTreeSet<String> {
        let text = self.text("emulated_cuda_calls");
        text.lines().filter_map(|line| line.split('\t').nth(1)).map(str::to_owned).collect()
    }

    /// The text that a function of the driver writes.
    fn text(&self, function: &str) -> String {
        type Write = unsafe extern "C" fn(*mut c_char, usize) -> usize;
        let mut text = vec![0u8; 1 << 16];
        // SAFETY: the driver declares its functions that write texts so, and they write no more than they are given room for.
        unsafe {
            let write = self.library.get::<Write>(function.as_bytes()).unwrap();
            write(text.as_mut_ptr().cast(), text.len());
        }
        let text = CStr::from_bytes_until_nul(&text).unwrap();
        text.to_str().unwrap().to_owned()
    }
}

/// The images that the tests are built with: their registers and shared memory decide how many blocks a GPU holds. Else one that has no more than the
/// names.
fn images() -> Images {
    let embedded = Images::default();
    if !embedded.is_empty() {
        return embedded;
    }
    Images::of_ptx(75, &ptx(kernels::NAMES.into_iter()))
}

/// A text that names kernels. A zero ends it where it is an image.
fn ptx<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let entries: String = names.map(|name| format!(".visible .entry {name}()\n{{}}\n")).collect();
    format!(".version 8.0\n.target sm_75\n{entries}\0")
}

/// The driver of this process.
static EMULATED: OnceLock<Emulated> = OnceLock::new();

/// The configuration of a device of some emulated GPUs.
pub(crate) fn config(gpus: usize) -> CudaConfig {
    CudaConfig {
        gpus: (0..gpus).collect(),
        images: images(),
        // The emulator knows the bounds of each allocation.
        block_bytes: 0,
        bytes_max: Some(1 << 20),
        // A few steps at once, of tasks that have more.
        projected_bytes: 2000,
        poll_for: std::time::Duration::ZERO,
        ..CudaConfig::default()
    }
}

/// How long launches run task after task: as long as they do by default, or, for odd seeds, a few steps and looks.
pub(crate) fn quantum(emulated: &Emulated) -> Quantum {
    match emulated.seed() % 2 {
        0 => Quantum { looks_max: 20, ..Quantum::default() },
        _ => Quantum { steps_max: 7, looks_max: 3 },
    }
}

/// Compiles kernels that are made for a cell, for the emulator. Those that run task after task compute nothing, and only tell the host that they have.
pub(crate) fn compile_without_steps(source: &str, architecture: u32) -> Result<Vec<u8>, String> {
    let with_tasks = format!("#include \"quantum.cuh\"\n{TAKE_TASKS}");
    let source = source.replace("#include \"quantum.cuh\"\n", &with_tasks);
    compile_for_cell(&source.replace("run_tasks<", "take_tasks<"), architecture)
}

const TAKE_TASKS: &str = "
template <class Steps> DEVICE void take_tasks(const QuantumArguments& of) {
  if (blockIdx.x | threadIdx.x) return;
  const uint64_t first = of.first.number, left = of.until == 0 ? first : ld_acquire_sys(of.next);
  for (uint64_t number = left > first ? left : first;; number++) {
    const Task* task = of.ring + number % of.ring_tasks;
    uint32_t looks = 0;
    while (looks < of.looks_max && ld_acquire_sys(&task->number) != number) looks++;
    if (looks == of.looks_max || task->steps == 0) return st_release_sys(of.next, number);
    tell_host(of.done, of.statuses + number % of.ring_tasks, of.failed, *of.end_count, number);
  }
}
";

/// Compiles kernels that are made for a cell, for the emulator. The image has no more than their names.
pub(crate) fn compile_for_cell(source: &str, _: u32) -> Result<Vec<u8>, String> {
    static MADE: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut all = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(image) = all.get(source) {
        return Ok(image.clone());
    }
    let made = |line: &str| {
        let (made_by, arguments) = line.split_once('(')?;
        let is_kernel = ["PERSISTENT", "QUANTUM", "BENCHMARK"].contains(&made_by);
        is_kernel.then(|| arguments.split(',').next().map(str::to_owned)).flatten()
    };
    let names: Vec<String> = source.lines().filter_map(made).collect();
    // Another process may compile the same.
    let folder = folder().join(format!("made-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join(&names[0]).with_extension("cu");
    std::fs::write(&file, source).unwrap();
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    for header in kernels::HEADERS {
        std::fs::copy(kernels.join(header.name), folder.join(header.name)).unwrap();
    }
    let library = file.with_extension("so");
    compile(&file, &["EMULATED_CUDA"], &library).map_err(|error| error.to_string())?;
    EMULATED.get().unwrap().configure("kernels", library.to_str().unwrap());
    std::fs::remove_dir_all(&folder).unwrap();
    let image = ptx(names.iter().map(String::as_str)).into_bytes();
    all.insert(source.to_owned(), image.clone());
    Ok(image)
}

/// Runs a test in a process of its own, once for each seed.
pub(crate) fn in_process(name: &str, seeds: u64, test: fn(&'static Emulated)) {
    if let Ok(seed) = std::env::var(SEED) {
        return test(EMULATED.get_or_init(|| Emulated::load(&seed)));
    }
    compile_kernels(name);
    for seed in 0..seeds {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--nocapture"]).env(SEED, seed.to_string());
        let output = command.output().unwrap();
        let [printed, errors] =
            [output.stdout, output.stderr].map(|of| String::from_utf8_lossy(&of).into_owned());
        assert!(output.status.success(), "seed {seed}\n{printed}{errors}");
        assert!(printed.contains("1 passed"), "{printed}");
        if std::env::var("SHOW").is_ok() {
            println!("{printed}");
        }
    }
}

/// Compiles the kernels for the emulator, once for all tests.
fn compile_kernels(name: &str) {
    use std::sync::Once;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        std::fs::create_dir_all(folder()).unwrap();
        for source in kernels::SOURCES {
            let library = folder().join(source.name).with_extension("so");
            let compiled = compile(&kernels.join(source.name), &["EMULATED_CUDA"], &library);
            compiled.unwrap_or_else(|error| panic!("{name}: {}: {error}", source.name));
        }
    });
}
