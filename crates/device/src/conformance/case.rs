//! A case of the suite: a named rule, with the function that checks it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::conformance::subject::Subject;

/// The result of a check: a value, or a sentence that says what is wrong.
pub(super) type Check<T = ()> = Result<T, String>;

/// Returns an error from a check unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(super) use ensure;

/// The outcome of a case that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device keeps the rule.
    Passed,
    /// The device lacks an optional ability that the case needs: the reason.
    Skipped(String),
}

type Body = Box<dyn Fn(&dyn Subject) -> Check<Outcome> + Send + Sync>;

/// A rule, or a few that belong together, that devices are tested for.
pub struct Case {
    name: String,
    body: Body,
}

impl Case {
    /// A case that every device can do.
    pub(super) fn new(
        name: impl Into<String>,
        body: impl Fn(&dyn Subject) -> Check + Send + Sync + 'static,
    ) -> Self {
        Self::skippable(name, move |subject| body(subject).map(|()| Outcome::Passed))
    }

    /// A case that may find that the device need not pass it.
    pub(super) fn skippable(
        name: impl Into<String>,
        body: impl Fn(&dyn Subject) -> Check<Outcome> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), body: Box::new(body) }
    }

    /// The same case, for devices that run programs.
    pub(super) fn with_programs(self) -> Self {
        let Self { name, body } = self;
        let body: Body = Box::new(move |subject| match subject.runs_programs() {
            true => body(subject),
            false => Ok(Outcome::Skipped("runs no programs".to_owned())),
        });
        Self { name, body }
    }

    /// The same case, for devices with at least that number of `workers`.
    pub(super) fn with_workers(self, workers: usize) -> Self {
        let Self { name, body } = self;
        let body: Body = Box::new(move |subject| match subject.workers() >= workers {
            true => body(subject),
            false => Ok(Outcome::Skipped(format!("fewer than {workers} workers"))),
        });
        Self { name, body }
    }

    /// The name: the group of the case, a slash, and the rule.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the case. A panic of the device counts as its failure.
    ///
    /// # Errors
    /// A sentence that says which rule the device breaks.
    pub fn run(&self, subject: &dyn Subject) -> Result<Outcome, String> {
        catch_unwind(AssertUnwindSafe(|| (self.body)(subject))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panicked: {}", text.unwrap_or("no message")))
        })
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({})", self.name)
    }
}
