//! A server's life: bind every port, run, drain.

use std::future::{Future, pending};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use batchmaker::{Engine, MemoryBudget};
use rustix::process::Resource;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::config::ServerConfig;
use crate::http::{
    BodyLimits, ConnectionLimits, HttpState, Serving, connection_bytes, metrics_router, router,
    serve_port,
};
use crate::log::log;
use crate::serving::app::App;

/// Connections that the system keeps until they are accepted: clients come in bursts.
const BACKLOG: i32 = 4096;

/// The time between two foldings of samples into histograms, and two looks at whether a worker hangs.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(2);

/// The connections that a server has in any case.
const CONNECTIONS_LEAST: usize = 16;

/// The time that a connection may be idle though others want its place.
const CONNECTION_IDLE_MIN: Duration = Duration::from_millis(100);

/// The most connections to the port for metrics, the memory that they may hold, and the time that each may be idle
/// though others want its place: many may come at once, and they are few.
const METRICS_CONNECTIONS_MAX: usize = 32;
const METRICS_CONNECTIONS_BYTES: usize = 64 << 20;
const METRICS_CONNECTION_IDLE_MIN: Duration = Duration::from_millis(10);

/// The time that the engine has to end requests that were cancelled.
const BREAK_OFF_MAX: Duration = Duration::from_secs(2);

/// The reason that a server cannot start, in one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Addresses that cannot be listened on: all of them, so that one correction is enough.
    #[error("{}", joined(.0))]
    Listen(Vec<ListenError>),
}

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({port}): {}", advice(.source, .port))]
pub struct ListenError {
    /// The address.
    pub address: SocketAddr,
    /// The purpose of the port: `HTTP` or `metrics`.
    pub port: &'static str,
    /// The system's reason.
    pub source: io::Error,
}

fn joined(errors: &[ListenError]) -> String {
    let errors: Vec<String> = errors.iter().map(ListenError::to_string).collect();
    errors.join("; ")
}

fn advice(error: &io::Error, port: &str) -> String {
    let flag = port.to_lowercase();
    match error.kind() {
        ErrorKind::AddrInUse => {
            format!(
                "the port is in use; stop the process that has it or choose another with --{flag}"
            )
        }
        ErrorKind::AddrNotAvailable => {
            format!("this machine does not have that address; choose another with --{flag}")
        }
        ErrorKind::PermissionDenied => {
            format!("that port needs privileges; choose one above 1023 with --{flag}")
        }
        _ => error.to_string(),
    }
}

/// The addresses that a server listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Requests.
    pub http: SocketAddr,
    /// Metrics, if they have a port of their own.
    pub metrics: Option<SocketAddr>,
}

/// The end of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every request in flight was answered.
    Drained,
    /// The grace was over, or nobody wanted to wait: requests were broken off.
    BrokenOff,
}

/// Ports that this process has, and on which nobody listens yet: clients are refused. Whoever takes long to load
/// models takes the ports first, so that it is not in vain.
#[derive(Debug)]
pub struct Ports {
    http: Socket,
    metrics: Option<Socket>,
}

/// A server whose ports are open.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    state: Arc<HttpState>,
    addresses: Addresses,
    http: TcpListener,
    metrics: Option<TcpListener>,
    stop: watch::Sender<bool>,
    is_stopping: watch::Receiver<bool>,
}

impl Ports {
    /// Takes every port.
    ///
    /// # Errors
    /// If an address cannot be had; the error names all such addresses.
    pub fn take(config: &ServerConfig) -> Result<Self, ServerError> {
        let http = bind("HTTP", config.http);
        let metrics = config.metrics.map(|address| bind("metrics", address)).transpose();
        match (http, metrics) {
            (Ok(http), Ok(metrics)) => Ok(Self { http, metrics }),
            (http, metrics) => {
                let errors = http.err().into_iter().chain(metrics.err());
                Err(ServerError::Listen(errors.collect()))
            }
        }
    }
}

impl Server {
    /// Takes every port and opens it. Clients can connect from here on, and are answered once it runs.
    ///
    /// # Errors
    /// If an address cannot be listened on; the error names all such addresses.
    pub fn bind(config: ServerConfig, engine: Engine) -> Result<Self, ServerError> {
        let ports = Ports::take(&config)?;
        Self::open(ports, config, engine)
    }

    /// Opens ports that were taken.
    ///
    /// # Errors
    /// If one cannot be listened on.
    pub fn open(ports: Ports, config: ServerConfig, engine: Engine) -> Result<Self, ServerError> {
        let Ports { http, metrics } = ports;
        let http = listen("HTTP", config.http, http);
        let metrics = metrics.zip(config.metrics);
        let metrics = metrics.map(|(socket, address)| listen("metrics", address, socket));
        let ((http, http_address), metrics) = match (http, metrics.transpose()) {
            (Ok(http), Ok(metrics)) => (http, metrics),
            (http, metrics) => {
                let errors = http.err().into_iter().chain(metrics.err());
                return Err(ServerError::Listen(errors.collect()));
            }
        };
        let (metrics, metrics_address) = metrics.unzip();
        let (stop, is_stopping) = watch::channel(false);
        let limits = BodyLimits {
            bytes_max: config.body_bytes_max,
            pause_max: config.body_timeout,
            time_max: config.body_time_max,
            rate_min: config.rate_min,
            memory: engine.memory().clone(),
            stop: is_stopping.clone(),
        };
        let app = Arc::new(App::new(engine, &config));
        let state = Arc::new(HttpState { app, limits });
        let addresses = Addresses { http: http_address, metrics: metrics_address };
        Ok(Self { config, state, addresses, http, metrics, stop, is_stopping })
    }

