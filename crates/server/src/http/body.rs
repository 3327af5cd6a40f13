//! Reading a body, within limits of size, of memory and of patience.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, EXPECT};
use batchmaker::{MemoryBudget, Reservation};
use batchmaker_wire::{ContentEncoding, WireError};
use futures_util::future::poll_immediate;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::http::error::HttpError;
use crate::http::need::time_in_need;
use crate::http::stop::stopping;
use crate::serving::app::App;
use crate::serving::blocks::Blocks;
use crate::serving::exchange::within;

/// The most bytes that are read of a body that is not wanted: a client that still sends when it is
/// refused would lose the reply to a broken connection.
const DISCARDED_BYTES_MAX: usize = 64 << 20;

/// The time for which a body that is not wanted is read.
const DISCARDED_FOR_MAX: Duration = Duration::from_secs(10);

/// The most bytes of the body of a request that is not for a model.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// The time over which the least rate is looked at.
const RATE_OVER: Duration = Duration::from_secs(10);

/// The time between two looks at whether little memory is left, while a body pauses.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The time that a body has which is on its way when the server stops.
const TIME_AT_STOP: Duration = Duration::from_secs(3);

/// The limits of a body.
#[derive(Clone, Debug)]
pub(crate) struct BodyLimits {
    /// The most bytes, as it comes and decompressed.
    pub(crate) bytes_max: usize,
    /// The time that it may pause.
    pub(crate) pause_max: Duration,
    /// The time that it may take in all.
    pub(crate) time_max: Duration,
    /// The least bytes a second.
    pub(crate) rate_min: u64,
    /// While little of it is left, a body has less time for a pause.
    pub(crate) memory: Arc<MemoryBudget>,
    /// Turns true when the server stops.
    pub(crate) stop: watch::Receiver<bool>,
}

/// A part of a body, or the error that ends it.
type BodyFrame = Result<Frame<Bytes>, axum::Error>;

/// How a body came so far.
struct Pace<'a> {
    limits: &'a BodyLimits,
    end: Instant,
    /// The begin of the time over which the rate is looked at now, and the bytes that came since.
    since: Instant,
    bytes: u64,
    is_stopping: bool,
}

/// Reads a body as it comes. `memory` grows with it, and waits where there is none.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut body: Body,
    limits: &BodyLimits,
    app: &App,
    memory: &mut Reservation,
) -> Result<(Blocks, ContentEncoding), HttpError> {
    let encoding = content_encoding(headers);
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let encoding = match encoding {
        Ok(encoding) if expected <= limits.bytes_max => encoding,
        Ok(_) => return Err(refuse(headers, body, limits, too_large(limits)).await),
        Err(error) => return Err(refuse(headers, body, limits, error).await),
    };
    let (mut pace, mut blocks) = (Pace::begin(limits), Blocks::default());
    while let Some(data) = pace.next_data(&mut body).await? {
        if data.len() > limits.bytes_max - blocks.len() {
            give_back(blocks, memory);
            discard(body, limits).await;
            return Err(too_large(limits));
        }
        let held = blocks.capacity_with(data.len(), expected);
        if held > memory.bytes() {
            if let Err(error) = within(app, memory.grow_to(held)).await {
                give_back(blocks, memory);
                discard(body, limits).await;
                return Err(error.into());
            }
            pace.wait_is_over();
        }
        blocks.push(&data, expected);
    }
    Ok((blocks, encoding))
}

/// Frees what came of a body that is refused.
fn give_back(blocks: Blocks, memory: &mut Reservation) {
    drop(blocks);
    memory.shrink_to(0);
}

/// Reads the body of a request that wants none, within the limits of a small one; keeps nothing.
pub(crate) async fn skip(
    headers: &HeaderMap,
    mut body: Body,
    limits: &BodyLimits,
) -> Result<(), HttpError> {
    if body.is_end_stream() {
        return Ok(());
    }
    let limits = &limits.of_small();
    if body.size_hint().lower() > limits.bytes_max as u64 {
        return Err(refuse(headers, body, limits, too_large(limits)).await);
    }
    let (mut pace, mut left) = (Pace::begin(limits), limits.bytes_max);
    while let Some(data) = pace.next_data(&mut body).await? {
        match left.checked_sub(data.len()) {
            Some(fewer) => left = fewer,
            None => {
                discard(body, limits).await;
                return Err(too_large(limits));
            }
        }
    }
    Ok(())
}

/// Reads a body that is refused for nothing, unless its client waits to be asked for it.
async fn refuse(
    headers: &HeaderMap,
    body: Body,
    limits: &BodyLimits,
    error: HttpError,
) -> HttpError {
    // A client that expects `100 Continue` has sent nothing yet.
    if !headers.contains_key(EXPECT) {
        discard(body, limits).await;
    }
    error
}

