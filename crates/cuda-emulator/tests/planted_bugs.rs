//! Bugs that were planted in kernels are found; kernels without them run without a report, and right. Takes g++.
#![cfg(all(target_arch = "x86_64", unix))]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use batchmaker_cuda_emulator::{
    DevicePointer, Fault, History, KernelLibrary, Launch, Memory, Observer, Outcome, Place,
    Schedule, Sequential, Unobserved, compile, run_among,
};

/// Schedules that a kernel without bugs is run with.
const SEEDS: u64 = 20;

/// Schedules of which one at least must find a bug.
const SEEDS_OF_A_BUG: u64 = 5;

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The library of a file of `tests/kernels`, compiled with a define, once for all tests.
fn library(file: &str, define: Option<&str>) -> Arc<KernelLibrary> {
    type Libraries = Mutex<HashMap<String, Arc<OnceLock<Arc<KernelLibrary>>>>>;
    static LIBRARIES: LazyLock<Libraries> = LazyLock::new(Mutex::default);
    let name = format!("{file}.{}.so", define.unwrap_or("right"));
    let of = LIBRARIES.lock().unwrap().entry(name.clone()).or_default().clone();
    let compiled = of.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels").join(file);
        let defines: Vec<&str> = define.into_iter().collect();
        let to = folder().join(name);
        compile(&source, &defines, &to).unwrap();
        Arc::new(KernelLibrary::load(&to).unwrap())
    });
    compiled.clone()
}

/// The emulated GPU of a launch, and its arguments.
struct Device {
    memory: Memory,
    arguments: Vec<Vec<u8>>,
}

impl Device {
    fn new() -> Self {
        Self { memory: Memory::new(64 << 20), arguments: Vec::new() }
    }

    fn pointer(&mut self, at: DevicePointer) -> DevicePointer {
        self.arguments.push((at as usize).to_ne_bytes().to_vec());
        at
    }

    fn upload<T: Copy>(&mut self, data: &[T], name: &str) -> DevicePointer {
        let at = self.memory.upload(data, name).unwrap();
        self.pointer(at)
    }

    /// Memory that nobody has written.
    fn allocate(&mut self, bytes: usize, name: &str, place: Place) -> DevicePointer {
        let at = self.memory.allocate(bytes, name, place).unwrap();
        self.pointer(at)
    }

    fn int(&mut self, value: usize) {
        self.arguments.push((value as i32).to_ne_bytes().to_vec());
    }

    fn run(&mut self, library: &KernelLibrary, shape: Shape, seed: u64) -> Outcome {
        static LAUNCHES: AtomicU32 = AtomicU32::new(1);
        let operation = LAUNCHES.fetch_add(1, Ordering::Relaxed);
        self.run_among(library, shape, seed, (operation, &Sequential))
    }

    fn run_among(
        &mut self,
        library: &KernelLibrary,
        shape: Shape,
        seed: u64,
        operation: (u32, &dyn History),
    ) -> Outcome {
        let kernel = &library.kernels()[0];
        let launch = Launch {
            kernel,
            grid: shape.grid,
            block: shape.block,
            dynamic_shared: shape.dynamic_shared,
            resident_blocks_max: shape.resident_blocks_max,
            arguments: std::mem::take(&mut self.arguments),
        };
        // SAFETY: the pointers lead to this memory, which the test alone accesses.
        unsafe { run_among(&self.memory, &launch, Schedule::of_seed(seed), operation, &Unobserved) }
    }

    fn floats(&self, at: DevicePointer, count: usize) -> Vec<f32> {
        // SAFETY: the kernel is over; any bytes are numbers.
        unsafe { self.memory.download(at, count) }
    }
}

#[derive(Clone, Copy)]
struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: usize,
    resident_blocks_max: usize,
}

