//! The reply to a request for a model: put together, encoded and compressed, on a thread for heavy work where it is
//! large. The part of the budget of any reply is free when its last byte was sent.

use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use batchmaker::{MemoryBudget, Pending, Reply, Reservation};
use batchmaker_wire as wire;
use http_body_util::BodyExt;
use wire::ContentEncoding;

use crate::http::error::HttpError;
use crate::serving::app::App;
use crate::serving::deadline::Deadline;
use crate::serving::error::ServeError;
use crate::serving::heavy_work;
use crate::serving::outcome::Phases;

const HEADER_LENGTH: HeaderName = HeaderName::from_static(wire::HEADER_LENGTH);

/// A reply of as many bytes is part of what a connection holds, or a stream of it.
pub(crate) const SHORT_BYTES: usize = 4 << 10;

/// Shorter replies are not worth compressing.
const COMPRESSED_BYTES_MIN: usize = 1 << 10;

/// A body, and what it holds of the budget.
struct HeldBytes<B> {
    bytes: B,
    _memory: Option<Reservation>,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for HeldBytes<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Counts a reply that is not for a model in the budget, unless it is so short that its connection counts it.
pub(crate) async fn hold(
    response: Response,
    memory: &Arc<MemoryBudget>,
) -> Result<Response, HttpError> {
    let length = response.body().size_hint().lower() as usize;
    if length <= SHORT_BYTES {
        return Ok(response);
    }
    let mut held = memory.arrival();
    // A vector that grew has up to twice its length.
    held.try_grow_to(2 * length).map_err(ServeError::from)?;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.map_err(|error| ServeError::Internal(error.to_string()))?;
    let bytes = HeldBytes { bytes: bytes.to_bytes(), _memory: Some(held) };
    Ok(Response::from_parts(parts, Body::from(Bytes::from_owner(bytes))))
}

/// Waits for a reply and makes a response of it, as `encode` does and the client accepts. `work` says how much that
/// is, unless the client wants the reply compressed ([`heavy_work`]). The phases lack the time before the request was
/// submitted.
pub(crate) async fn respond(
    app: &App,
    mut pending: Pending,
    deadline: Deadline,
    headers: &HeaderMap,
    work: usize,
    encode: impl FnOnce(Reply) -> Result<wire::EncodedBody, ServeError> + Send + 'static,
) -> Result<(Response, Phases), HttpError> {
    deadline.ready(&mut pending).await?;
    let (bytes, encoding) = (pending.bytes(), accepted_encoding(headers));
    let work = match encoding {
        ContentEncoding::Identity => work,
        _ if bytes < COMPRESSED_BYTES_MIN => work,
        _ => heavy_work::of_compression(bytes),
    };
    let answer = move || {
        let mut reply = pending.wait().map_err(|error| deadline.with_timeout(error))?;
        let start = Instant::now();
        let (queue_ns, compute_ns) = (reply.queue_ns, reply.compute_ns);
        let memory = reply.memory.take();
        let response = response_of(encode(reply)?, encoding, memory);
        let output_ns = start.elapsed().as_nanos() as u64;
        Ok((response, Phases { input_ns: 0, queue_ns, compute_ns, output_ns }))
    };
    app.heavy_work.run(work, answer).await
}

fn response_of(
    body: wire::EncodedBody,
    encoding: ContentEncoding,
    mut memory: Option<Reservation>,
) -> Response {
    let wire::EncodedBody { bytes, header_length } = body;
    let is_encoded = encoding != ContentEncoding::Identity && bytes.len() >= COMPRESSED_BYTES_MIN;
    let bytes = match is_encoded {
        true => wire::compress(encoding, &bytes).into_owned(),
        false => bytes,
    };
    if let Some(memory) = &mut memory {
        memory.shrink_to(bytes.capacity());
    }
    let bytes = Bytes::from_owner(HeldBytes { bytes, _memory: memory });
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    let content_type = match header_length {
        None => "application/json",
        Some(length) => {
            headers.insert(HEADER_LENGTH, HeaderValue::from(length));
            "application/octet-stream"
        }
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if is_encoded {
        let name = match encoding {
            ContentEncoding::Gzip => "gzip",
            _ => "deflate",
        };
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
    }
    response
}

/// The first encoding that the client names and that is spoken here.
fn accepted_encoding(headers: &HeaderMap) -> ContentEncoding {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = values.flat_map(|value| value.split(','));
    let accepted = codings.find_map(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = quality.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        match name.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" if quality != Ok(0.0) => Some(ContentEncoding::Gzip),
            "deflate" if quality != Ok(0.0) => Some(ContentEncoding::Deflate),
            _ => None,
        }
    });
    accepted.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_encoding_that_is_known_and_wanted_is_taken() {
        let table = [
            ("", ContentEncoding::Identity),
            ("identity", ContentEncoding::Identity),
            ("br", ContentEncoding::Identity),
            ("br, GZIP", ContentEncoding::Gzip),
            ("deflate;q=0.5, gzip", ContentEncoding::Deflate),
            ("gzip;q=0, deflate", ContentEncoding::Deflate),
            ("gzip; q=0.0", ContentEncoding::Identity),
        ];
        for (value, encoding) in table {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]);
            assert_eq!(accepted_encoding(&headers), encoding, "{value}");
        }
        assert_eq!(accepted_encoding(&HeaderMap::new()), ContentEncoding::Identity);
    }
}
