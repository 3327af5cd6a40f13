//! The layout of requests of one sequence, by which a load generator can draw them.

use std::fmt;
use std::str::FromStr;

/// A request tensor. Reads and prints as `[time, batch, 256] numbers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputLayout {
    /// Its axes.
    pub axes: Vec<Axis>,
    /// Its elements.
    pub content: Content,
    /// Whether a request may leave it out.
    pub optional: bool,
}

/// An axis of a request tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// An axis of this length in every request.
    Fixed(usize),
    /// An axis with a row for each sequence.
    Batch,
    /// An axis with a row for each step, or for each leaf of a tree.
    Time,
    /// An axis with a row for each inner node of a tree.
    Inner,
}

/// The values that the elements of a request tensor may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Anything of the tensor's type.
    Numbers,
    /// Integers from 0 to one less than this.
    Ids(u64),
    /// One string, each character of which is a step.
    Chars,
    /// One string, each word of which is a step.
    Words,
    /// Node ids: the children of a tree's inner nodes.
    Children,
}

impl InputLayout {
    /// The shape for one sequence of `length` steps.
    pub fn shape(&self, length: usize) -> Vec<usize> {
        let extent = |axis: &Axis| match *axis {
            Axis::Fixed(extent) => extent,
            Axis::Batch => 1,
            Axis::Time => length,
            Axis::Inner => length.saturating_sub(1),
        };
        self.axes.iter().map(extent).collect()
    }
}

impl fmt::Display for InputLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let axes: Vec<String> = self.axes.iter().map(Axis::to_string).collect();
        let optional = if self.optional { ", optional" } else { "" };
        write!(f, "[{}] {}{optional}", axes.join(", "), self.content)
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(extent) => write!(f, "{extent}"),
            Self::Batch => write!(f, "batch"),
            Self::Time => write!(f, "time"),
            Self::Inner => write!(f, "inner"),
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbers => write!(f, "numbers"),
            Self::Ids(count) => write!(f, "ids below {count}"),
            Self::Chars => write!(f, "chars"),
            Self::Words => write!(f, "words"),
            Self::Children => write!(f, "children"),
        }
    }
}

impl FromStr for InputLayout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.strip_prefix('[').and_then(|rest| rest.split_once("] "));
        let read = parts.and_then(|(axes, content)| {
            let axes = axes.split(", ").filter(|axis| !axis.is_empty());
            let axis = |axis| match axis {
                "batch" => Some(Axis::Batch),
                "time" => Some(Axis::Time),
                "inner" => Some(Axis::Inner),
                extent => extent.parse().ok().map(Axis::Fixed),
            };
            let (content, optional) = match content.strip_suffix(", optional") {
                Some(content) => (content, true),
                None => (content, false),
            };
            let content = match content {
                "numbers" => Content::Numbers,
                "chars" => Content::Chars,
                "words" => Content::Words,
                "children" => Content::Children,
                ids => Content::Ids(ids.strip_prefix("ids below ")?.parse().ok()?),
            };
            Some(Self { axes: axes.map(axis).collect::<Option<_>>()?, content, optional })
        });
        read.ok_or_else(|| format!("'{text}' is no layout like `[time, batch, 256] numbers`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_read_back() {
        for text in [
            "[time, batch, 256] numbers",
            "[batch, time] ids below 51",
            "[1] chars",
            "[] words",
            "[inner, 2] children",
            "[128] numbers, optional",
        ] {
            assert_eq!(text.parse::<InputLayout>().unwrap().to_string(), text);
        }
        for text in ["", "[time]", "[time] many", "[x] numbers", "[time] ids below x"] {
            assert!(text.parse::<InputLayout>().is_err(), "{text}");
        }
        let layout: InputLayout = "[time, batch, 256] numbers".parse().unwrap();
        assert_eq!(layout.shape(7), [7, 1, 256]);
    }
}