impl Shape {
    fn of(grid: [u32; 2], block: [u32; 2]) -> Self {
        let (grid, block) = ([grid[0], grid[1], 1], [block[0], block[1], 1]);
        Self { grid, block, dynamic_shared: 0, resident_blocks_max: 16 }
    }
}

/// Numbers between 0 and 1, no two alike nearby.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at as f32 * 0.618_034).fract()).collect()
}

/// Runs a case at one of its two sizes: gives what happened, and what the kernel wrote beside what it should have.
type Case = fn(&KernelLibrary, usize, u64) -> (Outcome, Vec<f32>, Vec<f32>);

fn tiled_product(library: &KernelLibrary, size: usize, seed: u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    let (rows, outputs, length) = [(9, 12, 20), (16, 5, 33)][size];
    let (x, w) = (numbers(rows * length), numbers(outputs * length));
    let mut device = Device::new();
    device.upload(&x, "x");
    device.upload(&w, "w");
    let y = device.allocate(4 * rows * outputs, "y", Place::Device);
    [rows, outputs, length].into_iter().for_each(|of| device.int(of));
    let tiles = |of: usize| of.div_ceil(8) as u32;
    let outcome = device.run(library, Shape::of([tiles(outputs), tiles(rows)], [8, 8]), seed);
    let dot = |at: usize| {
        let (row, output) = (at / outputs, at % outputs);
        (0..length).map(|k| x[row * length + k] * w[output * length + k]).sum()
    };
    (outcome, device.floats(y, rows * outputs), (0..rows * outputs).map(dot).collect())
}

fn warp_sums(library: &KernelLibrary, size: usize, seed: u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    let (rows, length, warps) = [(5, 70, 2), (3, 32, 4)][size];
    let x = numbers(rows * length);
    let mut device = Device::new();
    device.upload(&x, "x");
    let y = device.allocate(4 * rows, "y", Place::Device);
    [rows, length].into_iter().for_each(|of| device.int(of));
    let shape = Shape::of([rows.div_ceil(warps) as u32, 1], [32 * warps as u32, 1]);
    let shape = Shape { dynamic_shared: 128 * warps, ..shape };
    let outcome = device.run(library, shape, seed);
    (outcome, device.floats(y, rows), x.chunks(length).map(|row| row.iter().sum()).collect())
}

fn grid_steps_of(
    resident_blocks_max: usize,
) -> impl Fn(&KernelLibrary, usize, u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    move |library, size, seed| {
        let (blocks, threads, steps) = [(3, 32, 5), (2, 64, 4)][size];
        let length = blocks * threads;
        let mut expected = numbers(length);
        let mut device = Device::new();
        let bytes = 4 * length * (steps + 1);
        let y = device.allocate(bytes, "y", Place::Device);
        // SAFETY: the allocation has more elements.
        unsafe { y.copy_from_nonoverlapping(expected.as_ptr().cast(), 4 * length) };
        device.memory.mark_written(y, 4 * length);
        device.upload(&[0u32], "arrived");
        device.int(steps);
        let shape = Shape::of([blocks as u32, 1], [threads as u32, 1]);
        let shape = Shape { resident_blocks_max, ..shape };
        let outcome = device.run(library, shape, seed);
        for step in 1..=steps {
            for at in 0..length {
                let of = |at: usize| expected[(step - 1) * length + at % length];
                let next = 0.5 * (of(at + 1) + of(at + length - 1));
                expected.push(next);
            }
        }
        (outcome, device.floats(y, length * (steps + 1)), expected)
    }
}

fn grid_steps(library: &KernelLibrary, size: usize, seed: u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    grid_steps_of(16)(library, size, seed)
}

fn not_resident(library: &KernelLibrary, size: usize, seed: u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    grid_steps_of(1)(library, size, seed)
}