    /// The addresses that it listens on, with the ports that the system chose for 0.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Serves until `shutdown` is ready, then drains: see [`run_until`](Self::run_until).
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Stopped {
        self.run_until(shutdown, pending()).await
    }

    /// Serves until `shutdown` is ready. Then it tells that it is not ready and, after
    /// [`ServerConfig::drain_delay`], takes no more connections; it answers every request that comes on a connection
    /// before the client was told of its end, closes connections that are kept alive, and shuts the engine down.
    /// The metrics port stays to the end. Where that takes longer than [`ServerConfig::grace`] after the delay, or
    /// once `abort` is ready, it breaks off what is left.
    ///
    /// Needs a tokio runtime with time and I/O. Dropping the future breaks everything off.
    ///
    /// # Panics
    /// Outside such a runtime.
    pub async fn run_until(
        self,
        shutdown: impl Future<Output = ()>,
        abort: impl Future<Output = ()>,
    ) -> Stopped {
        let Self { config, state, http, metrics, stop, is_stopping, .. } = self;
        let app = state.app.clone();
        let memory = app.engine.memory();
        let limits = ConnectionLimits {
            max: config.connections_max.unwrap_or_else(|| {
                let of_memory = memory.bytes_max() / 4 / connection_bytes(config.head_bytes_max);
                of_memory.clamp(CONNECTIONS_LEAST, most_connections())
            }),
            max_per_client: config.connections_per_client_max,
            idle_min: CONNECTION_IDLE_MIN,
            head_bytes_max: config.head_bytes_max,
            streams_max: config.streams_max,
            head_timeout: config.head_timeout,
            reply_timeout: config.reply_timeout,
            rate_min: config.rate_min,
        };
        let serving =
            Serving { router: router(state.clone()), memory: memory.clone(), stop: is_stopping };
        let mut port = JoinSet::new();
        port.spawn(serve_port(adopt(http), serving, limits));

        // These end when they are dropped, which is last.
        let mut rest = JoinSet::new();
        let (_never_stop, never_stopping) = watch::channel(false);
        if let Some(metrics) = metrics {
            // Its connections are few, and must be answered when there is no memory for others.
            let memory = MemoryBudget::new(METRICS_CONNECTIONS_BYTES);
            let router = metrics_router(state.clone(), memory.clone());
            let serving = Serving { router, memory, stop: never_stopping };
            let limits = ConnectionLimits {
                max: METRICS_CONNECTIONS_MAX,
                idle_min: METRICS_CONNECTION_IDLE_MIN,
                ..limits
            };
            rest.spawn(serve_port(adopt(metrics), serving, limits));
        }
        let upkeep = app.clone();
        rest.spawn(async move {
            let mut is_live = true;
            loop {
                tokio::time::sleep(UPKEEP_INTERVAL).await;
                upkeep.metrics.upkeep();
                let was_live = is_live;
                is_live = match upkeep.check_live() {
                    Ok(()) if !was_live => {
                        log("the device reports again");
                        true
                    }
                    Ok(()) => true,
                    Err(error) => {
                        if was_live {
                            log(&error.to_string());
                        }
                        false
                    }
                };
            }
        });

        shutdown.await;
        app.drain();
        let mut abort = pin!(abort);
        let is_aborted = tokio::select! {
            biased;
            () = abort.as_mut() => true,
            () = tokio::time::sleep(config.drain_delay) => false,
        };
        let _ = stop.send(true);
        let drain = async {
            // The engine last: a request whose body is still on its way is in flight.
            port.join_next().await;
            shut_down(app.engine.clone()).await;
        };
        let is_drained = tokio::select! {
            biased;
            () = drain, if !is_aborted => true,
            () = abort, if !is_aborted => false,
            () = std::future::ready(()), if is_aborted => false,
            () = tokio::time::sleep(config.grace) => false,
        };
        if is_drained {
            return Stopped::Drained;
        }
        port.shutdown().await;
        // Its requests are cancelled by now; a device that hangs is left behind.
        let _ = tokio::time::timeout(BREAK_OFF_MAX, shut_down(app.engine.clone())).await;
        Stopped::BrokenOff
    }
}

/// Shuts the engine down on a thread of its own: that blocks, and nothing must wait for a thread
/// that hangs.
async fn shut_down(engine: Engine) {
    let (done, is_done) = oneshot::channel();
    let thread = std::thread::Builder::new().name("shutdown".into()).spawn(move || {
        engine.shutdown();
        let _ = done.send(());
    });
    if thread.is_ok() {
        let _ = is_done.await;
    }
}

/// Takes a port.
fn bind(port: &'static str, address: SocketAddr) -> Result<Socket, ListenError> {
    let open = || {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        // A server that starts again takes its port back at once.
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(socket)
    };
    open().map_err(|source| ListenError { address, port, source })
}

/// Opens a port that was taken.
fn listen(
    port: &'static str,
    address: SocketAddr,
    socket: Socket,
) -> Result<(TcpListener, SocketAddr), ListenError> {
    let open = || {
        socket.listen(BACKLOG)?;
        let listener = TcpListener::from(socket);
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    open().map_err(|source| ListenError { address, port, source })
}

/// As many connections as the process may have open files, less those for everything else.
fn most_connections() -> usize {
    /// Models, metrics, and whatever the process opens beside connections.
    const OTHER_FILES: u64 = 128;
    const MOST: u64 = 8192;
    let files = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    files.saturating_sub(OTHER_FILES).clamp(CONNECTIONS_LEAST as u64, MOST) as usize
}

fn adopt(listener: TcpListener) -> tokio::net::TcpListener {
    tokio::net::TcpListener::from_std(listener).expect("a runtime with I/O")
}
