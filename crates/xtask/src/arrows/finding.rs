//! A mistake that a check has found.

use std::fmt;

/// One arrow, circle, or line of a table that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    /// The crate's name in ARCHITECTURE.md.
    pub(super) crate_name: String,
    /// A file relative to the workspace, with a line if there is one.
    pub(super) place: String,
    /// The text of the line, and the reason that it is wrong.
    pub(super) text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}
