//! A server on free ports over a real engine, and a plain client.

#![allow(dead_code, unreachable_pub, reason = "each file of tests is a crate that uses a part")]

mod slow_device;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchmaker::Engine;
use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_engine::EngineConfig;
use batchmaker_graph::{CellRegistry, ModelId};
use batchmaker_model::{LoadOptions, load};
use batchmaker_server::{Server, ServerConfig, Stopped};
use serde_json::{Value, json};
use slow_device::SlowDevice;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Elements of a row of the model's input `x: [T, B, INPUT]`.
pub const INPUT: usize = 5;
/// Elements of a row of its outputs `y: [T, B, HIDDEN]`, `h_n` and `c_n: [1, B, HIDDEN]`.
pub const HIDDEN: usize = 4;

pub const INFER: &str = "/v2/models/lstm1/infer";

/// An engine with one model, `lstm1`, whose every task takes `pause` longer than it has to.
pub fn engine(pause: Duration, max_requests: usize) -> Engine {
    engine_of(pause, EngineConfig { max_requests, ..EngineConfig::default() })
}

/// As [`engine`], with any configuration.
pub fn engine_of(pause: Duration, config: EngineConfig) -> Engine {
    let mut registry = CellRegistry::default();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/vectors/lstm1.onnx");
    let options = LoadOptions::new(ModelId(0));
    let model = load(path.as_ref(), &options, &mut registry).unwrap();
    let device = CpuDevice::new(CpuConfig::default()).unwrap();
    let device = Arc::new(SlowDevice::new(device, pause));
    batchmaker_engine::Engine::start(vec![model], &registry, device, &config).unwrap().into()
}

/// The settings of the ports that a test changes.
pub fn config() -> ServerConfig {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    ServerConfig { http: any, metrics: Some(any), ..ServerConfig::default() }
}

/// A server that runs.
pub struct Running {
    pub http: SocketAddr,
    pub metrics: SocketAddr,
    shutdown: Option<oneshot::Sender<()>>,
    abort: Option<oneshot::Sender<()>>,
    run: Option<JoinHandle<Stopped>>,
    runtime: Runtime,
}

impl Running {
    pub fn start(config: ServerConfig, engine: Engine) -> Self {
        let runtime = Runtime::new().unwrap();
        let server = Server::bind(config, engine).unwrap();
        let addresses = server.addresses();
        let (shutdown, is_shut_down) = oneshot::channel::<()>();
        let (abort, is_aborted) = oneshot::channel::<()>();
        let ready = |signal: oneshot::Receiver<()>| async { signal.await.unwrap_or_default() };
        let run = runtime.spawn(server.run_until(ready(is_shut_down), ready(is_aborted)));
        Self {
            http: addresses.http,
            metrics: addresses.metrics.unwrap(),
            shutdown: Some(shutdown),
            abort: Some(abort),
            run: Some(run),
            runtime,
        }
    }

    /// A server with nothing special.
    pub fn plain() -> Self {
        Self::start(config(), engine(Duration::ZERO, 64))
    }

    /// A server that takes 5 ms longer for each task.
    pub fn slow() -> Self {
        Self::start(config(), engine(Duration::from_millis(5), 64))
    }

    pub fn shut_down(&mut self) {
        self.shutdown.take().unwrap().send(()).unwrap();
    }

    pub fn abort(&mut self) {
        self.abort.take().unwrap().send(()).unwrap();
    }

    pub fn stopped(&mut self) -> Stopped {
        let run = self.run.take().unwrap();
        let limited = async { tokio::time::timeout(Duration::from_secs(20), run).await };
        self.runtime.block_on(limited).expect("it hangs").unwrap()
    }

    pub fn get(&self, path: &str) -> Reply {
        Client::new(self.http).call("GET", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &[u8]) -> Reply {
        Client::new(self.http).call("POST", path, &[], body)
    }

    /// The sum of the metrics whose names, labels included, begin so.
    pub fn metric(&self, begin: &str) -> f64 {
        let text = Client::new(self.metrics).call("GET", "/metrics", &[], b"").text();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(begin)).collect();
        assert!(!lines.is_empty(), "no {begin} in\n{text}");
        lines.iter().map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    pub fn outcomes(&self, outcome: &str) -> f64 {
        let labels = format!("{{model=\"lstm1\",outcome=\"{outcome}\"}}");
        self.metric(&format!("batchmaker_requests_total{labels}"))
    }

    pub fn slots_in_use(&self) -> f64 {
        self.metric("batchmaker_slots_in_use{")
    }

    pub fn permits_in_use(&self) -> f64 {
        self.metric("batchmaker_permits_in_use ")
    }

    /// Waits until `condition` holds.
    pub fn wait(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !condition(self) {
            assert!(Instant::now() < end, "never: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

/// A request of `length` steps.
pub fn body(length: usize) -> Value {
    let x: Vec<f32> = (0..length * INPUT).map(|i| ((i * 5 % 17) as f32 - 8.0) / 8.0).collect();
    json!({"inputs": [{"name": "x", "shape": [length, 1, INPUT], "datatype": "FP32", "data": x}]})
}

pub fn bytes(body: &Value) -> Vec<u8> {
    serde_json::to_vec(body).unwrap()
}

/// `body` with one more member.
pub fn with(mut body: Value, member: &str, value: Value) -> Value {
    body[member] = value;
    body
}

/// The response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub fn error(&self) -> String {
        let json = self.json();
        assert_eq!(json.as_object().unwrap().len(), 1, "{json}");
        json["error"].as_str().unwrap().to_owned()
    }
}

/// A connection of HTTP/1.1.
pub struct Client {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { stream, unread: Vec::new() }
    }

    pub fn call(&mut self, verb: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(verb, path, headers, body);
        self.receive().expect("a reply")
    }

    pub fn send(&mut self, verb: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut head = format!("{verb} {path} HTTP/1.1\r\nHost: test\r\n");
        headers.iter().for_each(|(name, value)| head += &format!("{name}: {value}\r\n"));
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        self.stream.write_all(head.as_bytes()).unwrap();
        self.stream.write_all(body).unwrap();
    }

    /// The next reply; none where the server closed the connection before it began.
    pub fn receive(&mut self) -> Option<Reply> {
        let head = loop {
            if let Some(end) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                let body = self.unread.split_off(end + 4);
                break String::from_utf8(std::mem::replace(&mut self.unread, body)).unwrap();
            }
            if !self.read_more() {
                assert!(self.unread.is_empty(), "a reply broke off");
                return None;
            }
        };
        let mut lines = head.trim_end().lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(": ").unwrap();
            (name.to_owned(), value.to_owned())
        };
        let mut reply = Reply { status, headers: lines.map(header).collect(), body: Vec::new() };
        let length: usize = reply.header("content-length").unwrap().parse().unwrap();
        while self.unread.len() < length {
            assert!(self.read_more(), "a body broke off");
        }
        let rest = self.unread.split_off(length);
        reply.body = std::mem::replace(&mut self.unread, rest);
        Some(reply)
    }

    /// False at the end of the connection.
    fn read_more(&mut self) -> bool {
        let mut buffer = [0; 1 << 14];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }
}
