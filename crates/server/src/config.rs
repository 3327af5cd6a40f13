//! What a server is told when it starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What a server is told when it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where it takes requests. Port 0 takes any that is free.
    pub http: SocketAddr,
    /// Where it tells its metrics and its health, if anywhere but under `http`.
    pub metrics: Option<SocketAddr>,
    /// The most bytes of a request's body, as it comes and decompressed.
    pub body_bytes_max: usize,
    /// How long requests in flight may take once the server is told to stop.
    pub grace: Duration,
    /// How long a client may take to send a request's head; the same for a connection kept
    /// open without one.
    pub head_timeout: Duration,
    /// How long a body may pause.
    pub body_timeout: Duration,
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
        }
    }
}
