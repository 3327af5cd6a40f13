//! Errors of bodies, split by what the sender must change.

use thiserror::Error;

/// Why a body cannot be read or written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// The body breaks the protocol, or asks for a reply that cannot be written; its sender must
    /// change it. The message names the tensor, what was expected and what came. HTTP 400.
    #[error("{0}")]
    Invalid(String),
    /// The `Content-Encoding` is none that is spoken here. HTTP 415.
    #[error("content encoding '{0}' is not supported, expected identity, gzip or deflate")]
    UnsupportedEncoding(String),
    /// The body, decompressed, has more bytes than the server takes. HTTP 413.
    #[error("the body has more than the {limit_bytes} bytes that are allowed")]
    TooLarge {
        /// The bytes that a body may have after decompression.
        limit_bytes: usize,
    },
}

impl WireError {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// Says where an invalid part was found: `input 'x': …`.
    pub(crate) fn within(self, place: &str) -> Self {
        match self {
            Self::Invalid(message) => Self::Invalid(format!("{place}: {message}")),
            other => other,
        }
    }
}

/// The beginning of a client's text, short and printable, for a message.
pub(crate) fn excerpt(text: &str) -> String {
    const CHARS_MAX: usize = 64;
    // Quotes are left alone, because JSON is full of them; control characters are not.
    let printable = |c: char| match c {
        c if c.is_control() => c.escape_debug().collect(),
        c => String::from(c),
    };
    let mut short: String = text.chars().take(CHARS_MAX).map(printable).collect();
    if text.chars().nth(CHARS_MAX).is_some() {
        short.push('…');
    }
    short
}

/// The name of a tensor in a message.
pub(crate) fn place(role: &str, name: &str) -> String {
    format!("{role} '{}'", excerpt(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_and_printable() {
        assert_eq!(excerpt("[1, \"a\"]"), "[1, \"a\"]");
        assert_eq!(excerpt("a\nb\u{1b}"), "a\\nb\\u{1b}");
        assert_eq!(excerpt(&"é".repeat(64)), "é".repeat(64));
        assert_eq!(excerpt(&"é".repeat(65)), "é".repeat(64) + "…");
    }

    #[test]
    fn a_place_is_put_before_an_invalid_part_alone() {
        let invalid = WireError::invalid("too long").within("input 'x'");
        assert_eq!(invalid.to_string(), "input 'x': too long");
        let large = WireError::TooLarge { limit_bytes: 5 };
        assert_eq!(large.clone().within("input 'x'"), large);
    }
}
