//! A mapping as text, `32x2_16x8`: units and rows of a block, then work groups and their lanes.

use std::fmt;
use std::str::FromStr;

use super::Mapping;

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tile_width, tile_height, groups, lanes } = self;
        write!(f, "{tile_width}x{tile_height}_{groups}x{lanes}")
    }
}

/// A text that is no mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no mapping: one is written as 32x2_16x8, units by rows of a block and work groups by lanes"
)]
pub struct NoMapping;

impl FromStr for Mapping {
    type Err = NoMapping;

    fn from_str(text: &str) -> Result<Self, NoMapping> {
        let pair = |text: &str| -> Option<(usize, usize)> {
            let (first, second) = text.split_once('x')?;
            // No mapping that a GPU runs has greater numbers.
            Some((first.parse::<u16>().ok()?.into(), second.parse::<u16>().ok()?.into()))
        };
        let read = || {
            let (tile, threads) = text.split_once('_')?;
            let ((tile_width, tile_height), (groups, lanes)) = (pair(tile)?, pair(threads)?);
            Some(Self { tile_width, tile_height, groups, lanes })
        };
        // Signs and zeros before a number are read, but not written.
        read().filter(|mapping| mapping.to_string() == text).ok_or(NoMapping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_read_back() {
        let mapping = Mapping { tile_width: 32, tile_height: 2, groups: 16, lanes: 8 };
        assert_eq!(mapping.to_string(), "32x2_16x8");
        assert_eq!("32x2_16x8".parse(), Ok(mapping));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "32x2", "32x2_16", "32x2_16x8_4", "32x+2_16x8", "032x2_16x8", "ax2_16x8"] {
            assert_eq!(text.parse::<Mapping>(), Err(NoMapping), "{text}");
        }
    }
}
