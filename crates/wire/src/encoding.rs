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

/// Undoes `encoding`; a body that was not encoded is not copied.
///
/// # Errors
/// [`WireError::TooLarge`] as soon as there are more than `limit_bytes`, so that a small body
/// cannot make a large one; [`WireError::Invalid`] where `body` is not whole and sound.
pub fn decompress(
    encoding: ContentEncoding,
    body: &[u8],
    limit_bytes: usize,
) -> Result<Cow<'_, [u8]>, WireError> {
    let decoded = match encoding {
        ContentEncoding::Identity => Cow::Borrowed(body),
        ContentEncoding::Gzip => Cow::Owned(gunzip(body, limit_bytes)?),
        ContentEncoding::Deflate => Cow::Owned(inflate(body, limit_bytes)?),
    };
    if decoded.len() > limit_bytes { Err(WireError::TooLarge { limit_bytes }) } else { Ok(decoded) }
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

/// Reads at most one byte more than the limit, which is enough to know that it is passed.
fn gunzip(body: &[u8], limit_bytes: usize) -> Result<Vec<u8>, WireError> {
    let mut decoded = Vec::new();
    let mut reader = MultiGzDecoder::new(body).take((limit_bytes as u64).saturating_add(1));
    match reader.read_to_end(&mut decoded) {
        Ok(_) => Ok(decoded),
        Err(error) => Err(WireError::invalid(format!("the body is not sound gzip: {error}"))),
    }
}

/// As [`gunzip`]. The readers of `flate2` take a stream that breaks off for one that ended, hence
/// the loop.
fn inflate(body: &[u8], limit_bytes: usize) -> Result<Vec<u8>, WireError> {
    const GROWTH_BYTES: usize = 32 << 10;
    let unsound = |what: &str| WireError::invalid(format!("the body is not sound deflate: {what}"));
    let mut state = Decompress::new(is_zlib(body));
    let mut decoded = Vec::new();
    while decoded.len() <= limit_bytes {
        if decoded.len() == decoded.capacity() {
            decoded.reserve(GROWTH_BYTES);
        }
        let rest = &body[state.total_in() as usize..];
        let before = (state.total_in(), decoded.len());
        let status = state
            .decompress_vec(rest, &mut decoded, FlushDecompress::None)
            .map_err(|error| unsound(&error.to_string()))?;
        if status == Status::StreamEnd {
            let over = body.len() - state.total_in() as usize;
            return if over == 0 { Ok(decoded) } else { Err(unsound("bytes follow its end")) };
        }
        if before == (state.total_in(), decoded.len()) {
            return Err(unsound("it breaks off"));
        }
    }
    Ok(decoded)
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
