//! The connections of one port: how many there are, which are idle, and which of their clients take too long to
//! take a reply.
//!
//! A port has a bound on its connections. Where it is reached, the one that has been idle for longest makes room for a
//! new one, which waits until that one was idle for [`ConnectionLimits::idle_min`]. Where none is idle, or none for that
//! long, a few more are accepted for questions about the server's health.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::http::taking::Taking;

/// Connections beyond the bound, for questions about the server's health.
const RESERVE: usize = 32;

/// The time that a connection has which is not for anything.
const HEALTH_TIME: Duration = Duration::from_secs(2);

/// The limits of a port's connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// The most connections.
    pub(crate) max: usize,
    /// The most connections from one address; none: any number.
    pub(crate) max_per_client: Option<usize>,
    /// The time that a connection may be idle though others want its place: its first request, or its next, may be on
    /// its way.
    pub(crate) idle_min: Duration,
    /// The most bytes of a request's head, which are also the most that are read before they are handled.
    pub(crate) head_bytes_max: u32,
    /// The most streams of an HTTP/2 connection.
    pub(crate) streams_max: u32,
    /// The time that a client may take to send a request's head, and that a connection may be kept open without one.
    pub(crate) head_timeout: Duration,
    /// The time that a client may take nothing of its reply.
    pub(crate) reply_timeout: Duration,
    /// The least bytes a second at which a reply must be taken.
    pub(crate) rate_min: u64,
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Anything.
    Any,
    /// Questions about the server's health alone: there are too many connections.
    Health,
    /// Nothing: its client has too many connections.
    Refusal,
}

/// The connections of one port.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: ConnectionLimits,
    start: Instant,
    last_request_ms: Arc<AtomicU64>,
    /// Connections that may take their memory from the part that is left to small requests.
    small_places: Arc<Semaphore>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<u64, Arc<Connection>>,
    clients: HashMap<IpAddr, usize>,
    next: u64,
    /// Since when new ones have waited for one that is about to be idle for long enough.
    waiting_since_ms: Option<u64>,
}

/// What is known of an open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    start: Instant,
    /// When a request began or ended on any connection of the port, in milliseconds since the port's start.
    last_request_ms: Arc<AtomicU64>,
    pub(crate) purpose: Purpose,
    client: IpAddr,
    /// When it began, in milliseconds since the port's start.
    opened_ms: u64,
    /// Its requests that are being answered.
    busy: AtomicU32,
    /// When it had its last request, or began, in milliseconds since the port's start.
    idle_since_ms: AtomicU64,
    pub(crate) has_request: AtomicBool,
    /// Whether it was asked to close.
    is_closing: AtomicBool,
    /// Whether it is to be closed whatever it does.
    is_broken_off: AtomicBool,
    /// Notified when it is to be closed, where [`Connection::has_to_close`] agrees.
    pub(crate) close: Notify,
    /// How far its client is with what is written to it.
    pub(crate) writes: Taking,
    /// The replies to requests of HTTP/2.
    replies: Mutex<Vec<Weak<StreamReply>>>,
}

/// An open connection; taken off the table on drop.
#[derive(Debug)]
pub(crate) struct Open {
    connections: Arc<Connections>,
    id: u64,
    pub(crate) connection: Arc<Connection>,
}

/// A request that is being answered; ends with the last byte of its reply.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Connection>);

/// The reply to a request of HTTP/2, whose client may take other replies and not this one; ends with the last byte.
#[derive(Debug)]
pub(crate) struct StreamReply {
    _busy: Busy,
    taking: Taking,
    /// The bytes that are to be written as soon as the client allows it.
    left: AtomicU64,
}

impl Connections {
    /// None is open yet. At most `small_max` at a time may take their memory from the part that is left to small
    /// requests.
    pub(crate) fn new(limits: ConnectionLimits, small_max: usize) -> Arc<Self> {
        let (start, last_request_ms) = (Instant::now(), Arc::default());
        let small_places = Arc::new(Semaphore::new(small_max));
        Arc::new(Self { limits, start, last_request_ms, small_places, table: Mutex::default() })
    }

