//! The body of a response as it is sent: in parts, so that it is seen how far the client is with it.
//!
//! hyper gives a part to HTTP/2 and drops the body before the client allows the part to be sent. So a part of a
//! stream itself says what became of it, and the request lasts until the last part was written.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Buf, Frame, SizeHint};

use crate::http::connections::{Busy, StreamReply};

/// The bytes of a part, at most.
const PART_BYTES: usize = 64 << 10;

/// The body of a response, and the request that it answers.
pub(crate) struct ReplyBody {
    body: Body,
    /// What was taken out of `body` and has to be sent yet.
    rest: Bytes,
    request: Answered,
}

/// The request that a body answers.
enum Answered {
    /// Of HTTP/1.1: the connection sends nothing else meanwhile, and its writes are watched.
    Alone { _busy: Busy },
    /// Of HTTP/2: the client may take other streams' bodies and not this one.
    Stream(Arc<StreamReply>),
}

/// A part of a body.
pub(crate) struct Part {
    bytes: Bytes,
    /// The reply of a stream, which lasts as long as its parts.
    stream: Option<Arc<StreamReply>>,
}

impl ReplyBody {
    pub(crate) fn new(body: Body, busy: Busy) -> Self {
        Self { body, rest: Bytes::new(), request: Answered::Alone { _busy: busy } }
    }

    pub(crate) fn of_stream(body: Body, busy: Busy) -> Self {
        Self { body, rest: Bytes::new(), request: Answered::Stream(StreamReply::begin(busy)) }
    }
}

impl HttpBody for ReplyBody {
    type Data = Part;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Part>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => {
                        let nothing = |_| Part { bytes: Bytes::new(), stream: None };
                        return Poll::Ready(Some(Ok(other.map_data(nothing))));
                    }
                },
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let length = self.rest.len().min(PART_BYTES);
        let bytes = self.rest.split_to(length);
        let stream = match &self.request {
            Answered::Alone { .. } => None,
            Answered::Stream(reply) => {
                reply.hand_out(length);
                Some(reply.clone())
            }
        };
        Poll::Ready(Some(Ok(Frame::data(Part { bytes, stream }))))
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

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(reply) = &self.stream {
            reply.wrote(count);
        }
    }
}
