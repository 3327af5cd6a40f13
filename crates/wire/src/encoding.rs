//! Content encodings of bodies: compresses and decompresses gzip and deflate, up to a limit on the size of a body.
//!
//! `deflate` is a zlib stream (RFC 9110, section 8.4.1.2); bare deflate data, which some clients
//! send under that name, is read too.

use std::borrow::Cow;
use std::fmt;
use std::io::{Read, Write};
use std::str::FromStr;

use flate2::bufread::MultiGzDecoder;
use flate2::write::{GzEncoder, ZlibEncoder};
use flate2::{Compression, Decompress, FlushDecompress, Status};

use crate::error::{WireError, excerpt};

/// The encoding of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ContentEncoding {
    /// Nothing.
    #[default]
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950.
    Deflate,
}

impl FromStr for ContentEncoding {
    type Err = WireError;

    /// Reads the value of a `Content-Encoding` header, in whatever case.
    fn from_str(value: &str) -> Result<Self, WireError> {
        match value.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            "deflate" => Ok(Self::Deflate),
            _ => Err(WireError::UnsupportedEncoding(excerpt(value))),
        }
    }
}

/// The value of a `Content-Encoding` header.
impl fmt::Display for ContentEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        })
    }
}

/// Undoes `encoding`. Before the decoded bytes take more memory, `may_hold` is asked for as many in all.
///
/// # Errors
/// [`WireError::TooLarge`] as soon as there are more than `limit_bytes`, so that a small body
/// cannot make a large one; [`WireError::Invalid`] where `body` is not whole and sound; what `may_hold` says.
pub fn decompress<E: From<WireError>>(
    encoding: ContentEncoding,
    body: &[u8],
    limit_bytes: usize,
    may_hold: impl FnMut(usize) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    let mut decoded = Decoded { bytes: Vec::new(), limit_bytes, may_hold };
    match encoding {
        ContentEncoding::Identity => decoded.copy(body)?,
        ContentEncoding::Gzip => decoded.gunzip(body)?,
        ContentEncoding::Deflate => decoded.inflate(body)?,
    }
    Ok(decoded.bytes)
}

/// Applies `encoding`, at the speed that suits a reply.
pub fn compress(encoding: ContentEncoding, body: &[u8]) -> Cow<'_, [u8]> {
    const IN_MEMORY: &str = "a vector takes all that is written";
    match encoding {
        ContentEncoding::Identity => Cow::Borrowed(body),
        ContentEncoding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body).expect(IN_MEMORY);
            Cow::Owned(encoder.finish().expect(IN_MEMORY))
        }
        ContentEncoding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(body).expect(IN_MEMORY);
            Cow::Owned(encoder.finish().expect(IN_MEMORY))
        }
    }
}

/// Bytes that are decoded, within limits.
struct Decoded<F> {
    bytes: Vec<u8>,
    limit_bytes: usize,
    may_hold: F,
}

impl<F> Decoded<F> {
    /// The bytes that are decoded at a time, at least.
    const GROWTH_BYTES: usize = 32 << 10;

    /// Makes room for more bytes: twice as many as there are, but one more than the limit at most, which is enough
    /// to know that it is passed.
    fn grow<E: From<WireError>>(&mut self) -> Result<(), E>
    where
        F: FnMut(usize) -> Result<(), E>,
    {
        let Self { bytes, limit_bytes, may_hold } = self;
        if bytes.len() > *limit_bytes {
            return Err(WireError::TooLarge { limit_bytes: *limit_bytes }.into());
        }
        if bytes.len() < bytes.capacity() {
            return Ok(());
        }
        let more = bytes.len().max(Self::GROWTH_BYTES);
        let capacity = (bytes.len() + more).min(limit_bytes.saturating_add(1));
        // The old bytes and the new ones, while they are copied.
        may_hold(bytes.len() + capacity)?;
        bytes.reserve_exact(capacity - bytes.len());
        Ok(())
    }

    fn copy<E: From<WireError>>(&mut self, body: &[u8]) -> Result<(), E>
    where
        F: FnMut(usize) -> Result<(), E>,
    {
        if body.len() > self.limit_bytes {
            return Err(WireError::TooLarge { limit_bytes: self.limit_bytes }.into());
        }
        (self.may_hold)(body.len())?;
        self.bytes = body.to_vec();
        Ok(())
    }

    fn gunzip<E: From<WireError>>(&mut self, body: &[u8]) -> Result<(), E>
    where
        F: FnMut(usize) -> Result<(), E>,
    {
        let mut reader = MultiGzDecoder::new(body);
        loop {
            self.grow()?;
            let room = self.bytes.capacity() - self.bytes.len();
            let read = reader.by_ref().take(room as u64).read_to_end(&mut self.bytes);
            let read = read.map_err(|error| {
                WireError::invalid(format!("the body is not sound gzip: {error}"))
            })?;
            if read < room {
                return Ok(());
            }
        }
    }