    /// Takes in a new connection; none while there is no place for it.
    pub(crate) fn open(self: &Arc<Self>, client: IpAddr) -> Option<Open> {
        let mut table = lock(&self.table);
        let now_ms = self.now_ms();
        let of_client = table.clients.get(&client).copied().unwrap_or(0);
        // Those that were asked to close are as good as gone.
        let mut left = table.open.values().filter(|open| !open.is_closing()).count();
        if left >= self.limits.max {
            let idle_min = self.limits.idle_min;
            let idle = table.idle_for_longest(now_ms, |purpose| purpose == Purpose::Any);
            let is_about_to_be = idle.is_some_and(|(_, time)| time < idle_min);
            if is_about_to_be && table.waited_for(now_ms) < idle_min {
                table.waiting_since_ms.get_or_insert(now_ms);
                return None;
            }
            let is_reserve_full = left >= self.limits.max + RESERVE;
            let in_reserve = || {
                let idle = table.idle_for_longest(now_ms, |purpose| purpose != Purpose::Any);
                idle.filter(|(_, time)| is_reserve_full && *time >= idle_min)
            };
            match idle.filter(|(_, time)| *time >= idle_min).or_else(in_reserve) {
                Some((idle, _)) => {
                    idle.make_room();
                    left -= 1;
                }
                None if is_reserve_full => return None,
                None => {}
            }
        }
        if table.open.len() >= self.limits.max + 2 * RESERVE {
            return None;
        }
        let purpose = if self.limits.max_per_client.is_some_and(|max| of_client >= max) {
            Purpose::Refusal
        } else if left < self.limits.max {
            table.waiting_since_ms = None;
            Purpose::Any
        } else {
            Purpose::Health
        };
        let connection = Arc::new(Connection {
            start: self.start,
            last_request_ms: self.last_request_ms.clone(),
            purpose,
            client,
            opened_ms: now_ms,
            busy: AtomicU32::new(0),
            idle_since_ms: AtomicU64::new(now_ms),
            has_request: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            is_broken_off: AtomicBool::new(false),
            close: Notify::new(),
            writes: Taking::default(),
            replies: Mutex::default(),
        });
        let id = table.next;
        table.next += 1;
        table.open.insert(id, connection.clone());
        *table.clients.entry(client).or_default() += 1;
        drop(table);
        Some(Open { connections: self.clone(), id, connection })
    }