/// Reads what is left of a body for nothing, unless it is too long or too slow for that.
pub(crate) async fn discard(mut body: Body, limits: &BodyLimits) {
    // It is done seldom, and would make the futures of all handlers larger.
    let discard = Box::pin(async move {
        let time_max = limits.time_max.min(DISCARDED_FOR_MAX);
        let limits = BodyLimits { time_max, ..limits.clone() };
        let (mut pace, mut left) = (Pace::begin(&limits), DISCARDED_BYTES_MAX);
        while let Ok(Some(data)) = pace.next_data(&mut body).await {
            match left.checked_sub(data.len()) {
                Some(fewer) => left = fewer,
                None => return,
            }
        }
    });
    discard.await;
}

impl BodyLimits {
    /// The limits of the body of a request that is not for a model.
    pub(crate) fn of_small(&self) -> Self {
        Self { bytes_max: SMALL_BYTES_MAX.min(self.bytes_max), ..self.clone() }
    }
}

impl<'a> Pace<'a> {
    fn begin(limits: &'a BodyLimits) -> Self {
        let since = Instant::now();
        let end = since + limits.time_max;
        Self { limits, end, since, bytes: 0, is_stopping: false }
    }

    /// The client was kept waiting: its rate counts from now on.
    fn wait_is_over(&mut self) {
        (self.since, self.bytes) = (Instant::now(), 0);
    }

    async fn next_data(&mut self, body: &mut Body) -> Result<Option<Bytes>, HttpError> {
        loop {
            // What is here already needs no timer.
            let frame = match poll_immediate(body.frame()).await {
                Some(frame) => frame,
                None => Box::pin(self.wait_for_frame(body)).await?,
            };
            match frame {
                None => return Ok(None),
                Some(Err(error)) => return Err(HttpError::BrokenBody(error.to_string())),
                Some(Ok(frame)) => {
                    // Trailers are skipped.
                    if let Ok(data) = frame.into_data() {
                        self.count(data.len())?;
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    async fn wait_for_frame(&mut self, body: &mut Body) -> Result<Option<BodyFrame>, HttpError> {
        let (begin, mut stop) = (Instant::now(), self.limits.stop.clone());
        loop {
            let end = self.end.min(begin + self.limits.pause_max);
            let look = end.min(Instant::now() + LOOK_INTERVAL);
            tokio::select! {
                biased;
                frame = tokio::time::timeout_at(look, body.frame()) => match frame {
                    Ok(frame) => return Ok(frame),
                    Err(_) if look == end => return Err(self.too_slow()),
                    Err(_) => self.check_pause(begin.elapsed())?,
                },
                () = stopping(&mut stop), if !self.is_stopping => {
                    self.is_stopping = true;
                    self.end = self.end.min(Instant::now() + TIME_AT_STOP);
                }
            }
        }
    }

    fn count(&mut self, bytes: usize) -> Result<(), HttpError> {
        self.bytes += bytes as u64;
        let now = Instant::now();
        if now >= self.end {
            return Err(self.too_slow());
        }
        let elapsed = now - self.since;
        if elapsed < time_in_need(&self.limits.memory).unwrap_or(RATE_OVER) {
            return Ok(());
        }
        if self.bytes < self.limits.rate_min.saturating_mul(elapsed.as_millis() as u64) / 1000 {
            return Err(HttpError::SlowBody(format!(
                "it came at less than {} bytes a second",
                self.limits.rate_min
            )));
        }
        (self.since, self.bytes) = (now, 0);
        Ok(())
    }

    /// Ends a pause that takes longer than little memory allows.
    fn check_pause(&self, pause: Duration) -> Result<(), HttpError> {
        match time_in_need(&self.limits.memory) {
            Some(time) if pause >= time => Err(HttpError::SlowBody(format!(
                "it paused for more than {} s while little memory was left",
                time.as_secs_f64()
            ))),
            _ => Ok(()),
        }
    }

    fn too_slow(&self) -> HttpError {
        let BodyLimits { pause_max, time_max, .. } = *self.limits;
        HttpError::SlowBody(match Instant::now() >= self.end {
            true if self.is_stopping => "the server stops".to_owned(),
            true => format!("it took more than {} s", time_max.as_secs()),
            false => format!("it paused for more than {} s", pause_max.as_secs()),
        })
    }
}

fn too_large(limits: &BodyLimits) -> HttpError {
    WireError::TooLarge { limit_bytes: limits.bytes_max }.into()
}

fn content_encoding(headers: &HeaderMap) -> Result<ContentEncoding, HttpError> {
    match headers.get(CONTENT_ENCODING) {
        None => Ok(ContentEncoding::Identity),
        Some(value) => Ok(String::from_utf8_lossy(value.as_bytes()).parse()?),
    }
}