fn ring_with(
    counter: Option<u32>,
) -> impl Fn(&KernelLibrary, usize, u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    move |library, size, seed| {
        let (threads, count) = [(32, 6), (40, 3)][size];
        let x = numbers(threads * count);
        let mut device = Device::new();
        device.upload(&x, "x");
        device.allocate(4 * 2 * threads, "places", Place::Device);
        match counter {
            Some(counter) => device.upload(&[counter], "produced"),
            None => device.allocate(4, "produced", Place::Device),
        };
        device.upload(&[0u32], "consumed");
        let y = device.allocate(4 * threads * count, "y", Place::Device);
        let done = device.allocate(4, "done", Place::Host);
        device.int(count);
        let outcome = device.run(library, Shape::of([2, 1], [threads as u32, 1]), seed);
        if outcome.reports.is_empty() {
            // SAFETY: the kernel is over.
            assert_eq!(unsafe { device.memory.download::<u32>(done, 1) }, [count as u32]);
        }
        (outcome, device.floats(y, threads * count), x)
    }
}

fn ring(library: &KernelLibrary, size: usize, seed: u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    ring_with(Some(0))(library, size, seed)
}

fn unset_counter(library: &KernelLibrary, size: usize, seed: u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    ring_with(None)(library, size, seed)
}

fn counts(library: &KernelLibrary, size: usize, seed: u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    let (count, bins) = [(70, 4), (64, 2)][size];
    let x = numbers(count);
    let mut device = Device::new();
    device.upload(&x, "x");
    let sums = device.upload(&vec![0u32; bins], "bins");
    let bin_of = device.allocate(2 * count, "bin_of", Place::Device);
    [count, bins].into_iter().for_each(|of| device.int(of));
    let outcome = device.run(library, Shape::of([3, 1], [32, 1]), seed);
    // SAFETY: the kernel is over; any bytes are numbers.
    let (sums, bin_of): (Vec<u32>, Vec<u16>) =
        unsafe { (device.memory.download(sums, bins), device.memory.download(bin_of, count)) };
    let all = |sums: &[u32], bin_of: &[u16]| {
        let bins = bin_of.iter().map(|&of| f32::from(of));
        sums.iter().map(|&of| of as f32).chain(bins).collect::<Vec<f32>>()
    };
    let of: Vec<u16> = x.iter().map(|x| (x * bins as f32) as u16).collect();
    let expected: Vec<u32> = (0..bins)
        .map(|bin| of.iter().filter(|&&of| usize::from(of) == bin).count() as u32)
        .collect();
    (outcome, all(&sums, &bin_of), all(&expected, &of))
}

/// A structure of 200 bytes is the only parameter.
fn structure(library: &KernelLibrary, size: usize, seed: u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    let (length, blocks) = [(8, 5), (9, 2)][size];
    let (x, factors) = (numbers(5 * length), numbers(40));
    let mut device = Device::new();
    let from = device.memory.upload(&x, "x").unwrap();
    let to = device.memory.allocate(4 * x.len(), "y", Place::Device).unwrap();
    let mut rows: Vec<u8> = [from, to].iter().flat_map(|&at| (at as usize).to_ne_bytes()).collect();
    rows.extend(factors.iter().flat_map(|of| of.to_ne_bytes()));
    rows.extend((0..6).flat_map(|row| (row * length as i32).to_ne_bytes()));
    device.arguments.push(rows);
    // A thread more than a row has elements.
    let shape = Shape::of([blocks, 1], [length as u32 + 1, 1]);
    let outcome = device.run(library, shape, seed);
    let expected = x.iter().enumerate().map(|(at, x)| factors[at % 40] * x).collect();
    (outcome, device.floats(to, x.len()), expected)
}