    /// Closes connections whose clients take too long to take what they are sent, or, whatever they do, to ask about
    /// health on one that is meant for that. Where others are in need, clients may take nothing of their replies
    /// for no longer than `time_in_need`.
    pub(crate) fn close_stuck(&self, time_in_need: Option<Duration>) {
        let mut limits = self.limits;
        if let Some(time) = time_in_need {
            limits.reply_timeout = limits.reply_timeout.min(time);
        }
        let now_ms = self.now_ms();
        let open: Vec<_> = lock(&self.table).open.values().cloned().collect();
        for connection in open {
            let open_for = Duration::from_millis(now_ms.saturating_sub(connection.opened_ms));
            let is_over = connection.purpose != Purpose::Any && open_for > HEALTH_TIME;
            if is_over || connection.is_stuck(now_ms, &limits) {
                connection.break_off();
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}

impl Table {
    /// The time for which new ones have waited.
    fn waited_for(&self, now_ms: u64) -> Duration {
        let since_ms = self.waiting_since_ms.unwrap_or(now_ms);
        Duration::from_millis(now_ms.saturating_sub(since_ms))
    }

    /// The connection without a request, of those of a purpose that is meant, that had none for longest; and that time.
    fn idle_for_longest(
        &self,
        now_ms: u64,
        is_meant: impl Fn(Purpose) -> bool,
    ) -> Option<(&Connection, Duration)> {
        let open = self.open.values().filter(|open| !open.is_closing() && is_meant(open.purpose));
        open.filter_map(|open| Some((&**open, open.idle_for(now_ms)?)))
            .max_by_key(|(_, time)| *time)
    }
}

impl Connection {
    /// Asks the connection to close, whatever it does.
    fn break_off(&self) {
        self.is_broken_off.store(true, Ordering::SeqCst);
        self.make_room();
    }

    /// Asks the connection to close unless a request has come meanwhile.
    fn make_room(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.close.notify_one();
    }

    /// Whether the connection has to close that was asked to; if not, it stays.
    pub(crate) fn has_to_close(&self) -> bool {
        let has_to_close = self.is_idle() || self.is_broken_off.load(Ordering::SeqCst);
        if !has_to_close {
            self.is_closing.store(false, Ordering::SeqCst);
        }
        has_to_close
    }

    fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Whether it has no request, and its client has taken all that was written to it.
    pub(crate) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::SeqCst) == 0 && !self.writes.is_waited_for()
    }

    /// The time for which it had no request; none if it has one.
    fn idle_for(&self, now_ms: u64) -> Option<Duration> {
        let since_ms = self.idle_since_ms.load(Ordering::Relaxed);
        self.is_idle().then(|| Duration::from_millis(now_ms.saturating_sub(since_ms)))
    }

    /// Notes a request.
    pub(crate) fn begin_request(self: &Arc<Self>) -> Busy {
        self.last_request_ms.fetch_max(self.now_ms(), Ordering::Relaxed);
        self.has_request.store(true, Ordering::SeqCst);
        self.busy.fetch_add(1, Ordering::SeqCst);
        Busy(self.clone())
    }

    /// Notes that the client is waited for to take what is written.
    pub(crate) fn waits_to_write(&self) {
        self.writes.waits(self.now_ms());
    }

    /// Notes that the client took all that was written.
    pub(crate) fn wrote_all(&self) {
        if self.writes.is_waited_for() {
            self.idle_since_ms.store(self.now_ms(), Ordering::Relaxed);
            self.writes.took_all();
        }
    }

    /// The time for which no request began or ended on any connection of the port.
    pub(crate) fn port_idle_for(&self) -> Duration {
        let since_ms = self.last_request_ms.load(Ordering::Relaxed);
        Duration::from_millis(self.now_ms().saturating_sub(since_ms))
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    fn is_stuck(&self, now_ms: u64, limits: &ConnectionLimits) -> bool {
        let replies: Vec<_> = lock(&self.replies).iter().filter_map(Weak::upgrade).collect();
        // Each is looked at.
        let stuck = replies.iter().filter(|reply| reply.is_stuck(now_ms, limits)).count();
        self.writes.is_stuck(now_ms, limits.reply_timeout, limits.rate_min) || stuck > 0
    }
}

impl StreamReply {
    /// Begins the reply to a request.
    pub(crate) fn begin(busy: Busy) -> Arc<Self> {
        let connection = busy.0.clone();
        let reply =
            Arc::new(Self { _busy: busy, taking: Taking::default(), left: AtomicU64::new(0) });
        let mut replies = lock(&connection.replies);
        replies.retain(|reply| reply.strong_count() > 0);
        replies.push(Arc::downgrade(&reply));
        drop(replies);
        reply
    }

    /// Notes bytes that are to be written as soon as the client allows it.
    pub(crate) fn hand_out(&self, bytes: usize) {
        self.left.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that bytes were written.
    pub(crate) fn wrote(&self, bytes: usize) {
        self.taking.took(bytes);
        if self.left.fetch_sub(bytes as u64, Ordering::Relaxed) == bytes as u64 {
            self.taking.took_all();
        }
    }

    fn is_stuck(&self, now_ms: u64, limits: &ConnectionLimits) -> bool {
        if self.left.load(Ordering::Relaxed) > 0 {
            self.taking.waits(now_ms);
        }
        self.taking.is_stuck(now_ms, limits.reply_timeout, limits.rate_min)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let now_ms = self.0.now_ms();
        self.0.last_request_ms.fetch_max(now_ms, Ordering::Relaxed);
        self.0.idle_since_ms.store(now_ms, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Open {
    /// The limits of the port's connections.
    pub(crate) fn limits(&self) -> ConnectionLimits {
        self.connections.limits
    }

    /// A place among the connections that take their memory from the part that is left to small requests.
    pub(crate) fn small_place(&self) -> Option<OwnedSemaphorePermit> {
        self.connections.small_places.clone().try_acquire_owned().ok()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut table = lock(&self.connections.table);
        table.open.remove(&self.id);
        let client = self.connection.client;
        if let Some(count) = table.clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                table.clients.remove(&client);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const IDLE_MIN: Duration = Duration::from_millis(50);

    fn connections(max: usize, max_per_client: Option<usize>) -> Arc<Connections> {
        let second = Duration::from_secs(1);
        let limits = ConnectionLimits {
            max,
            max_per_client,
            idle_min: IDLE_MIN,
            head_bytes_max: 1 << 16,
            streams_max: 9,
            head_timeout: second,
            reply_timeout: second,
            rate_min: 1000,
        };
        Connections::new(limits, 1)
    }

    /// Lets connections be idle for long enough to make room.
    fn idle() {
        std::thread::sleep(IDLE_MIN + Duration::from_millis(5));
    }

    #[test]
    fn an_idle_connection_makes_room_and_busy_ones_leave_a_reserve() {
        let connections = connections(2, None);
        let open = || connections.open(CLIENT).unwrap();
        let (first, second) = (open(), open());
        let busy = first.connection.begin_request();
        assert!(connections.open(CLIENT).is_none(), "the second may be about to send");
        idle();
        let third = open();
        assert_eq!(third.connection.purpose, Purpose::Any);
        assert!(second.connection.is_closing() && !first.connection.is_closing());
        drop(second);
        let busy = (busy, third.connection.begin_request());
        let health: Vec<Open> = (0..RESERVE).map(|_| open()).collect();
        assert!(health.iter().all(|open| open.connection.purpose == Purpose::Health));
        let asked: Vec<_> = health.iter().map(|open| open.connection.begin_request()).collect();
        assert!(connections.open(CLIENT).is_none(), "nothing is idle");
        drop((asked, health, busy, first));
        assert_eq!(open().connection.purpose, Purpose::Any);
    }

    #[test]
    fn connections_that_are_never_idle_for_long_leave_the_reserve() {
        let connections = connections(1, None);
        let first = connections.open(CLIENT).unwrap();
        let begin = Instant::now();
        let second = loop {
            drop(first.connection.begin_request());
            match connections.open(CLIENT) {
                Some(open) => break open,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        assert_eq!(second.connection.purpose, Purpose::Health);
        assert!(begin.elapsed() >= IDLE_MIN);
        drop(first.connection.begin_request());
        assert!(connections.open(CLIENT).is_some(), "others do not wait again");
    }

    #[test]
    fn a_connection_for_health_ends_whatever_it_does() {
        let connections = connections(0, None);
        let health = connections.open(CLIENT).unwrap();
        let _busy = health.connection.begin_request();
        connections.close_stuck(None);
        assert!(!health.connection.has_to_close());
        std::thread::sleep(HEALTH_TIME + Duration::from_millis(5));
        connections.close_stuck(None);
        assert!(health.connection.has_to_close());
    }

    #[test]
    fn a_request_that_comes_keeps_its_connection() {
        let connections = connections(1, None);
        let first = connections.open(CLIENT).unwrap();
        idle();
        let _second = connections.open(CLIENT).unwrap();
        assert!(first.connection.is_closing());
        let busy = first.connection.begin_request();
        assert!(!first.connection.has_to_close() && !first.connection.is_closing());
        first.connection.break_off();
        assert!(first.connection.has_to_close());
        drop(busy);
    }

    #[test]
    fn a_connection_whose_reply_is_not_written_makes_no_room() {
        let connections = connections(1, None);
        let first = connections.open(CLIENT).unwrap();
        first.connection.waits_to_write();
        idle();
        let second = connections.open(CLIENT).unwrap();
        assert_eq!(second.connection.purpose, Purpose::Health);
        assert!(!first.connection.is_idle() && !first.connection.is_closing());
        drop(second);
        first.connection.wrote_all();
        assert!(connections.open(CLIENT).is_none(), "its next request may be on its way");
        idle();
        assert_eq!(connections.open(CLIENT).unwrap().connection.purpose, Purpose::Any);
        assert!(first.connection.is_closing());
    }

    #[test]
    fn a_client_has_a_limit_of_its_own() {
        let connections = connections(9, Some(1));
        let first = connections.open(CLIENT).unwrap();
        assert_eq!(first.connection.purpose, Purpose::Any);
        let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(connections.open(CLIENT).unwrap().connection.purpose, Purpose::Refusal);
        assert_eq!(connections.open(other).unwrap().connection.purpose, Purpose::Any);
        drop(first);
        assert_eq!(connections.open(CLIENT).unwrap().connection.purpose, Purpose::Any);
    }

    #[test]
    fn a_reply_of_a_stream_lasts_until_it_is_written() {
        let connections = connections(1, None);
        let open = connections.open(CLIENT).unwrap();
        let (connection, limits) = (&open.connection, connections.limits);
        let reply = StreamReply::begin(connection.begin_request());
        assert!(!connection.is_stuck(0, &limits) && !connection.is_stuck(9999, &limits));
        reply.hand_out(10);
        assert!(!connection.is_stuck(10_000, &limits));
        reply.wrote(9);
        assert!(connection.is_stuck(11_010, &limits) && !connection.is_idle());
        reply.wrote(1);
        assert!(!connection.is_stuck(99_999, &limits) && !connection.is_idle());
        drop(reply);
        assert!(connection.is_idle());
    }
}
