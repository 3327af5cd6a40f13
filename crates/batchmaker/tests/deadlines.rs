//! A request without a deadline of its own has the engine's.

use std::time::{Duration, Instant};

use batchmaker::{Engine, EngineError, Request, Tensor, TensorData};

fn ask(engine: &Engine, deadline: Option<Instant>) -> Result<(), EngineError> {
    let ids = Tensor::new(vec![1, 3], TensorData::I64(vec![4, 0, 2]));
    let input = &engine.model("tagger").unwrap().inputs[0].name;
    let mut request = Request::new().input(input, ids);
    request.deadline = deadline;
    engine.run("tagger", request).map(drop)
}

#[test]
fn the_default_holds_for_requests_without_a_deadline() {
    let tagger = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/vectors/tagger.onnx");
    let builder = || Engine::builder().model(tagger).workers(1).threads_per_worker(1);
    let long = Duration::from_secs(600);
    assert_eq!(ask(&builder().build().unwrap(), None), Ok(()));
    assert_eq!(ask(&builder().default_timeout(long).build().unwrap(), None), Ok(()));
    let engine = builder().default_timeout(Duration::from_nanos(1)).build().unwrap();
    let error = ask(&engine, None).unwrap_err();
    assert!(matches!(error, EngineError::TimedOut | EngineError::Unmeetable), "{error}");
    assert_eq!(ask(&engine, Some(Instant::now() + long)), Ok(()));
}