/// Each block has its rows, at an address that is no multiple of their 16 bytes, and its factor, five bytes after the one before.
fn vectors(library: &KernelLibrary, size: usize, seed: u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    let (blocks, fours) = [(3, 5), (2, 9)][size];
    let (x, length) = (numbers(blocks * 4 * fours), 4 * fours);
    let mut device = Device::new();
    let from = device.memory.upload(&x, "x").unwrap();
    let to = device.memory.allocate(4 * x.len(), "y", Place::Device).unwrap();
    let mut rows = vec![0usize];
    for block in 0..blocks {
        rows.extend([from, to].map(|of| of as usize + 4 * length * block));
    }
    let rows = device.memory.upload(&rows, "rows").unwrap();
    device.pointer(rows.wrapping_add(8));
    let factor = |block: usize| block as f32 + 0.5;
    let factors: Vec<u8> =
        (0..blocks).flat_map(|of| [vec![1], factor(of).to_ne_bytes().to_vec()].concat()).collect();
    device.upload(&factors, "factors");
    device.upload(&[0u32; 2], "done");
    device.int(fours);
    let shape = Shape { dynamic_shared: 300, ..Shape::of([blocks as u32, 1], [32, 1]) };
    let outcome = device.run(library, shape, seed);
    let expected = x.iter().enumerate().map(|(at, x)| factor(at / length) * x).collect();
    (outcome, device.floats(to, x.len()), expected)
}

/// The product of two matrices, by a warp.
fn warp_product(library: &KernelLibrary, size: usize, seed: u64) -> (Outcome, Vec<f32>, Vec<f32>) {
    // Numbers of 8 bits: bfloat16 has them all.
    let whole = |count: usize, step: usize| (0..count).map(move |at| (at * step) % 251 % 97);
    let (w, x): (Vec<_>, Vec<_>) = (whole(16 * 16, 37).collect(), whole(16 * 8, 53).collect());
    let bf16 = |of: &[usize]| -> Vec<u16> {
        of.iter().map(|&of| ((of as f32 - 48.0).to_bits() >> 16) as u16).collect()
    };
    let rows = [16, 9][size];
    let mut device = Device::new();
    device.upload(&bf16(&w), "w");
    device.upload(&bf16(&x), "x");
    let y = device.allocate(4 * 8 * rows, "y", Place::Device);
    device.int(rows);
    let outcome = device.run(library, Shape::of([1, 1], [32, 1]), seed);
    let dot = |at: usize| {
        let products = (0..16).map(|k| (w[at / 8 * 16 + k], x[k * 8 + at % 8]));
        products.map(|(w, x)| (w as f32 - 48.0) * (x as f32 - 48.0)).sum()
    };
    (outcome, device.floats(y, 8 * rows), (0..8 * rows).map(dot).collect())
}

/// The kernel has the places of the elements from one source, the emulator has them from another: they agree, and no others would.
#[test]
fn a_product_of_a_warp_has_one_layout() {
    for (define, is_right) in
        [(None, true), (Some("BUG_REGISTERS_EXCHANGED"), false), (Some("BUG_TRANSPOSED"), false)]
    {
        let (outcome, got, expected) = warp_product(&library("warp_product.cu", define), 0, 0);
        assert!(outcome.reports.is_empty(), "{define:?}");
        assert_eq!(got == expected, is_right, "{define:?}");
    }
}

fn runs_without_report(file: &str, define: Option<&str>, case: Case) {
    let library = library(file, define);
    for (size, seed) in (0..2).flat_map(|size| (0..SEEDS).map(move |seed| (size, seed))) {
        let (outcome, got, expected) = case(&library, size, seed);
        let reports: Vec<String> = outcome.reports.iter().map(ToString::to_string).collect();
        assert!(reports.is_empty(), "{file} {define:?}, size {size}, seed {seed}: {reports:#?}");
        assert!(outcome.accesses > 0 && outcome.switches > 0);
        for (at, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let error = (got - expected).abs();
            assert!(error <= 1e-4, "{file}, size {size}, seed {seed}, {at}: {got}, not {expected}");
        }
    }
}

