//! Errors of loading a model.

use std::collections::HashSet;
use std::fmt;

/// The reason that a model cannot be loaded, for its owner to mend.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file is missing or cannot be read.
    #[error("{file}: {reason}")]
    File {
        /// The file, as it was named.
        file: String,
        /// The fault.
        reason: String,
    },
    /// A file is not what it should be.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file, as it was named.
        file: String,
        /// The fault, and the expected form.
        reason: String,
    },
    /// A file cannot be cut into the stages that were asked for.
    #[error("{file}: its stages: {reason}")]
    Stages {
        /// The file, as it was named.
        file: String,
        /// The fault.
        reason: String,
    },
    /// A well-formed ONNX graph cannot be served; every reason is given.
    #[error("{file} cannot be served:{}{}", Lines(.diagnostics), Advice(.advice.as_deref()))]
    Refused {
        /// The file, as it was named.
        file: String,
        /// Every obstacle to serving it, in file order.
        diagnostics: Vec<Diagnostic>,
        /// What its owner may do without another file, if something is known to help.
        advice: Option<String>,
    },
}

impl LoadError {
    /// A refusal for the diagnostics, each once. Initializers that are missing for one reason, such as a file that is
    /// not there, are one diagnostic.
    pub(crate) fn refused(file: String, found: Vec<Diagnostic>) -> Self {
        let mut known = HashSet::new();
        let found: Vec<Diagnostic> =
            found.into_iter().filter(|diagnostic| known.insert(diagnostic.clone())).collect();
        let mut diagnostics: Vec<Diagnostic> = Vec::new();
        for diagnostic in &found {
            let is_like = |other: &&Diagnostic| {
                diagnostic.operator == "initializer"
                    && (&other.operator, &other.reason)
                        == (&diagnostic.operator, &diagnostic.reason)
            };
            match found.iter().filter(is_like).count() {
                0 | 1 => diagnostics.push(diagnostic.clone()),
                _ if diagnostics
                    .iter()
                    .any(|known| known.reason.starts_with(&diagnostic.reason)) => {}
                count => {
                    let reason = format!("{} (and so for {} more)", diagnostic.reason, count - 1);
                    diagnostics.push(Diagnostic { reason, ..diagnostic.clone() });
                }
            }
        }
        Self::Refused { file, diagnostics, advice: None }
    }

    /// A refusal with advice for the owner of the file.
    pub(crate) fn advised(self, advice: Option<String>) -> Self {
        match self {
            Self::Refused { file, diagnostics, .. } => Self::Refused { file, diagnostics, advice },
            other => other,
        }
    }
}

/// An obstacle in an ONNX graph to serving it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Diagnostic {
    /// The ONNX operator, or `graph`, `input`, `output`, `initializer`.
    pub operator: String,
    /// The node's name, or `OP_k` where it has none; the tensor's name otherwise.
    pub node: String,
    /// The reason.
    pub reason: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`: {}", self.operator, self.node, self.reason)
    }
}

struct Advice<'a>(Option<&'a str>);

impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|advice| write!(f, "\n  {advice}"))
    }
}

struct Lines<'a>(&'a [Diagnostic]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|diagnostic| write!(f, "\n  {diagnostic}"))
    }
}
