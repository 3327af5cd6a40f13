//! One connection: HTTP/1.1, and HTTP/2 for clients that begin with it; its limits, and how it ends.
//!
//! hyper watches a connection while its handler runs, and drops the handler when the client
//! closes or resets it.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{HeaderValue, Version};
use axum::response::IntoResponse;
use batchmaker::{MemoryBudget, Reservation};
use hyper::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use tower_service::Service;

use crate::http::connections::{Busy, ConnectionLimits, Open, Purpose};
use crate::http::error::HttpError;
use crate::http::reply::SHORT_BYTES;
use crate::http::reply_body::ReplyBody;
use crate::http::stop::stopping;
use crate::http::watched_stream::WatchedStream;

/// The time after which a silent HTTP/2 client is pinged, and the time that it has to answer.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The most bytes that an HTTP/2 client may send before they are handled.
const WINDOW_BYTES: u32 = 1 << 20;

/// The largest head of an HTTP/2 request, in parts of that of an HTTP/1.1 request: there may be many streams.
const STREAM_HEAD_SHARE: u32 = 4;

/// The time for which a stopping server keeps idle connections after the last request on any: another may be on its
/// way.
const LINGER: Duration = Duration::from_secs(1);

/// What the connections of a port share.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) router: Router,
    pub(crate) memory: Arc<MemoryBudget>,
    /// Turns true when the server stops.
    pub(crate) stop: watch::Receiver<bool>,
}

/// The connection, its limits and its memory, which all of its requests share.
struct Requests {
    purpose: Purpose,
    limits: ConnectionLimits,
    memory: Arc<MemoryBudget>,
    /// The part of it that the connection holds; none where there was no memory left.
    held: Mutex<Option<Held>>,
    /// Whether a request of HTTP/2 has come.
    is_http2: AtomicBool,
    stop: watch::Receiver<bool>,
}

/// The part of the budget that a connection holds.
struct Held {
    memory: Reservation,
    _small_place: Option<OwnedSemaphorePermit>,
}

impl Held {
    /// Takes `bytes` for a connection; none where there is no place for them. Where large requests hold all that they
    /// may, a few connections take theirs from the part that is left to small requests, which come on them.
    fn take(memory: &Arc<MemoryBudget>, open: &Open, bytes: usize) -> Option<Self> {
        let mut standing = memory.standing();
        if standing.try_grow_to(bytes).is_ok() {
            return Some(Self { memory: standing, _small_place: None });
        }
        let place = open.small_place()?;
        let mut small = memory.arrival();
        small.try_grow_to(bytes).ok()?;
        Some(Self { memory: small, _small_place: Some(place) })
    }
}