fn is_found(file: &str, define: Option<&str>, case: Case, fault: Fault) {
    let library = library(file, define);
    let mut others = Vec::new();
    for (seed, size) in (0..SEEDS_OF_A_BUG).flat_map(|seed| (0..2).map(move |size| (seed, size))) {
        let (outcome, ..) = case(&library, size, seed);
        if let Some(report) = outcome.reports.iter().find(|report| report.fault == fault) {
            println!("{file} {}: {report} (seed {seed})", define.unwrap_or(""));
            return;
        }
        others.extend(outcome.reports.iter().map(ToString::to_string));
    }
    panic!("{file} {define:?}: no {fault:?} in {SEEDS_OF_A_BUG} seeds, but {others:#?}");
}

/// A copy to x, and a launch that reads x: on one stream, or on two without an event between them.
#[test]
fn launches_that_nothing_orders_after_copies_are_found() {
    struct Order {
        copy_precedes: bool,
    }

    impl History for Order {
        fn precedes(&self, _operation: u32) -> bool {
            self.copy_precedes
        }

        fn describe(&self, operation: u32) -> String {
            format!("copy {operation} on another stream")
        }
    }

    let library = library("counts.cu", None);
    for copy_precedes in [true, false] {
        let mut device = Device::new();
        let x = device.upload(&numbers(64), "x");
        device.upload(&[0u32; 2], "bins");
        device.allocate(128, "bin_of", Place::Device);
        [64, 2].into_iter().for_each(|of| device.int(of));
        let (copy, launch) = (1 << 30, (1 << 30) + 1);
        // SAFETY: nothing runs on the memory.
        let race = unsafe { device.memory.operate((copy, &Sequential), x, 256, true) };
        assert_eq!(race, None);
        let shape = Shape::of([2, 1], [32, 1]);
        let order = Order { copy_precedes };
        let outcome = device.run_among(&library, shape, 0, (launch, &order));
        let reports: Vec<String> = outcome.reports.iter().map(ToString::to_string).collect();
        assert_eq!(reports.is_empty(), copy_precedes, "{reports:#?}");
        assert!(
            reports
                .iter()
                .all(|report| report.ends_with("after copy 1073741824 on another stream"))
        );
    }
}

/// A store that releases to the host, or follows a fence of the system's scope, publishes to it; one of the GPU's scope does not, nor does one elsewhere.
#[test]
fn what_is_published_to_the_host_is_told() {
    let cases: [(&str, Option<&str>, Case, bool); 5] = [
        ("ring.cu", None, ring, true),
        ("ring.cu", Some("FENCE_FOR_HOST"), ring, true),
        ("ring.cu", Some("BUG_SCOPE_OF_GPU_FOR_HOST"), ring, false),
        ("ring.cu", Some("BUG_FENCE_OF_GPU_FOR_HOST"), ring, false),
        ("grid_steps.cu", None, grid_steps, false),
    ];
    for (file, define, case, expected) in cases {
        let (outcome, ..) = case(&library(file, define), 0, 0);
        assert_eq!(outcome.publishes_to_host, expected, "{file} {define:?}");
    }
}

/// A GPU is lost: a launch on it ends, although its threads wait for ever, and is not to blame.
#[test]
fn a_launch_on_a_lost_gpu_ends() {
    struct Lost(AtomicU32);

    impl Observer for Lost {
        fn is_lost(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed) > 1000
        }
    }

    let library = library("grid_steps.cu", Some("BUG_GOAL_TOO_HIGH"));
    let mut device = Device::new();
    device.upload(&numbers(32 * 3), "y");
    device.upload(&[0u32], "arrived");
    device.int(2);
    let launch = Launch {
        kernel: &library.kernels()[0],
        grid: [1, 1, 1],
        block: [32, 1, 1],
        dynamic_shared: 0,
        resident_blocks_max: 1,
        arguments: std::mem::take(&mut device.arguments),
    };
    let (schedule, lost) = (Schedule::of_seed(0), Lost(AtomicU32::new(0)));
    // SAFETY: the pointers lead to this memory, which the test alone accesses.
    let outcome = unsafe { run_among(&device.memory, &launch, schedule, (1, &Sequential), &lost) };
    let reports: Vec<String> = outcome.reports.iter().map(ToString::to_string).collect();
    assert!(reports.is_empty(), "{reports:#?}");
    assert!(outcome.switches > 500);
}

