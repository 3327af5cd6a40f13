//! What happens to requests when clients leave, when there are too many, and when the server
//! stops; over real sockets.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use batchmaker_engine::EngineConfig;
use batchmaker_server::{Server, ServerConfig, Stopped};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use support::{Client, INFER, Running, body, bytes, config, engine, engine_of, with};

/// Steps that take a slow server far longer than any test waits.
const ENDLESS: usize = 60_000;
/// Steps that take it about half a second or more.
const LONG: usize = 200;

fn sent(server: &Running, length: usize) -> Client {
    let mut client = Client::new(server.http);
    client.send("POST", INFER, &[], &bytes(&body(length)));
    client
}

fn wait_until_held(server: &Running, requests: f64) {
    server.wait("requests hold slots", |server| server.slots_in_use() == requests);
}

fn wait_until_free(server: &Running) {
    server.wait("all is free", |server| {
        server.slots_in_use() == 0.0 && server.permits_in_use() == 0.0
    });
}

#[test]
fn a_client_that_leaves_frees_what_it_held() {
    let server = Running::slow();
    let clients: Vec<Client> = (0..6).map(|_| sent(&server, ENDLESS)).collect();
    wait_until_held(&server, 6.0);
    assert_eq!(server.permits_in_use(), 6.0);
    drop(clients);
    wait_until_free(&server);
    assert_eq!(server.outcomes("cancelled"), 6.0);
    assert_eq!(server.post(INFER, &bytes(&body(2))).status, 200);
}

#[test]
fn a_stream_of_http_2_that_is_reset_frees_what_it_held() {
    let server = Running::slow();
    server.runtime().block_on(async {
        let stream = tokio::net::TcpStream::connect(server.http).await.unwrap();
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let handshake = builder.handshake::<_, String>(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        let connection = tokio::spawn(connection);
        let request = |length| {
            let uri = format!("http://test{INFER}");
            let body = String::from_utf8(bytes(&body(length))).unwrap();
            hyper::Request::post(uri).body(body).unwrap()
        };
        let endless = tokio::spawn(sender.send_request(request(ENDLESS)));
        tokio::task::block_in_place(|| wait_until_held(&server, 1.0));
        endless.abort();
        tokio::task::block_in_place(|| wait_until_free(&server));
        // The connection lives.
        assert_eq!(sender.send_request(request(2)).await.unwrap().status(), 200);
        connection.abort();
    });
    assert_eq!(server.outcomes("cancelled"), 1.0);
    assert_eq!(server.outcomes("success"), 1.0);
}

#[test]
fn half_a_request_holds_nothing_and_is_counted_when_it_breaks_off() {
    let server = Running::plain();
    let mut client = Client::new(server.http);
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{");
    client.stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(server.post(INFER, &bytes(&body(2))).status, 200);
    assert_eq!((server.slots_in_use(), server.permits_in_use()), (0.0, 0.0));
    drop(client);
    server.wait("it is cancelled", |server| server.outcomes("cancelled") == 1.0);
}

#[test]
fn one_request_too_many_is_asked_to_come_again() {
    let server = Running::start(config(), engine(Duration::from_millis(5), 2));
    let clients = [sent(&server, ENDLESS), sent(&server, ENDLESS)];
    wait_until_held(&server, 2.0);
    let reply = server.post(INFER, &bytes(&body(1)));
    assert_eq!(reply.status, 503);
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert!(reply.error().contains("2 requests are in flight"), "{}", reply.error());
    assert_eq!(server.outcomes("overloaded"), 1.0);
    drop(clients);
    wait_until_free(&server);
    assert_eq!(server.post(INFER, &bytes(&body(1))).status, 200);
}

#[test]
fn a_timeout_ends_a_request() {
    let server = Running::slow();
    let timeout = |length, timeout_us: u64| {
        let body = with(body(length), "parameters", json!({"timeout": timeout_us}));
        server.post(INFER, &bytes(&body))
    };
    let start = Instant::now();
    let reply = timeout(ENDLESS, 500_000);
    assert_eq!(reply.status, 504);
    assert!(reply.error().contains("500000 µs"), "{}", reply.error());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    wait_until_free(&server);
    assert_eq!(server.outcomes("timeout"), 1.0);
    assert_eq!(timeout(2, 10_000_000).status, 200);
}

#[test]
fn a_stop_answers_what_is_in_flight_and_refuses_the_rest() {
    let mut server = Running::slow();
    let mut idle = Client::new(server.http);
    assert_eq!(idle.call("GET", "/v2/health/ready", &[], b"").status, 200);
    let mut silent = Client::new(server.http);
    let mut in_flight = sent(&server, LONG);
    // The stop comes while this one's body is on its way.
    let mut uploading = Client::new(server.http);
    let whole = bytes(&body(3));
    let length = whole.len();
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    );
    uploading.stream.write_all(head.as_bytes()).unwrap();
    // It says so once it waits for the body.
    let mut interim = *b"HTTP/1.1 100 Continue\r\n\r\n";
    uploading.stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    uploading.stream.write_all(&whole[..9]).unwrap();
    wait_until_held(&server, 1.0);

    server.shut_down();
    server.wait("the port is closed", |server| TcpStream::connect(server.http).is_err());
    let mut health = Client::new(server.metrics);
    let ready = health.call("GET", "/v2/health/ready", &[], b"");
    assert_eq!((ready.status, ready.error()), (400, "the server is shutting down".to_owned()));
    assert_eq!(health.call("GET", "/v2/health/live", &[], b"").status, 200);
    assert!(idle.receive().is_none() && silent.receive().is_none());

    uploading.stream.write_all(&whole[9..]).unwrap();
    for client in [&mut in_flight, &mut uploading] {
        let reply = client.receive().expect("it is answered");
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.header("connection"), Some("close"));
        assert!(client.receive().is_none());
    }
    assert_eq!(server.stopped(), Stopped::Drained);
}

