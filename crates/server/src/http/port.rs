//! One port: accepts connections, and stops without losing one.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::http::connection::{Serving, connection_bytes, serve_connection};
use crate::http::connections::{ConnectionLimits, Connections};
use crate::http::need::time_in_need;
use crate::http::stop::stopping;

/// The wait before the next attempt where the process has no room for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The time between two attempts to find a place for a connection that was accepted.
const PLACE_PAUSE: Duration = Duration::from_millis(5);

/// The time between two looks at clients that take too long.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The time that a client may take nothing of its reply while the server stops.
const TIME_AT_STOP: Duration = Duration::from_secs(3);

/// The time that connections have whose client has begun to connect when the port stops.
const HANDSHAKE_TIME: Duration = Duration::from_millis(100);

/// Accepts connections until the server stops; then answers what clients have sent on those that there are, closes
/// each, and returns. Dropped, it breaks them all off.
pub(crate) async fn serve_port(listener: TcpListener, serving: Serving, limits: ConnectionLimits) {
    // Connections may have half of the part that is left to small requests, which is an eighth.
    let small_max = serving.memory.bytes_max() / 16 / connection_bytes(limits.head_bytes_max);
    let connections = Connections::new(limits, small_max);
    let mut tasks = JoinSet::new();
    let mut stop = serving.stop.clone();
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    // A connection that was accepted and has no place yet; others wait in the system's queue behind it.
    let mut waiting = None;
    // Once the port stops: until when clients that have begun to connect are waited for.
    let mut end = None;
    loop {
        if let Some(stream) = waiting.take() {
            waiting = serve(&mut tasks, &connections, stream, &serving);
        }
        tokio::select! {
            biased;
            () = stopping(&mut stop), if end.is_none() => {
                refuse_handshakes(&listener);
                end = Some(Instant::now() + HANDSHAKE_TIME);
            }
            Some(_) = tasks.join_next() => {}
            _ = looks.tick() => connections.close_stuck(match end {
                None => time_in_need(&serving.memory),
                Some(_) => Some(TIME_AT_STOP),
            }),
            () = tokio::time::sleep(PLACE_PAUSE), if waiting.is_some() => {}
            // Clients that are connected have no other place to go: what the system has accepted is taken, however
            // long that takes.
            accepted = listener.accept(), if waiting.is_none() => match accepted {
                Ok((stream, _)) => waiting = Some(stream),
                // The client's business, not the port's.
                Err(error) if is_of_connection(error.kind()) => {}
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            () = until(end), if waiting.is_none() => break,
        }
    }
    drop(listener);
    loop {
        tokio::select! {
            ended = tasks.join_next() => if ended.is_none() { return },
            _ = looks.tick() => connections.close_stuck(Some(TIME_AT_STOP)),
        }
    }
}

/// Waits until `end`, or for ever.
async fn until(end: Option<Instant>) {
    match end {
        Some(end) => tokio::time::sleep_until(end).await,
        None => std::future::pending().await,
    }
}

/// Serves a connection, or gives it back while there is no place for it.
fn serve(
    tasks: &mut JoinSet<()>,
    connections: &Arc<Connections>,
    stream: TcpStream,
    serving: &Serving,
) -> Option<TcpStream> {
    // A connection without an address is broken.
    let client = stream.peer_addr().ok()?;
    match connections.open(client.ip()) {
        Some(open) => drop(tasks.spawn(serve_connection(stream, open, serving.clone()))),
        None => return Some(stream),
    }
    None
}

fn is_of_connection(kind: ErrorKind) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(kind, ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Has the system drop the first packet of every new connection: its client tries again, and is refused once the
/// port is closed. A client whose connection the system accepts and that nobody serves would see it break.
#[cfg(target_os = "linux")]
fn refuse_handshakes(listener: &TcpListener) {
    use socket2::{SockFilter, SockRef};

    /// Codes of classic BPF: load a byte of the packet, jump if it has a bit, return.
    const LOAD_BYTE: u16 = 0x30;
    const JUMP_IF_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    /// Where TCP's flags are, and the flag of a connection's first packet.
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    let filter = [
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(JUMP_IF_SET, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ];
    // Without the filter, a client that connects in the last moment is refused by a reset.
    let _ = SockRef::from(listener).attach_filter(&filter);
}

#[cfg(not(target_os = "linux"))]
fn refuse_handshakes(_listener: &TcpListener) {}