macro_rules! kernels {
    ($($name:ident: $file:literal $(+ $define:literal)?, $case:ident;)*) => {
        mod without_bugs {
            $(#[test] fn $name() {
                let define: &[&str] = &[$($define)?];
                super::runs_without_report($file, define.first().copied(), super::$case);
            })*
        }
    };
}

macro_rules! bugs {
    ($($name:ident: $file:literal $(+ $define:literal)?, $case:ident, $fault:ident;)*) => {
        mod bugs {
            $(#[test] fn $name() {
                let define: &[&str] = &[$($define)?];
                let fault = super::Fault::$fault;
                super::is_found($file, define.first().copied(), super::$case, fault);
            })*
        }
    };
}

kernels! {
    tiled_product: "tiled_product.cu", tiled_product;
    warp_sums: "warp_sums.cu", warp_sums;
    masks_of_halves: "warp_sums.cu" + "HALVES", warp_sums;
    grid_barrier_of_release_and_acquire: "grid_steps.cu", grid_steps;
    grid_barrier_of_fences: "grid_steps.cu" + "FENCES", grid_steps;
    grid_barrier_of_volatile_loads: "grid_steps.cu" + "VOLATILE", grid_steps;
    ring: "ring.cu", ring;
    ring_with_a_fence_for_the_host: "ring.cu" + "FENCE_FOR_HOST", ring;
    counts: "counts.cu", counts;
    structure: "structure.cu", structure;
    vectors: "vectors.cu", vectors;
    warp_product: "warp_product.cu", warp_product;
}

