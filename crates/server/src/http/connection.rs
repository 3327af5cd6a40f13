//! One port and its connections: HTTP/1.1, and HTTP/2 for clients that begin with it.
//!
//! hyper watches a connection while its handler runs, and drops the handler when the client
//! closes or resets it.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower_service::Service;

/// The wait before the next attempt where the process has no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The time after which a silent HTTP/2 client is pinged, and the time that it has to answer.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Accepts connections until `stop` turns true; then answers the requests that are in flight,
/// closes each connection after its last one, and returns. Dropped, it breaks them all off.
pub(crate) async fn serve_port(
    listener: TcpListener,
    router: Router,
    head_timeout: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let stop_of_connections = stop.clone();
    loop {
        tokio::select! {
            biased;
            () = stopping(&mut stop) => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (router, stop) = (router.clone(), stop_of_connections.clone());
                    connections.spawn(serve_connection(stream, router, head_timeout, stop));
                }
                // The client's business, not the port's.
                Err(error) if is_of_connection(error.kind()) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn stopping(stop: &mut watch::Receiver<bool>) {
    // Nobody is left who could say stop: the port is about to be dropped.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn is_of_connection(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(kind, ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// The time that a stopping server waits for a connection that is still sending the head of its first request.
const HEAD_TIMEOUT_AT_STOP: Duration = Duration::from_secs(1);

async fn serve_connection(
    stream: TcpStream,
    router: Router,
    head_timeout: Duration,
    mut stop: watch::Receiver<bool>,
) {
    // Replies are written whole: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let has_request = Arc::new(AtomicBool::new(false));
    let service = service_fn({
        let has_request = has_request.clone();
        move |request: Request<Incoming>| {
            has_request.store(true, Ordering::Relaxed);
            let response = router.clone().call(request);
            async move { Ok::<_, Infallible>(response.await.unwrap_or_else(|never| match never {})) }
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(head_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .adaptive_window(true)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // hyper's own timeout begins once it knows the version, which a silent client never tells.
    let mut first_request = pin!(tokio::time::sleep(head_timeout));
    let (mut is_first, mut is_stopping) = (true, false);
    loop {
        tokio::select! {
            // A broken connection is the client's business.
            _ = connection.as_mut() => return,
            () = first_request.as_mut(), if is_first => {
                is_first = false;
                if !has_request.load(Ordering::Relaxed) {
                    return;
                }
            }
            () = stopping(&mut stop), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
                if !has_request.load(Ordering::Relaxed) {
                    let end = tokio::time::Instant::now() + HEAD_TIMEOUT_AT_STOP;
                    first_request.as_mut().reset(end);
                    is_first = true;
                }
            }
        }
    }
}
