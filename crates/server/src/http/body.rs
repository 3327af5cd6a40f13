//! Reading a body, within limits of size and of patience.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, EXPECT};
use batchmaker_wire::{ContentEncoding, WireError, decompress};
use http_body_util::BodyExt;

use crate::http::error::HttpError;

/// The most bytes that are read of a body that is not wanted: a client that still sends when it is
/// refused would lose the reply to a broken connection.
const DISCARDED_BYTES_MAX: usize = 64 << 20;

/// The most bytes that are reserved for a body because its client announced them.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// The limits of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    /// The most bytes, as it comes and decompressed.
    pub(crate) bytes_max: usize,
    /// The time that it may pause.
    pub(crate) timeout: Duration,
}

/// Reads a body and undoes its encoding.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut body: Body,
    limits: BodyLimits,
) -> Result<Vec<u8>, HttpError> {
    let encoding = content_encoding(headers);
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let refusal = match &encoding {
        Err(error) => Some(error.clone()),
        Ok(_) if expected > limits.bytes_max => Some(too_large(limits)),
        Ok(_) => None,
    };
    if let Some(refusal) = refusal {
        // A client that expects `100 Continue` has sent nothing yet.
        if !headers.contains_key(EXPECT) {
            discard(body, limits).await;
        }
        return Err(refusal);
    }
    let mut bytes = Vec::with_capacity(expected.min(RESERVED_BYTES_MAX));
    while let Some(data) = next_data(&mut body, limits).await? {
        if data.len() > limits.bytes_max - bytes.len() {
            discard(body, limits).await;
            return Err(too_large(limits));
        }
        bytes.extend_from_slice(&data);
    }
    match encoding? {
        ContentEncoding::Identity => Ok(bytes),
        encoding => Ok(decompress(encoding, &bytes, limits.bytes_max)?.into_owned()),
    }
}

/// Reads what is left of a body for nothing, unless it is too long for that.
pub(crate) async fn discard(mut body: Body, limits: BodyLimits) {
    let mut left = DISCARDED_BYTES_MAX;
    while let Ok(Some(data)) = next_data(&mut body, limits).await {
        match left.checked_sub(data.len()) {
            Some(fewer) => left = fewer,
            None => return,
        }
    }
}

async fn next_data(
    body: &mut Body,
    limits: BodyLimits,
) -> Result<Option<axum::body::Bytes>, HttpError> {
    loop {
        let frame = tokio::time::timeout(limits.timeout, body.frame()).await;
        match frame.map_err(|_| HttpError::SlowBody(limits.timeout.as_secs()))? {
            None => return Ok(None),
            Some(Err(error)) => return Err(HttpError::BrokenBody(error.to_string())),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(_trailers) => continue,
            },
        }
    }
}

fn too_large(limits: BodyLimits) -> HttpError {
    WireError::TooLarge { limit_bytes: limits.bytes_max }.into()
}

fn content_encoding(headers: &HeaderMap) -> Result<ContentEncoding, HttpError> {
    match headers.get(CONTENT_ENCODING) {
        None => Ok(ContentEncoding::Identity),
        Some(value) => Ok(String::from_utf8_lossy(value.as_bytes()).parse()?),
    }
}