bugs! {
    no_barrier_before_filling: "tiled_product.cu" + "BUG_NO_BARRIER_BEFORE_FILLING", tiled_product, DataRace;
    no_barrier_after_filling: "tiled_product.cu" + "BUG_NO_BARRIER_AFTER_FILLING", tiled_product, DataRace;
    edge_not_filled: "tiled_product.cu" + "BUG_EDGE_NOT_FILLED", tiled_product, UninitialisedRead;
    no_check_of_outputs: "tiled_product.cu" + "BUG_NO_CHECK_OF_OUTPUTS", tiled_product, OutOfBounds;
    no_check_of_rows: "tiled_product.cu" + "BUG_NO_CHECK_OF_ROWS", tiled_product, OutOfBounds;
    beyond_tile: "tiled_product.cu" + "BUG_BEYOND_TILE", tiled_product, OutOfBounds;
    divergent_barrier: "tiled_product.cu" + "BUG_DIVERGENT_BARRIER", tiled_product, DivergentBarrier;
    barrier_of_some: "tiled_product.cu" + "BUG_BARRIER_OF_SOME", tiled_product, DivergentBarrier;
    half_mask: "warp_sums.cu" + "BUG_HALF_MASK", warp_sums, WarpMask;
    divergent_shuffle: "warp_sums.cu" + "BUG_DIVERGENT_SHUFFLE", warp_sums, Deadlock;
    source_outside_mask: "warp_sums.cu" + "BUG_SOURCE_OUTSIDE_MASK", warp_sums, ShuffleSource;
    two_masks: "warp_sums.cu" + "BUG_TWO_MASKS", warp_sums, WarpMask;
    no_syncwarp: "warp_sums.cu" + "BUG_NO_SYNCWARP", warp_sums, DataRace;
    exchange_too_short: "warp_sums.cu" + "BUG_EXCHANGE_TOO_SHORT", warp_sums, OutOfBounds;
    all_lanes_write: "warp_sums.cu" + "BUG_ALL_LANES_WRITE", warp_sums, DataRace;
    barrier_of_the_grnn_artifact: "grid_steps.cu" + "BUG_FLAG_BEFORE_FENCE", grid_steps, DataRace;
    volatile_without_fence: "grid_steps.cu" + "BUG_VOLATILE_WITHOUT_FENCE", grid_steps, DataRace;
    no_fence: "grid_steps.cu" + "BUG_NO_FENCE", grid_steps, DataRace;
    no_acquire: "grid_steps.cu" + "BUG_NO_ACQUIRE", grid_steps, DataRace;
    fence_of_block: "grid_steps.cu" + "BUG_FENCE_OF_BLOCK", grid_steps, DataRace;
    scope_of_block: "grid_steps.cu" + "BUG_SCOPE_OF_BLOCK", grid_steps, DataRace;
    no_barrier_before: "grid_steps.cu" + "BUG_NO_BARRIER_BEFORE", grid_steps, DataRace;
    no_barrier_after: "grid_steps.cu" + "BUG_NO_BARRIER_AFTER", grid_steps, DataRace;
    one_buffer: "grid_steps.cu" + "BUG_ONE_BUFFER", grid_steps, DataRace;
    read_only_load: "grid_steps.cu" + "BUG_READ_ONLY_LOAD", grid_steps, ReadOnlyWritten;
    goal_too_high: "grid_steps.cu" + "BUG_GOAL_TOO_HIGH", grid_steps, Deadlock;
    blocks_that_are_not_resident: "grid_steps.cu", not_resident, Deadlock;
    place_not_free: "ring.cu" + "BUG_PLACE_NOT_FREE", ring, DataRace;
    produced_relaxed: "ring.cu" + "BUG_PRODUCED_RELAXED", ring, DataRace;
    announced_early: "ring.cu" + "BUG_ANNOUNCED_EARLY", ring, DataRace;
    one_acquires_for_all: "ring.cu" + "BUG_ONE_ACQUIRES_FOR_ALL", ring, DataRace;
    scope_of_gpu_for_host: "ring.cu" + "BUG_SCOPE_OF_GPU_FOR_HOST", ring, HostScope;
    unset_counter: "ring.cu", unset_counter, UninitialisedRead;
    fence_of_gpu_for_host: "ring.cu" + "BUG_FENCE_OF_GPU_FOR_HOST", ring, HostScope;
    atomics_of_a_block: "counts.cu" + "BUG_SCOPE_OF_BLOCK", counts, DataRace;
    wild_pointer: "counts.cu" + "BUG_WILD_POINTER", counts, OutOfBounds;
    wild_index: "tiled_product.cu" + "BUG_WILD_INDEX", tiled_product, OutOfBounds;
    not_atomic: "counts.cu" + "BUG_NOT_ATOMIC", counts, DataRace;
    beyond_a_structures_pointer: "structure.cu" + "BUG_BEYOND_Y", structure, OutOfBounds;
    half_a_vector: "vectors.cu" + "BUG_HALF_A_VECTOR", vectors, Misaligned;
    data_that_is_not_packed: "vectors.cu" + "BUG_NOT_PACKED", vectors, Misaligned;
    misaligned_atomic: "vectors.cu" + "BUG_MISALIGNED_ATOMIC", vectors, Misaligned;
    misaligned_volatile: "vectors.cu" + "BUG_MISALIGNED_VOLATILE", vectors, Misaligned;
    misaligned_shared: "vectors.cu" + "BUG_MISALIGNED_SHARED", vectors, Misaligned;
    writes_the_neighbour: "counts.cu" + "BUG_WRITES_THE_NEIGHBOUR", counts, DataRace;
    divergent_product: "warp_product.cu" + "BUG_DIVERGENT_PRODUCT", warp_product, Deadlock;
}
