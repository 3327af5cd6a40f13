//! The report of a rule that was broken.

/// A broken rule: the checker that found it, and the finding in words.
pub(crate) struct Broken {
    pub(crate) checker: String,
    pub(crate) what: String,
}

/// A finding of `checker`.
pub(super) fn broken(checker: &str, what: impl ToString) -> Broken {
    Broken { checker: checker.to_owned(), what: what.to_string() }
}