/// Serves a connection to its end.
///
/// When the server stops, every request that the client sends before it is told of the end is answered: an HTTP/1.1
/// client is told with `Connection: close` in its next response. A connection without a request is kept until
/// the port had none for [`LINGER`], since one may be on its way. HTTP/2 has messages for this, and its clients have
/// that time to acknowledge them.
pub(crate) async fn serve_connection(stream: TcpStream, open: Open, serving: Serving) {
    let Serving { router, memory, mut stop } = serving;
    let connection = &open.connection;
    let limits = open.limits();
    // Replies are written whole: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let held = Held::take(&memory, &open, connection_bytes(limits.head_bytes_max));
    let purpose = if held.is_some() { connection.purpose } else { Purpose::Health };
    let is_http2 = AtomicBool::new(false);
    let requests = Arc::new(Requests {
        purpose,
        limits,
        memory,
        held: Mutex::new(held),
        is_http2,
        stop: stop.clone(),
    });
    let service = service_fn(|request: Request<Incoming>| {
        let busy = connection.begin_request();
        let (requests, router) = (requests.clone(), router.clone());
        async move { Ok::<_, Infallible>(requests.answer(router, request, busy).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.head_bytes_max as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES / 4)
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(limits.head_bytes_max / STREAM_HEAD_SHARE)
        .max_send_buf_size(WINDOW_BYTES as usize / 4)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let stream = TokioIo::new(WatchedStream::new(stream, connection.clone()));
    let mut served = pin!(builder.serve_connection(stream, service));
    // hyper's own timeout begins once it knows the version, which a silent client never tells.
    let mut timer = pin!(tokio::time::sleep(limits.head_timeout));
    let (mut is_timed, mut is_stopping, mut is_ending) = (true, false, false);
    loop {
        tokio::select! {
            // A request that has come is seen before the connection makes room for another.
            biased;
            // A broken connection is the client's business.
            _ = served.as_mut() => return,
            () = connection.close.notified() => if connection.has_to_close() { return },
            () = timer.as_mut(), if is_timed => {
                match is_stopping {
                    false if !connection.has_request.load(Ordering::Relaxed) => return,
                    false => is_timed = false,
                    // A connection that is idle ends; one with a request ends after it.
                    true if !is_ending => {
                        let left = LINGER.saturating_sub(connection.port_idle_for());
                        is_ending = left.is_zero();
                        if is_ending {
                            served.as_mut().graceful_shutdown();
                        }
                        let pause = if is_ending { LINGER } else { left };
                        timer.as_mut().reset(Instant::now() + pause);
                    }
                    // Half a head is no request, and a client of HTTP/2 may never acknowledge the end.
                    true if connection.is_idle() => return,
                    true => timer.as_mut().reset(Instant::now() + LINGER),
                }
            }
            () = stopping(&mut stop), if !is_stopping => {
                (is_stopping, is_timed) = (true, true);
                timer.as_mut().reset(Instant::now() + LINGER);
                if requests.is_http2.load(Ordering::SeqCst) {
                    served.as_mut().graceful_shutdown();
                    is_ending = true;
                }
            }
        }
    }
}

/// The bytes that a connection holds: those that were read and not handled, and those to be written.
pub(crate) fn connection_bytes(head_bytes_max: u32) -> usize {
    2 * head_bytes_max as usize
}

impl Requests {
    async fn answer(
        &self,
        mut router: Router,
        request: Request<Incoming>,
        busy: Busy,
    ) -> Response<ReplyBody> {
        let is_http2 = request.version() == Version::HTTP_2;
        if is_http2 {
            self.is_http2.store(true, Ordering::SeqCst);
        }
        let admitted = self.admit(&request, is_http2);
        let request = match self.purpose {
            Purpose::Any => request.map(Body::new),
            // Whoever asks about health needs no body, and others need the connection.
            _ => request.map(|_| Body::empty()),
        };
        let response = match admitted {
            Ok(()) => router.call(request).await.unwrap_or_else(|never| match never {}),
            Err(error) => refused(error),
        };
        let mut response = response.map(|body| match is_http2 {
            true => ReplyBody::of_stream(body, busy),
            false => ReplyBody::new(body, busy),
        });
        if !is_http2 && (*self.stop.borrow() || self.purpose != Purpose::Any) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Whether a request may be handled. The first one of HTTP/2 takes memory for all streams of the connection.
    fn admit(&self, request: &Request<Incoming>, is_http2: bool) -> Result<(), HttpError> {
        match self.purpose {
            Purpose::Refusal => return Err(HttpError::TooManyOfClient),
            Purpose::Health if !is_about_health(request.uri().path()) => {
                return Err(HttpError::TooManyConnections);
            }
            _ => {}
        }
        if is_http2 && self.purpose == Purpose::Any {
            let ConnectionLimits { streams_max, head_bytes_max, .. } = self.limits;
            let of_stream = (head_bytes_max / STREAM_HEAD_SHARE) as usize + SHORT_BYTES;
            let bytes = 2 * WINDOW_BYTES as usize + streams_max as usize * of_stream;
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            if held.as_ref().is_none_or(|held| held.memory.bytes() < bytes) {
                let mut memory = self.memory.standing();
                memory.try_grow_to(bytes).map_err(|_| HttpError::TooManyConnections)?;
                *held = Some(Held { memory, _small_place: None });
            }
        }
        Ok(())
    }
}

fn is_about_health(path: &str) -> bool {
    path == "/metrics" || path.starts_with("/v2/health/")
}

fn refused(error: HttpError) -> Response<Body> {
    let mut response = error.into_response();
    // Connections end as their clients like: nothing tells when there is a place.
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}