#[test]
fn a_stop_without_requests_is_immediate() {
    let mut server = Running::plain();
    assert_eq!(server.get("/v2").status, 200);
    let start = Instant::now();
    server.shut_down();
    assert_eq!(server.stopped(), Stopped::Drained);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn the_grace_has_an_end_and_so_has_patience() {
    let short = ServerConfig { grace: Duration::from_millis(200), ..config() };
    let mut server = Running::start(short, engine(Duration::from_millis(5), 64));
    let mut client = sent(&server, ENDLESS);
    wait_until_held(&server, 1.0);
    server.shut_down();
    assert_eq!(server.stopped(), Stopped::BrokenOff);
    assert!(client.receive().is_none());

    let mut server = Running::slow();
    let mut client = sent(&server, ENDLESS);
    wait_until_held(&server, 1.0);
    server.shut_down();
    std::thread::sleep(Duration::from_millis(50));
    server.abort();
    assert_eq!(server.stopped(), Stopped::BrokenOff);
    assert!(client.receive().is_none());
}

#[test]
fn slow_clients_are_left() {
    let impatient = ServerConfig {
        head_timeout: Duration::from_millis(300),
        body_timeout: Duration::from_millis(300),
        ..config()
    };
    let server = Running::start(impatient, engine(Duration::from_millis(5), 64));
    let begins = ["", "P", "PRI * HT", "POST /v2/mod", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"];
    for begin in begins {
        let mut client = Client::new(server.http);
        client.stream.write_all(begin.as_bytes()).unwrap();
        let start = Instant::now();
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut client.stream, &mut rest);
        assert!(start.elapsed() < Duration::from_secs(5), "{begin:?} is waited for");
    }
    let mut client = Client::new(server.http);
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{");
    client.stream.write_all(head.as_bytes()).unwrap();
    let reply = client.receive().unwrap();
    assert_eq!((reply.status, server.outcomes("timeout")), (408, 1.0), "{reply:?}");

    // A client that waits for its reply is not slow.
    let reply = sent(&server, LONG).receive().unwrap();
    assert_eq!(reply.status, 200);
}

#[test]
fn slow_bodies_are_left_sooner_while_little_memory_is() {
    let engine_config = EngineConfig { max_memory_bytes: 64 << 20, ..EngineConfig::default() };
    let engine = engine_of(Duration::ZERO, engine_config);
    let memory = engine.memory().clone();
    let server = Running::start(config(), engine);
    let mut client = Client::new(server.http);
    let head = format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{{");
    client.stream.write_all(head.as_bytes()).unwrap();
    let mut large = memory.standing();
    large.grow_towards(usize::MAX);
    let mut small: Vec<_> = (0..20).map(|_| memory.arrival()).collect();
    small.iter_mut().for_each(|small| small.try_grow_to(256 << 10).unwrap());
    let start = Instant::now();
    let reply = client.receive().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!(reply.status, 408);
    let text = String::from_utf8(reply.body).unwrap();
    assert!(text.contains("paused for more than 0.5 s while little memory was left"), "{text}");
}

#[test]
fn a_new_client_is_served_beside_large_requests() {
    let engine_config = EngineConfig { max_memory_bytes: 64 << 20, ..EngineConfig::default() };
    let engine = engine_of(Duration::ZERO, engine_config);
    let memory = engine.memory().clone();
    let server = Running::start(config(), engine);
    let mut large = memory.standing();
    large.grow_towards(usize::MAX);
    assert_eq!(memory.bytes_in_use(), 56 << 20);
    assert_eq!(server.post(INFER, &bytes(&body(2))).status, 200);
    // Connections leave half of that part to requests.
    let clients: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = Client::new(server.http);
            client.send("GET", "/v2", &[], b"");
            client
        })
        .collect();
    let answered = clients.into_iter().map(|mut client| (client.receive().unwrap().status, client));
    let answered: Vec<_> = answered.collect();
    let served = answered.iter().filter(|(status, _)| *status == 200).count();
    assert!(served <= (4 << 20) / (32 << 10), "{served}");
    assert!(memory.bytes_in_use() <= 60 << 20);
}

#[test]
fn what_is_not_for_a_model_counts_in_the_memory_too() {
    let engine = engine(Duration::ZERO, 64);
    let memory = engine.memory().clone();
    let server = Running::start(config(), engine);
    let mut client = Client::new(server.http);
    assert_eq!(client.call("GET", "/metrics", &[], b"").status, 200);
    // The reply counts until the server has let go of it, which may be after it was read.
    let idle = loop {
        let before = memory.bytes_in_use();
        std::thread::sleep(Duration::from_millis(100));
        if memory.bytes_in_use() == before {
            break before;
        }
    };
    let half = "POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{";
    let mut sending = Client::new(server.http);
    sending.stream.write_all(half.as_bytes()).unwrap();
    server.wait("the body counts", |_| memory.bytes_in_use() >= idle + (48 << 10));
    drop(sending);
    server.wait("it is gone", |_| memory.bytes_in_use() == idle);

    let mut all = vec![memory.standing()];
    all[0].grow_towards(usize::MAX);
    while memory.bytes_in_use() < memory.bytes_max() {
        all.push(memory.arrival());
        all.last_mut().unwrap().grow_towards(usize::MAX);
    }
    let reply = client.call("GET", "/metrics", &[], b"");
    assert_eq!(reply.status, 503, "{reply:?}");
    assert_eq!(client.call("GET", "/v2/health/live", &[], b"").status, 200);
    let reply = Client::new(server.metrics).call("GET", "/metrics", &[], b"");
    assert_eq!(reply.status, 200);
}

/// A client of HTTP/2 that lets `window` bytes of a reply come, asks, and reads nothing; ends with the connection.
async fn unread_stream(http: SocketAddr, window: u32) {
    let stream = tokio::net::TcpStream::connect(http).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let handshake = builder.handshake::<_, String>(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.unwrap();
    let connection = tokio::spawn(connection);
    let asked = String::from_utf8(bytes(&body(2))).unwrap();
    let request = hyper::Request::post(format!("http://test{INFER}")).body(asked).unwrap();
    let reply = sender.send_request(request).await.unwrap();
    assert_eq!(reply.status(), 200);
    let _ = connection.await.unwrap();
}

#[test]
fn a_reply_of_http_2_that_is_not_taken_ends_its_connection() {
    let impatient = ServerConfig { reply_timeout: Duration::from_millis(300), ..config() };
    let server = Running::start(impatient, engine(Duration::ZERO, 64));
    for window in [0, 1, 100] {
        let unread = unread_stream(server.http, window);
        let ends = async { tokio::time::timeout(Duration::from_secs(5), unread).await };
        server.runtime().block_on(ends).expect("it is kept");
    }
}

#[test]
fn a_stop_does_not_wait_for_replies_that_are_not_taken() {
    let mut server = Running::plain();
    let unread = server.runtime().spawn(unread_stream(server.http, 1));
    server.wait("it is answered", |server| server.outcomes("success") == 1.0);
    server.shut_down();
    assert_eq!(server.stopped(), Stopped::Drained);
    server.runtime().block_on(unread).unwrap();
}

#[test]
fn a_busy_port_is_one_line_that_says_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let refusal = |config| {
        let error = Server::bind(config, engine(Duration::ZERO, 1)).unwrap_err();
        error.to_string()
    };
    let expected = |port: &str, flag: &str| {
        format!(
            "cannot listen on {address} ({port}): the port is in use; stop the process that has \
             it or choose another with --{flag}"
        )
    };
    assert_eq!(refusal(ServerConfig { http: address, ..config() }), expected("HTTP", "http"));
    let metrics = ServerConfig { metrics: Some(address), ..config() };
    assert_eq!(refusal(metrics), expected("metrics", "metrics"));
    let both = ServerConfig { http: address, metrics: Some(address), ..config() };
    let expected = [expected("HTTP", "http"), expected("metrics", "metrics")];
    assert_eq!(refusal(both), expected.join("; "));
}

#[test]
fn a_device_that_hangs_turns_health_red_until_it_reports_again() {
    let hung_after = Duration::from_millis(200);
    let engine_config = EngineConfig { hung_after, ..EngineConfig::default() };
    let server = Running::start(config(), engine_of(Duration::from_secs(2), engine_config));
    let health = |path: &str| server.get(path).status;
    assert_eq!((health("/v2/health/live"), health("/v2/health/ready")), (200, 200));
    let mut client = sent(&server, 1);
    server.wait("health is red", |_| health("/v2/health/live") == 503);
    assert_eq!(health("/v2/health/ready"), 503);
    assert_eq!(client.receive().unwrap().status, 200);
    assert_eq!((health("/v2/health/live"), health("/v2/health/ready")), (200, 200));
}
