//! Why a model cannot be loaded.

use std::fmt;

/// Why a model cannot be loaded; the model's owner's to mend.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file is missing or cannot be read.
    #[error("{file}: {reason}")]
    File {
        /// The file, as it was named.
        file: String,
        /// What went wrong.
        reason: String,
    },
    /// A file is not what it should be.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file, as it was named.
        file: String,
        /// What is wrong, and what was expected.
        reason: String,
    },
    /// A well-formed ONNX graph cannot be served; every reason is given.
    #[error("{file} cannot be served:{}", Lines(.blockers))]
    Refused {
        /// The file, as it was named.
        file: String,
        /// All that stands in the way, in file order.
        blockers: Vec<Blocker>,
    },
}

/// Something in an ONNX graph that stands in the way of serving it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Blocker {
    /// The ONNX operator, or `graph`, `input`, `output`, `initializer`.
    pub operator: String,
    /// The node's name, or `OP_k` where it has none; the tensor's name otherwise.
    pub node: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`: {}", self.operator, self.node, self.reason)
    }
}

struct Lines<'a>(&'a [Blocker]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|blocker| write!(f, "\n  {blocker}"))
    }
}
