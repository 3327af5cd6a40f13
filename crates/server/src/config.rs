//! The configuration of a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::available_parallelism;
use std::time::Duration;

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The address for requests. Port 0 takes a free port.
    pub http: SocketAddr,
    /// The address for metrics and health, beside `http`.
    pub metrics: Option<SocketAddr>,
    /// The most bytes of a request's body, as it comes and decompressed.
    pub body_bytes_max: usize,
    /// The most connections to the port for requests; a few more are answered about the server's health. None: as
    /// many as the process may have open files, less a reserve, as a quarter of the memory holds, and 8192 at most.
    pub connections_max: Option<usize>,
    /// The most connections from one address; none: any number.
    pub connections_per_client_max: Option<usize>,
    /// The most bytes of a request's head, at least 8 KiB.
    pub head_bytes_max: u32,
    /// The most requests at a time of one HTTP/2 connection.
    pub streams_max: u32,
    /// The time for which the server still takes connections and requests after it was told to stop and says that
    /// it is not ready: whoever sends it requests has this time to notice.
    pub drain_delay: Duration,
    /// The time that requests in flight may take once the server stops.
    pub grace: Duration,
    /// The time that a client may take to send a request's head, and that a connection may be kept open
    /// without one.
    pub head_timeout: Duration,
    /// The time that a body may pause.
    pub body_timeout: Duration,
    /// The time that a body may take in all.
    pub body_time_max: Duration,
    /// The least rate at which a body must come and a reply must be taken, in bytes a second. 0: any.
    pub rate_min: u64,
    /// The time that a client may take nothing of its reply.
    pub reply_timeout: Duration,
    /// The time that a request has which brings no `timeout`; none: any.
    pub default_timeout: Option<Duration>,
    /// The time that a request waits for memory before it is refused as overload.
    pub memory_wait: Duration,
    /// The threads in each of the two lanes of work on large requests and replies; half of the cores, rounded up,
    /// by default.
    pub heavy_threads: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            http: (Ipv4Addr::LOCALHOST, 8000).into(),
            metrics: Some((Ipv4Addr::LOCALHOST, 8002).into()),
            body_bytes_max: 64 << 20,
            connections_max: None,
            connections_per_client_max: None,
            head_bytes_max: 16 << 10,
            streams_max: 128,
            drain_delay: Duration::ZERO,
            grace: Duration::from_secs(30),
            head_timeout: Duration::from_secs(120),
            body_timeout: Duration::from_secs(30),
            body_time_max: Duration::from_secs(300),
            rate_min: 1024,
            reply_timeout: Duration::from_secs(30),
            default_timeout: None,
            memory_wait: Duration::from_secs(1),
            heavy_threads: available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
        }
    }
}