    /// The readers of `flate2` take a stream that breaks off for one that ended, hence the loop.
    fn inflate<E: From<WireError>>(&mut self, body: &[u8]) -> Result<(), E>
    where
        F: FnMut(usize) -> Result<(), E>,
    {
        let unsound =
            |what: &str| WireError::invalid(format!("the body is not sound deflate: {what}"));
        let mut state = Decompress::new(is_zlib(body));
        loop {
            self.grow()?;
            let rest = &body[state.total_in() as usize..];
            let before = (state.total_in(), self.bytes.len());
            let status = state
                .decompress_vec(rest, &mut self.bytes, FlushDecompress::None)
                .map_err(|error| unsound(&error.to_string()))?;
            if status == Status::StreamEnd {
                let over = body.len() - state.total_in() as usize;
                return match (over, self.bytes.len() > self.limit_bytes) {
                    (_, true) => Err(WireError::TooLarge { limit_bytes: self.limit_bytes }.into()),
                    (0, false) => Ok(()),
                    _ => Err(unsound("bytes follow its end").into()),
                };
            }
            if before == (state.total_in(), self.bytes.len()) {
                return Err(unsound("it breaks off").into());
            }
        }
    }
}

/// Whether deflate data has a zlib header (RFC 1950, section 2.2): compression method 8, and the
/// first two bytes a multiple of 31. Bare deflate data cannot look so, unless an encoder puts
/// other bits than zeros before a stored block.
fn is_zlib(body: &[u8]) -> bool {
    match *body {
        [first, second, ..] => {
            first & 0x0f == 8 && u16::from_be_bytes([first, second]).is_multiple_of(31)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::write::DeflateEncoder;
    use proptest::prelude::*;

    const ENCODINGS: [ContentEncoding; 3] =
        [ContentEncoding::Identity, ContentEncoding::Gzip, ContentEncoding::Deflate];

    fn decompress(
        encoding: ContentEncoding,
        body: &[u8],
        limit_bytes: usize,
    ) -> Result<Vec<u8>, WireError> {
        super::decompress(encoding, body, limit_bytes, |_| Ok(()))
    }

    fn bare_deflate(body: &[u8], level: Compression) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), level);
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn header_values_are_read_in_any_case() {
        for encoding in ENCODINGS {
            assert_eq!(encoding.to_string().to_uppercase().parse(), Ok(encoding));
        }
        assert_eq!(" x-gzip".parse(), Ok(ContentEncoding::Gzip));
        let error = "br".parse::<ContentEncoding>().unwrap_err();
        assert_eq!(error, WireError::UnsupportedEncoding("br".into()));
        let message = "content encoding 'br' is not supported, expected identity, gzip or deflate";
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let zeros = vec![0; 1 << 20];
        for encoding in ENCODINGS {
            let bomb = compress(encoding, &zeros);
            assert_eq!(decompress(encoding, &bomb, zeros.len()).unwrap().len(), zeros.len());
            for limit_bytes in [0, 1000, zeros.len() - 1] {
                let error = decompress(encoding, &bomb, limit_bytes).unwrap_err();
                assert_eq!(error, WireError::TooLarge { limit_bytes });
            }
        }
    }

    #[test]
    fn memory_is_asked_for_before_it_is_taken() {
        let zeros = vec![0; 1 << 20];
        for encoding in [ContentEncoding::Gzip, ContentEncoding::Deflate] {
            let bomb = compress(encoding, &zeros);
            let mut asked = 0;
            let may_hold = |bytes| {
                asked = bytes;
                match bytes {
                    ..200_000 => Ok(()),
                    _ => Err(WireError::invalid("no more")),
                }
            };
            let error = super::decompress(encoding, &bomb, zeros.len(), may_hold).unwrap_err();
            assert_eq!(error, WireError::invalid("no more"));
            assert!((200_000..400_000).contains(&asked), "{asked}");
        }
    }

    #[test]
    fn a_body_that_breaks_off_or_goes_on_is_refused() {
        let text = b"a body of some length, and of some length";
        let bodies = [
            (ContentEncoding::Gzip, compress(ContentEncoding::Gzip, text).into_owned()),
            (ContentEncoding::Deflate, compress(ContentEncoding::Deflate, text).into_owned()),
            (ContentEncoding::Deflate, bare_deflate(text, Compression::default())),
        ];
        for (encoding, mut body) in bodies {
            for length in 0..body.len() {
                let error = decompress(encoding, &body[..length], 1000).unwrap_err().to_string();
                let expected = format!("the body is not sound {encoding}: ");
                assert!(error.starts_with(&expected), "{length}: {error}");
            }
            body.push(0);
            decompress(encoding, &body, 1000).unwrap_err();
        }
    }

    #[test]
    fn a_wrong_checksum_is_refused() {
        for encoding in [ContentEncoding::Gzip, ContentEncoding::Deflate] {
            let mut body = compress(encoding, b"text").into_owned();
            let last = body.len() - if encoding == ContentEncoding::Gzip { 5 } else { 1 };
            body[last] ^= 1;
            decompress(encoding, &body, 1000).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn bodies_come_back(body: Vec<u8>, repeat in 1usize..2000) {
            let body = body.repeat(repeat);
            for encoding in ENCODINGS {
                let encoded = compress(encoding, &body);
                prop_assert_eq!(&*decompress(encoding, &encoded, body.len()).unwrap(), &*body);
            }
            for level in [0, 1, 9].map(Compression::new) {
                let encoded = bare_deflate(&body, level);
                let decoded = decompress(ContentEncoding::Deflate, &encoded, body.len()).unwrap();
                prop_assert_eq!(&*decoded, &*body);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(body: Vec<u8>) {
            for encoding in ENCODINGS {
                let _ = decompress(encoding, &body, 1 << 16);
            }
        }
    }
}
