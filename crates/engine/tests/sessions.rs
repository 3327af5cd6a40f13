//! A session is cancelled, reaped and ended in every order, while others take the slot that it had:
//! no byte of state crosses, and nothing is left behind.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_engine::{
    Engine, EngineConfig, EngineError, NamedTensor, Reply, Request, SessionChunk, SessionKey,
    SessionStatistics, Tensor, TensorData,
};
use batchmaker_graph::{CellRegistry, ModelId};
use batchmaker_model::{LoadOptions, load};

const IDLE: Duration = Duration::from_millis(300);

/// The file of `langid`: token ids to probabilities, bit by bit.
fn engine(session_idle: Duration) -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/langid/model.onnx");
    let mut registry = CellRegistry::default();
    let options = LoadOptions::new(ModelId(0));
    let model = load(&path, &options, &mut registry).unwrap();
    let device = Arc::new(CpuDevice::new(CpuConfig::default()).unwrap());
    let config = EngineConfig { workers: 2, session_idle, ..EngineConfig::default() };
    Engine::start(vec![model], &registry, device, &config).unwrap()
}

fn request(tokens: &[i64], session: Option<SessionChunk>) -> Request {
    let data = TensorData::I64(tokens.to_vec());
    let tensor = Tensor::new(vec![1, tokens.len()], data);
    let tensors = vec![NamedTensor { name: "token".to_owned(), tensor }];
    let mut request = Request::from(tensors);
    request.session = session;
    request
}

/// A session that tells its sequence token by token.
struct Talk {
    name: &'static str,
    said: Vec<i64>,
    last: Option<Reply>,
}

impl Talk {
    fn new(name: &'static str) -> Self {
        Self { name, said: Vec::new(), last: None }
    }

    fn chunk(&self, start: bool, end: bool) -> Option<SessionChunk> {
        Some(SessionChunk { key: SessionKey::Text(self.name.to_owned()), start, end })
    }

    /// Says some more.
    fn go_on(&mut self, engine: &Engine) -> Result<(), EngineError> {
        let first = self.said.len();
        let salt = self.name.bytes().map(i64::from).sum::<i64>();
        let more: Vec<i64> = (0..3).map(|i| (salt * 7 + (first as i64 + i) * 31) % 1711).collect();
        let request = request(&more, self.chunk(first == 0, false));
        self.last = Some(engine.submit("model", request)?.wait()?);
        self.said.extend(more);
        Ok(())
    }

    fn end(&self, engine: &Engine) -> Result<(), EngineError> {
        let mut request = Request::new();
        request.session = self.chunk(false, true);
        engine.submit("model", request)?.wait().map(drop)
    }

    /// Its last reply is that to its whole sequence.
    fn check(&self, engine: &Engine, case: &str) {
        let whole = engine.submit("model", request(&self.said, None)).unwrap().wait().unwrap();
        let last = self.last.as_ref().unwrap();
        assert_eq!(last.outputs, whole.outputs, "{} after {case}", self.name);
    }
}

/// The events that may end a session.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    /// A chunk in flight is given up.
    Cancel,
    /// It is idle for too long.
    Reap,
    /// Its client says so.
    End,
}

fn statistics(engine: &Engine) -> SessionStatistics {
    engine.statistics().sessions
}

fn endings(statistics: &SessionStatistics) -> [u64; 3] {
    [statistics.broken, statistics.reaped, statistics.ended_by_client]
}

fn slots_in_use(engine: &Engine) -> usize {
    engine.statistics().cells.iter().map(|cell| cell.slots_in_use).sum()
}

fn nodes(engine: &Engine) -> u64 {
    engine.statistics().cells.iter().map(|cell| cell.nodes).sum()
}

/// Waits until it holds; keeps `others` from being idle meanwhile.
fn wait_until(engine: &Engine, others: &mut [Talk], what: &str, holds: impl Fn(&Engine) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds(engine) {
        assert!(Instant::now() < end, "{what}");
        others.iter_mut().for_each(|talk| talk.go_on(engine).unwrap());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Does to the session `first` what ends it, or would, had it not ended before.
fn apply(ending: Ending, is_over: bool, first: &Talk, engine: &Engine, others: &mut [Talk]) {
    let before = endings(&statistics(engine));
    let number = ending as usize;
    match ending {
        Ending::Cancel => {
            let long = vec![5; 60_000];
            match engine.submit("model", request(&long, first.chunk(false, false))) {
                Ok(pending) => {
                    let nodes = nodes(engine);
                    wait_until(engine, &mut [], "it runs", |engine| self::nodes(engine) > nodes);
                    drop(pending);
                }
                Err(error) => {
                    assert!(is_over && matches!(error, EngineError::Invalid(_)), "{error}");
                    return;
                }
            }
        }
        // One that is over is not reaped again, however long that takes.
        Ending::Reap if is_over => {
            let start = Instant::now();
            wait_until(engine, others, "", |_| start.elapsed() > IDLE * 5 / 4);
            assert_eq!(endings(&statistics(engine)), before);
            return;
        }
        Ending::Reap => {}
        Ending::End => {
            assert_eq!(first.end(engine).is_err(), is_over);
            return;
        }
    }
    let what = format!("{ending:?} ends it");
    wait_until(engine, others, &what, |engine| {
        endings(&statistics(engine))[number] > before[number]
    });
}

#[test]
fn ends_in_every_order_leave_nothing_to_others() {
    let all = [Ending::Cancel, Ending::Reap, Ending::End];
    let mut orders: Vec<Vec<Ending>> = all.map(|ending| vec![ending]).into();
    for length in 1..all.len() {
        let longer = orders.iter().filter(|order| order.len() == length).flat_map(|order| {
            let rest = all.iter().filter(|ending| !order.contains(ending));
            rest.map(|&ending| [&order[..], &[ending]].concat())
        });
        orders.extend(longer.collect::<Vec<_>>());
    }
    assert_eq!(orders.len(), 15);
    let (engine, reference) = (engine(IDLE), engine(Duration::from_secs(600)));
    for order in &orders {
        // The second session begins when the first is over, after any of what ends it.
        for begins_after in 1..=order.len() {
            let case = format!("{order:?}, the second after {begins_after}");
            let mut first = Talk::new("first");
            first.go_on(&engine).unwrap();
            first.go_on(&engine).unwrap();
            let mut others = Vec::new();
            for (position, &ending) in order.iter().enumerate() {
                apply(ending, position > 0, &first, &engine, &mut others);
                if position + 1 == begins_after {
                    wait_until(&engine, &mut [], &case, |engine| slots_in_use(engine) == 0);
                    others.push(Talk::new("second"));
                    others[0].go_on(&engine).unwrap();
                }
            }
            // Would take a slot that was freed twice.
            others.push(Talk::new("third"));
            for _ in 0..2 {
                others.iter_mut().for_each(|talk| talk.go_on(&engine).unwrap());
            }
            assert_eq!((slots_in_use(&engine), statistics(&engine).open), (2, 2), "{case}");
            for talk in &others {
                talk.check(&reference, &case);
                talk.end(&engine).unwrap();
            }
            wait_until(&engine, &mut [], &case, |engine| {
                (slots_in_use(engine), statistics(engine).open) == (0, 0)
            });
        }
    }
}
