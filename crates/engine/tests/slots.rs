//! The memory of slots is counted as long as they are in use, and is free for everything else afterwards.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_engine::{
    Engine, EngineConfig, Pending, Request, SessionChunk, SessionKey, Tensor, TensorData,
};
use batchmaker_graph::{CellRegistry, ModelId};
use batchmaker_model::{LoadOptions, load};

/// The system's allocator, which counts the bytes that are in use.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is the system allocator's own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SESSIONS: usize = 4000;

fn submit(engine: &Engine, session: Option<(usize, bool)>) -> Pending {
    let tokens = Tensor::new(vec![1, 3], TensorData::I64(vec![3, 1, 2]));
    let mut request = Request::new();
    if let Some((number, end)) = session {
        let key = SessionKey::Text(number.to_string());
        request.session = Some(SessionChunk { key, start: !end, end });
    }
    if !session.is_some_and(|(_, end)| end) {
        request = request.input("token", tokens);
    }
    engine.submit("model", request).unwrap()
}

/// Waits until the engine holds no slot.
fn wait_for_slots(engine: &Engine) {
    let start = Instant::now();
    while engine.statistics().cells.iter().any(|cell| cell.slots_in_use > 0)
        || engine.statistics().memory_bytes > 0
    {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", engine.statistics());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn slots_are_counted_and_given_back() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/langid/model.onnx");
    let mut registry = CellRegistry::default();
    let model = load(&path, &LoadOptions::new(ModelId(0)), &mut registry).unwrap();
    let device = Arc::new(CpuDevice::new(CpuConfig::default()).unwrap());
    let config = EngineConfig { workers: 2, ..EngineConfig::default() };
    let engine = Engine::start(vec![model], &registry, device, &config).unwrap();
    let states: usize = registry.cell_types().iter().map(|cell| cell.cell.state_bytes()).sum();
    let in_use = || BYTES.load(Ordering::SeqCst);
    let begin = || {
        let pending: Vec<_> = (0..SESSIONS).map(|s| submit(&engine, Some((s, false)))).collect();
        pending.into_iter().for_each(|pending| drop(pending.wait().unwrap()));
    };
    let end = |session| drop(submit(&engine, Some((session, true))).wait().unwrap());
    // Tables of requests and sessions stay as large as they were.
    begin();
    (0..SESSIONS).for_each(end);
    wait_for_slots(&engine);
    let before = in_use();

    begin();
    let (held, counted) = (in_use() - before, engine.statistics().memory_bytes);
    assert!(held > SESSIONS * states, "{held} bytes are held");
    assert!(counted >= held, "{counted} bytes are counted, {held} are held");

    // One of many stays, wherever its slot lies.
    (0..SESSIONS).filter(|session| session % 50 > 0).for_each(end);
    let start = Instant::now();
    while in_use().saturating_sub(before) > held / 3 {
        let still = in_use() - before;
        assert!(start.elapsed() < Duration::from_secs(60), "{still} of {held} bytes are left");
        std::thread::sleep(Duration::from_millis(1));
    }
    (0..SESSIONS).filter(|session| session % 50 == 0).for_each(end);
    wait_for_slots(&engine);

    // Slots of requests without sessions, as many at a time as there may be.
    let pending: Vec<_> = (0..SESSIONS).map(|_| submit(&engine, None)).collect();
    pending.into_iter().for_each(|pending| drop(pending.wait().unwrap()));
    wait_for_slots(&engine);
    let left = in_use().saturating_sub(before);
    assert!(left < held / 3, "{left} of {held} bytes are left");
}
