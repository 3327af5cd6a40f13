//! The configuration of a server.

use std::net::{Ipv4Addr, SocketAddr};
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
    /// The time that a request waits for memory before it is refused as overload.
    pub memory_wait: Duration,
    /// The threads for work on large requests and replies.
    pub heavy_threads: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            http: (Ipv4Addr::LOCALHOST, 8000).into(),
            metrics: Some((Ipv4Addr::LOCALHOST, 8002).into()),
            body_bytes_max: 64 << 20,
            grace: Duration::from_secs(30),
            head_timeout: Duration::from_secs(120),
            body_timeout: Duration::from_secs(30),
            body_time_max: Duration::from_secs(300),
            rate_min: 1024,
            reply_timeout: Duration::from_secs(30),
            memory_wait: Duration::from_secs(1),
            heavy_threads: 2,
        }
    }
}
