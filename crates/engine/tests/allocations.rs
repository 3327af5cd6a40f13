//! Once requests are in, their steps allocate nothing, in no thread of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_engine::{Engine, EngineConfig, Request, Tensor, TensorData};
use batchmaker_graph::{CellRegistry, ModelId};
use batchmaker_model::{LoadOptions, load};

/// The system's allocator, which counts what is asked of it.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is the system allocator's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Steps of the busiest cell type so far.
fn steps(engine: &Engine) -> u64 {
    engine.statistics().cells.iter().map(|cell| cell.tasks).max().unwrap_or(0)
}

fn wait_for_steps(engine: &Engine, count: u64) {
    let start = Instant::now();
    while steps(engine) < count {
        assert!(start.elapsed() < Duration::from_secs(60), "{} steps", steps(engine));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn steps_of_a_steady_batch_allocate_nothing() {
    const LENGTH: usize = 60_000;
    for (workers, threads_per_worker) in [(1, 1), (1, 2), (2, 1)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/langid");
        let mut registry = CellRegistry::default();
        let options = LoadOptions::new(ModelId(0));
        let model = load(&path, &options, &mut registry).unwrap();
        let cpu = CpuConfig { threads_per_worker, ..CpuConfig::default() };
        let config = EngineConfig { workers, ..EngineConfig::default() };
        let device = Arc::new(CpuDevice::new(cpu).unwrap());
        let engine = Engine::start(vec![model], &registry, device, &config).unwrap();
        let text = "a".repeat(LENGTH);
        let request = || {
            let tensor = Tensor::new(vec![1], TensorData::Bytes(vec![text.clone().into_bytes()]));
            Request::new().input("text", tensor)
        };
        let pending: Vec<_> = (0..4).map(|_| engine.submit("langid", request()).unwrap()).collect();
        // All are in, and every way of running a batch has been tried.
        wait_for_steps(&engine, 2000);

        // A thread that helps for the first time may still come late.
        let mut windows = (0..3).map(|_| {
            let (steps_before, before) = (steps(&engine), ALLOCATIONS.load(Ordering::SeqCst));
            std::thread::sleep(Duration::from_millis(40));
            let allocations = ALLOCATIONS.load(Ordering::SeqCst) - before;
            let taken = steps(&engine) - steps_before;
            assert!(taken > 100, "{taken} steps, {workers} workers of {threads_per_worker}");
            allocations
        });
        let allocates_nothing = windows.any(|allocations| allocations == 0);
        assert!(steps(&engine) < LENGTH as u64, "the batch has ended");
        assert!(allocates_nothing, "{workers} workers of {threads_per_worker}");
        drop(pending);
    }
}
