//! A request for whose graph there is too little memory waits until there is more.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_engine::{
    Engine, EngineConfig, EngineError, NotUnfolded, Request, Tensor, TensorData,
};
use batchmaker_graph::{CellRegistry, ModelId};
use batchmaker_model::{LoadOptions, load};

const MIB: usize = 1 << 20;
const MEMORY: usize = 64 * MIB;
/// The records of their graph take more than the 256 KiB that are kept for small requests.
const SEQUENCES: usize = 1000;

fn engine() -> Engine {
    let file = "../model/tests/vectors/lstm2_batch_first.onnx";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let mut registry = CellRegistry::default();
    let model = load(&path, &LoadOptions::new(ModelId(0)), &mut registry).unwrap();
    let device = Arc::new(CpuDevice::new(CpuConfig::default()).unwrap());
    let config = EngineConfig { max_memory_bytes: MEMORY, ..EngineConfig::default() };
    Engine::start(vec![model], &registry, device, &config).unwrap()
}

fn request(sequences: usize) -> Request {
    let x = (0..5 * sequences).map(|at| (at % 7) as f32 / 7.0).collect();
    Request::new().input("x", Tensor::new(vec![sequences, 1, 5], TensorData::F32(x)))
}

#[test]
fn a_request_waits_for_the_bytes_of_its_graph() {
    const MODEL: &str = "lstm2_batch_first";
    let engine = engine();
    let expected = engine.submit(MODEL, request(SEQUENCES)).unwrap().wait().unwrap().outputs;
    let mut others = engine.memory().standing();
    others.try_grow_to(MEMORY / 8 * 7 - MIB / 2).unwrap();

    let in_use = engine.submit(MODEL, request(SEQUENCES)).unwrap_err();
    assert!(matches!(in_use, EngineError::MemoryInUse { .. }), "{in_use}");
    assert_eq!(engine.memory().bytes_in_use(), others.bytes(), "it holds bytes");

    let mut unfolded = engine.permit(MODEL).unwrap().unfold(request(SEQUENCES), {
        let mut arrival = engine.memory().arrival();
        arrival.try_grow_to(request(SEQUENCES).bytes()).unwrap();
        arrival
    });
    let mut waits = 0;
    let unfolded = loop {
        let mut waiting = match unfolded {
            Ok(unfolded) => break unfolded,
            Err(NotUnfolded::Refused(error)) => panic!("{error}"),
            Err(NotUnfolded::Waits(waiting)) => waiting,
        };
        waits += 1;
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut fit = pin!(waiting.fit());
            let mut fitted = fit.as_mut().poll(&mut context);
            if fitted.is_pending() {
                others.shrink_to(0);
                fitted = fit.as_mut().poll(&mut context);
            }
            assert_eq!(fitted, Poll::Ready(Ok(())));
        }
        unfolded = waiting.unfold();
    };
    assert!(waits > 0 && others.bytes() == 0, "{waits} waits");
    assert_eq!(unfolded.submit().unwrap().wait().unwrap().outputs, expected);
    assert_eq!(engine.statistics().permits_in_use, 0);
    assert_eq!(engine.memory().bytes_in_use(), 0);
}

#[test]
fn what_never_fits_is_refused_at_once() {
    let engine = engine();
    let error = engine.submit("lstm2_batch_first", request(MEMORY / 20)).unwrap_err();
    assert!(matches!(error, EngineError::TooLarge { .. }), "{error}");
    let error = engine.submit("lstm2_batch_first", request(60_000)).unwrap_err();
    assert!(matches!(error, EngineError::TooManyRuns { .. }), "{error}");
}
