//! The body of a response as it is sent: in parts, so that it is seen how far the client is with it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use crate::http::connections::{Busy, Connection, Taking};

/// The bytes of a part, at most.
const PART_BYTES: usize = 64 << 10;

/// The body of a response, and the request that it answers.
pub(crate) struct ReplyBody {
    body: Body,
    /// What was taken out of `body` and has to be sent yet.
    rest: Bytes,
    stream: Option<Stream>,
    _busy: Busy,
}

/// A stream of HTTP/2, whose client may take other streams' bodies and not this one.
struct Stream {
    connection: Arc<Connection>,
    taking: Arc<Taking>,
}

impl ReplyBody {
    pub(crate) fn new(body: Body, busy: Busy) -> Self {
        Self { body, rest: Bytes::new(), stream: None, _busy: busy }
    }

    pub(crate) fn of_stream(body: Body, connection: Arc<Connection>, busy: Busy) -> Self {
        let stream = Stream { taking: connection.watch_body(), connection };
        Self { stream: Some(stream), ..Self::new(body, busy) }
    }
}

impl HttpBody for ReplyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            if let Some(stream) = &self.stream {
                // The model is waited for, not the client.
                stream.taking.took_all();
            }
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        let length = self.rest.len().min(PART_BYTES);
        let part = self.rest.split_to(length);
        if let Some(Stream { connection, taking }) = &self.stream {
            connection.waits_for(taking);
            taking.took(length);
        }
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, hint) = (self.rest.len() as u64, self.body.size_hint());
        let mut all = SizeHint::new();
        all.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            all.set_upper(upper + rest);
        }
        all
    }
}
